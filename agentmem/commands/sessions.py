"""`agentmem sessions`: what was captured, newest first."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from agentmem import db, options, output, paths, sessions, settings
from agentmem.output import Column, Row

if TYPE_CHECKING:
    from datetime import datetime

    from psycopg.rows import DictRow

    from agentmem.db import Connection
    from agentmem.sessions import Wanted

_MOST_WORDS = 200
_COLUMNS = (
    Column("session", style="cyan"),
    Column("last"),
    Column("project", rank=1),
    Column("client", rank=4),
    Column("host", rank=2),
    Column("asked", right=True, rank=3),
    Column("first words", flexible=True),
    Column("open end", style="yellow"),
)


@click.command("sessions")
@click.option(
    "-n", "most", type=click.IntRange(min=1), default=20, metavar="N", help="How many at most.  [default: 20]"
)
@click.option("--project", default=".", metavar="NAME|DIR", help="A project by name or folder.  [default: this one]")
@click.option("--all", "everywhere", is_flag=True, help="Sessions of all projects.")
@click.option("--client", default="", metavar="NAME", help="Only those of this client, such as claude-code.")
@options.since("Only those with activity since then")
@click.option("--subagents", is_flag=True, help="Subagents' sessions too.")
@options.as_json
def command(
    most: int, project: str, everywhere: bool, client: str, after: datetime | None, subagents: bool, as_json: bool
) -> None:
    """List captured sessions of this project, newest first.

    Piped, each is a line of tab-separated values: session, last activity, project, client, host if it is not this
    one, how often something was asked, the first words, and in what way it has an open end.
    """
    where = paths.find_paths(dict(os.environ))
    known = settings.load(where)
    wanted = sessions.ALL_PROJECTS if everywhere else sessions.wanted_project(project, os.getcwd())
    with db.session(where, known) as connection:
        rows = sessions.newest(connection, wanted, client=client, after=after, most=most, subagents=subagents)
        if as_json:
            output.as_json(rows)
        elif rows:
            short = sessions.short_ids(connection, [row["key"] for row in rows])
            output.table(_COLUMNS, [_row(row, short, known.host_id) for row in rows])
        else:
            filters = " that fits these options" if client or after else ""
            output.complain(_nothing(connection, wanted, filters))


def _row(row: DictRow, short: dict[str, str], this_host: str) -> Row:
    return Row(
        [
            short[row["key"]],
            output.when(row["last_at"]),
            row["project"],
            row["client"],
            row["host"] if str(row["host_id"]) != this_host else "",
            row["prompts"],
            output.line(row["asked"] or row["title"] or "", _MOST_WORDS),
            sessions.OPEN_ENDS.get(row["last_kind"] or ""),
        ]
    )


def _nothing(connection: Connection, wanted: Wanted, filters: str) -> str:
    """That nothing was found, and where there is something."""
    text = f"No session of {wanted.words}{filters} is stored."
    others = sessions.projects(connection)
    if not others:
        return f"{text} None is at all yet: see agentmem doctor, agentmem backfill."
    if wanted is sessions.ALL_PROJECTS:
        return text
    names = ", ".join(f"{other['name']} ({other['sessions']})" for other in others[:8])
    more = f" and {len(others) - 8} more" if len(others) > 8 else ""
    return f"{text}\nThose of all projects: agentmem sessions --all; of another one: --project NAME: {names}{more}"
