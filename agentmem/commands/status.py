"""`agentmem status`: how things are, on one screen."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from agentmem import claude_settings, db, libpq, migrations, output, paths, settings, spool, sweep
from agentmem.clock import span
from agentmem.errors import DatabaseError

if TYPE_CHECKING:
    from agentmem.db import Connection
    from agentmem.paths import Paths
    from agentmem.settings import Settings


@click.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(as_json: bool) -> None:
    """Show the database, what is stored, the last hook runs, and what waits; exit with 1 when something is wrong."""
    where = paths.find_paths(dict(os.environ))
    known = settings.load(where)
    report, wrong = _local(where)
    try:
        with db.session(where, known) as connection:
            stored, failures = _stored(connection, where, known)
            report.update(stored)
            wrong = wrong or failures
    except DatabaseError as error:
        report["database"] = str(error)
        report["what to do"] = error.hint
        wrong = True
    if as_json:
        output.as_json(report)
    else:
        for name, value in report.items():
            click.echo(f"{click.style(f'{name:12}', bold=True)} {output.line(value)}")
    sys.exit(1 if wrong else 0)


def _local(where: Paths) -> tuple[dict[str, object], bool]:
    """What this machine's files tell, and whether something is wrong with them."""
    names = spool.waiting(where)
    damaged = spool.damaged(where)
    text = "empty"
    if names:
        age = time.time() - os.stat(os.path.join(where.spool, names[0] + ".json")).st_mtime
        text = f"{len(names)} events wait, the oldest for {span(age)}"
    if damaged:
        text += f"; {len(damaged)} can't be read"
    projects = os.path.join(claude_settings.config_dir(os.environ), "projects")
    swept = sweep.marker_time(where, projects)
    report: dict[str, object] = {
        "settings": where.env_file,
        "spool": text,
        "last sweep": f"{span(time.time() - swept)} ago" if swept else "never",
    }
    return report, bool(damaged)


def _stored(connection: Connection, where: Paths, known: Settings) -> tuple[dict[str, object], bool]:
    """What the database tells, and whether hook runs failed lately."""
    params = db.params_for(where, known)
    place = libpq.hide(known.database_url, libpq.secrets_in(params)) or f"embedded, {params['host']}"
    version = connection.info.server_version
    row = connection.execute(
        "select (select count(*) from agentmem.projects) as projects,"
        " (select count(*) from agentmem.sessions where parent_id is null) as sessions,"
        " (select count(*) from agentmem.turns) as turns,"
        " (select count(*) from agentmem.receipts) as receipts,"
        " (select coalesce(sum(committed), 0) from agentmem.transcripts)::bigint as bytes,"
        " pg_database_size(current_database()) as size, agentmem.failures(%s) as failures",
        (known.host_id,),
    ).fetchone()
    if row is None:
        raise DatabaseError("db_error", "the database gave no answer", "Try again.")
    last = connection.execute(
        "select distinct on (event) event, started_at, outcome from agentmem.hook_runs where host_id = %s"
        " order by event, started_at desc",
        (known.host_id,),
    ).fetchall()
    report: dict[str, object] = {
        "database": f"Postgres {version // 10000}.{version % 10000}, {place}, {row['size'] / 1e6:.1f} MB",
        "schema": f"version {migrations.schema_version(connection)}",
        "stored": f"{row['projects']} projects, {row['sessions']} sessions, {row['turns']:,} turns",
        "captured": f"{row['bytes']:,} bytes of transcripts, {row['receipts']:,} receipts",
        "hook runs": ", ".join(f"{one['event']} {output.ago(one['started_at'])}" for one in last) or "none yet",
    }
    count = row["failures"]["count"]
    if count:
        report["failures"] = f"{count} in 24 h without a good run since; see: agentmem log --failed"
    return report, bool(count)
