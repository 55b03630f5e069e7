"""agentmem's settings file, written: one setting set in its place, every other line left as it is."""

from __future__ import annotations

import io

from dotenv.parser import parse_stream

from agentmem.errors import SettingsError
from agentmem.replace import replace_file

_HEAD = "# Settings of agentmem; the README lists them.\n"


def make(path: str) -> bool:
    """Create the file, for its owner only, when it is not there; whether it had to be created."""
    if _read(path) is not None:
        return False
    replace_file(path, _HEAD.encode(), 0o600)
    return True


def set_value(path: str, name: str, value: str) -> None:
    """Set one setting where it stands, or at the end; SettingsError `settings_unreadable` when that can't be done.

    The file is made when it is not there, and is for its owner only afterwards: it may hold a password.
    """
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    line = f"{name}='{quoted}'\n"
    written = False
    parts: list[str] = []
    known = _read(path)
    for binding in parse_stream(io.StringIO(_HEAD if known is None else known)):
        original = binding.original.string
        if binding.key != name:
            parts.append(original)
        elif not written:
            # Blank lines before a setting belong to it.
            parts.append(original[: len(original) - len(original.lstrip())] + line)
            written = True
    text = "".join(parts)
    if not written:
        text += ("" if not text or text.endswith("\n") else "\n") + line
    replace_file(path, text.encode(), 0o600)


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", newline="") as stream:
            return stream.read()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError("settings_unreadable", f"{path} can't be read: {error}", "Mend the file.") from error
