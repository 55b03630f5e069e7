"""What a file of the user's was before agentmem first changed it, so that those very bytes can be given back.

One note for each file, private to its owner: the original bytes, and the hash of what we wrote. They are given back
only while the file still has that hash: after that it is somebody else's work too.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import NamedTuple

from agentmem.errors import SettingsError
from agentmem.paths import make_private
from agentmem.replace import replace_file


class Kept(NamedTuple):
    """A note: the bytes of before (None: there was no file), and the SHA-256 of what we made of them."""

    original: bytes | None
    written: str

    def is_ours(self, raw: bytes | None) -> bool:
        """Whether these bytes are what we wrote."""
        return raw is not None and hashlib.sha256(raw).hexdigest() == self.written


def load(path: str, folder: str) -> Kept | None:
    """The note about the file, None when there is none; SettingsError `kept_damaged` when it can't be read."""
    note = note_file(path, folder)
    try:
        with open(note, encoding="utf-8") as stream:
            known = json.load(stream)
        original = known["original"]
        return Kept(None if original is None else bytes.fromhex(original), known["written"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SettingsError(
            "kept_damaged", f"{note}, the copy of {path} from before, can't be read: {error}", "Remove that copy."
        ) from error


def save(path: str, folder: str, original: bytes | None, written: bytes) -> None:
    """Note what the file was and what it becomes; called before it is written."""
    make_private(folder)
    note = {
        "path": path,
        "original": None if original is None else original.hex(),
        "written": hashlib.sha256(written).hexdigest(),
    }
    replace_file(note_file(path, folder), json.dumps(note).encode(), 0o600)


def forget(path: str, folder: str) -> None:
    """Remove the note, if there is one."""
    if os.path.exists(note_file(path, folder)):
        os.unlink(note_file(path, folder))


def note_file(path: str, folder: str) -> str:
    """Where the note about a file is."""
    name = hashlib.sha256(os.fsencode(os.path.abspath(path))).hexdigest()[:16]
    return os.path.join(folder, f"{name}.json")
