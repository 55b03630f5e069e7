"""What SessionStart does beyond capturing: it takes in what was left behind, and hands the digest to the client.

Without the database the last digest of the project is given, marked with its age and the reason. The start is
stored before the digest is printed: what is printed is the only place where a failure of that can be told.
"""

from __future__ import annotations

import os
import time

from agentmem import capture, digest, drain, jsonio, spool, store, sweep
from agentmem.clock import iso_time
from agentmem.errors import AgentmemError
from agentmem.git import Query
from agentmem.hook_run import in_full, told_as_waiting
from agentmem.jsonio import text_of
from agentmem.sources import projects_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentmem.hook_run import Run
    from agentmem.jsonio import Object
    from agentmem.paths import Paths
    from agentmem.payload import Payload
    from agentmem.project import Project
    from agentmem.settings import Settings
    from agentmem.store import Connection

_GIT_SECONDS = 0.25
_SWEEP_SHARE = 0.6
_MOST_MESSAGE = 1000


def start_session(
    run: Run, paths: Paths, known: Settings, given: Payload, place: Project, deadline: float
) -> AgentmemError | None:
    """The whole of it; the error that was told, or None."""
    query = Query(place, dict(os.environ))
    # A random word, so that nothing stored can contain it.
    marker = "memory-" + os.urandom(4).hex()
    connection: Connection | None = None
    unstored: AgentmemError | None = None
    left_behind: AgentmemError | None = None
    notes: list[str] = []
    waiting = 0
    try:
        run.stage = "connect"
        connection = store.connect(paths, known, deadline)
        run.stage = "sweep"
        waiting, left_behind = _catch_up(run, paths, known, connection, given, deadline)
        run.stage = "digest"
        found, notes = _ask(run, paths, known, connection, given, place, deadline)
    except AgentmemError as error:
        unstored = error
        found = digest.saved(paths, place.identity, run.started, error.message, place.root)
        waiting = len(spool.waiting(paths)) - 1
    notes += _spool_notes(waiting, len(spool.damaged(paths)))
    facts = query.finish(min(deadline, time.monotonic() + _GIT_SECONDS))

    def compose(problem: AgentmemError | None) -> tuple[str, str]:
        health = [in_full(problem), *notes] if problem else notes
        text = digest.compose(found, facts, health, text_of(given.values, "source"), place.name, marker)
        # The person sees this in the terminal; the model sees the same in the digest.
        message = "agentmem: " + digest.one_line("; ".join(health), _MOST_MESSAGE) if health else ""
        return text, message

    problem = run.failure or left_behind
    if connection and not unstored:
        text, _ = compose(problem)
        unstored, problem = _store_start(run, paths, known, connection, left_behind, text, deadline)
    if connection:
        connection.close()
    if unstored:
        problem = told_as_waiting(paths, run.failure or unstored)
    text, message = compose(problem)
    if unstored:
        run.defer(paths, unstored, text)
    try:
        run.answer(text, message)
    except OSError as error:
        gone = f"the client does not take what the hook prints: {error.strerror}"
        return run.break_down(paths, AgentmemError("stdout_closed", gone, "Was it ended meanwhile?"))
    return problem


def _catch_up(
    run: Run, paths: Paths, known: Settings, connection: Connection, given: Payload, deadline: float
) -> tuple[int, AgentmemError | None]:
    """Store what earlier hooks and killed clients left: it belongs into the digest. How many events stayed, and why."""
    spool.remove_old_drafts(paths, run.started)
    drained = drain.drain(connection, paths, known, deadline, skip=run.id)
    share = run.clock + (deadline - run.clock) * _SWEEP_SHARE
    projects = projects_dir(text_of(given.values, "transcript_path"))
    swept = sweep.sweep(connection, paths, known, run.client, projects, run.started, share)
    if swept.bytes_read:
        run.flags.append(f"swept_bytes={swept.bytes_read}")
    errors = [error for _, error in drained.errors] + swept.errors
    return drained.left, errors[0] if errors else None


def _ask(
    run: Run, paths: Paths, known: Settings, connection: Connection, given: Payload, place: Project, deadline: float
) -> tuple[digest.Known, list[str]]:
    """The database's part of the digest, kept for a time when it can't be asked, and unresolved failures."""
    values = given.values
    since = values.get("seconds_since_last_response")
    request: Object = {
        **capture.envelope(known, run.client),
        "host": known.host_id,
        "project": place.as_object(),
        "session": given.session,
        "source": text_of(values, "source"),
        "since": iso_time(run.started - since) if isinstance(since, (int, float)) and 0 <= since < 1e9 else None,
        "limit": digest.MOST_SESSIONS,
    }
    rows = connection.query("select agentmem.digest($1::jsonb)", [jsonio.dumps_clean(request)], deadline)
    answer = jsonio.as_object(jsonio.loads(rows[0][0] or "{}")) or {}
    if not text_of(answer, "since"):
        try:
            digest.save(paths, place.identity, answer, run.started)
        except AgentmemError as error:
            run.fail(error)
    return digest.Known(answer, root=place.root), _failure_notes(jsonio.object_of(answer, "failures"))


def _failure_notes(failures: Object) -> list[str]:
    count = jsonio.int_of(failures, "count")
    last = jsonio.object_of(failures, "last")
    if not count:
        return []
    runs = "1 hook run" if count == 1 else f"{count} hook runs"
    what = f"{text_of(last, 'event')}: {text_of(last, 'error')} [{text_of(last, 'code')}]"
    return [f"{runs} failed in the last 24 h, lastly {what}; see: agentmem log --failed"]


def _spool_notes(waiting: int, damaged: int) -> list[str]:
    notes: list[str] = []
    if waiting > 0:
        notes.append(f"events of earlier hooks that wait in the spool: {waiting}; see: agentmem status")
    if damaged:
        notes.append(f"events in the spool that can't be read: {damaged}; see: agentmem doctor")
    return notes


def _store_start(
    run: Run,
    paths: Paths,
    known: Settings,
    connection: Connection,
    left_behind: AgentmemError | None,
    text: str,
    deadline: float,
) -> tuple[AgentmemError | None, AgentmemError | None]:
    """Store the start with what is going to be given: why that failed, and what else is wrong."""
    if left_behind and not run.failure:
        run.stage = "sweep"
        row = run.row("failed", left_behind, text)
    else:
        row = run.last_row(text)
    try:
        stored = drain.store_record(connection, paths, known, run.record, row, deadline)
    except AgentmemError as error:
        run.stage = "capture"
        return error, None
    run.remove(paths)
    return None, run.failure or left_behind or (stored.errors[0] if stored.errors else None)
