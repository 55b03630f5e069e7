"""What this machine remembers of how far transcripts are committed, so that a hook need not ask first.

A hint saves a round trip, nothing else: the database decides, and answers `stale` when a hint is wrong. So a hint
may be lost, torn or old, it is not synced, and there are at most 256 of them: files share them by hash.
"""

from __future__ import annotations

import os

from agentmem import jsonio
from agentmem.hashing import hexdigest
from agentmem.paths import Paths, make_private

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentmem.jsonio import Object


class Hints:
    """The hints for one database."""

    __slots__ = ("_folder",)

    def __init__(self, paths: Paths, database_url: str) -> None:
        self._folder = os.path.join(paths.cache, "positions", hexdigest(database_url.encode())[:8])

    def get(self, path: str) -> Object | None:
        """The last known position of a transcript (as agentmem.positions gives it), or None."""
        try:
            with open(self._file(path), "rb") as stream:
                hint = jsonio.as_object(jsonio.loads(stream.read().decode("utf-8", "replace")))
        except (OSError, ValueError):
            # Asking the database is always right.
            return None
        return hint if hint and hint.get("path") == path else None

    def put(self, path: str, position: Object) -> None:
        """Remember a position that was committed, if that can be done."""
        raw = jsonio.dumps_ascii({**position, "path": path}).encode("ascii")
        try:
            self._write(path, raw)
        except OSError:
            # On a full or read-only disk: the database is asked next time. Failing here would undo nothing.
            return

    def _write(self, path: str, raw: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        try:
            descriptor = os.open(self._file(path), flags, 0o600)
        except FileNotFoundError:
            make_private(self._folder)
            descriptor = os.open(self._file(path), flags, 0o600)
        try:
            os.write(descriptor, raw)
        finally:
            os.close(descriptor)

    def _file(self, path: str) -> str:
        return os.path.join(self._folder, hexdigest(path.encode("utf-8", "surrogateescape"))[:2])
