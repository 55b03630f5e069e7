"""JSON as hooks read and write it: what `json` does, and nothing that Postgres refuses."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem import jsonio

any_text = st.text(st.characters(exclude_categories=()), max_size=30)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=12,
)


def strings(value: object) -> list[str]:
    """Every string in a value, keys too."""
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in strings(part)]
    if isinstance(value, list):
        return [text for part in value for text in strings(part)]
    return [value] if isinstance(value, str) else []


@given(values)
def test_what_is_written_is_what_json_reads(value: jsonio.Json) -> None:
    assert json.loads(jsonio.dumps(value)) == value
    assert json.loads(jsonio.dumps_ascii(value)) == value
    assert jsonio.dumps_ascii(value).isascii()


@given(values)
def test_what_json_writes_is_read(value: jsonio.Json) -> None:
    for text in (json.dumps(value), json.dumps(value, indent=2), json.dumps(value, ensure_ascii=False)):
        assert jsonio.loads(text, strict=True) == value
        assert jsonio.loads(f" \r\n\t{text}\n") == value


@given(st.text(max_size=60) | st.text('{}[]",:\\u0d8ef1.-+eE nulltrue', max_size=60))
def test_whatever_the_text_is_there_is_a_value_or_a_value_error(text: str) -> None:
    for strict in (True, False):
        try:
            expected = json.loads(text.strip(" \t\r\n"), strict=strict, parse_constant=lambda _: None)
        except ValueError:
            with pytest.raises(ValueError):  # noqa: PT011 - any message
                jsonio.loads(text, strict)
        else:
            if not (isinstance(expected, float) and math.isinf(expected)):
                assert jsonio.loads(text, strict) == expected


@given(values)
def test_what_was_cleaned_can_be_stored(value: jsonio.Json) -> None:
    cleaned, count = jsonio.clean(value)
    for text in strings(cleaned):
        assert "\0" not in text
        text.encode()
    assert (count > 0) == (cleaned != value)
    assert jsonio.clean(cleaned) == (cleaned, 0)


@given(values)
def test_what_needs_no_cleaning_is_not_said_to(value: jsonio.Json) -> None:
    raw = json.dumps(value).encode()
    if not jsonio.may_need_cleaning(raw):
        assert jsonio.clean(value)[1] == 0


def test_pairs_stay_and_halves_go() -> None:
    assert jsonio.clean_text("🙂") == ("🙂", 0)
    assert jsonio.clean_text("a\ud83d b\udc00\0") == ("a\ufffd b\ufffd\ufffd", 3)
    assert jsonio.loads('"\\ud83d\\ude42"') == "🙂"


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_what_is_no_number_in_postgres_is_null(text: str) -> None:
    assert jsonio.loads(f"[{text}]") == [None]


def test_numbers_of_any_length_and_depths_of_any_kind() -> None:
    assert jsonio.loads("[" + "9" * 6000 + "]") == ["9" * 6000]
    for deep in ("[" * 100_000, '{"a":' * 100_000):
        with pytest.raises(ValueError, match=r"deep|no JSON|Expecting"):
            jsonio.loads(deep)
    value: jsonio.Json = "x"
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ValueError, match="deep"):
        jsonio.clean(value)
