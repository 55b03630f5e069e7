"""Replace a file whole: whoever reads it sees the old content or the new one, never a part."""

from __future__ import annotations

import os


def replace_file(path: str, content: bytes, mode: int | None = None) -> None:
    """Write `content` to `path` by way of a draft in the same folder: written, synced, renamed.

    A symlink is followed, so that it stays one. `mode` None keeps the mode that the file has (0600 for a new
    one). OSError when it can't be done; the old file is then untouched and no draft is left.
    """
    target = os.path.realpath(path)
    if mode is None:
        mode = os.stat(target).st_mode & 0o777 if os.path.exists(target) else 0o600
    draft = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        try:
            os.fchmod(descriptor, mode)
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(draft, target)
    except OSError:
        os.unlink(draft)
        raise
    folder = os.open(os.path.dirname(target), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
