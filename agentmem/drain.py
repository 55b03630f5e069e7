"""Draining the spool: each waiting event is captured, committed, and only then removed.

A hook stores its own event itself; what hooks that have ended left behind is taken by whoever comes next, each event
by one process. One that can't be stored does not hold up the next: it stays, with its error and the number of tries
written into it.
"""

from __future__ import annotations

import os
import time

from agentmem import capture, spool
from agentmem.errors import LOST, AgentmemError, SpoolError, internal_error
from agentmem.hints import Hints
from agentmem.jsonio import int_of, list_of, object_of, text_of
from agentmem.sources import sources_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentmem.jsonio import Object
    from agentmem.paths import Paths
    from agentmem.settings import Settings
    from agentmem.store import Connection


_BEFORE_TRANSCRIPT = ("SessionStart", "UserPromptSubmit")
"""Events at which a new session has no transcript yet; later on, it is odd."""


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
    if key and not sources and text_of(record, "event") not in _BEFORE_TRANSCRIPT:
        run = {**run, "flags": [*list_of(run, "flags"), "no_transcript"]}
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

    Records of hooks that still run, or that another process is storing, are theirs. `progress` is called with the
    name of each record that was dealt with.
    """
    done = Drained()
    names = [name for name in spool.waiting(paths) if name != skip]
    for place, name in enumerate(names):
        if time.monotonic() > deadline or not _drain_one(connection, paths, settings, name, deadline, done):
            done.left += len(names) - place
            break
        if progress:
            progress(name)
    return done


def _drain_one(
    connection: Connection, paths: Paths, settings: Settings, name: str, deadline: float, done: Drained
) -> bool:
    """Store one record; False when there is no sense in trying the next."""
    try:
        taken = spool.take(paths, name)
    except SpoolError as error:
        done.errors.append((name, error))
        done.left += error.code != "spool_damaged"
        return True
    if taken is None:
        return True
    record, claim = taken
    failure: AgentmemError | None = None
    try:
        store_record(connection, paths, settings, record, object_of(record, "run"), deadline)
        spool.remove(paths, name)
        done.stored += 1
    except AgentmemError as error:
        failure = error
    except Exception as error:  # noqa: BLE001 - boundary: one record must not hold up the others
        failure = internal_error(error)
    finally:
        os.close(claim)
    if failure is None:
        return True
    done.errors.append((name, failure))
    if failure.code in LOST:
        return False
    done.left += 1
    note_failure(paths, name, record, failure)
    return True


def note_failure(paths: Paths, name: str, record: Object, error: AgentmemError) -> None:
    """Write into a record why it could not be stored, and how often that was tried."""
    if os.path.exists(os.path.join(paths.spool, name + ".json")):
        tries = int_of(record, "tries") + 1
        last_error = f"{error.code}: {error.message}"
        os.close(spool.put(paths, name, {**record, "tries": tries, "last_error": last_error}))
