"""The transcript of Claude Code, record by record: what each line adds to the conversation and to its facts.

Only lines of the types user, assistant and system are part of the conversation, and one kind of attachment: a
prompt that was typed while the client was at work is written nowhere else. All other lines are counted. Every
shape of record is taken: what is not understood becomes a count or a turn with less in it, never an error.
"""

from __future__ import annotations

from agentmem import claude_content as content
from agentmem.hashing import hexdigest
from agentmem.instants import instant
from agentmem.jsonio import dumps, object_of, text_of
from agentmem.reading import turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentmem.jsonio import Json, Object
    from agentmem.reading import Reading

_NAME_LENGTH = 80
_SYNTHETIC = "<synthetic>"
"""The model that the client names when it wrote an answer itself."""
_SILENT = frozenset({
    "agent-color", "agent-name", "agent-setting", "ai-title", "api-request", "api-request-blob",
    "api-request-resumed", "api-request-shape", "artifact-autoreact-ledger", "artifact-comment-monitor",
    "atis-latch", "attribution-snapshot", "bridge-session", "content-replacement", "continued-in", "cost-state",
    "custom-title", "data-flow-incomplete", "data-flow-records", "derived-from", "dev-mods", "ended-by-model",
    "file-history-delta", "file-history-snapshot", "fork-context-ref", "frame-link", "history-suppression",
    "isolation-latch", "last-prompt", "memory-mode", "mode", "observer-ref", "permission-mode", "pr-link",
    "progress", "queue-operation", "relocated", "resume-head-vouch", "session-owner", "summary", "tag", "tools-used",
    "worktree-state",
})  # fmt: skip
"""Types that 2.1.332 writes or still reads and that are no part of the conversation (its own list)."""
_SYSTEM = frozenset({
    "agents_killed", "api_error", "away_summary", "bridge_status", "compact_boundary", "file_snapshot",
    "informational", "local_command", "memory_saved", "microcompact_boundary", "model_consent_fallback",
    "model_fallback", "model_refusal_fallback", "model_refusal_no_fallback", "permission_retry", "read_divider",
    "scheduled_task_fire", "stop_hook_summary", "thinking", "turn_duration",
})  # fmt: skip
"""Subtypes of system lines that 2.1.332 knows (its own list)."""
_ONLY_COUNTED = ("turn_duration", "stop_hook_summary")
_BY_HARNESS = (
    "<task-notification", "<teammate-message", "<cross-session-message", "<channel ", "<channel>", "<tick>",
    "<local-command-", "<bash-stdout>", "<bash-stderr>", "<fork-boilerplate>", "<mcp-resource-update",
    "<mcp-polling-update",
)  # fmt: skip
"""How a user line begins that the client wrote; lines since 2.1 say so in `origin` as well."""
_COMMAND = ("<command-name>", "<command-message>")
_SHELL = "<bash-input>"
_NOTE = "<user-memory-input>"
_INTERRUPT = "[Request interrupted"


def read_record(record: Object, position: int, session: str, reading: Reading, *, agent_file: bool = False) -> None:
    """Take one record of the transcript of `session` into the reading: its count, at most one turn, its facts.

    record: the parsed line, cleaned (`jsonio.clean`); position: byte offset of the line. agent_file: the file is a
    subagent's own; its lines then carry the id of the session that started the subagent, which makes no fork.
    """
    kind = text_of(record, "type")
    if kind == "user" or kind == "assistant":
        reading.count(kind)
    elif kind in _SILENT:
        reading.count(kind)
        _note_title(record, kind, reading)
        return
    elif kind == "attachment":
        reading.count(kind)
        if object_of(record, "attachment").get("type") != "queued_command":
            return
    elif kind != "system":
        reading.count_unknown(kind[:_NAME_LENGTH] or "without_type")
        return
    elif not _count_system(record, reading):
        _note_facts(record, reading)
        return
    if record.get("isSidechain") is not True or agent_file:
        # A subagent's line in the main file tells its own place and model, not the session's.
        _note_facts(record, reading)
    reading.turns.append(_turn(record, kind, position, session, reading, agent_file))


def _note_title(record: Object, kind: str, reading: Reading) -> None:
    if kind == "custom-title" or kind == "agent-name":
        title = text_of(record, "customTitle") or text_of(record, "agentName")
        reading.facts["title"] = title or None


def _count_system(record: Object, reading: Reading) -> bool:
    """Count a system line; False when it is no turn."""
    subtype = text_of(record, "subtype")
    if subtype in _SYSTEM:
        reading.count("system:" + subtype)
    else:
        reading.count_unknown("system:" + subtype[:_NAME_LENGTH])
    return subtype not in _ONLY_COUNTED


def _note_facts(record: Object, reading: Reading) -> None:
    """What a line says of its session: place, branch, version, model."""
    facts = reading.facts
    for key in ("cwd", "version", "entrypoint"):
        value = record.get(key)
        if value and isinstance(value, str):
            facts[key] = value
    branch = record.get("gitBranch")
    if isinstance(branch, str):
        # The client writes HEAD when it is detached, and nothing outside of a repository.
        facts["branch"] = branch if branch not in ("", "HEAD") else None
    model = _model(object_of(record, "message"))
    if model:
        facts["model"] = model


def _turn(record: Object, kind: str, position: int, session: str, reading: Reading, agent_file: bool) -> Object:
    if kind == "assistant":
        parts = _assistant_turn(record)
    elif kind == "user":
        parts = _user_turn(record)
    elif kind == "system":
        parts = _system_turn(record)
    else:
        parts = _queued_turn(object_of(record, "attachment"))
    role, name, text, tools = parts
    message = record.get("message")
    answer = message if kind == "assistant" and isinstance(message, dict) else {}
    origin = _origin(record, session, agent_file)
    if origin:
        reading.facts["forked_from"] = origin
    agent = None
    if record.get("isSidechain") is True and not agent_file:
        agent = text_of(record, "agentId") or "sidechain"
    return turn(
        text_of(record, "uuid") or _made_up_uuid(record, position, session),
        position,
        role,
        name,
        text,
        at=instant(record.get("timestamp")),
        parent=text_of(record, "parentUuid") or text_of(record, "logicalParentUuid") or None,
        message=text_of(answer, "id") or None,
        model=_model(answer),
        agent=agent,
        origin=origin,
        tools=tools or None,
    )


def _made_up_uuid(record: Object, position: int, session: str) -> str:
    """An id for a line that has none: the same line gets the same id each time that it is read."""
    try:
        seed = dumps(record)
    except (ValueError, RecursionError):
        # A nesting or a number that can be read but not be written again: the place stands for it.
        seed = f"{session} {position}"
    return "line-" + hexdigest(seed.encode("utf-8", "surrogatepass"))[:32]


def _origin(record: Object, session: str, agent_file: bool) -> str | None:
    """The session that a line was copied from; None for the session's own lines.

    `/branch` marks every copied line (forkedFrom), `--fork-session` only answers (requestSessionId), and older
    clients left the old sessionId in them.
    """
    origin = text_of(object_of(record, "forkedFrom"), "sessionId") or text_of(record, "requestSessionId")
    if not origin and not agent_file:
        origin = text_of(record, "sessionId")
    return origin if origin and origin != session else None


def _model(answer: Object) -> str | None:
    model = text_of(answer, "model")
    return model if model and model != _SYNTHETIC else None


def _content(record: Object) -> Json:
    message = record.get("message")
    if isinstance(message, dict):
        return message.get("content")
    return message or record.get("content")


def _assistant_turn(record: Object) -> tuple[str, str, str, list[Json]]:
    blocks = content.blocks_of(_content(record))
    text = content.spoken(blocks)
    if record.get("isApiErrorMessage") is True:
        return "assistant", "api_error", text, []
    calls = [content.tool_call(block) for block in blocks if text_of(block, "type").endswith("tool_use")]
    if calls:
        lines = [f"{call['name']} {call['target']}".rstrip() for call in calls]
        return "assistant", "tool_call", "\n".join([text, *lines] if text else lines), [*calls]
    if any("tool_use_id" in block for block in blocks):
        return "assistant", *_results(blocks, record)
    if text_of(object_of(record, "message"), "model") == _SYNTHETIC:
        # "No response requested.": the client fills the place of an answer that never came.
        return "assistant", "meta", text, []
    thoughts = [text_of(block, "thinking") for block in blocks if text_of(block, "type").endswith("thinking")]
    if thoughts and not text:
        return "assistant", "thinking", "\n".join(thoughts), []
    return "assistant", "answer", text, []


def _results(blocks: list[Object], record: Object) -> tuple[str, str, list[Json]]:
    tools: list[Json] = []
    texts: list[str] = []
    others: list[Object] = []
    for block in blocks:
        if "tool_use_id" not in block:
            others.append(block)
            continue
        entry, text = content.tool_result(block, record)
        tools.append(entry)
        texts.append(text)
    texts.append(content.without_injected(content.spoken(others)))
    return "tool_result", "\n".join([text for text in texts if text]), tools


def _user_turn(record: Object) -> tuple[str, str, str, list[Json]]:
    blocks = content.blocks_of(_content(record))
    if any("tool_use_id" in block for block in blocks):
        return "user", *_results(blocks, record)
    if record.get("isCompactSummary") is True:
        return "user", "summary", content.without_injected(content.spoken(blocks)), []
    if record.get("isMeta") is True:
        return "user", "meta", content.without_injected(content.spoken(blocks)), []
    kind, text = _said(blocks, text_of(object_of(record, "origin"), "kind"))
    return "user", kind, text, []


def _queued_turn(attachment: Object) -> tuple[str, str, str, list[Json]]:
    """A prompt or a notification that came while the client was at work, and joined the running turn."""
    blocks = content.blocks_of(attachment.get("prompt"))
    mode = text_of(attachment, "commandMode")
    if attachment.get("isMeta") is True:
        return "user", "meta", content.without_injected(content.spoken(blocks)), []
    if mode == "bash":
        return "user", "command", "!" + content.spoken(blocks), []
    if mode not in ("", "prompt"):
        return "user", "notification", content.spoken(blocks), []
    kind, text = _said(blocks, text_of(object_of(attachment, "origin"), "kind"))
    return "user", kind, text, []


def _system_turn(record: Object) -> tuple[str, str, str, list[Json]]:
    text = content.spoken(content.blocks_of(record.get("content")))
    subtype = text_of(record, "subtype")
    if subtype in ("compact_boundary", "microcompact_boundary"):
        return "system", "boundary", text, []
    if text.startswith(_COMMAND):
        # The terminal writes some commands as system lines; a person typed them all the same.
        return "user", "command", _command(text), []
    return "system", "notice", text or text_of(object_of(record, "error"), "message") or subtype, []


def _said(blocks: list[Object], origin: str) -> tuple[str, str]:
    """Kind and text of what stands in a user line; `origin` is what the client says of its source, if it does."""
    if origin and origin != "human":
        return "notification", content.spoken(blocks)
    words = content.without_injected(content.spoken(content.without_media(blocks)))
    shape = words.strip()
    if shape.startswith(_INTERRUPT) and shape.endswith("]") and "\n" not in shape:
        return "interrupt", shape
    kind, text = _typed(shape, words)
    if not origin and shape.startswith(_BY_HARNESS):
        kind = "notification"
    pictures = content.spoken(content.only_media(blocks))
    if not shape and not pictures:
        # Nothing, or nothing but what was injected: nobody said it.
        kind = "meta"
    return kind, "\n".join([part for part in (pictures, text) if part])


def _typed(shape: str, words: str) -> tuple[str, str]:
    if shape.startswith(_COMMAND) and _COMMAND[0] in shape:
        return "command", _command(shape)
    if shape.startswith(_SHELL):
        return "command", "!" + content.between(shape, "bash-input").strip()
    if shape.startswith(_NOTE):
        return "prompt", "# " + content.between(shape, "user-memory-input").strip()
    return "prompt", words


def _command(text: str) -> str:
    """A slash command as it was typed."""
    name = content.between(text, "command-name").strip()
    arguments = content.between(text, "command-args").strip()
    return f"/{name.removeprefix('/')} {arguments}".rstrip()
