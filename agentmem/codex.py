"""The rollout of Codex, record by record: what each line adds to the conversation and to its facts.

Codex writes most of what happens twice: as a response_item (what the model is given again) and as an event
(event_msg; since 0.16x of type item_completed). Turns come from response items, which every version writes, and from
events only where there is no such item: an end by a person or an error, a review, a compaction, and what a script of
the model did (code mode). All other lines are counted. Every shape of record is taken, with its envelope
({timestamp, type, payload}) or without (2025): what is not understood becomes a count or a turn with less in it.
"""

from __future__ import annotations

from agentmem import codex_content as content
from agentmem import codex_messages as messages
from agentmem.codex_types import CALLS, DONE_ITEMS, OUTPUTS, SILENT, SILENT_EVENTS, SILENT_ITEMS
from agentmem.hashing import hexdigest
from agentmem.instants import instant
from agentmem.jsonio import as_object, dumps, list_of, object_of, text_of
from agentmem.reading import turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentmem.jsonio import Json, Object
    from agentmem.reading import Reading

    Parts = tuple[str, str, str, list[Json]]
    """Role, kind, text and tools of a turn."""

_NAME_LENGTH = 80
_OWN_ID_LENGTH = 16
"""Shorter ids ("call_0", of some model servers) come again and again: they tell no line from another."""
_NESTED = ("CommandExecution", "FileChange", "McpToolCall", "DynamicToolCall")
_BY_SCRIPT = "exec-"
"""How the ids of calls begin that a script of the model made; they have no response item."""


def read_record(record: Object, position: int, session: str, reading: Reading, *, agent_file: bool = False) -> None:
    """Take one record of the rollout of thread `session` into the reading: its count, at most one turn, its facts.

    record: the parsed line, cleaned (`jsonio.clean`); position: byte offset of the line. agent_file: the file is a
    subagent's own.
    """
    kind = text_of(record, "type")
    payload = record.get("payload")
    if not isinstance(payload, dict):
        # The format of 2025 has no envelope: the item is the line.
        payload = record
        kind = kind or text_of(record, "record_type") or ("session_meta" if "instructions" in record else "")
    bare = payload is record
    if reading.copied_from and payload.get("thread_id") == session:
        # The first line that names its own thread ends the copy.
        reading.copied_from = ""
    if kind == "response_item" or (bare and (kind in ("message", "reasoning") or kind in CALLS or kind in OUTPUTS)):
        parts = _read_item(record, payload, reading, bare=bare, agent_file=agent_file)
    elif kind == "event_msg":
        parts = _read_event(payload, reading)
    elif kind == "compacted":
        reading.count(kind)
        parts = _compacted(payload, reading)
    else:
        _read_other(kind, payload, position, session, reading, agent_file=agent_file, paginated="ordinal" in record)
        return
    if parts is None:
        return
    role, name, text, tools = parts
    reading.turns.append(
        turn(
            _uuid(record, payload, position, session),
            position,
            role,
            name,
            text,
            at=instant(record.get("timestamp")),
            origin=reading.copied_from or None,
            tools=tools or None,
        )
    )


def _read_other(
    kind: str, payload: Object, position: int, session: str, reading: Reading, *, agent_file: bool, paginated: bool
) -> None:
    if kind == "session_meta":
        reading.count(kind)
        _note_meta(payload, position, session, reading, agent_file=agent_file, paginated=paginated)
    elif kind == "turn_context":
        reading.count(kind)
        _note_strings(payload, reading, (("cwd", "cwd"), ("model", "model")))
    elif kind in SILENT or kind in SILENT_ITEMS:
        reading.count(kind)
    else:
        reading.count_unknown(kind[:_NAME_LENGTH] or "without_type")


def _note_strings(payload: Object, reading: Reading, names: tuple[tuple[str, str], ...]) -> None:
    for key, fact in names:
        value = payload.get(key)
        if value and isinstance(value, str):
            reading.facts[fact] = value


def _note_meta(
    payload: Object, position: int, session: str, reading: Reading, *, agent_file: bool, paginated: bool
) -> None:
    """What the head of a file says of its thread. Later heads are those of threads that lines were copied from."""
    facts = reading.facts
    thread = text_of(payload, "id")
    if position > 0 and thread != session:
        if thread and not agent_file and "forked_from" not in facts:
            facts["forked_from"] = thread
        if paginated:
            # A subagent was given its parent's conversation. (Older copies have no end: their ids must tell.)
            reading.copied_from = thread
        return
    _note_strings(payload, reading, (("cwd", "cwd"), ("cli_version", "version"), ("originator", "entrypoint")))
    git = payload.get("git")
    if isinstance(git, dict):
        branch = text_of(git, "branch")
        # A detached HEAD has no branch.
        facts["branch"] = branch if branch not in ("", "HEAD") else None
    origin = text_of(payload, "forked_from_id") or text_of(object_of(payload, "history_base"), "thread_id")
    parent, agent_type = parentage(payload)
    if parent:
        facts["parent"] = parent
    if agent_type:
        facts["agent_type"] = agent_type
    if origin and origin not in (session, parent):
        facts["forked_from"] = origin


def parentage(meta: Object) -> tuple[str, str]:
    """The thread that started this one as a subagent, and the subagent's type; both "" for a thread of its own."""
    source = as_object(meta.get("source"))
    if source is None or "subagent" not in source:
        return text_of(meta, "parent_thread_id"), ""
    subagent = source.get("subagent")
    if isinstance(subagent, str):
        return text_of(meta, "parent_thread_id"), subagent
    spawn = object_of(as_object(subagent) or {}, "thread_spawn")
    parent = text_of(spawn, "parent_thread_id") or text_of(meta, "parent_thread_id")
    other = text_of(as_object(subagent) or {}, "other")
    return parent, text_of(spawn, "agent_role") or text_of(meta, "agent_role") or other or "default"


def _uuid(record: Object, payload: Object, position: int, session: str) -> str:
    """The client's id of the line, or one made of the line: the same each time that it is read."""
    item = object_of(payload, "item")
    if item:
        own = text_of(item, "id")
        if len(own) >= _OWN_ID_LENGTH:
            return own
    own = text_of(payload, "id")
    if len(own) >= _OWN_ID_LENGTH:
        return own
    kind = text_of(payload, "type")
    own = text_of(payload, "call_id") or text_of(payload, "turn_id")
    if len(own) >= _OWN_ID_LENGTH:
        return f"{kind}:{own}"
    seed: Object = record
    if "replacement_history" in payload:
        # Megabytes, perhaps; time and text tell the line from others.
        seed = {"at": record.get("timestamp"), "ordinal": record.get("ordinal"), "text": payload.get("message")}
    if "timestamp" not in record:
        # Without a time the same words, said twice, are the same line: its place tells them apart.
        seed = {"position": position, "line": seed}
    try:
        text = dumps(seed)
    except (ValueError, RecursionError):
        # A nesting or a number that can be read but not be written again: the place stands for it.
        text = f"{session} {position}"
    return "line-" + hexdigest(text.encode("utf-8", "surrogatepass"))[:32]


# Response items.


def _read_item(record: Object, payload: Object, reading: Reading, *, bare: bool, agent_file: bool) -> Parts | None:
    kind = text_of(payload, "type")
    name = kind if bare else "response_item:" + kind[:_NAME_LENGTH]
    if kind == "message":
        reading.count(name)
        return messages.message_parts(record, payload, reading, bare=bare)
    if kind in CALLS:
        reading.count(name)
        calls = content.calls_of(payload, kind)
        return "assistant", "tool_call", _called(calls), calls
    if kind in OUTPUTS:
        reading.count(name)
        entry, text = content.result_of(payload)
        return "user", "tool_result", text, [entry]
    if kind == "reasoning":
        reading.count(name)
        thoughts = content.spoken(content.parts_of([*list_of(payload, "summary"), *list_of(payload, "content")]))
        return ("assistant", "thinking", thoughts, []) if thoughts else None
    if kind == "agent_message":
        reading.count(name)
        text = content.spoken(content.parts_of(payload.get("content")))
        task = agent_file and text.startswith("Message Type: NEW_TASK")
        return "user", "prompt" if task else "notification", text, []
    if kind in SILENT_ITEMS:
        reading.count(name)
    else:
        reading.count_unknown(name)
    return None


def _called(calls: list[Json]) -> str:
    return "\n".join(
        [f"{text_of(call, 'name')} {text_of(call, 'target')}".rstrip() for call in calls if isinstance(call, dict)]
    )


# Events.


def _read_event(payload: Object, reading: Reading) -> Parts | None:
    kind = text_of(payload, "type")
    name = "event_msg:" + kind[:_NAME_LENGTH]
    if kind == "item_completed":
        return _item_completed(object_of(payload, "item"), name, reading)
    make = _EVENTS.get(kind)
    if make is not None:
        reading.count(name)
        return make(payload, reading)
    if kind in SILENT_EVENTS:
        reading.count(name)
    else:
        reading.count_unknown(name)
    return None


def _item_completed(item: Object, name: str, reading: Reading) -> Parts | None:
    kind = text_of(item, "type")
    name = f"{name}:{kind[:_NAME_LENGTH]}"
    if kind not in DONE_ITEMS:
        reading.count_unknown(name)
        return None
    reading.count(name)
    if kind in _NESTED and text_of(item, "id").startswith(_BY_SCRIPT):
        calls, error = content.nested_calls(item, kind)
        return "assistant", "tool_call", "\n".join([text for text in (_called(calls), error) if text]), calls
    if kind == "ContextCompaction":
        return "system", "boundary", "Conversation compacted", []
    if kind == "EnteredReviewMode":
        return _review(item, reading)
    return None


def _review(payload: Object, _: Reading) -> Parts:
    return "user", "command", f"/review {text_of(payload, 'user_facing_hint')}".rstrip(), []


def _aborted(payload: Object, _: Reading) -> Parts:
    reason = text_of(payload, "reason")
    kind = "interrupt" if reason in ("", "interrupted", "replaced") else "notice"
    return "user" if kind == "interrupt" else "system", kind, f"[Turn {reason or 'interrupted'}]", []


def _completed(payload: Object, _: Reading) -> Parts | None:
    error = payload.get("error")
    if not error:
        return None
    message = error if isinstance(error, str) else text_of(as_object(error) or {}, "message")
    return "assistant", "api_error", message, []


def _error(payload: Object, _: Reading) -> Parts:
    return "assistant", "api_error", text_of(payload, "message"), []


def _context_compacted(_: Object, __: Reading) -> Parts:
    return "system", "boundary", "Conversation compacted", []


def _rolled_back(payload: Object, _: Reading) -> Parts:
    return "system", "notice", content.rolled_back(payload), []


def _renamed(payload: Object, reading: Reading) -> None:
    reading.facts["title"] = text_of(payload, "thread_name") or None


_EVENTS: dict[str, Callable[[Object, Reading], Parts | None]] = {
    "context_compacted": _context_compacted,
    "entered_review_mode": _review,
    "error": _error,
    "task_complete": _completed,
    "thread_name_updated": _renamed,
    "thread_rolled_back": _rolled_back,
    "turn_aborted": _aborted,
    "turn_complete": _completed,
}


def _compacted(payload: Object, reading: Reading) -> Parts | None:
    """The summary; the history that goes on from here is not stored again."""
    text = text_of(payload, "message")
    if not text:
        return None
    for earlier in reversed(reading.turns[-8:]):
        # Older versions wrote the summary as an answer first, and marked it in no way.
        said = text_of(earlier, "text").strip()
        if earlier["kind"] == "answer" and said and text.endswith(said):
            earlier["kind"] = "meta"
            break
    return "user", "summary", text, []
