"""`agentmem sessions`: what was captured, newest first."""

from __future__ import annotations

import os

import click

from agentmem import db, output, paths, sessions, settings
from agentmem.errors import AgentmemError
from agentmem.project import find_project


@click.command("sessions")
@click.option("-n", "most", default=20, show_default=True, help="How many at most.")
@click.option("--project", default=".", help="A project by name; default: that of the current folder.")
@click.option("--all", "everywhere", is_flag=True, help="Sessions of all projects.")
@click.option("--since", default="", help="Only those with activity since then: 24h, 7d, 2026-01-31.")
@click.option("--subagents", is_flag=True, help="Subagents' sessions too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(most: int, project: str, everywhere: bool, since: str, subagents: bool, as_json: bool) -> None:
    """List captured sessions of this project, newest first."""
    where = paths.find_paths(dict(os.environ))
    known = settings.load(where)
    place = find_project(os.getcwd())
    here = project == "." and not everywhere
    with db.session(where, known) as connection:
        rows = sessions.newest(
            connection,
            identity=place.identity if here else "",
            name="" if project == "." or everywhere else project,
            after=sessions.since(since),
            most=most,
            subagents=subagents,
        )
    if as_json:
        output.as_json(rows)
        return
    if not rows:
        name = place.name if here else project
        wanted = "any project" if everywhere else f"project {name}"
        raise AgentmemError(
            "no_sessions", f"no session of {wanted} is stored", "Other projects: agentmem sessions --all"
        )
    output.table(
        ["session", "last", "project", "branch", "host", "asked", "first words", "open end"],
        [
            [
                row["key"][:8] if "/" not in row["key"] else row["key"],
                output.ago(row["last_at"]),
                row["project"],
                row["git_branch"],
                row["host"],
                row["prompts"],
                row["title"] or row["first_prompt"] or "",
                sessions.OPEN_ENDS.get(row["last_kind"] or "", ""),
            ]
            for row in rows
        ],
        flexible="first words",
    )
