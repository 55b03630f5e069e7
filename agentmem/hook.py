"""What a hook does: read, parse, spool, store, say so. The shims in `hooks/` call `main` and nothing else.

Whatever happens, the run becomes a row in agentmem.hook_runs: at once, or from the spool later. Exit code 0 means
committed. 1 means that something is wrong and was said on stderr (which the client shows); never 2, by which the
client would change the turn. At SessionStart the client drops the digest of a failed hook unless it is JSON, so
it is always JSON, and what is wrong stands in it too.
"""

from __future__ import annotations

import os
import sys
import time

from agentmem import capture, digest, drain, jsonio, payload, settings, spool, store, sweep
from agentmem.clock import iso_time
from agentmem.errors import AgentmemError, SettingsError, internal_error
from agentmem.git import Query
from agentmem.jsonio import text_of
from agentmem.paths import Paths, find_paths
from agentmem.project import Project, find_project, head_of
from agentmem.sources import projects_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from agentmem.jsonio import Json, Object
    from agentmem.payload import Payload
    from agentmem.settings import Settings
    from agentmem.store import Connection

_STDIN_SECONDS = 2.0
_CONNECT_SECONDS = 2.0
_GIT_SECONDS = 0.25
_SWEEP_SHARE = 0.6
_WATCHDOG_EXTRA_SECONDS = 3.0
_MOST_ANSWER = 4000


class Run:
    """One run of a hook: what is known of it so far, and its row to be."""

    def __init__(self, client: str, event: str, now: float, clock: float) -> None:
        self.client = client
        self.event = event
        self.started = now
        self.clock = clock
        self.id = settings.new_id(now)
        self.stage = "read"
        self.session = ""
        self.flags: list[str] = []
        self.size = 0

    def row(self, outcome: str, error: AgentmemError | None = None, output: str | None = None) -> Object:
        """As agentmem.store_run takes it."""
        flags: list[Json] = [*self.flags]
        return {
            "id": self.id,
            "event": self.event,
            "session": self.session,
            "started_at": iso_time(self.started),
            "duration_ms": round((time.monotonic() - self.clock) * 1000, 2),
            "outcome": outcome,
            "stage": self.stage,
            "error_code": error.code if error else None,
            "error": error.message if error else None,
            "flags": flags,
            "bytes_in": self.size,
            "output": output,
        }


def main(kind: str, arguments: list[str]) -> NoReturn:
    """Run a hook of this kind (capture, session_start) with the arguments it was registered with; ends the process."""
    now, clock = time.time(), time.monotonic()
    client = arguments[0] if arguments else "unknown"
    event = arguments[1] if len(arguments) > 1 else "unknown"
    home = arguments[3] if arguments[2:3] == ["--home"] and len(arguments) > 3 else ""
    run = Run(client, event, now, clock)
    error: AgentmemError | None = None
    try:
        paths = find_paths(dict(os.environ), home)
        error = _run(kind, run, paths)
    except AgentmemError as failure:
        error = failure
    except Exception as failure:  # noqa: BLE001 - the outer boundary: it is reported, and the hook fails
        error = internal_error(failure)
    if error:
        _say(run, error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if error else 0)


def _say(run: Run, error: AgentmemError) -> None:
    text = f"agentmem: {run.event}: {error}"
    if error.hint:
        text += f" - {error.hint}"
    os.write(2, jsonio.clean_text(text)[0].encode("utf-8", "replace") + b"\n")


def _run(kind: str, run: Run, paths: Paths) -> AgentmemError | None:
    """The whole run; the error that the person is to be told, or None."""
    raw, closed = payload.read(0, run.clock + _STDIN_SECONDS)
    run.size = len(raw)
    run.stage = "parse"
    record: Object = {"id": run.id, "client": run.client, "event": run.event, "at": iso_time(run.started)}
    failure: AgentmemError | None = None
    given: Payload | None = None
    place: Project | None = None
    try:
        given = payload.parse(raw, closed)
        place = _describe(run, record, given)
    except AgentmemError as error:
        failure = error
        record["run"] = run.row("failed", error)
    run.stage = "spool"
    if failure is None:
        # As it stands if this process is ended before it can do better.
        record["run"] = run.row("deferred", AgentmemError("hook_ended", "the hook was ended before it could store"))
    spool.put(paths, run.id, record)
    try:
        known = settings.load(paths)
    except SettingsError as error:
        return _defer(run, paths, record, failure or error)
    _arm_watchdog(run, known.hook_seconds + _WATCHDOG_EXTRA_SECONDS)
    deadline = run.clock + known.hook_seconds
    if kind == "session_start" and given is not None and place is not None:
        return _start_session(run, paths, known, record, given, place, deadline)
    return _store(run, paths, known, record, failure, deadline)


def _describe(run: Run, record: Object, given: Payload) -> Project | None:
    """Fill the record with what the payload says; where the session runs."""
    values = given.values
    run.flags.extend(given.flags)
    run.session = given.session
    if given.event and given.event != run.event:
        run.flags.append("other_event")
    if not given.session:
        raise AgentmemError("session_id_missing", "the payload names no session", "See the client's own log.")
    cwd = text_of(values, "cwd")
    place = find_project(cwd) if cwd else None
    branch, head = head_of(place) if place else (None, None)
    session: Object = {
        "key": given.session,
        "at": iso_time(run.started),
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
    record["session"] = session
    record["transcript"] = text_of(values, "transcript_path")
    return place


def _store(
    run: Run, paths: Paths, known: Settings, record: Object, failure: AgentmemError | None, deadline: float
) -> AgentmemError | None:
    """Capture what the event announces, then what waits from before."""
    run.stage = "connect"
    try:
        connection = store.connect(paths, known, min(deadline, time.monotonic() + _CONNECT_SECONDS))
    except AgentmemError as error:
        return _defer(run, paths, record, failure or error)
    try:
        run.stage = "capture"
        row = run.row("failed", failure) if failure else run.row("ok")
        row["stage"] = record_stage(record) if failure else "done"
        stored = drain.store_record(connection, paths, known, record, row, deadline)
        spool.remove(paths, run.id)
        drain.drain(connection, paths, known, deadline, skip=run.id)
    except AgentmemError as error:
        return _defer(run, paths, record, failure or error)
    finally:
        connection.close()
    return failure or (stored.errors[0] if stored.errors else None)


def record_stage(record: Object) -> str:
    """The stage that stands in a record's own run."""
    return text_of(jsonio.object_of(record, "run"), "stage")


def _defer(run: Run, paths: Paths, record: Object, error: AgentmemError, output: str | None = None) -> AgentmemError:
    """Leave the event in the spool with its run's row and the error; the error as the person is to be told it."""
    failed = text_of(jsonio.object_of(record, "run"), "outcome") == "failed"
    if not failed:
        record["run"] = run.row("deferred", error, output)
    spool.put(paths, run.id, record)
    waiting = len(spool.waiting(paths))
    events = "1 event waits" if waiting == 1 else f"{waiting} events wait"
    return AgentmemError(error.code, f"{error.message} ({events} in the spool, nothing is lost)", error.hint)


def _start_session(
    run: Run, paths: Paths, known: Settings, record: Object, given: Payload, place: Project, deadline: float
) -> AgentmemError | None:
    """Sweep, then print the digest; without the database the last one, marked with its age and the reason."""
    query = Query(place, dict(os.environ))
    connection: Connection | None = None
    failure: AgentmemError | None = None
    left_behind: AgentmemError | None = None
    waiting = 0
    health: list[str] = []
    try:
        run.stage = "connect"
        connection = store.connect(paths, known, min(deadline, time.monotonic() + _CONNECT_SECONDS))
        run.stage = "sweep"
        waiting, left_behind = _catch_up(run, paths, known, connection, given, deadline)
        run.stage = "digest"
        found, health = _ask(run, paths, known, connection, given, place, deadline)
    except AgentmemError as error:
        failure = error
        found = digest.saved(paths, place.identity, run.started, error.message, place.root)
    if failure:
        waiting = len(spool.waiting(paths)) - 1
    if trouble := failure or left_behind:
        health.insert(0, f"{trouble}. {trouble.hint}")
    if waiting > 0:
        health.append(f"events of earlier hooks that wait in the spool: {waiting}; see: agentmem status")
    if damaged := spool.damaged(paths):
        health.append(f"events in the spool that can't be read: {len(damaged)}; see: agentmem doctor")
    facts = query.finish(min(deadline, time.monotonic() + _GIT_SECONDS))
    marker = "memory-" + os.urandom(4).hex()
    text = digest.compose(found, facts, health, text_of(given.values, "source"), place.name, marker)
    run.stage = "print"
    _print(text, health)
    if connection is None or failure:
        if connection:
            connection.close()
        return _defer(run, paths, record, failure or AgentmemError("internal_error", "no connection"), text)
    return _finish_start(run, paths, known, record, connection, text, left_behind, deadline)


def _catch_up(
    run: Run, paths: Paths, known: Settings, connection: Connection, given: Payload, deadline: float
) -> tuple[int, AgentmemError | None]:
    """Store what earlier hooks and killed clients left: it belongs into the digest. How many events stayed, and why."""
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
        "since": iso_time(run.started - since) if isinstance(since, (int, float)) and since < 1e9 else None,
        "limit": digest.MOST_SESSIONS,
    }
    rows = connection.query("select agentmem.digest($1::jsonb)", [jsonio.dumps(request)], deadline)
    answer = jsonio.as_object(jsonio.loads(rows[0][0] or "{}")) or {}
    if not text_of(answer, "since"):
        digest.save(paths, place.identity, answer, run.started)
    failures = jsonio.object_of(answer, "failures")
    health: list[str] = []
    if jsonio.int_of(failures, "count"):
        last = jsonio.object_of(failures, "last")
        count = jsonio.int_of(failures, "count")
        health.append(
            f"{count} hook {'run' if count == 1 else 'runs'} failed in the last 24 h, lastly {text_of(last, 'event')}: "
            f"{text_of(last, 'error')} [{text_of(last, 'code')}]; see: agentmem log --failed"
        )
    return digest.Known(answer, root=place.root), health


def _print(text: str, health: list[str]) -> None:
    answer: Object = {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": text}}
    if health:
        # The person sees this in the terminal; the model sees the same in the digest.
        answer["systemMessage"] = "agentmem: " + digest.one_line("; ".join(health), 1000)
    spool.write_all(1, jsonio.dumps_ascii(answer).encode("ascii") + b"\n")


def _finish_start(
    run: Run,
    paths: Paths,
    known: Settings,
    record: Object,
    connection: Connection,
    text: str,
    trouble: AgentmemError | None,
    deadline: float,
) -> AgentmemError | None:
    """Note the start and what was given, once it was given; `trouble`: why an earlier session can't be stored."""
    run.stage = "sweep" if trouble else "done"
    try:
        row = run.row("failed" if trouble else "ok", trouble, text)
        stored = drain.store_record(connection, paths, known, record, row, deadline)
        spool.remove(paths, run.id)
    except AgentmemError as error:
        return _defer(run, paths, record, error, text)
    finally:
        connection.close()
    return trouble or (stored.errors[0] if stored.errors else None)


def _arm_watchdog(run: Run, seconds: float) -> None:
    """End this process when it hangs where no deadline reaches; its event is in the spool by now."""
    if TYPE_CHECKING:
        import signal as _signal
    else:
        # The module behind `signal`, without the enum that costs 5 ms.
        import _signal

    def ring(_number: int, _frame: object) -> NoReturn:
        _say(run, AgentmemError("hook_hung", f"the hook hung in stage {run.stage} and was ended", "See: agentmem log"))
        os._exit(1)

    if hasattr(_signal, "setitimer"):
        _signal.signal(_signal.SIGALRM, ring)
        _signal.setitimer(_signal.ITIMER_REAL, seconds)
