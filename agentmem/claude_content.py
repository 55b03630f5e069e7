"""What the content of a Claude Code message says: its text, its pictures, its tool calls and their results.

Content comes as a string, as a list of blocks or as anything else; each function here takes every shape and
raises nothing. Pictures and documents become a short stub, the output of tools a size and a hash.
"""

from __future__ import annotations

from agentmem.hashing import hexdigest
from agentmem.jsonio import as_object, dumps, list_of, object_of, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentmem.jsonio import Json, Object

_TARGET_LENGTH = 2_000
_HEAD_LENGTH = 200
_ERROR_LENGTH = 1_000
_SAID_LENGTH = 8_000
_TARGETS = ("file_path", "notebook_path", "command", "pattern", "url", "description")
"""Keys of a tool's input, the most telling first; `_described` knows the rest."""
_OTHER_TARGETS = ("query", "path", "skill", "plan", "subject", "title", "name", "prompt", "message", "text")
_INJECTED = ("system-reminder", "user-prompt-submit-hook", "session-start-hook", "ide_opened_file", "ide_selection")
"""Tags of what the client or a hook put into a message; none of it was said by anybody."""
_SPILLED = "<persisted-output>"
_SPILLED_TO = "saved to: "
_REFUSED = "The user doesn't want to "
"""How a result begins when the person said no to the call; older clients mark it in no other way."""


def blocks_of(content: Json) -> list[Object]:
    """The content as blocks; what is neither text nor a block is left out."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    blocks: list[Object] = []
    for item in content if isinstance(content, list) else [content]:
        if isinstance(item, str):
            blocks.append({"type": "text", "text": item})
        elif isinstance(item, dict):
            blocks.append(item)
    return blocks


def spoken(blocks: list[Object]) -> str:
    """The text of the blocks, and a stub for each picture or document."""
    return "\n".join([text for block in blocks if (text := _text(block))])


def only_media(blocks: list[Object]) -> list[Object]:
    """The pictures and documents among the blocks."""
    return [block for block in blocks if _is_media(block)]


def without_media(blocks: list[Object]) -> list[Object]:
    """The blocks that are neither pictures nor documents."""
    return [block for block in blocks if not _is_media(block)]


def _is_media(block: Object) -> bool:
    return block.get("type") in ("image", "document")


def _text(block: Object) -> str:
    return _stub(block) if _is_media(block) else text_of(block, "text")


def _stub(block: Object) -> str:
    """What stands for a picture or document; the hash is of the base64 text: it is not decoded for that."""
    kind = text_of(block, "type")
    source = object_of(block, "source")
    data = text_of(source, "data")
    if not data:
        place = text_of(source, "url") or text_of(source, "file_id") or "without data"
        return f"[{kind} {place[:_HEAD_LENGTH]}]"
    raw = data.encode("utf-8", "surrogatepass")
    size = (len(raw) - data.count("=", -2)) * 3 // 4 if source.get("type") == "base64" else len(raw)
    name = text_of(source, "media_type").rpartition("/")[2][:40] or "data"
    return f"[{kind} {name} {size} bytes sha256:{hexdigest(raw)[:12]}]"


def without_injected(text: str) -> str:
    """The text without the blocks that the client or a hook injected; a tag that is not closed stays."""
    if "<" not in text:
        return text
    for tag in _INJECTED:
        opening = f"<{tag}>"
        if opening in text:
            text = _cut(text, opening, f"</{tag}>")
    return text


def between(text: str, tag: str) -> str:
    """What stands between the first opening and the last closing of a tag; "" when it is not opened."""
    _, _, rest = text.partition(f"<{tag}>")
    inner, found, _ = rest.rpartition(f"</{tag}>")
    return inner if found else rest


def _cut(text: str, opening: str, closing: str) -> str:
    kept: list[str] = []
    start = 0
    while (begin := text.find(opening, start)) >= 0:
        end = text.find(closing, begin)
        if end < 0:
            break
        kept.append(text[start:begin].rstrip())
        start = end + len(closing)
    kept.append(text[start:])
    return "".join(kept).strip() if start else text


def tool_call(block: Object) -> Object:
    """A call as {id, name, target, input_size}: what was called, on what, and the bytes of its input as JSON."""
    given = block.get("input")
    return {
        "id": text_of(block, "id"),
        "name": text_of(block, "name") or "unknown",
        "target": _target(as_object(given) or {}),
        "input_size": _json_size(given),
    }


def _target(given: Object) -> str:
    for key in _TARGETS:
        value = given.get(key)
        if value and isinstance(value, str):
            return value[:_TARGET_LENGTH]
    questions = [text_of(item, "question") for item in list_of(given, "questions") if isinstance(item, dict)]
    if any(questions):
        return "\n".join(questions)[:_TARGET_LENGTH]
    for key in _OTHER_TARGETS:
        value = given.get(key)
        if value and isinstance(value, str):
            return value[: _TARGET_LENGTH if key in ("plan", "path", "query") else _HEAD_LENGTH]
    for value in given.values():
        if value and isinstance(value, str):
            return value[:_HEAD_LENGTH]
    return ""


def _json_size(value: Json) -> int:
    try:
        return len(dumps(value).encode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        # A nesting or a number that can be read but not be written again.
        return 0


def tool_result(block: Object, record: Object) -> tuple[Object, str]:
    """A result as {id, size, sha256, error, lines}, and what is worth finding again of its text.

    That is the head of an error, and what a person said: why a call was refused, or the answer to a question.
    """
    inner = blocks_of(block.get("content"))
    media: list[Json] = [_stub(item) for item in inner if _is_media(item)]
    text = spoken(inner)
    raw = text.encode("utf-8", "surrogatepass")
    refused = "user-rejected" if text.startswith(_REFUSED) else ""
    denied = text_of(record, "toolDenialKind") or refused
    error = block.get("is_error") is True or bool(denied)
    entry: Object = {
        "id": text_of(block, "tool_use_id"),
        "size": len(raw),
        "sha256": hexdigest(raw),
        "error": error,
        "lines": text.count("\n") + (not text.endswith("\n")) if text else 0,
    }
    if denied:
        entry["denied"] = denied
    if media:
        entry["media"] = media
    if text.startswith(_SPILLED):
        entry["externalised"] = _spilled_to(text[:5_000], record)
    if _holds_words(record):
        return entry, text[:_SAID_LENGTH]
    return entry, text[:_ERROR_LENGTH] if error else ""


def _spilled_to(text: str, record: Object) -> str:
    """The file that holds the whole output; "" when the client doesn't say which."""
    before, found, after = text.partition(_SPILLED_TO)
    if found and "\n\n" not in before:
        return after.partition("\n")[0].strip()
    return text_of(object_of(record, "toolUseResult"), "persistedOutputPath")


def _holds_words(record: Object) -> bool:
    """True when a person's own words are in the result: a refusal with a reason, answers to questions."""
    if record.get("holdsPersonsWords") is True or text_of(record, "userFeedback"):
        return True
    return bool(object_of(object_of(record, "toolUseResult"), "answers"))
