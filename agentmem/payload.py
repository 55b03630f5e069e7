"""What the client writes to a hook's stdin: bytes in, a clean object out, whatever they look like.

Strict JSON first; what is not is taken tolerantly and flagged. The locale plays no part. A client that never
closes the pipe is not waited for: reading ends with the first complete object.

Flags: bom, bad_utf8, control_chars, bad_escapes, trailing_data, duplicate_keys, replaced_chars. The hook adds
not_closed, other_event and no_transcript.
"""

from __future__ import annotations

import os
import select
import time

from agentmem import jsonio
from agentmem.errors import PayloadError
from agentmem.hashing import hexdigest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentmem.jsonio import Object

MOST_BYTES = 64 * 1024 * 1024
MOST_KEY = 200
"""Longest session id that is taken for one, in characters."""
_IDLE_SECONDS = 0.3
_CHUNK = 1 << 20
_KEYS = (b'"session_id"', b'"transcript_path"', b'"cwd"', b'"hook_event_name"')


class Payload:
    """One event as the client described it."""

    __slots__ = ("event", "flags", "session", "size", "values")

    def __init__(self, values: Object, flags: list[str], size: int) -> None:
        self.values = values
        self.flags = flags
        self.size = size
        """Bytes on stdin."""
        self.event = jsonio.text_of(values, "hook_event_name")
        self.session = jsonio.text_of(values, "session_id")


def read(descriptor: int, deadline: float) -> tuple[bytes, bool]:
    """The bytes of one payload; False when the client fell silent before it was whole. `deadline`: time.monotonic().

    PayloadError: stdin_unreadable, stdin_too_big.
    """
    chunks: list[bytes] = []
    size = 0
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while size < MOST_BYTES:
        # Once something came, silence means that the client won't close the pipe.
        patience = deadline - time.monotonic()
        if chunks:
            patience = min(patience, _IDLE_SECONDS)
        if patience <= 0 or not poll.poll(int(patience * 1000) + 1):
            return b"".join(chunks), False
        try:
            chunk = os.read(descriptor, _CHUNK)
        except OSError as error:
            raise PayloadError(
                "stdin_unreadable", f"the payload can't be read: {error.strerror}", "See the client's own log."
            ) from error
        if not chunk:
            return b"".join(chunks), True
        chunks.append(chunk)
        size += len(chunk)
        if chunk.rstrip().endswith(b"}") and _is_whole(b"".join(chunks)):
            return b"".join(chunks), True
    raise PayloadError(
        "stdin_too_big",
        f"the payload is longer than {MOST_BYTES} bytes",
        "The transcript is captured at the next event.",
    )


def _is_whole(raw: bytes) -> bool:
    try:
        return isinstance(jsonio.loads(raw.decode("utf-8", "replace").lstrip("\ufeff")), dict)
    except ValueError:
        return False


def parse(raw: bytes) -> Payload:
    """The payload in these bytes. PayloadError: stdin_empty, stdin_malformed, stdin_not_object."""
    flags: list[str] = []
    if not raw.strip():
        raise PayloadError("stdin_empty", "the client wrote nothing to the hook", "See the client's own log.")
    text = _decode(raw, flags)
    value = _value(text, raw, flags)
    if not isinstance(value, dict):
        raise PayloadError(
            "stdin_not_object", f"the payload is {type(value).__name__}, not an object", "See the client's own log."
        )
    try:
        cleaned, replaced = jsonio.clean(value)
    except ValueError as error:
        raise _malformed(raw, str(error)) from None
    if any(raw.count(key) > 1 for key in _KEYS) and jsonio.has_key_twice(text):
        flags.append("duplicate_keys")
    if replaced:
        flags.append("replaced_chars")
    return Payload(jsonio.as_object(cleaned) or {}, flags, len(raw))


def _decode(raw: bytes, flags: list[str]) -> str:
    if raw.startswith(b"\xef\xbb\xbf"):
        flags.append("bom")
        raw = raw[3:]
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        flags.append("bad_utf8")
        return raw.decode("utf-8", "replace")


def _value(text: str, raw: bytes, flags: list[str]) -> jsonio.Json:
    """The JSON value in the text, by the first way of reading it that works."""
    reason = ""
    for flag, read_text in (
        ("", _read_strictly),
        ("control_chars", jsonio.loads),
        ("trailing_data", _read_first_object),
        ("bad_escapes", _read_with_bad_escapes),
    ):
        try:
            value = read_text(text)
        except ValueError as error:
            reason = reason or str(error)
            continue
        if flag:
            flags.append(flag)
        return value
    raise _malformed(raw, reason)


def _read_strictly(text: str) -> jsonio.Json:
    return jsonio.loads(text, strict=True)


def _read_first_object(text: str) -> jsonio.Json:
    value, end = jsonio.scan(text)
    if not isinstance(value, dict):
        raise ValueError(f"no object before character {end}")  # noqa: TRY004 - what was read is text, not a type
    return value


def _read_with_bad_escapes(text: str) -> jsonio.Json:
    return jsonio.loads(_double_bad_escapes(text))


def _double_bad_escapes(text: str) -> str:
    """The text with each backslash that starts no JSON escape doubled: C:\\Users, unescaped by a client."""
    parts: list[str] = []
    start = 0
    while (place := text.find("\\", start)) >= 0:
        following = text[place + 1 : place + 2]
        digits = text[place + 2 : place + 6]
        good = following in tuple('"\\/bfnrt') or (
            following == "u" and len(digits) == 4 and all(c in "0123456789abcdefABCDEF" for c in digits)
        )
        step = 2 if good else 1
        parts.append(text[start : place + step] if good else text[start:place] + "\\\\")
        start = place + step
    return "".join(parts) + text[start:]


def _malformed(raw: bytes, reason: str) -> PayloadError:
    # No content: it may hold secrets. Size and hash tell two reports of one payload from two of two.
    return PayloadError(
        "stdin_malformed",
        f"the payload of {len(raw)} bytes (sha256 {hexdigest(raw)[:12]}) is not JSON: {reason}",
        "The transcript is captured at the next event.",
    )
