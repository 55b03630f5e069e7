"""Captured sessions, as a person asks for them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from agentmem.errors import AgentmemError

if TYPE_CHECKING:
    from psycopg.rows import DictRow

    from agentmem.db import Connection

OPEN_ENDS = {
    "prompt": "not answered",
    "command": "not answered",
    "interrupt": "interrupted",
    "tool_call": "cut off",
    "tool_result": "cut off",
    "api_error": "API error",
}
"""Kind of a session's last turn -> in what way it is unfinished."""


def since(text: str) -> datetime | None:
    """A time span ("90m", "24h", "7d", "2w") or an ISO date as the moment from which on; None for ""."""
    if not text:
        return None
    match = re.fullmatch(r"(\d+)([mhdw])", text)
    if match:
        unit = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}[match[2]]
        return datetime.now(UTC) - timedelta(**{unit: int(match[1])})
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        raise AgentmemError("bad_since", f"{text!r} is no time span or date", "Use 24h, 7d or 2026-01-31.") from None


def newest(
    connection: Connection, *, identity: str = "", name: str = "", after: datetime | None, most: int, subagents: bool
) -> list[DictRow]:
    """Sessions with their project and host, newest first; of one project by identity or name, or of all."""
    return connection.execute(
        "select s.key, s.client, s.title, s.started_at, s.last_at, s.ended_at, s.end_reason, s.git_branch,"
        " s.first_prompt, s.last_prompt, coalesce(s.pending_answer, s.last_answer) as last_answer, s.last_kind,"
        " s.files, s.forked_from, s.cwd, p.name as project, h.name as host, parent.key as parent,"
        " (select count(*) from agentmem.turns t"
        "  where t.session_id = s.id and t.kind = 'prompt' and t.origin is null) as prompts"
        " from agentmem.sessions s"
        " left join agentmem.projects p on p.id = s.project_id"
        " left join agentmem.hosts h on h.id = s.host_id"
        " left join agentmem.sessions parent on parent.id = s.parent_id"
        " where (%(identity)s = '' or p.identity = %(identity)s) and (%(name)s = '' or p.name = %(name)s)"
        " and (%(after)s::timestamptz is null or s.last_at >= %(after)s) and (%(subagents)s or s.parent_id is null)"
        " order by s.last_at desc nulls last limit %(most)s",
        {"identity": identity, "name": name, "after": after, "most": most, "subagents": subagents},
    ).fetchall()


def find(connection: Connection, prefix: str) -> DictRow:
    """The one session whose key begins so. AgentmemError: session_unknown, session_ambiguous."""
    rows = connection.execute(
        "select s.*, p.name as project, h.name as host from agentmem.sessions s"
        " left join agentmem.projects p on p.id = s.project_id left join agentmem.hosts h on h.id = s.host_id"
        " where starts_with(s.key, %s) order by length(s.key), s.last_at desc limit 10",
        (prefix,),
    ).fetchall()
    if not rows:
        raise AgentmemError(
            "session_unknown", f"no session's id begins with {prefix!r}", "See: agentmem sessions --all"
        )
    whole = [row for row in rows if row["key"] == prefix]
    # Subagents have their session's id in front of their own.
    tops = [row for row in rows if "/" not in row["key"]]
    for candidates in (whole, rows if "/" in prefix else tops, rows):
        if len(candidates) == 1:
            return candidates[0]
        if len(candidates) > 1:
            break
    keys = ", ".join(row["key"] for row in rows)
    raise AgentmemError("session_ambiguous", f"{prefix!r} begins the ids of several sessions", f"Which one: {keys}")


def receipts(connection: Connection, session_id: int) -> list[DictRow]:
    """What was captured of a session: a row for each of its files."""
    return connection.execute(
        "select f.path, count(*) as receipts, sum(r.end_offset - r.start_offset)::bigint as bytes,"
        " sum(r.lines)::bigint as lines, max(r.captured_at) as captured_at"
        " from agentmem.transcripts f"
        " join agentmem.receipts r on r.transcript_id = f.id and r.generation = f.generation"
        " where f.session_id = %s group by f.path",
        (session_id,),
    ).fetchall()


def subagents(connection: Connection, session_id: int) -> list[DictRow]:
    """The sessions that a session started."""
    return connection.execute(
        "select key, agent_type, first_prompt from agentmem.sessions where parent_id = %s order by started_at",
        (session_id,),
    ).fetchall()


def conversation(connection: Connection, session_id: int, *, copied: bool) -> list[DictRow]:
    """A session's turns in order, each line of it; without the history that a fork copied unless asked for."""
    return connection.execute(
        "select position, role, kind, at, message, text, tools, origin from agentmem.turns"
        " where session_id = %s and (%s or origin is null) and kind <> 'meta' order by position",
        (session_id, copied),
    ).fetchall()
