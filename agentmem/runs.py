"""Hook runs: those in the database, and those whose rows still wait in the spool."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from agentmem import spool
from agentmem.errors import SpoolError
from agentmem.jsonio import int_of, list_of, object_of, text_of

if TYPE_CHECKING:
    from psycopg.rows import DictRow

    from agentmem.db import Connection
    from agentmem.jsonio import Object
    from agentmem.paths import Paths
    from agentmem.settings import Settings

WAITING = "waiting"
"""The outcome of a run that is not in the database yet."""

IN_WORK = "in work"
"""The outcome of a run whose hook may still be at it."""

_WATCHDOG_SECONDS = 5.0


class Filter(NamedTuple):
    """Which hook runs are wanted; empty values filter nothing."""

    failed: bool = False
    session: str = ""
    event: str = ""
    after: datetime | None = None
    most: int = 50


def newest(connection: Connection, wanted: Filter) -> list[DictRow]:
    """Hook runs of all machines that are in the database, newest first."""
    return connection.execute(
        """
        select r.id, r.started_at, h.name as host, r.host_id, r.client, r.event, r.session_key, r.outcome, r.stage,
               r.duration_ms, r.error_code, r.error, r.flags, r.bytes_in, r.bytes_read, r.turns, r.recorded_at,
               r.version
        from agentmem.hook_runs r left join agentmem.hosts h on h.id = r.host_id
        where (not %(failed)s or r.outcome in ('failed', 'deferred'))
          and (%(session)s = '' or starts_with(r.session_key, %(session)s))
          and (%(event)s = '' or lower(r.event) = lower(%(event)s))
          and (%(after)s::timestamptz is null or r.started_at >= %(after)s)
        order by r.started_at desc limit %(most)s
        """,
        {
            "failed": wanted.failed,
            "session": wanted.session,
            "event": wanted.event,
            "after": wanted.after,
            "most": wanted.most,
        },
    ).fetchall()


class Waiting(NamedTuple):
    """What is in the spool: runs as `newest` gives them, newest first, and records that can't be read."""

    runs: list[DictRow]
    damaged: list[str]

    def stuck(self) -> list[DictRow]:
        """Those that no hook is at work with any more."""
        return [run for run in self.runs if run["outcome"] == WAITING]


def waiting(paths: Paths, settings: Settings, now: float) -> Waiting:
    """What waits in the spool; `now` is in seconds since 1970. Nothing is stored or removed."""
    found: list[DictRow] = []
    for name in spool.waiting(paths):
        try:
            record = spool.get(paths, name)
        except SpoolError as error:
            if error.code != "spool_damaged":
                found.append(_unreadable(name, settings, error.code, error.message))
            # A damaged one has just been set aside, and is listed among those below.
            continue
        except OSError as error:
            why = f"spool record {name} can't be read: {error.strerror}"
            found.append(_unreadable(name, settings, "spool_unreadable", why))
            continue
        if record is not None:
            found.append(_run_of(name, record, settings, now))
    found.reverse()
    return Waiting(found, [name.removesuffix(".json") for name in spool.damaged(paths)])


def _unreadable(name: str, settings: Settings, code: str, why: str) -> DictRow:
    """A record that is there and can't be read now: another user's, say."""
    record: Object = {"id": name, "event": "unknown", "tries": 1, "last_error": f"{code}: {why}"}
    return _run_of(name, record, settings, 0.0)


def _run_of(name: str, record: Object, settings: Settings, now: float) -> DictRow:
    run = object_of(record, "run")
    started = _moment(text_of(run, "started_at") or text_of(record, "at"))
    # A hook writes its record before it tries anything else; this is what it writes in that case.
    busy = text_of(run, "error_code") == "hook_ended" and not int_of(record, "tries")
    age = now - started.timestamp() if started else float("inf")
    code, _, last_error = text_of(record, "last_error").partition(": ")
    return {
        "id": text_of(run, "id") or name,
        "name": name,
        "started_at": started,
        "host": settings.host_name,
        "host_id": settings.host_id,
        "client": text_of(record, "client"),
        "event": text_of(run, "event") or text_of(record, "event"),
        "session_key": text_of(run, "session") or text_of(object_of(record, "session"), "key"),
        "outcome": IN_WORK if busy and age < settings.hook_seconds + _WATCHDOG_SECONDS else WAITING,
        "stage": text_of(run, "stage"),
        "duration_ms": run.get("duration_ms"),
        "error_code": code or text_of(run, "error_code") or None,
        "error": last_error or text_of(run, "error") or None,
        "flags": [flag for flag in list_of(run, "flags") if isinstance(flag, str)],
        "bytes_in": int_of(run, "bytes_in"),
        "tries": int_of(record, "tries"),
        "recorded_at": None,
    }


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def matching(runs: list[DictRow], wanted: Filter) -> list[DictRow]:
    """Those of the runs in the spool that are wanted: each of them is one that did not do what it should."""
    return [
        run
        for run in runs
        if run["session_key"].startswith(wanted.session)
        and run["event"].lower() in (wanted.event.lower(), run["event"].lower() if not wanted.event else "")
        and (wanted.after is None or run["started_at"] is None or run["started_at"] >= wanted.after)
        and not (wanted.failed and run["outcome"] == IN_WORK)
    ]


def together(stored: list[DictRow], spooled: list[DictRow], most: int) -> list[DictRow]:
    """Both, newest first; a run that was stored between the two looks is there once."""
    known = {str(run["id"]) for run in stored}
    runs = stored + [run for run in spooled if run["id"] not in known]
    oldest = datetime.min.replace(tzinfo=UTC)
    runs.sort(key=lambda run: run["started_at"] or oldest, reverse=True)
    return runs[:most]


def stored_late(run: DictRow) -> timedelta | None:
    """How long after its start a deferred run was stored; None for others."""
    if run["outcome"] != "deferred" or run.get("recorded_at") is None or run["started_at"] is None:
        return None
    return run["recorded_at"] - run["started_at"]


def oldest_age(paths: Paths, now: float) -> float | None:
    """Seconds since the oldest waiting record was written first; None when nothing waits."""
    names = spool.waiting(paths)
    if not names:
        return None
    # A record's name is a UUID of version 7: its first 48 bits are the milliseconds since 1970.
    digits = names[0].replace("-", "")[:12]
    try:
        return max(0.0, now - int(digits, 16) / 1000)
    except ValueError:
        return max(0.0, now - os.stat(os.path.join(paths.spool, names[0] + ".json")).st_mtime)
