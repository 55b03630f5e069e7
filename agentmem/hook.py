"""What a hook does: read, parse, spool, store, say so. The shims in `hooks/` call `main` and nothing else.

Whatever happens, the run becomes a row in agentmem.hook_runs: at once, or from the spool later. Exit code 0 means
committed. 1 means that something is wrong and was said; never 2, by which the client would change the turn.
"""

from __future__ import annotations

import os
import time

from agentmem import drain, payload, settings, store
from agentmem.errors import AgentmemError, PayloadError, SettingsError, SpoolError, internal_error
from agentmem.hook_run import Run, told_as_waiting
from agentmem.jsonio import text_of
from agentmem.paths import Paths, find_paths
from agentmem.project import Project, find_project, head_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from agentmem.jsonio import Object
    from agentmem.payload import Payload
    from agentmem.settings import Settings

_STDIN_SECONDS = 2.0
_WATCHDOG_EXTRA_SECONDS = 3.0
_MOST_ANSWER = 4000


def main(kind: str, arguments: list[str]) -> NoReturn:
    """Run a hook of this kind (capture, session_start) with the arguments it was registered with; ends the process."""
    _fill_stdio()
    client = arguments[0] if arguments else "unknown"
    event = arguments[1] if len(arguments) > 1 else "unknown"
    home = arguments[3] if arguments[2:3] == ["--home"] and len(arguments) > 3 else ""
    run = Run(kind, client, event, time.time(), time.monotonic())
    paths: Paths | None = None
    error: AgentmemError | None = None
    try:
        paths = find_paths(dict(os.environ), home)
        error = _run(run, paths)
    except AgentmemError as failure:
        error = failure
    except Exception as failure:  # noqa: BLE001 - the outer boundary: it is reported, and the hook fails
        error = run.break_down(paths, internal_error(failure))
    if error:
        run.tell(error)
    os._exit(1 if error else 0)


def _fill_stdio() -> None:
    """Open what is closed of 0, 1 and 2: else a record or a socket would get that number, and messages with it."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        continue
    os.close(descriptor)


def _run(run: Run, paths: Paths) -> AgentmemError | None:
    """The whole run; the error that the person is to be told, or None."""
    given: Payload | None = None
    place: Project | None = None
    try:
        raw, closed = payload.read(0, run.clock + _STDIN_SECONDS)
        run.size = len(raw)
        run.stage = "parse"
        if not closed:
            run.flags.append("not_closed")
        given = payload.parse(raw)
        place = _describe(run, given)
    except PayloadError as error:
        run.fail(error)
    run.stage = "spool"
    # As it stands if this process is ended before it can do better.
    ended = AgentmemError("hook_ended", "the hook was ended before it could store")
    try:
        run.put(paths, run.last_row() if run.failure else run.row("deferred", ended))
    except SpoolError as error:
        # The database may take it all the same.
        run.fail(error)
    try:
        known = settings.load(paths)
    except SettingsError as error:
        return run.defer(paths, error)
    _arm_watchdog(run, paths, known.hook_seconds + _WATCHDOG_EXTRA_SECONDS)
    deadline = run.clock + known.hook_seconds
    if run.kind == "session_start" and given is not None and place is not None:
        from agentmem.hook_start import start_session

        return start_session(run, paths, known, given, place, deadline)
    return _store(run, paths, known, deadline)


def _describe(run: Run, given: Payload) -> Project | None:
    """Fill the record with what the payload says; where the session runs. PayloadError when it says too little."""
    values = given.values
    run.flags.extend(given.flags)
    run.session = given.session[: payload.MOST_KEY]
    if given.event and given.event != run.event:
        run.flags.append("other_event")
    if not given.session:
        raise PayloadError("session_id_missing", "the payload names no session", "See the client's own log.")
    if run.session != given.session:
        raise PayloadError("session_id_too_long", "what the payload names is no session id", "See its log.")
    cwd = text_of(values, "cwd")
    place = find_project(cwd) if cwd else None
    branch, head = head_of(place) if place else (None, None)
    session: Object = {
        "key": given.session,
        "at": run.record["at"],
        "cwd": cwd or None,
        "project": place.as_object() if place else None,
        "git_branch": branch,
        "git_head": head,
        "source": text_of(values, "source") or None,
        "model": text_of(values, "model") or None,
        "title": text_of(values, "session_title") or None,
        "end_reason": (text_of(values, "reason") or "unknown") if run.event == "SessionEnd" else None,
        "last_answer": text_of(values, "last_assistant_message")[:_MOST_ANSWER] or None
        if run.event == "Stop"
        else None,
    }
    run.record["session"] = session
    run.record["transcript"] = text_of(values, "transcript_path")
    if place is None and run.kind == "session_start":
        raise PayloadError("cwd_missing", "the payload names no folder, so no project", "See the client's own log.")
    return place


def _store(run: Run, paths: Paths, known: Settings, deadline: float) -> AgentmemError | None:
    """Capture what the event announces, then what waits from before."""
    run.stage = "connect"
    try:
        connection = store.connect(paths, known, deadline)
    except AgentmemError as error:
        return run.defer(paths, error)
    try:
        stored = drain.store_record(connection, paths, known, run.record, run.last_row(), deadline)
        run.remove(paths)
        drain.drain(connection, paths, known, deadline, skip=run.id)
    except AgentmemError as error:
        run.stage = "capture"
        return run.defer(paths, error)
    finally:
        connection.close()
    return run.failure or (stored.errors[0] if stored.errors else None)


def _arm_watchdog(run: Run, paths: Paths, seconds: float) -> None:
    """End this process when it hangs where no deadline reaches; its event is in the spool by now.

    A thread and no signal: looking up the database's host name is one call into C, and Python would see to the
    signal after its end.
    """
    import _thread

    bell = _thread.allocate_lock()
    bell.acquire()

    def watch() -> None:
        bell.acquire(timeout=seconds)
        error = AgentmemError("hook_hung", f"the hook hung in stage {run.stage} and was ended", "See: agentmem log")
        try:
            run.tell(told_as_waiting(paths, error))
            run.defer(paths, error)
        finally:
            os._exit(1)

    _thread.start_new_thread(watch, ())
