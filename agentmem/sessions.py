"""Captured sessions, as a person asks for them: the list of them, one by the beginning of its id, and its proof."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from agentmem.errors import AgentmemError
from agentmem.project import find_project

if TYPE_CHECKING:
    from datetime import datetime

    from psycopg.rows import DictRow

    from agentmem.db import Connection

OPEN_ENDS = {
    "prompt": "unanswered",
    "command": "unanswered",
    "interrupt": "interrupted",
    "tool_call": "cut off",
    "tool_result": "cut off",
    "api_error": "API error",
}
"""Kind of a session's last turn -> in what way it is unfinished."""

_SHORT = 8
_MOST_CANDIDATES = 20
_COLUMNS = """
    s.id, s.key, s.client, s.title, s.cwd, s.git_branch, s.git_head, s.client_version, s.model, s.source,
    s.agent_type, s.forked_from, s.started_at, s.last_at, s.ended_at, s.end_reason, s.first_prompt, s.last_prompt,
    coalesce(s.pending_answer, s.last_answer) as last_answer,
    case when s.pending_answer is null then s.last_kind end as last_kind, s.files, s.host_id,
    p.name as project, p.identity as project_identity, h.name as host, parent.key as parent,
    (select count(*) from agentmem.turns t
     where t.session_id = s.id and t.kind in ('prompt', 'command') and t.origin is null) as prompts,
    coalesce(s.first_prompt, (
        select t.text from agentmem.turns t
        where t.session_id = s.id and t.kind = 'command' and t.origin is null order by t.position limit 1
    )) as asked
from agentmem.sessions s
left join agentmem.projects p on p.id = s.project_id
left join agentmem.hosts h on h.id = s.host_id
left join agentmem.sessions parent on parent.id = s.parent_id
"""


class Wanted(NamedTuple):
    """Which project's sessions: by identity, by name, or of all projects."""

    identity: str
    name: str
    words: str
    """How a person would call it."""


ALL_PROJECTS = Wanted("", "", "any project")


def wanted_project(text: str, cwd: str) -> Wanted:
    """The project of a folder (".", or anything with a separator in it), or one of that name."""
    if text != os.curdir and os.sep not in text and text != os.pardir:
        return Wanted("", text, f"a project named {text}")
    place = find_project(os.path.join(cwd, os.path.expanduser(text)))
    words = f"the project {place.name}" if place.git_dir else f"the folder {place.root} (no git repository)"
    return Wanted(place.as_object()["identity"] or "", "", words)  # pyright: ignore[reportArgumentType]


def newest(
    connection: Connection,
    wanted: Wanted,
    *,
    client: str = "",
    after: datetime | None = None,
    most: int = 20,
    subagents: bool = False,
) -> list[DictRow]:
    """Sessions with their project and host, newest first."""
    return connection.execute(
        "select"
        + _COLUMNS
        + """
        where (%(identity)s = '' or p.identity = %(identity)s) and (%(name)s = '' or lower(p.name) = lower(%(name)s))
          and (%(client)s = '' or s.client = %(client)s) and (%(after)s::timestamptz is null or s.last_at >= %(after)s)
          and (%(subagents)s or s.parent_id is null)
        order by s.last_at desc nulls last, s.id desc limit %(most)s
        """,
        {
            "identity": wanted.identity,
            "name": wanted.name,
            "client": client,
            "after": after,
            "most": most,
            "subagents": subagents,
        },
    ).fetchall()


def projects(connection: Connection) -> list[DictRow]:
    """Every project that has sessions: its name and how many, the busiest first."""
    return connection.execute(
        """
        select p.name, count(*) as sessions from agentmem.projects p
        join agentmem.sessions s on s.project_id = p.id and s.parent_id is null
        group by p.id, p.name order by count(*) desc, p.name
        """
    ).fetchall()


def short_ids(connection: Connection, keys: list[str]) -> dict[str, str]:
    """For each key a beginning of it that `find` takes: 8 characters, or more where those are not unique."""
    heads = sorted({key.split("/")[0][:_SHORT] for key in keys})
    rows = connection.execute(
        """
        select left(s.key, %s) as head, array_agg(s.key) as keys from agentmem.sessions s
        where s.parent_id is null and left(s.key, %s) = any(%s) group by 1
        """,
        (_SHORT, _SHORT, heads),
    )
    others = {row["head"]: row["keys"] for row in rows}
    return {key: _shortest(key, others.get(key[:_SHORT], [])) for key in keys}


def _shortest(key: str, others: list[str]) -> str:
    top, slash, agent = key.partition("/")
    length = _SHORT
    while length < len(top) and any(other != top and other.startswith(top[:length]) for other in others):
        length += 1
    return top[:length] + slash + agent


def find(connection: Connection, text: str) -> DictRow:
    """The one session whose key is or begins so; SESSION/AGENT by the beginnings of both.

    AgentmemError: session_unknown, session_ambiguous (the hint lists the candidates).
    """
    top, slash, agent = text.partition("/")
    rows = connection.execute(
        "select"
        + _COLUMNS
        + """
        where (s.key = %(text)s)
           or (%(top)s <> '' and starts_with(s.key, %(top)s) and (%(slash)s or s.parent_id is null)
               and (not %(slash)s or (s.parent_id is not null and starts_with(split_part(s.key, '/', 2), %(agent)s))))
        order by s.key = %(text)s desc, s.last_at desc nulls last limit %(most)s
        """,
        {"text": text, "top": top, "slash": bool(slash), "agent": agent, "most": _MOST_CANDIDATES},
    ).fetchall()
    if not rows:
        raise AgentmemError("session_unknown", f"no session's id begins with {text!r}", "See: agentmem sessions --all")
    if len(rows) == 1 or (rows[0]["key"] == text and rows[1]["key"] != text):
        return rows[0]
    some = "20 or more" if len(rows) == _MOST_CANDIDATES else str(len(rows))
    lines = [f"{row['key']}  {row['client']}  {(row['asked'] or '')[:60]!r}" for row in rows]
    raise AgentmemError(
        "session_ambiguous", f"{some} sessions' ids begin with {text!r}", "Which one?\n  " + "\n  ".join(lines)
    )


def proof(connection: Connection, session_id: int) -> list[DictRow]:
    """What was captured of a session: a row for each of its files, with its receipts added up."""
    return connection.execute(
        """
        select f.path, h.name as host, f.generation, f.committed as bytes, count(r.id) as receipts,
               coalesce(sum(r.lines), 0)::bigint as lines, max(r.captured_at) as captured_at
        from agentmem.transcripts f
        join agentmem.hosts h on h.id = f.host_id
        left join agentmem.receipts r on r.transcript_id = f.id and r.generation = f.generation
        where f.session_id = %s group by f.id, h.name order by f.path
        """,
        (session_id,),
    ).fetchall()


def unsound(connection: Connection, session_id: int) -> list[str]:
    """What of a session is not as it was stored; nothing when its receipts hold."""
    rows = connection.execute("select problem, detail from agentmem.verify(%s)", (session_id,))
    return [f"{row['detail']} [{row['problem']}]" for row in rows]


def subagents(connection: Connection, session_id: int) -> list[DictRow]:
    """The sessions that a session started."""
    return connection.execute(
        "select key, agent_type, first_prompt, last_at from agentmem.sessions where parent_id = %s"
        " order by started_at nulls last, id",
        (session_id,),
    ).fetchall()
