"""`agentmem log`: hook runs, and why some of them failed."""

from __future__ import annotations

import os
import sys

import click

from agentmem import db, output, paths, runs, sessions, settings
from agentmem.errors import DatabaseError


@click.command("log")
@click.option("-n", "most", default=50, show_default=True, help="How many at most.")
@click.option("--failed", is_flag=True, help="Only runs that failed or were stored later.")
@click.option("--session", default="", help="Only runs of this session (its id or the beginning of it).")
@click.option("--event", default="", help="Only runs of this event, such as Stop.")
@click.option("--since", default="", help="Only runs since then: 90m, 24h, 7d, 2026-01-31.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(most: int, failed: bool, session: str, event: str, since: str, as_json: bool) -> None:
    """List hook runs of all machines, newest first, those that wait in the spool too."""
    where = paths.find_paths(dict(os.environ))
    rows = list(reversed(runs.waiting(where)))
    trouble: DatabaseError | None = None
    try:
        with db.session(where, settings.load(where)) as connection:
            after = sessions.since(since)
            rows += runs.newest(connection, failed=failed, session=session, event=event, after=after, most=most)
    except DatabaseError as error:
        trouble = error
    if as_json:
        output.as_json(rows)
    elif rows:
        columns = ["when", "host", "event", "session", "outcome", "stage", "ms", "cause"]
        output.table(columns, [_row(row) for row in rows], flexible="cause")
    else:
        click.echo("no hook runs")
    if trouble:
        click.echo(f"agentmem: only what waits in the spool is listed: {trouble}\n  {trouble.hint}", err=True)
        sys.exit(1)


def _row(row: dict[str, object]) -> list[object]:
    cause = f"{row['error']} [{row['error_code']}]" if row.get("error_code") else ", ".join(list_of(row.get("flags")))
    milliseconds = row.get("duration_ms")
    return [
        output.local(row.get("started_at")),  # pyright: ignore[reportArgumentType]
        row.get("host"),
        row.get("event"),
        str(row.get("session_key") or "")[:8],
        row.get("outcome"),
        row.get("stage"),
        f"{milliseconds:.0f}" if isinstance(milliseconds, float) else "",
        cause,
    ]


def list_of(value: object) -> list[str]:
    """The texts in a list; none when it is something else."""
    return [str(item) for item in value] if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
