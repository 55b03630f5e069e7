"""The embedded server's log: what Postgres, initdb and the idle watch write, and what a failure quotes from it."""

from __future__ import annotations

import os

from agentmem.locks import give_to_folder_owner

_BIGGEST = 4 << 20
_QUOTED = 1500


def open_log(path: str) -> int:
    """A descriptor for appending. A big log is set aside first, so that there are at most two of that size."""
    if size(path) > _BIGGEST:
        os.replace(path, f"{path}.old")
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if os.geteuid() == 0:
        give_to_folder_owner(descriptor, path)
    return descriptor


def size(path: str) -> int:
    """The log's size in bytes, 0 when there is none."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def since(path: str, start: int) -> str:
    """The end of what was logged after the first `start` bytes."""
    with open(path, "rb") as stream:
        end = stream.seek(0, os.SEEK_END)
        stream.seek(max(start, end - _QUOTED))
        return stream.read().decode("utf-8", "replace").strip()
