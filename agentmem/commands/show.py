"""`agentmem show`: one session as it was captured."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from agentmem import db, output, paths, sessions, settings

if TYPE_CHECKING:
    from psycopg.rows import DictRow

_HEADS = {
    "prompt": "you",
    "command": "you",
    "answer": "agent",
    "interrupt": "interrupted",
    "api_error": "API error",
    "summary": "summary",
    "boundary": "compacted",
    "notification": "notification",
    "notice": "notice",
}


@click.command("show")
@click.argument("session")
@click.option("--turns", default=20, show_default=True, help="How many of the last turns to show.")
@click.option("--all", "whole", is_flag=True, help="Every turn, history that a fork copied and thinking too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(session: str, turns: int, whole: bool, as_json: bool) -> None:
    """Show a session; SESSION is its id or the beginning of it."""
    where = paths.find_paths(dict(os.environ))
    with db.session(where, settings.load(where)) as connection:
        found = sessions.find(connection, session)
        receipts = sessions.receipts(connection, found["id"])
        agents = sessions.subagents(connection, found["id"])
        lines = sessions.conversation(connection, found["id"], copied=whole)
    if not whole:
        lines = [row for row in lines if row["kind"] != "thinking"]
    left_out = 0 if whole else max(0, len(lines) - turns)
    if as_json:
        output.as_json({"session": found, "receipts": receipts, "subagents": agents, "turns": lines[left_out:]})
        return
    _head(found, receipts, agents)
    if left_out:
        click.echo(f"\n({left_out} earlier turns; all of them: agentmem show {found['key']} --all)")
    for row in lines[left_out:]:
        _turn(row)


def _head(found: DictRow, receipts: list[DictRow], agents: list[DictRow]) -> None:
    ended = f"{output.local(found['ended_at'])} ({found['end_reason']})" if found["ended_at"] else "open, or killed"
    rows = [
        ("session", f"{found['key']} ({found['client']} {found['client_version'] or ''})"),
        ("title", found["title"]),
        ("project", f"{found['project'] or '?'} in {found['cwd'] or '?'}"),
        ("branch", found["git_branch"]),
        ("host", found["host"]),
        ("started", output.local(found["started_at"])),
        ("last", f"{output.local(found['last_at'])}, {output.ago(found['last_at'])}"),
        ("ended", ended),
        ("forked from", found["forked_from"]),
        ("files touched", ", ".join(found["files"])),
        ("open end", sessions.OPEN_ENDS.get(found["last_kind"] or "")),
    ]
    for receipt in receipts:
        size = f"{receipt['bytes']:,} bytes, {receipt['lines']:,} lines in {receipt['receipts']} receipts"
        rows.append(("captured", f"{size}: {receipt['path']}"))
    rows.extend(
        ("subagent", f"{agent['key']} ({agent['agent_type'] or '?'}): {agent['first_prompt'] or ''}")
        for agent in agents
    )
    for name, value in rows:
        if value:
            click.echo(f"{click.style(f'{name:13}', bold=True)} {output.line(value, 400)}")


def _turn(row: DictRow) -> None:
    kind = row["kind"]
    if kind == "tool_call":
        click.echo(click.style(f"  > {output.line(row['text'], 200)}", dim=True))
    elif kind == "tool_result":
        tools: list[dict[str, object]] = row["tools"] or []
        for tool in tools:
            mark = "error" if tool.get("error") else "result"
            click.echo(
                click.style(f"    {mark}: {tool.get('size', 0)} bytes {output.line(row['text'], 160)}", dim=True)
            )
    elif row["text"]:
        colour = {"prompt": "cyan", "command": "cyan", "answer": "green"}.get(kind, "yellow")
        head = click.style(_HEADS.get(kind, kind), fg=colour, bold=True)
        click.echo(f"\n{head} {click.style(output.local(row['at']), dim=True)}\n{output.plain(row['text'])}")
