"""Draining the spool: each waiting event is captured, committed, and only then removed.

A hook stores its own event itself; what others left behind is taken by one process at a time. One event that
can't be stored does not hold up the next: it stays, with its error and the number of tries written into it.
"""

from __future__ import annotations

import os
import time

from agentmem import capture, spool
from agentmem.errors import LOST, AgentmemError, DatabaseError, SpoolError
from agentmem.hints import Hints
from agentmem.jsonio import int_of, object_of, text_of
from agentmem.paths import Paths, make_private
from agentmem.sources import sources_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentmem.jsonio import Object
    from agentmem.settings import Settings
    from agentmem.store import Connection


class Drained:
    """What a drain did: records stored, records left, and the errors of those that were tried."""

    __slots__ = ("errors", "left", "stored")

    def __init__(self) -> None:
        self.stored = 0
        self.left = 0
        self.errors: list[tuple[str, AgentmemError]] = []


def store_record(
    connection: Connection, paths: Paths, settings: Settings, record: Object, run: Object, deadline: float
) -> capture.Stored:
    """Capture what one record announces, with the row of its run."""
    session = object_of(record, "session")
    key = text_of(session, "key")
    path = text_of(record, "transcript")
    sources = sources_of(key, path) if key and path else []
    about = capture.envelope(settings, text_of(record, "client"))
    return capture.capture(connection, about, session, sources, run, deadline, Hints(paths, settings.database_url))


def drain(
    connection: Connection,
    paths: Paths,
    settings: Settings,
    deadline: float,
    *,
    skip: str = "",
    progress: Callable[[str], None] | None = None,
) -> Drained:
    """Store every waiting record but `skip` until the deadline (time.monotonic()).

    When another process drains already, nothing is done. `progress` is called with each record's name.
    """
    done = Drained()
    names = [name for name in spool.waiting(paths) if name != skip]
    if not names:
        return done
    lock = _take_lock(paths)
    if lock is None:
        done.left = len(names)
        return done
    try:
        for place, name in enumerate(names):
            if time.monotonic() > deadline or not _drain_one(connection, paths, settings, name, deadline, done):
                done.left += len(names) - place
                break
            if progress:
                progress(name)
    finally:
        os.close(lock)
    return done


def _drain_one(
    connection: Connection, paths: Paths, settings: Settings, name: str, deadline: float, done: Drained
) -> bool:
    """Store one record; False when there is no sense in trying the next."""
    try:
        record = spool.get(paths, name)
        if record is None:
            return True
        try:
            store_record(connection, paths, settings, record, object_of(record, "run"), deadline)
        except DatabaseError as error:
            done.errors.append((name, error))
            done.left += 1
            note_failure(paths, name, record, error)
            return error.code not in LOST
        except Exception as error:  # noqa: BLE001 - boundary: one record must not hold up the others
            internal = internal_error(error)
            done.errors.append((name, internal))
            done.left += 1
            note_failure(paths, name, record, internal)
            return True
        spool.remove(paths, name)
        done.stored += 1
    except SpoolError as error:
        done.errors.append((name, error))
    return True


def note_failure(paths: Paths, name: str, record: Object, error: AgentmemError) -> None:
    """Write into a record why it could not be stored, and how often that was tried."""
    if os.path.exists(os.path.join(paths.spool, name + ".json")):
        tries = int_of(record, "tries") + 1
        spool.put(paths, name, {**record, "tries": tries, "last_error": f"{error.code}: {error.message}"})


def internal_error(error: BaseException) -> AgentmemError:
    """A mistake of our own as an error with a code: where it happened, without any content."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace else "?"
    return AgentmemError(
        "internal_error", f"{type(error).__name__} at {where}", "Please report it, with the output of: agentmem log"
    )


def _take_lock(paths: Paths) -> int | None:
    """The drain lock, held until its descriptor is closed; None when another process holds it."""
    import fcntl

    make_private(paths.state)
    descriptor = os.open(os.path.join(paths.state, "drain.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
