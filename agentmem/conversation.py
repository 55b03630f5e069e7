"""The conversation of a session: its turns put together to messages, the last ones first when not all are wanted.

The client writes one answer as several lines; they share an id and become one message here. Tool calls belong to
the message that made them, results to their call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime

    from psycopg.rows import DictRow

    from agentmem.db import Connection

    Tool = dict[str, Any]


class Message(NamedTuple):
    """What was said at one time. kind: as agentmem.turns has it; that of an answer that only calls tools is tool_call.

    tools: each call ({id, name, target, input_size}) with its result under `result` ({size, lines, error, text, ...}).
    """

    at: datetime | None
    role: str
    kind: str
    text: str
    thinking: str
    tools: list[Tool]
    origin: str | None
    """Key of the session that it was copied from, in a fork."""


class Conversation(NamedTuple):
    """Messages in order, and how many are before them."""

    messages: list[Message]
    earlier: int
    copied: int
    """Messages of the copied history of a fork that were left out."""


def read(connection: Connection, session_id: int, most: int | None, *, whole: bool = False) -> Conversation:
    """The last `most` messages of a session (None: all); `whole`: with copied history and what the client put in."""
    counts = connection.execute(
        """
        select count(distinct coalesce(message, uuid)) filter (where origin is null and kind <> 'meta') as own,
               count(distinct coalesce(message, uuid)) filter (where origin is not null and kind <> 'meta') as copied,
               count(distinct coalesce(message, uuid)) as everything
        from agentmem.turns where session_id = %s and kind <> 'tool_result'
        """,
        (session_id,),
    ).fetchone()
    messages = merge(_last_lines(connection, session_id, most, whole=whole))
    if counts is None:
        return Conversation(messages, 0, 0)
    total = counts["everything"] if whole else counts["own"]
    return Conversation(messages, total - len(messages), 0 if whole else counts["copied"])


def _last_lines(connection: Connection, session_id: int, most: int | None, *, whole: bool) -> list[DictRow]:
    """Every line of the last messages, and the results of their tool calls."""
    return connection.execute(
        """
        with line as (
            select uuid, position, id, role, kind, at, message, text, tools, origin, coalesce(message, uuid) as name
            from agentmem.turns
            where session_id = %s and (%s or (origin is null and kind <> 'meta'))
        ), wanted as (
            select name, min(position) as place from line where kind <> 'tool_result'
            group by name order by place desc limit %s
        )
        select * from line
        where name in (select name from wanted)
           or (kind = 'tool_result' and position > (select min(place) from wanted))
        order by position, id
        """,
        (session_id, whole, most),
    ).fetchall()


def merge(rows: list[DictRow]) -> list[Message]:
    """Rows of agentmem.turns, in order, as messages."""
    groups: dict[str, list[DictRow]] = {}
    results: list[DictRow] = []
    for row in rows:
        if row["kind"] == "tool_result":
            results.append(row)
        else:
            groups.setdefault(row["message"] or row["uuid"], []).append(row)
    messages = {name: _message(group) for name, group in groups.items()}
    calls = {tool["id"]: tool for message in messages.values() for tool in message.tools if tool.get("id")}
    for row in results:
        came: list[Tool] = row["tools"] or []
        for result in came:
            call = calls.get(result.get("id"))
            if call is not None:
                call["result"] = {**{key: value for key, value in result.items() if key != "id"}, "text": row["text"]}
    return list(messages.values())


def _message(group: list[DictRow]) -> Message:
    """The lines of one answer, or the one line of anything else."""
    said: list[str] = []
    thoughts: list[str] = []
    tools: dict[str, Tool] = {}
    for row in group:
        called: list[Tool] = row["tools"] or []
        text = _without_calls(row["text"], called)
        kept = thoughts if row["kind"] == "thinking" else said
        if text and text not in kept:
            kept.append(text)
        for place, tool in enumerate(called):
            tools.setdefault(tool.get("id") or f"{row['uuid']} {place}", dict(tool))
    first = group[0]
    kinds = {row["kind"] for row in group}
    kind = next((name for name in ("answer", "tool_call") if name in kinds), first["kind"])
    if kind == "tool_call" and said:
        kind = "answer"
    return Message(
        first["at"], first["role"], kind, "\n".join(said), "\n".join(thoughts), list(tools.values()), first["origin"]
    )


def _without_calls(text: str, called: list[Tool]) -> str:
    """The text of a line without the names of the tools that it calls, which stand at its end."""
    names = "\n".join(f"{tool.get('name')} {tool.get('target')}".rstrip() for tool in called)
    return text[: len(text) - len(names)].rstrip("\n") if called and text.endswith(names) else text
