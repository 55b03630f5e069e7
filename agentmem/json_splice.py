"""Change one member of an object inside a JSON text, and leave every other character as it is.

Somebody's file keeps its order, its spacing, its line ends and the way it writes numbers; only what is put in is
written anew, in the style that the file has.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple, NoReturn, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentmem.jsonio import Json

_BLANK = re.compile(r"[ \t\r\n]*")
_INDENTATION = re.compile(r"^([ \t]+)(?=[^ \t\r\n])", re.MULTILINE)


class _Member(NamedTuple):
    key: str
    start: int
    value: int
    end: int


class _Style(NamedTuple):
    indent: str | None
    """One level; None: everything stands on one line."""
    newline: str
    comma: str
    colon: str


def loads(text: str) -> Json:
    """What the text says. ValueError when it is not JSON, NaN and the infinities included, or is nested too deep."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def set_member(text: str, path: Sequence[str], value: Json) -> str:
    """The text with the member at `path` (keys from the outermost object inwards) set; objects on the way are made.

    The text must be an object, and so must everything on the way that is there. Of a key that stands twice, the last
    one counts, as it does for those who read the file. ValueError when the value holds what JSON has no form for.
    """
    style = _style_of(text)
    at = _skip(text, 0)
    for depth, key in enumerate(path, 1):
        found = [member for member in _members(text, at)[0] if member.key == key]
        if not found:
            for outer in reversed(path[depth:]):
                value = {outer: value}
            return _append(text, at, depth, key, value, style)
        if depth == len(path):
            return text[: found[-1].value] + _dump(value, style, depth) + text[found[-1].end :]
        at = found[-1].value
    raise ValueError("no path was given")


def drop_member(text: str, path: Sequence[str]) -> str:
    """The text without the member at `path`, which must be there."""
    at = _skip(text, 0)
    for key in path[:-1]:
        at = next(member.value for member in reversed(_members(text, at)[0]) if member.key == key)
    while True:
        found, close = _members(text, at)
        places = [place for place, member in enumerate(found) if member.key == path[-1]]
        if not places:
            return text
        place = places[-1]
        if place:
            start, end = found[place - 1].end, found[place].end
        elif len(found) > 1:
            start, end = found[0].start, found[1].start
        else:
            start, end = at + 1, close
        text = text[:start] + text[end:]


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_number)


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _members(text: str, at: int) -> tuple[list[_Member], int]:
    """The members of the object that begins at `at`, and where its closing brace is."""
    found: list[_Member] = []
    at = _skip(text, at + 1)
    while text[at] != "}":
        start = _skip(text, at + 1) if text[at] == "," else at
        key, at = cast("tuple[str, int]", _DECODER.raw_decode(text, start))
        value = _skip(text, _skip(text, at) + 1)
        end = _DECODER.raw_decode(text, value)[1]
        found.append(_Member(key, start, value, end))
        at = _skip(text, end)
    return found, at


def _append(text: str, at: int, depth: int, key: str, value: Json, style: _Style) -> str:
    found, close = _members(text, at)
    written = _dump(key, style, depth) + style.colon + _dump(value, style, depth)
    before = after = ""
    if style.indent is not None:
        before = style.newline + style.indent * depth
        after = style.newline + style.indent * (depth - 1)
    if not found:
        return text[: at + 1] + before + written + after + text[close:]
    end = found[-1].end
    if style.indent is None or "\n" in text[end:close]:
        after = text[end:close]
    return text[:end] + style.comma + before + written + after + text[close:]


def _dump(value: Json, style: _Style, depth: int) -> str:
    separators = (style.comma, style.colon)
    text = json.dumps(value, indent=style.indent, separators=separators, ensure_ascii=False, allow_nan=False)
    return text.replace("\n", style.newline + (style.indent or "") * depth)


def _style_of(text: str) -> _Style:
    newline = "\r\n" if "\r\n" in text else "\n"
    if not _members(text, _skip(text, 0))[0]:
        return _Style("  ", newline, ",", ": ")
    colon = ": " if '": ' in text else ":"
    if "\n" not in text.strip():
        return _Style(None, newline, ", " if colon == ": " else ",", colon)
    levels = cast("list[str]", _INDENTATION.findall(text))
    return _Style(min(levels, key=len, default=""), newline, ",", colon)
