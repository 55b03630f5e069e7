"""Hook runs: those in the database, and those whose rows still wait in the spool."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from agentmem import spool
from agentmem.errors import SpoolError
from agentmem.jsonio import object_of, text_of

if TYPE_CHECKING:
    from psycopg.rows import DictRow

    from agentmem.db import Connection
    from agentmem.paths import Paths


def newest(
    connection: Connection, *, failed: bool, session: str, event: str, after: datetime | None, most: int
) -> list[DictRow]:
    """Hook runs of all machines, newest first."""
    return connection.execute(
        "select r.started_at, h.name as host, r.client, r.event, r.session_key, r.outcome, r.stage, r.duration_ms,"
        " r.error_code, r.error, r.flags, r.bytes_in, r.bytes_read, r.turns, r.recorded_at, r.version, r.id"
        " from agentmem.hook_runs r left join agentmem.hosts h on h.id = r.host_id"
        " where (not %(failed)s or r.outcome in ('failed', 'deferred'))"
        " and (%(session)s = '' or starts_with(r.session_key, %(session)s)) and (%(event)s = '' or r.event = %(event)s)"
        " and (%(after)s::timestamptz is null or r.started_at >= %(after)s)"
        " order by r.started_at desc limit %(most)s",
        {"failed": failed, "session": session, "event": event, "after": after, "most": most},
    ).fetchall()


def waiting(paths: Paths) -> list[DictRow]:
    """Runs whose rows wait in the spool, oldest first, with what kept them there."""
    found: list[DictRow] = []
    for name in spool.waiting(paths):
        try:
            record = spool.get(paths, name)
        except SpoolError as error:
            found.append(
                {"event": "?", "outcome": "damaged", "stage": "spool", "error_code": error.code, "error": str(error)}
            )
            continue
        if record is None:
            continue
        run = object_of(record, "run")
        found.append(
            {
                "started_at": datetime.fromisoformat(text_of(run, "started_at")),
                "host": None,
                "client": text_of(record, "client"),
                "event": text_of(record, "event"),
                "session_key": text_of(run, "session"),
                "outcome": "waiting",
                "stage": text_of(run, "stage"),
                "duration_ms": run.get("duration_ms"),
                "error_code": text_of(run, "error_code"),
                "error": text_of(record, "last_error") or text_of(run, "error"),
            }
        )
    return found
