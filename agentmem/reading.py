"""What reading a stretch of a transcript yields, whichever client wrote it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentmem.jsonio import Json, Object


class Reading:
    """The turns of a stretch of one transcript, and what its lines say about their session.

    A client's parser fills it record by record, in file order.
    """

    __slots__ = ("copied_from", "facts", "kinds", "turns", "unknown")

    def __init__(self) -> None:
        self.turns: list[Object] = []
        """One object for each line that is part of the conversation: see `turn`."""
        self.kinds: dict[str, int] = {}
        """How many lines there were of each type; their sum is the number of lines that are not blank."""
        self.unknown: dict[str, int] = {}
        """How many lines had a type that the parser doesn't know."""
        self.facts: Object = {}
        """cwd, branch, version, model, title, forked_from: the last one seen of each."""
        self.copied_from = ""
        """The session whose lines stand here, where a client copied a stretch of another session; "" elsewhere."""

    def count(self, kind: str) -> None:
        """One more line of this type."""
        self.kinds[kind] = self.kinds.get(kind, 0) + 1

    def count_unknown(self, kind: str) -> None:
        """One more line of a type that the parser doesn't know; it counts among `kinds` too."""
        self.count(kind)
        self.unknown[kind] = self.unknown.get(kind, 0) + 1


def turn(
    uuid: str,
    position: int,
    role: str,
    kind: str,
    text: str,
    *,
    at: str | None = None,
    parent: str | None = None,
    message: str | None = None,
    model: str | None = None,
    agent: str | None = None,
    origin: str | None = None,
    tools: list[Json] | None = None,
) -> Object:
    """One turn as `agentmem.capture` takes it.

    uuid: the client's id of the line; position: byte offset of the line in its file; role: user, assistant or
    system; kind: prompt, command, notification, interrupt, meta, summary, boundary, answer, thinking, tool_call,
    tool_result, api_error, notice; at: ISO 8601 with zone; message: the id that the lines of one answer share;
    agent: the subagent that wrote it, when it did not write to a file of its own; origin: the session that the
    line was copied from, in a fork; tools: what was called, or what came back, as small objects.
    """
    return {
        "uuid": uuid,
        "position": position,
        "role": role,
        "kind": kind,
        "text": text,
        "at": at,
        "parent": parent,
        "message": message,
        "model": model,
        "agent": agent,
        "origin": origin,
        "tools": tools,
    }
