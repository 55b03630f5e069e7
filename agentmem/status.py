"""How agentmem is here: the database, what is stored, the last hook runs, what waits, and what of it is wrong."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agentmem import SCHEMA, cluster, db, libpq, migrations, runs, sweep
from agentmem.errors import DatabaseError

if TYPE_CHECKING:
    from agentmem.db import Connection
    from agentmem.paths import Paths
    from agentmem.settings import Settings

    Report = dict[str, Any]


def examine(paths: Paths, settings: Settings, projects: str) -> Report:
    """The whole report, as `agentmem status --json` prints it; what can't be known is null.

    `projects` is the client's folder of transcripts. `wrong` lists what is not as it should be, in words.
    """
    report: Report = {
        "wrong": [],
        "settings": paths.env_file,
        "database": _where(paths, settings),
        "schema": None,
        "stored": None,
        "hook_runs": None,
        "failures": None,
        "spool": _spool(paths, settings),
        "last_sweep": _last_sweep(paths, projects),
        "transcripts": projects,
    }
    try:
        with db.session(paths, settings) as connection:
            _ask(connection, settings, report)
    except DatabaseError as error:
        database: Report = report["database"]
        database.update(error=error.message, code=error.code, hint=error.hint)
        if database["state"] != "missing":
            database["state"] = "not reached"
    report["wrong"] = _wrong(report)
    return report


def _where(paths: Paths, settings: Settings) -> Report:
    """What can be said of the database without connecting; no password in it."""
    if settings.database_url:
        secrets = libpq.secrets_in({"dbname": settings.database_url})
        return {"kind": "external", "place": libpq.hide(settings.database_url, secrets), "state": "", "version": ""}
    found = cluster.status(db.embedded(paths, settings))
    return {
        "kind": "embedded",
        "place": found.data_dir,
        "state": found.state,
        "version": found.version,
        "bytes": found.data_bytes,
    }


def _spool(paths: Paths, settings: Settings) -> Report:
    now = time.time()
    found = runs.waiting(paths, settings, now)
    stuck = found.stuck()
    return {
        "waiting": len(stuck),
        "in_work": len(found.runs) - len(stuck),
        "oldest_seconds": runs.oldest_age(paths, now) if stuck else None,
        "cause": f"{stuck[-1]['error']} [{stuck[-1]['error_code']}]" if stuck and stuck[-1]["error"] else None,
        "damaged": len(found.damaged),
    }


def _last_sweep(paths: Paths, projects: str) -> datetime | None:
    swept = sweep.marker_time(paths, projects)
    return datetime.fromtimestamp(swept, UTC) if swept else None


def _ask(connection: Connection, settings: Settings, report: Report) -> None:
    version = connection.info.server_version
    row = connection.execute("select pg_database_size(current_database()) as bytes").fetchone()
    report["database"].update(
        state="running",
        version=f"{version // 10000}.{version % 10000}",
        database_bytes=row["bytes"] if row else None,
        name=connection.info.dbname,
        host=connection.info.host,
    )
    there = migrations.schema_version(connection)
    schema: Report = {"version": there, "known": SCHEMA}
    report["schema"] = schema
    if there == 0:
        return
    row = connection.execute("select agentmem.needed_schema() as needed").fetchone()
    schema["needed"] = row["needed"] if row else None
    report["stored"] = connection.execute(
        """
        select (select count(*) from agentmem.projects) as projects,
               (select count(*) from agentmem.sessions where parent_id is null) as sessions,
               (select count(*) from agentmem.sessions where parent_id is not null) as subagents,
               (select count(*) from agentmem.turns) as turns,
               (select count(*) from agentmem.receipts) as receipts,
               (select count(*) from agentmem.transcripts) as transcripts,
               (select coalesce(sum(committed), 0) from agentmem.transcripts)::bigint as bytes_captured,
               (select count(*) from agentmem.hosts) as hosts,
               (select max(captured_at) from agentmem.receipts) as last_captured
        """
    ).fetchone()
    report["hook_runs"] = connection.execute(
        """
        select distinct on (client, event) client, event, started_at, outcome, error_code
        from agentmem.hook_runs where host_id = %s order by client, event, started_at desc
        """,
        (settings.host_id,),
    ).fetchall()
    row = connection.execute("select agentmem.failures(%s) as failures", (settings.host_id,)).fetchone()
    report["failures"] = row["failures"] if row else None


def _wrong(report: Report) -> list[str]:
    wrong: list[str] = []
    database, schema, spooled, failures = (report[key] for key in ("database", "schema", "spool", "failures"))
    if database["state"] != "running":
        wrong.append("the database is not reached")
    if schema and schema["version"] < SCHEMA:
        wrong.append("the schema is not there" if schema["version"] == 0 else "the schema is older than this program")
    if schema and (schema.get("needed") or 0) > SCHEMA:
        wrong.append("the schema is newer than this program")
    if spooled["waiting"]:
        wrong.append("events wait in the spool")
    if spooled["damaged"]:
        wrong.append("events in the spool can't be read")
    if failures and failures["count"]:
        wrong.append("hook runs failed")
    return wrong
