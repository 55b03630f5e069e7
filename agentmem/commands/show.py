"""`agentmem show`: one session as it was captured."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from agentmem import conversation, db, options, output, paths, sessions, settings

if TYPE_CHECKING:
    from psycopg.rows import DictRow

    from agentmem.conversation import Conversation, Message

_SPEAKERS = {
    "prompt": ("you", "bold cyan"),
    "command": ("you", "bold cyan"),
    "answer": ("agent", "bold green"),
    "tool_call": ("agent", "bold green"),
    "thinking": ("agent", "bold green"),
    "interrupt": ("you", "bold yellow"),
    "api_error": ("API error", "bold red"),
}
_MOST_TARGET = 160
_MOST_NOTE = 300


@click.command("show")
@click.argument("session")
@click.option(
    "--turns",
    type=click.IntRange(min=1),
    default=20,
    metavar="N",
    help="How many of the last messages.  [default: 20]",
)
@click.option("--all", "whole", is_flag=True, help="All messages, with history that a fork copied, and in full.")
@options.as_json
def command(session: str, turns: int, whole: bool, as_json: bool) -> None:
    """Show a session as it was captured, with its proof.

    SESSION is its id or the beginning of it; for a subagent SESSION/AGENT.
    """
    where = paths.find_paths(dict(os.environ))
    with db.session(where, settings.load(where)) as connection:
        found = sessions.find(connection, session)
        proof = sessions.proof(connection, found["id"])
        unsound = sessions.unsound(connection, found["id"])
        agents = sessions.subagents(connection, found["id"])
        talk = conversation.read(connection, found["id"], None if whole else turns, whole=whole)
        short = sessions.short_ids(connection, [found["key"], *[agent["key"] for agent in agents]])
    if as_json:
        output.as_json(
            {
                "session": found,
                "transcripts": proof,
                "unsound": unsound,
                "subagents": agents,
                "earlier_messages": talk.earlier,
                "copied_messages": talk.copied,
                "messages": [message._asdict() for message in talk.messages],
            }
        )
        return
    output.fields([*_head(found), *_proof(proof, unsound), *_agents(agents, short)])
    for note in _left_out(talk, short[found["key"]]):
        output.say(f"\n({note})", "dim")
    for message in talk.messages:
        _show(message, whole=whole)


def _head(found: DictRow) -> list[tuple[str, object, str]]:
    ended = "" if found["parent"] else "not said by the client: it is open, or was killed"
    if found["ended_at"]:
        ended = f"{output.local(found['ended_at'])} ({found['end_reason']})"
    last = f"{output.local(found['last_at'])}, {output.ago(found['last_at'])}"
    client = [found["client"], found["client_version"], found["model"], found["agent_type"]]
    where = [found["project"], found["cwd"]]
    return [
        ("session", found["key"], "cyan"),
        ("part of", found["parent"], "cyan"),
        ("title", found["title"], ""),
        ("project", ", ".join(part for part in where if part), ""),
        ("branch", found["git_branch"], ""),
        ("client", ", ".join(part for part in client if part), ""),
        ("host", found["host"], ""),
        ("started", output.local(found["started_at"]), ""),
        ("last", last, ""),
        ("ended", ended, ""),
        ("open end", sessions.OPEN_ENDS.get(found["last_kind"] or ""), "yellow"),
        ("forked from", found["forked_from"], ""),
        ("asked", output.count(found["prompts"], "time"), ""),
        ("files", ", ".join(_below(found["cwd"], name) for name in found["files"]), ""),
    ]


def _below(cwd: str | None, name: str) -> str:
    """A file's name from where the session worked."""
    return name.removeprefix(f"{cwd}/") if cwd else name


def _proof(proof: list[DictRow], unsound: list[str]) -> list[tuple[str, object, str]]:
    rows: list[tuple[str, object, str]] = []
    for file in proof:
        text = f"{output.count(file['bytes'], 'byte')}, {output.count(file['lines'], 'line')}"
        text += f" in {output.count(file['receipts'], 'receipt')}"
        if file["generation"] > 1:
            text += f", read anew {output.count(file['generation'] - 1, 'time')}"
        rows.append(("captured", f"{text}: {file['path']}", ""))
    if not proof:
        rows.append(("captured", "nothing yet: only its hooks were heard of", "yellow"))
    elif not unsound:
        rows.append(("proof", "the receipts hold", "green"))
    rows.extend(("proof", problem, "red") for problem in unsound[:8])
    if unsound:
        rows.append((" ", f"{output.count(len(unsound), 'problem')}; mend them with: agentmem backfill", ""))
    return rows


def _agents(agents: list[DictRow], short: dict[str, str]) -> list[tuple[str, object, str]]:
    return [
        (
            "subagents" if place == 0 else " ",
            f"{short[agent['key']]} {agent['agent_type'] or ''}: {output.line(agent['first_prompt'] or '', 120)}",
            "",
        )
        for place, agent in enumerate(agents)
    ]


def _left_out(talk: Conversation, session: str) -> list[str]:
    notes: list[str] = []
    if talk.copied:
        notes.append(f"{output.count(talk.copied, 'message')} copied from the session that this one was forked from")
    if talk.earlier:
        notes.append(f"{output.count(talk.earlier, 'earlier message')}; more: --turns {len(talk.messages) * 5}")
    return [f"{note}; all: agentmem show {session} --all" for note in notes]


def _show(message: Message, *, whole: bool) -> None:
    speaker, style = _SPEAKERS.get(message.kind, (message.kind, "bold yellow"))
    copied = f", copied from {message.origin[:8]}" if message.origin else ""
    output.say(f"\n{speaker}  {output.when(message.at, seconds=True)}{output.line(copied)}", style)
    if message.thinking:
        shown = output.plain(message.thinking) if whole else output.line(message.thinking, _MOST_NOTE)
        output.say(f"(thinking) {shown}", "dim italic")
    if message.text:
        said = message.kind in _SPEAKERS or whole
        output.say(output.plain(message.text) if said else output.line(message.text, _MOST_NOTE), "" if said else "dim")
    for tool in message.tools:
        output.say(
            f"  {output.line(tool.get('name'))} {output.line(tool.get('target') or '', _MOST_TARGET)}", "magenta"
        )
        result: dict[str, Any] | None = tool.get("result")
        output.say(_result(result), "red" if result and result.get("error") else "dim", indent=4)


def _result(result: dict[str, Any] | None) -> str:
    if result is None:
        return "no result"
    word = "refused" if result.get("denied") else "error" if result.get("error") else "result"
    text = f"{word}: {output.count(result.get('lines') or 0, 'line')}, {output.size(result.get('size') or 0)}"
    pictures: list[str] = result.get("media") or []
    media = ", ".join(pictures)
    said = output.line(" ".join(part for part in (media, result.get("text")) if part), _MOST_NOTE)
    return f"{text}: {said}" if said else text
