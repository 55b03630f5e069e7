"""The spool: events on disk, synced, before anything else is tried with them.

One file a record, named by an id that sorts by time; written under another name, synced, renamed, and the
folder synced too. A record is small: the transcript is its own log. It is removed when the database has
committed it. Records that can't be read are set aside under `damaged`, never dropped.

The hook that wrote a record holds a lock on the file while it lives, and so does whoever stores it for a hook that
has ended: a lock ends with its process, however that ends.
"""

from __future__ import annotations

import errno
import os

from agentmem import jsonio
from agentmem.errors import SpoolError
from agentmem.paths import Paths, make_private

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentmem.jsonio import Object

_SUFFIX = ".json"
_DRAFT_SECONDS = 3600


def put(paths: Paths, name: str, record: Object) -> int:
    """Write (or replace) the record `name`; on return it is on disk. SpoolError `spool_unwritable` otherwise.

    The result is a descriptor: while it is open, no other process takes the record.
    """
    target = os.path.join(paths.spool, name + _SUFFIX)
    draft = os.path.join(paths.spool, f".{name}.{os.getpid()}")
    try:
        raw = jsonio.dumps_ascii(record).encode("ascii")
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        except FileNotFoundError:
            make_private(paths.spool)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _lock(descriptor)
            write_all(descriptor, raw)
            os.fsync(descriptor)
            os.replace(draft, target)
            sync_folder(paths.spool)
        except OSError:
            os.close(descriptor)
            raise
    except OSError as error:
        _remove_draft(draft)
        raise SpoolError(
            "spool_unwritable",
            f"the event can't be written to {paths.spool}: {error.strerror}",
            "Make room, or mend the folder's owner and mode.",
        ) from error
    return descriptor


def _lock(descriptor: int) -> bool:
    """Lock a record's file for this process; False when another one holds it."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_all(descriptor: int, raw: bytes) -> None:
    """Write every byte; a short write is gone on with, a full disk is an OSError."""
    view = memoryview(raw)
    while view:
        written = os.write(descriptor, view)
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = view[written:]


def sync_folder(folder: str) -> None:
    """Make a rename in this folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_draft(draft: str) -> None:
    if os.path.exists(draft):
        os.unlink(draft)


def waiting(paths: Paths) -> list[str]:
    """Names of the records that wait, oldest first."""
    try:
        names = os.listdir(paths.spool)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [name[: -len(_SUFFIX)] for name in names if name.endswith(_SUFFIX) and not name.startswith(".")]
    found.sort()
    return found


def get(paths: Paths, name: str) -> Object | None:
    """A record, to look at; None when it is gone. SpoolError `spool_damaged`: it is not JSON, and was set aside."""
    try:
        with open(os.path.join(paths.spool, name + _SUFFIX), "rb") as stream:
            raw = stream.read()
    except FileNotFoundError:
        return None
    return _parse(paths, name, raw)


def take(paths: Paths, name: str) -> tuple[Object, int] | None:
    """A record, to store it, and the descriptor that keeps others off; None when it is gone or another's.

    SpoolError: `spool_damaged` as `get`; `spool_unreadable`.
    """
    try:
        descriptor = os.open(os.path.join(paths.spool, name + _SUFFIX), os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(name, error) from error
    try:
        # One that was stored or replaced between opening and locking has no name any more.
        if not _lock(descriptor) or os.fstat(descriptor).st_nlink == 0:
            os.close(descriptor)
            return None
        with open(descriptor, "rb", closefd=False) as stream:
            return _parse(paths, name, stream.read()), descriptor
    except SpoolError:
        os.close(descriptor)
        raise
    except OSError as error:
        os.close(descriptor)
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: OSError) -> SpoolError:
    return SpoolError(
        "spool_unreadable",
        f"spool record {name} can't be read: {error.strerror}",
        "Mend its owner and mode: did another user run the client with this home folder?",
    )


def _parse(paths: Paths, name: str, raw: bytes) -> Object:
    try:
        record = jsonio.as_object(jsonio.loads(raw.decode("utf-8")))
    except ValueError:
        record = None
    if record is None:
        aside = os.path.join(paths.spool, "damaged")
        make_private(aside)
        os.replace(os.path.join(paths.spool, name + _SUFFIX), os.path.join(aside, name + _SUFFIX))
        raise SpoolError(
            "spool_damaged", f"spool record {name} is not JSON", f"It was set aside: look into {aside}, then delete it."
        )
    return record


def remove(paths: Paths, name: str) -> None:
    """Forget a record that is committed; one that is gone already is fine."""
    try:
        os.unlink(os.path.join(paths.spool, name + _SUFFIX))
    except FileNotFoundError:
        return


def damaged(paths: Paths) -> list[str]:
    """Names of the records that were set aside."""
    try:
        return sorted(os.listdir(os.path.join(paths.spool, "damaged")))
    except (FileNotFoundError, NotADirectoryError):
        return []


def remove_old_drafts(paths: Paths, now: float) -> int:
    """Remove drafts that killed processes left, older than an hour (`now`: seconds since 1970); how many."""
    removed = 0
    for folder in (paths.spool, paths.cache, os.path.join(paths.cache, "digests"), paths.state):
        for draft in _drafts(folder):
            try:
                if now - os.stat(draft).st_mtime > _DRAFT_SECONDS:
                    os.unlink(draft)
                    removed += 1
            except FileNotFoundError:
                # It was finished, or another process removes old ones, too.
                continue
    return removed


def _drafts(folder: str) -> list[str]:
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [os.path.join(folder, name) for name in names if name.startswith(".")]
