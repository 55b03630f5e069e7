"""A member put into a JSON text, or taken out: what it says then, and that nothing else in it moved."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem import json_splice
from agentmem.json_splice import drop_member, loads, set_member

KEYS = st.sampled_from(["a", "hooks", "Stop", "한글", 'q"uote\\', "", "\u2028"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
BLANKS = st.text(" \t\n\r", max_size=3)


@st.composite
def texts(draw: st.DrawFn, value: Any = None) -> str:
    """Some object as JSON, with any blanks that JSON allows, escaped or not."""
    value = draw(st.dictionaries(KEYS, VALUES, max_size=4)) if value is None else value

    def write(one: Any) -> str:
        if isinstance(one, dict):
            parts = [
                f"{draw(BLANKS)}{json.dumps(key)}{draw(BLANKS)}:{draw(BLANKS)}{write(inner)}{draw(BLANKS)}"
                for key, inner in one.items()
            ]
            return "{" + (",".join(parts) or draw(BLANKS)) + "}"
        if isinstance(one, list):
            return "[" + (",".join(draw(BLANKS) + write(inner) + draw(BLANKS) for inner in one) or draw(BLANKS)) + "]"
        return json.dumps(one, ensure_ascii=draw(st.booleans()))

    return draw(BLANKS) + write(value) + draw(BLANKS)


def slices(text: str, without: str) -> list[str]:
    """The other members of the outermost object, as they are written."""
    found, _ = json_splice._members(text, json_splice._skip(text, 0))
    return [text[member.start : member.end] for member in found if member.key != without]


@given(texts(), st.lists(KEYS, min_size=1, max_size=2), VALUES)
def test_a_member_is_set_and_nothing_else_moves(text: str, path: list[str], value: Any) -> None:
    before = json.loads(text)
    if len(path) == 2 and not isinstance(before.get(path[0], {}), dict):
        before.pop(path[0])
        text = drop_member(text, path[:1])
    after = set_member(text, path, value)
    at = before
    for key in path[:-1]:
        at = at.setdefault(key, {})
    at[path[-1]] = value
    assert loads(after) == before
    assert list(json.loads(after)) == list(before)
    assert slices(after, path[0]) == slices(text, path[0])


@given(texts(), st.data())
def test_a_member_is_dropped_and_nothing_else_moves(text: str, data: st.DataObject) -> None:
    before = json.loads(text)
    if not before:
        return
    key = data.draw(st.sampled_from(list(before)))
    after = drop_member(text, [key])
    before.pop(key)
    assert loads(after) == before
    assert slices(after, key) == slices(text, key)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}\n", '{\n  "k": [\n    1\n  ]\n}\n'),
        ('{"a":1}', '{"a":1,"k":[1]}'),
        ('{"a": 1}', '{"a": 1, "k": [1]}'),
        ('{\n\t"a": [1, 2]\n}', '{\n\t"a": [1, 2],\n\t"k": [\n\t\t1\n\t]\n}'),
        ('{\r\n    "a": 1.10\r\n}\r\n', '{\r\n    "a": 1.10,\r\n    "k": [\r\n        1\r\n    ]\r\n}\r\n'),
        ('{\n"a": 1}', '{\n"a": 1,\n"k": [\n1\n]\n}'),
    ],
)
def test_what_is_put_in_looks_like_the_rest(text: str, expected: str) -> None:
    assert set_member(text, ["k"], [1]) == expected
    assert loads(expected) == {**json.loads(text), "k": [1]}


def test_the_form_of_numbers_and_strings_stays() -> None:
    text = '{"a":1e400,"b":1.10,"c":"\\u00e9\\ud83d","d":12345678901234567890.0}'
    assert set_member(text, ["k"], None) == text[:-1] + ',"k":null}'


def test_of_a_key_that_stands_twice_the_last_one_counts() -> None:
    text = '{"k": 1, "a": 2, "k": 3}'
    assert set_member(text, ["k"], 4) == '{"k": 1, "a": 2, "k": 4}'
    assert drop_member(text, ["k"]) == '{"a": 2}'


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": -Infinity}', "{'a': 1}", "", "[" * 100_000 + "]" * 100_000])
def test_what_is_not_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        loads(text)
