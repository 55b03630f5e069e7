"""File locks (flock) with a deadline. The kernel drops a lock when its last holder ends, however it ends.

A lock belongs to the open file, so a child that inherits the descriptor holds it too: that is how we know,
without trusting any process id, whether something still has the server's data folder open.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def try_lock(path: str, *, shared: bool = False) -> int | None:
    """The open descriptor that holds the lock, or None when somebody else holds it. Closing it lets go."""
    descriptor = _open(path)
    try:
        _flock(descriptor, shared=shared, wait=False)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return descriptor


def wait_for_lock(path: str, deadline: float, *, shared: bool = False) -> int | None:
    """Like `try_lock`, but sleeps in the kernel until the lock is free or time.monotonic() reaches `deadline`."""
    descriptor = try_lock(path, shared=shared)
    if descriptor is not None:
        return descriptor
    left = deadline - time.monotonic()
    if left <= 0:
        return None
    return _Waiter(_open(path), shared=shared).wait(left)


def is_locked(path: str) -> bool:
    """Whether some process holds the lock now."""
    descriptor = try_lock(path)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def when_free(path: str, then: Callable[[], None]) -> None:
    """Call `then`, in another thread, once the lock is free."""
    import _thread

    descriptor = _open(path)

    def wait() -> None:
        _flock(descriptor, shared=True, wait=True)
        os.close(descriptor)
        then()

    _thread.start_new_thread(wait, ())


class _Waiter:
    """flock knows no deadline: a thread blocks in it, and whoever claims the outcome first decides."""

    __slots__ = ("_claim", "_descriptor", "_done", "_error", "_shared")

    def __init__(self, descriptor: int, *, shared: bool) -> None:
        import _thread

        self._descriptor = descriptor
        self._shared = shared
        self._error: OSError | None = None
        self._claim = _thread.allocate_lock()
        self._done = _thread.allocate_lock()
        self._done.acquire()
        _thread.start_new_thread(self._block, ())

    def _block(self) -> None:
        try:
            _flock(self._descriptor, shared=self._shared, wait=True)
        except OSError as error:
            self._error = error
        if self._claim.acquire(blocking=False):
            self._done.release()
        else:
            os.close(self._descriptor)

    def wait(self, seconds: float) -> int | None:
        # A lock's timeout is limited to about 49 days on some platforms.
        if not self._done.acquire(timeout=min(seconds, 1e6)):
            if self._claim.acquire(blocking=False):
                return None
            self._done.acquire()
        if self._error is not None:
            os.close(self._descriptor)
            raise self._error
        return self._descriptor


def _flock(descriptor: int, *, shared: bool, wait: bool) -> None:
    import fcntl

    fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))


def _open(path: str) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if os.geteuid() == 0:
        give_to_folder_owner(descriptor, path)
    return descriptor


def give_to_folder_owner(descriptor: int, path: str) -> None:
    """A file that root makes in somebody else's folder belongs to that person, who has to open it later."""
    folder = os.stat(os.path.dirname(path) or ".")
    if folder.st_uid != os.fstat(descriptor).st_uid:
        os.fchown(descriptor, folder.st_uid, folder.st_gid)
