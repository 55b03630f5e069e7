"""What the parts of a Codex rollout line say: texts and pictures, tool calls, what came back, files of a patch.

Each function takes every shape and raises nothing. Pictures become a short stub, the output of tools a size and a
hash: of the output alone, without the lines that the client puts before it (chunk, wall time, exit code).
"""

from __future__ import annotations

from agentmem.claude_content import tool_call as described
from agentmem.hashing import hexdigest
from agentmem.jsonio import as_object, int_of, list_of, loads, object_of, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentmem.jsonio import Json, Object

_TARGET_LENGTH = 2_000
_ERROR_LENGTH = 1_000
_SAID_LENGTH = 8_000
_HEAD_LENGTH = 400
"""How far the client's own lines before an output reach."""
_PARSED_LENGTH = 1 << 20
"""Longer arguments and outputs are not parsed as JSON; they have a size and a hash all the same."""
_PATCH = "*** Begin Patch"
_PATCHED = (
    ("*** Add File: ", "add"), ("*** Update File: ", "update"), ("*** Delete File: ", "delete"),
    ("*** Move to: ", "move"),
)  # fmt: skip
_FAILED = (
    "apply_patch verification failed", "unsupported call", "Script failed", "execution error", "aborted by user",
    "exec_command failed", "write_stdin failed", "unable to ", "failed to ", "collab spawn failed",
    "tool call error", "sandbox error", "patch rejected", "rejected by user", "command rejected by user",
)  # fmt: skip
"""How the answer to a call begins that came to nothing; the client marks it in no other way."""
_EXIT = ("Process exited with code ", "Exit code: ")
_OUTPUT = "Output:\n"
_ANSWERS = '{"answers":'
"""How the answers of a person to the model's questions begin."""


def parts_of(content: Json) -> list[Object]:
    """The content of a message or an output as parts; what is neither text nor a part is left out."""
    if isinstance(content, str):
        return [{"type": "input_text", "text": content}]
    parts: list[Object] = []
    for item in content if isinstance(content, list) else [content]:
        if isinstance(item, str):
            parts.append({"type": "input_text", "text": item})
        elif isinstance(item, dict):
            parts.append(item)
    return parts


def spoken(parts: list[Object]) -> str:
    """The text of the parts, a line break between them, and a stub for each picture, sound or encrypted part."""
    texts = [text for part in parts if (text := part_text(part))]
    breaks = [text if text.endswith("\n") else text + "\n" for text in texts[:-1]]
    return "".join([*breaks, *texts[-1:]])


def part_text(part: Object) -> str:
    """The text of one part, or the stub that stands for it."""
    return text_of(part, "text") or stub(part)


def stub(part: Object) -> str:
    """What stands for a part without text; the hash is of the base64 text: it is not decoded for that."""
    kind = text_of(part, "type")
    if kind == "encrypted_content":
        return f"[encrypted {len(text_of(part, 'encrypted_content'))} characters]"
    if "image" not in kind and "audio" not in kind:
        return ""
    name = "image" if "image" in kind else "audio"
    value = part.get(name + "_url")
    url = value if isinstance(value, str) else text_of(object_of(part, name + "_url"), "url")
    if not url.startswith("data:"):
        return f"[{name} {(url or text_of(part, 'file_id') or 'without data')[:200]}]"
    head, _, data = url.partition(",")
    raw = data.encode("utf-8", "surrogatepass")
    size = (len(raw) - data.count("=", -2)) * 3 // 4 if head.endswith(";base64") else len(raw)
    media = head[len("data:") :].partition(";")[0].rpartition("/")[2][:40] or "data"
    return f"[{name} {media} {size} bytes sha256:{hexdigest(raw)[:12]}]"


def patched_files(patch: str) -> list[tuple[str, str]]:
    """Each file that a patch names, as the patch spells it, and what is done to it: add, update, delete or move."""
    files: list[tuple[str, str]] = []
    for line in patch.split("\n"):
        if not line.startswith("*** "):
            continue
        for head, change in _PATCHED:
            if line.startswith(head):
                files.append((line[len(head) :].strip()[:_TARGET_LENGTH], change))
    return files


def calls_of(payload: Object, kind: str) -> list[Json]:
    """A call as {id, name, target, input_size}; of a patch one for each file, with `change`."""
    identity = text_of(payload, "call_id") or text_of(payload, "id")
    if kind == "function_call" or kind == "tool_search_call":
        return _function_calls(payload, kind, identity)
    if kind == "custom_tool_call":
        given = text_of(payload, "input")
        name = _name(payload)
        if name == "apply_patch":
            return patch_calls(identity, given) or [_call(identity, name, "", given)]
        return [_call(identity, name, given, given)]
    action = object_of(payload, "action")
    if kind == "local_shell_call":
        return [_call(identity, "local_shell", command_line(action.get("command")), "")]
    if kind == "web_search_call":
        queries = [query for query in list_of(action, "queries") if isinstance(query, str)]
        target = text_of(action, "query") or text_of(action, "url") or "\n".join(queries) or text_of(action, "pattern")
        return [_call(identity, "web_search", target, "")]
    return [_call(identity, kind.removesuffix("_call"), text_of(payload, "revised_prompt"), "")]


def _function_calls(payload: Object, kind: str, identity: str) -> list[Json]:
    given = payload.get("arguments")
    raw = given if isinstance(given, str) else ""
    arguments = _parsed(raw) if raw else as_object(given)
    name = _name(payload) if kind == "function_call" else "tool_search"
    if arguments is None:
        return [_call(identity, name, raw, raw)]
    command = command_line(arguments.get("cmd") or arguments.get("command"))
    if _PATCH in command:
        # The client takes a patch out of a shell command and applies it itself.
        before = command.partition(_PATCH)[0].strip()
        return [_call(identity, name, before, raw), *patch_calls(identity, command)]
    if name == "apply_patch" and _PATCH in text_of(arguments, "input"):
        return patch_calls(identity, text_of(arguments, "input"))
    if command:
        return [_call(identity, name, command, raw)]
    if name == "write_stdin":
        return [_call(identity, name, text_of(arguments, "chars"), raw)]
    call = described({"id": identity, "name": name, "input": arguments})
    if raw:
        call["input_size"] = _size(raw)
    return [call]


def _name(payload: Object) -> str:
    name = text_of(payload, "name") or "unknown"
    space = text_of(payload, "namespace")
    if not space:
        return name
    return space + name if space.endswith("_") else f"{space}.{name}"


def _call(identity: str, name: str, target: str, given: str) -> Object:
    return {"id": identity, "name": name, "target": target[:_TARGET_LENGTH], "input_size": _size(given or target)}


def patch_calls(identity: str, patch: str) -> list[Json]:
    """One call for each file of a patch."""
    return [{**_call(identity, "apply_patch", path, patch), "change": change} for path, change in patched_files(patch)]


def command_line(command: Json) -> str:
    """A command as it would be typed; of `bash -lc SCRIPT` only the script."""
    if isinstance(command, str):
        return command
    words = [word for word in command if isinstance(word, str)] if isinstance(command, list) else []
    if len(words) == 3 and words[1] in ("-lc", "-c"):
        return words[2]
    return " ".join(words)


def result_of(payload: Object) -> tuple[Object, str]:
    """An output as {id, size, sha256, error, lines, exit_code?, media?}, and what of its text is worth finding again.

    That is the head of an error, and what a person answered to a question.
    """
    output = payload.get("output")
    if output is None:
        output = payload.get("tools")
    code: int | None = None
    success: Json = None
    if isinstance(output, dict):
        success = output.get("success")
        output = output.get("content")
    parts = parts_of(output)
    media: list[Json] = [found for part in parts if not text_of(part, "text") and (found := stub(part))]
    text = spoken(parts)
    if text.startswith('{"output":') and len(text) < _PARSED_LENGTH:
        # Until 2026 the output of a command came as JSON.
        known = _parsed(text)
        if known is not None:
            text = text_of(known, "output")
            code = _code(object_of(known, "metadata").get("exit_code"))
    body, shown = _without_head(text)
    code = shown if shown is not None else code
    failed = success is False or body.startswith(_FAILED) or text.startswith(_FAILED)
    entry = outcome(text_of(payload, "call_id") or text_of(payload, "id"), body, code, failed=failed)
    if media:
        entry["media"] = media
    if entry["error"] is True:
        return entry, error_text(body, code)
    return entry, body[:_SAID_LENGTH] if body.startswith(_ANSWERS) else ""


def outcome(identity: str, body: str, code: int | None, *, failed: bool = False) -> Object:
    """What came back of a call, without the text of it."""
    raw = body.encode("utf-8", "surrogatepass")
    entry: Object = {
        "id": identity,
        "size": len(raw),
        "sha256": hexdigest(raw),
        "error": failed or code not in (None, 0),
        "lines": body.count("\n") + (not body.endswith("\n")) if body else 0,
    }
    if code is not None:
        entry["exit_code"] = code
    return entry


def error_text(body: str, code: int | None) -> str:
    """The head of an output that tells of a failure."""
    head = f"Exit code {code}" if code not in (None, 0) else ""
    return "\n".join([text for text in (head, body[:_ERROR_LENGTH].rstrip()) if text])


def _without_head(text: str) -> tuple[str, int | None]:
    """An output without the client's own lines before it, and the exit code that they tell."""
    code: int | None = None
    while text.startswith(("Chunk ID: ", "Wall time", "Exit code: ", "Process ", "Script ", "Total output")):
        head, found, rest = text[:_HEAD_LENGTH].partition(_OUTPUT)
        if not found:
            # "Wall time: 1.6 seconds\naborted by user"
            first, _, rest = text.partition("\n")
            return (rest, code) if first.startswith("Wall time") and rest else (text, code)
        for line in head.split("\n"):
            for mark in _EXIT:
                if line.startswith(mark):
                    shown = _code(line[len(mark) :].strip())
                    code = shown if shown is not None else code
        text = rest + text[_HEAD_LENGTH:]
    return text, code


def _code(value: Json) -> int | None:
    if isinstance(value, str):
        digits = value.removeprefix("-")
        return int(value) if digits.isascii() and digits.isdigit() and len(digits) < 10 else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _parsed(text: str) -> Object | None:
    if len(text) > _PARSED_LENGTH:
        return None
    try:
        return as_object(loads(text))
    except ValueError:
        return None


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def nested_calls(item: Object, kind: str) -> tuple[list[Json], str]:
    """What a script of the model did (code mode): call and outcome in one, and the head of an error."""
    identity = text_of(item, "id")
    if kind == "CommandExecution":
        code = _code(item.get("exit_code"))
        body = text_of(item, "aggregated_output")
        failed = text_of(item, "status") in ("failed", "declined")
        done = outcome(identity, body, code, failed=failed)
        call = {**_call(identity, "exec_command", command_line(item.get("command")), ""), **done}
        return [call], error_text(body, code) if done["error"] is True else ""
    if kind == "FileChange":
        error = text_of(item, "status") not in ("", "completed")
        text = text_of(item, "stderr")[:_ERROR_LENGTH] if error else ""
        changes = object_of(item, "changes")
        return [
            {
                "id": identity,
                "name": "apply_patch",
                "target": path[:_TARGET_LENGTH],
                "change": text_of(change, "type") if isinstance(change, dict) else "",
                "error": error,
            }
            for path, change in changes.items()
        ], text
    name = text_of(item, "tool") or "unknown"
    if text_of(item, "server"):
        name = f"mcp__{text_of(item, 'server')}__{name}"
    call = described({"id": identity, "name": name, "input": item.get("arguments")})
    error = text_of(item, "status") == "failed" or item.get("success") is False
    message = text_of(object_of(item, "error"), "message") or text_of(item, "error")
    return [{**call, "error": error}], message[:_ERROR_LENGTH] if error else ""


def rolled_back(payload: Object) -> str:
    """What stands for the turns that a person took back."""
    count = int_of(payload, "num_turns")
    return f"[{count} turn{'' if count == 1 else 's'} taken back]"
