"""`agentmem log`: hook runs, and why some of them failed."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from agentmem import db, options, output, paths, runs, settings
from agentmem.clock import span
from agentmem.errors import DatabaseError
from agentmem.output import Column, Row

if TYPE_CHECKING:
    from datetime import datetime

    from psycopg.rows import DictRow

_COLUMNS = (
    Column("when"),
    Column("event"),
    Column("outcome"),
    Column("stage", rank=3),
    Column("ms", right=True),
    Column("session", rank=1, style="cyan"),
    Column("client", rank=4),
    Column("host", rank=2),
    Column("flags", flexible=True),
)
_STYLES = {"failed": "red", runs.WAITING: "red", "deferred": "yellow", "skipped": "dim"}


@click.command("log")
@click.option(
    "-n", "most", type=click.IntRange(min=1), default=50, metavar="N", help="How many at most.  [default: 50]"
)
@click.option("--failed", is_flag=True, help="Only runs that failed, or whose event had to wait in the spool.")
@click.option("--session", default="", metavar="ID", help="Only runs of this session: its id or the beginning of it.")
@click.option("--event", default="", metavar="NAME", help="Only runs of this event, such as Stop.")
@options.since("Only runs since then")
@options.as_json
def command(most: int, failed: bool, session: str, event: str, after: datetime | None, as_json: bool) -> None:
    """List hook runs of all machines, newest first, with those that wait in this one's spool.

    Piped, each is a line of tab-separated values: when, event, outcome, stage, milliseconds, session, client, host
    if it is not this one, flags, and, if any of them has one, the cause. Exit code 1 when the database is not
    reached: then only what waits in the spool is listed.
    """
    where = paths.find_paths(dict(os.environ))
    known = settings.load(where)
    wanted = runs.Filter(failed, session, event, after, most)
    trouble: DatabaseError | None = None
    stored: list[DictRow] = []
    try:
        with db.session(where, known) as connection:
            stored = runs.newest(connection, wanted)
    except DatabaseError as error:
        trouble = error
    spooled = runs.waiting(where, known, time.time())
    rows = runs.together(stored, runs.matching(spooled.runs, wanted), most)
    if as_json:
        output.as_json(rows)
    elif rows:
        output.table(_COLUMNS, [_row(row, known.host_id) for row in rows])
    else:
        output.complain("No hook run fits." if failed or session or event or after else "No hook run is known yet.")
    if spooled.damaged:
        output.complain(f"{output.count(len(spooled.damaged), 'event')} can't be read; see: agentmem doctor")
    if trouble:
        output.complain(f"agentmem: only what waits in the spool is listed: {trouble}\n  {trouble.hint}")
        sys.exit(1)


def _row(run: DictRow, this_host: str) -> Row:
    milliseconds = run["duration_ms"]
    return Row(
        [
            output.when(run["started_at"], seconds=True),
            run["event"],
            run["outcome"],
            run["stage"],
            f"{milliseconds:.0f}" if isinstance(milliseconds, (int, float)) else "",
            run["session_key"][:8],
            run["client"],
            run["host"] if str(run["host_id"]) != this_host else "",
            " ".join(run["flags"]),
        ],
        _cause(run),
        _STYLES.get(run["outcome"], ""),
    )


def _cause(run: DictRow) -> str:
    if not run["error_code"] or run["outcome"] == runs.IN_WORK:
        return ""
    text = f"{run['error']} [{run['error_code']}]"
    late = runs.stored_late(run)
    if late is not None:
        text += f"; stored {span(late.total_seconds())} later"
    tries = run.get("tries")
    return f"{text}; tried again {output.count(tries, 'time')}" if tries else text
