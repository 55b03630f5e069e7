"""Who speaks in a message of a Codex rollout: a person, the model, or the client in the place of either.

The client puts its own texts (instructions, surroundings, what hooks added) into messages of the roles developer and
user. Since 0.16x it says so of each part (`content_item_kinds`, `provenance`); in older files the beginning tells.
"""

from __future__ import annotations

from agentmem import codex_content as content
from agentmem.claude_content import between
from agentmem.jsonio import as_object, list_of, object_of, text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentmem.jsonio import Json, Object
    from agentmem.reading import Reading

    Parts = tuple[str, str, str, list[Json]]

_NAME_LENGTH = 80
_BY_HARNESS = (
    "<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<turn_aborted>", "<user_action>",
    "<skill>", "<skills_instructions>", "<permissions instructions>", "<permissions>", "<collaboration_mode>",
    "<apps_instructions>", "<recommended_plugins>", "<app-context>", "<goal_context>", "<model_switch>",
    "<INSTRUCTIONS>", "<memory>", "<context_window", "<realtime_conversation>", "<command_sessions>",
    "<multi_agent_", "<internal_context", "<codex_internal_context", "These AGENTS.md instructions replace ",
    "The previously provided AGENTS.md instructions ", "You are performing a CONTEXT CHECKPOINT COMPACTION",
)  # fmt: skip
"""How a part of a user message begins that the client wrote; since 0.16x `content_item_kinds` says so as well."""
_NOTIFIED = "<subagent_notification>"
_HOOK_PROMPT = "<hook_prompt"
_SHELL = "<user_shell_command>"
_SUMMARY = "Another language model started to solve this problem"
_FROM_IDE = "# Context from my IDE setup:"
_REQUEST = "## My request for Codex:"


def message_parts(record: Object, payload: Object, reading: Reading, *, bare: bool) -> Parts | None:
    """Role, kind, text and tools of the turn that a message is; None for one that comes again elsewhere.

    bare: the line has no envelope, and its file may have no head that names the folder.
    """
    role = text_of(payload, "role")
    parts = content.parts_of(payload.get("content"))
    meta = object_of(payload, "internal_chat_message_metadata_passthrough")
    kinds = list_of(meta, "content_item_kinds")
    if role == "assistant":
        if object_of(record, "metadata").get("compaction_output") is True:
            # The summary comes again in the line `compacted`.
            return None
        return "assistant", "answer", content.spoken(parts), []
    if role != "user":
        return "system", "meta", _named(parts, kinds), []
    if bare and "cwd" not in reading.facts:
        _note_old_cwd(parts, reading)
    return _user_message(parts, kinds, list_of(meta, "content_item_metadata"))


def _note_old_cwd(parts: list[Object], reading: Reading) -> None:
    """The folder of a rollout without a head that names it."""
    for part in parts:
        text = text_of(part, "text")
        if text.startswith("<environment_context>"):
            cwd = between(text, "cwd").strip() if "<cwd>" in text else ""
            if not cwd:
                cwd = text.partition("Current working directory: ")[2].partition("\n")[0].strip()
            if cwd:
                reading.facts["cwd"] = cwd


def _user_message(parts: list[Object], kinds: list[Json], about: list[Json]) -> Parts:
    """A prompt: what a person said of the message; else what the client wrote in the person's place."""
    said: list[str] = []
    kept: list[Object] = []
    other = "meta"
    for place, part in enumerate(parts):
        kind = _kind_of(
            part, kinds[place] if place < len(kinds) else None, about[place] if place < len(about) else None
        )
        text = content.part_text(part)
        if kind == "prompt":
            if not _is_wrapping(text):
                said.append(_requested(text))
        elif kind == "command":
            return "user", "command", "!" + between(text, "command").strip(), []
        elif kind != "meta":
            other = kind
            kept.append(part)
        elif text.startswith(_HOOK_PROMPT):
            kept.append(part)
    if any(said):
        return "user", "prompt", "\n".join([text for text in said if text]), []
    return "user", other, content.spoken(kept) or _named(parts, kinds), []


def _kind_of(part: Object, kind: Json, about: Json) -> str:
    """What a part of a user message is: prompt, command, notification, summary or meta.

    kind: what the client says of the part ("user.text", "environments.environment_context", "unknown");
    about: its provenance, as {"provenance": {"type": "user" | "harness" | "tool" ..}}.
    """
    text = text_of(part, "text")
    if isinstance(kind, str) and kind.startswith("user."):
        return "prompt"
    if text.startswith(_SHELL):
        return "command"
    if text.startswith(_NOTIFIED) or kind == "multi_agent.subagent_notification":
        return "notification"
    if text.startswith(_SUMMARY):
        return "summary"
    source = text_of(object_of(as_object(about) or {}, "provenance"), "type")
    if source == "user":
        return "prompt"
    if source or (isinstance(kind, str) and kind not in ("", "unknown")):
        return "meta"
    return "meta" if text.lstrip().startswith((*_BY_HARNESS, _HOOK_PROMPT)) else "prompt"


def _is_wrapping(text: str) -> bool:
    """True for the tags that the client puts around a picture."""
    return text == "</image>" or (text.startswith("<image") and text.endswith(">") and "\n" not in text)


def _requested(text: str) -> str:
    """What was typed, of a prompt to which an editor added what is open in it."""
    if text.startswith(_FROM_IDE) and _REQUEST in text:
        return text.partition(_REQUEST)[2].strip()
    return text


def _named(parts: list[Object], kinds: list[Json]) -> str:
    """What stands for a message of the client's own: instructions, surroundings, what hooks added. Not their text."""
    names = [kind for kind in kinds if isinstance(kind, str) and kind != "unknown"]
    if not names:
        for part in parts:
            text = text_of(part, "text").lstrip()
            tag = text[1:].partition(">")[0].partition(" ")[0][:_NAME_LENGTH] if text.startswith("<") else ""
            names.append(tag or "text")
    return f"[{', '.join(names)}]" if names else ""
