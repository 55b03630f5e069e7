"""Replace a file whole: whoever reads it sees the old content or the new one, never a part."""

from __future__ import annotations

import os

from agentmem.locks import give_to_folder_owner


def replace_file(path: str, content: bytes, mode: int | None = None) -> None:
    """Write `content` to `path` by way of a draft in the same folder: written, synced, renamed.

    A symlink is followed, so that it stays one. `mode` None keeps the mode that the file has (0600 for a new
    one). OSError when it can't be done; the old file is then untouched and no draft is left.
    """
    publish(write_draft(path, content, mode), path)


def write_draft(path: str, content: bytes, mode: int | None = None) -> str:
    """The first half: a synced file beside the real one, for `publish`; its name. Who doesn't publish it removes it."""
    target = os.path.realpath(path)
    # Not by process id alone: two containers that share a folder may have the same.
    name = f".{os.path.basename(target)}.{os.getpid()}-{os.urandom(4).hex()}"
    draft = os.path.join(os.path.dirname(target), name)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    whole = False
    try:
        _take_after(target, descriptor, draft, mode)
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
        whole = True
    finally:
        os.close(descriptor)
        if not whole:
            os.unlink(draft)
    return draft


def publish(draft: str, path: str) -> None:
    """The second half: the draft becomes the file. OSError: it could not, and the draft is gone."""
    target = os.path.realpath(path)
    try:
        os.replace(draft, target)
    except OSError:
        os.unlink(draft)
        raise
    folder = os.open(os.path.dirname(target), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _take_after(target: str, descriptor: int, draft: str, mode: int | None) -> None:
    """Give the draft the mode of the file that it will replace and, when root writes, its owner."""
    try:
        old = os.stat(target)
    except FileNotFoundError:
        if os.geteuid() == 0:
            give_to_folder_owner(descriptor, draft)
        os.fchmod(descriptor, 0o600 if mode is None else mode)
        return
    if os.geteuid() == 0:
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, old.st_mode & 0o777 if mode is None else mode)
