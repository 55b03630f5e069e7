"""JSON in and out at the speed that a hook can afford, and text that Postgres can take.

`import json` costs a hook as much as the interpreter itself (it pulls in `re` and `enum`), so the C scanner and
encoder behind it are used directly; where they are missing (another Python), `json` does the same work.
Source of the limits: Postgres refuses U+0000 in text and jsonb, and unpaired surrogates everywhere.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias, cast

    Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
    Object: TypeAlias = "dict[str, Json]"
else:

    def cast(_kind, value):
        return value


REPLACEMENT = "\ufffd"
_INFINITY = float("inf")


def _finite(digits: str) -> float | None:
    """A number; null where it is too big for one (Postgres has no infinity in JSON)."""
    number = float(digits)
    return number if -_INFINITY < number < _INFINITY else None


class _Strict:
    """What the C scanner asks of a decoder; NaN and the infinities become null (Postgres refuses them)."""

    strict = True
    object_hook = None
    object_pairs_hook: Callable[[list[tuple[str, Json]]], Json] | None = None
    parse_float = staticmethod(_finite)
    parse_int = int

    @staticmethod
    def parse_constant(_name: str) -> None:
        return None


class _Tolerant(_Strict):
    """The same, but raw control characters inside strings are let through."""

    strict = False


def _huge_int(digits: str) -> int | str:
    """An integer, or its digits as text where Python refuses to convert so many."""
    try:
        return int(digits)
    except ValueError:
        return digits


class _Huge(_Tolerant):
    """The same, with integers of any length."""

    parse_int = staticmethod(_huge_int)


if TYPE_CHECKING:

    def _scanner(context: type[_Strict] | _Strict) -> Callable[[str, int], tuple[Json, int]]: ...
    def dumps(value: Json) -> str:
        """Compact JSON; non-ASCII stays as it is (UTF-8 once encoded)."""
        ...

    def dumps_ascii(value: Json) -> str:
        """Compact JSON in ASCII only: safe to print whatever the locale is."""
        ...

else:
    try:
        from _json import encode_basestring, encode_basestring_ascii, make_encoder
        from _json import make_scanner as _scanner

        def _unknown(value):
            raise TypeError(f"{type(value).__name__} has no JSON form")

        def dumps(value):
            return "".join(
                make_encoder(None, _unknown, encode_basestring, None, ":", ",", False, False, True)(value, 0)
            )

        def dumps_ascii(value):
            return "".join(
                make_encoder(None, _unknown, encode_basestring_ascii, None, ":", ",", False, False, True)(value, 0)
            )

    except ImportError:
        import json

        def _scanner(context):
            return json.JSONDecoder(
                strict=context.strict,
                object_pairs_hook=context.object_pairs_hook,
                parse_float=context.parse_float,
                parse_int=context.parse_int,
                parse_constant=context.parse_constant,
            ).scan_once

        def dumps(value):
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

        def dumps_ascii(value):
            return json.dumps(value, separators=(",", ":"))


_scan_strict = _scanner(_Strict)
_scan_tolerant = _scanner(_Tolerant)
_scan_huge = _scanner(_Huge)
_BLANK = " \t\r\n"


def scan(text: str, start: int = 0, strict: bool = False) -> tuple[Json, int]:
    """One JSON value from `start` (characters) and where it ends; ValueError when there is none.

    A value that is nested too deeply for the interpreter is a ValueError too.
    """
    while start < len(text) and text[start] in _BLANK:
        start += 1
    scanner = _scan_strict if strict else _scan_tolerant
    try:
        return scanner(text, start)
    except StopIteration as end:
        raise ValueError(f"no JSON value at character {end.value}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except SystemError:
        # The scanner of Python 3.11 takes its exception from json.decoder and breaks while that isn't imported;
        # later ones import it then, too. Only a damaged text costs that.
        if "json.decoder" in sys.modules:
            raise
        __import__("json.decoder")
        return scan(text, start, strict)
    except ValueError as error:
        if strict or "limit" not in str(error):
            raise
        return _scan_huge(text, start)


def loads(text: str, strict: bool = False) -> Json:
    """Exactly one JSON value, blanks around it allowed; ValueError otherwise."""
    value, end = scan(text, 0, strict)
    rest = text[end:].strip(_BLANK)
    if rest:
        raise ValueError(f"extra data at character {end}")
    return value


def has_key_twice(text: str) -> bool:
    """Whether an object in this JSON has a key twice (the last one counts); False for what is not JSON."""
    found = False

    def note(pairs: list[tuple[str, Json]]) -> Object:
        nonlocal found
        once = dict(pairs)
        found = found or len(once) < len(pairs)
        return once

    context = _Huge()
    context.object_pairs_hook = note
    try:
        _scanner(context)(text, len(text) - len(text.lstrip(_BLANK)))
    except (ValueError, StopIteration, RecursionError):
        return False
    return found


def may_need_cleaning(raw: bytes) -> bool:
    """False when no string in this JSON can hold a NUL or a surrogate: `clean` is then not needed."""
    return b"\\u0000" in raw or b"\\ud" in raw or b"\\uD" in raw or b"\0" in raw


def clean_text(text: str) -> tuple[str, int]:
    """The text with each NUL and each unpaired surrogate as U+FFFD, and how many there were."""
    count = text.count("\0")
    if count:
        text = text.replace("\0", REPLACEMENT)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        before = text.count(REPLACEMENT)
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        count += text.count(REPLACEMENT) - before
    return text, count


def clean(value: Json) -> tuple[Json, int]:
    """The value with every string in it cleaned, keys too, at any depth; and how many characters were replaced.

    ValueError when it is nested too deeply for the interpreter.
    """
    try:
        return _clean(value)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _clean(value: Json) -> tuple[Json, int]:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        total = 0
        items: list[Json] = []
        for item in value:
            cleaned, count = _clean(item)
            items.append(cleaned)
            total += count
        return items, total
    if isinstance(value, dict):
        total = 0
        pairs: Object = {}
        for key, item in value.items():
            clean_key, in_key = clean_text(key)
            cleaned, count = _clean(item)
            pairs[clean_key] = cleaned
            total += count + in_key
        return pairs, total
    return value, 0


def dumps_clean(value: Json) -> str:
    """Compact JSON that Postgres takes, whatever is in it: names of files and branches need not be UTF-8."""
    text = dumps(value)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return dumps(clean(value)[0])
    return dumps(clean(value)[0]) if "\\u0000" in text else text


def text_of(record: Object, key: str) -> str:
    """The string under `key`, or "" when it is missing or something else."""
    value = record.get(key)
    return value if isinstance(value, str) else ""


def object_of(record: Object, key: str) -> Object:
    """The object under `key`, or an empty one."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def list_of(record: Object, key: str) -> list[Json]:
    """The list under `key`, or an empty one."""
    value = record.get(key)
    return value if isinstance(value, list) else []


def int_of(record: Object, key: str) -> int:
    """The integer under `key`, or 0."""
    value = record.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def as_object(value: Json) -> Object | None:
    """The value when it is an object, else None."""
    return cast("Object", value) if isinstance(value, dict) else None
