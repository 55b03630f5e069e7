"""The payload: whatever comes on stdin is a payload or a coded error, and nobody is waited for."""

from __future__ import annotations

import json
import os
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentmem import payload
from agentmem.errors import PayloadError

GOOD = {"session_id": "s", "hook_event_name": "Stop", "cwd": "/한국어 🙂", "text": "a\nb"}


def strings(value: object) -> list[str]:
    """Every string in a value, keys too."""
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in strings(part)]
    if isinstance(value, list):
        return [text for part in value for text in strings(part)]
    return [value] if isinstance(value, str) else []


@given(st.binary(max_size=80) | st.text(max_size=80).map(str.encode) | st.just(json.dumps(GOOD).encode()))
@example(b"[" * 100_000)
@example(b'{"a":' * 100_000)
@example(b'{"a":"\xed\xa0\xbd"}')
def test_any_bytes_are_a_payload_or_a_coded_error(raw: bytes) -> None:
    try:
        found = payload.parse(raw)
    except PayloadError as refused:
        error = refused
        found = None
    if found is None:
        assert error.code in ("stdin_empty", "stdin_malformed", "stdin_not_object")
        # The content may hold secrets.
        assert len(raw) < 12 or raw.decode("utf-8", "replace") not in error.message
    else:
        assert found.size == len(raw)
        for text in strings(found.values):
            assert "\0" not in text
            text.encode()


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=20) | st.integers() | st.none(), max_size=5))
def test_what_a_client_writes_properly_arrives_as_it_is(values: dict[str, object]) -> None:
    for raw in (json.dumps(values).encode() + b"\n", json.dumps(values, ensure_ascii=False).encode()):
        found = payload.parse(raw)
        if not any("\0" in text for text in strings(values)):
            assert found.values == values
            assert set(found.flags) <= {"duplicate_keys"}


@pytest.mark.parametrize(
    ("raw", "flag", "text"),
    [
        (b'{"text":"a\nb\x1b[1m"}', "control_chars", "a\nb\x1b[1m"),
        (b'\xef\xbb\xbf{"text":"x"}', "bom", "x"),
        (b'{"text":"caf\xe9"}', "bad_utf8", "caf\ufffd"),
        (b'{"text":"a\\u0000b"}', "replaced_chars", "a\ufffdb"),
        (b'{"text":"\\ud83d!"}', "replaced_chars", "\ufffd!"),
        (b'{"text":"C:\\Users\\x"}', "bad_escapes", "C:\\Users\\x"),
        (b'{"text":"x"} and a log line', "trailing_data", "x"),
    ],
)
def test_what_is_odd_is_taken_and_flagged(raw: bytes, flag: str, text: str) -> None:
    found = payload.parse(raw)
    assert found.values["text"] == text
    assert flag in found.flags


@pytest.mark.parametrize("parts", [[b'{"a":1}'], [b'{"a":', b"1}"], [b'{"a":{"b":1}', b"}\n"]])
def test_a_pipe_that_stays_open_is_not_waited_for(parts: list[bytes]) -> None:
    reading, writing = os.pipe()
    try:
        for part in parts:
            os.write(writing, part)
        raw, whole = payload.read(reading, time.monotonic() + 60)
        assert (raw, whole) == (b"".join(parts), True)
    finally:
        os.close(reading)
        os.close(writing)


def test_a_client_that_falls_silent_is_left_at_the_deadline() -> None:
    reading, writing = os.pipe()
    try:
        assert payload.read(reading, time.monotonic()) == (b"", False)
        os.write(writing, b'{"a":')
        assert payload.read(reading, time.monotonic() + 60) == (b'{"a":', False)
    finally:
        os.close(reading)
        os.close(writing)


def test_a_payload_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "MOST_BYTES", 1000)
    reading, writing = os.pipe()
    os.write(writing, b"x" * 2000)
    os.close(writing)
    with pytest.raises(PayloadError) as caught:
        payload.read(reading, time.monotonic() + 60)
    os.close(reading)
    assert caught.value.code == "stdin_too_big"
