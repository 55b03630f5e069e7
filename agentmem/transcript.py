"""Reading a transcript from where the last capture ended: complete lines only, in slices of bounded size.

A slice is what one receipt stands for: a range of bytes, its lines, its hash, and the turns in it. Whatever a
line looks like, it is counted; nothing in a file can stop the reading of the lines after it.
"""

from __future__ import annotations

import os

from agentmem import jsonio
from agentmem.errors import TranscriptError
from agentmem.hashing import hexdigest, sha256
from agentmem.reading import Reading, turn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentmem.jsonio import Object

    ReadRecord = Callable[[Object, int, Reading], None]

SLICE_BYTES = 4 << 20
"""How much of a file one slice takes at most, unless a single line is longer."""
LINE_BYTES = 16 << 20
"""Longer lines are not parsed; a stub with their size and hash stands for them."""
_MARK_BYTES = 1024
_HEAD_BYTES = 256 << 10


class Position:
    """How far a file is committed, and the mark by which a rewritten file is told from one that only grew."""

    __slots__ = ("committed", "generation", "mark_length", "mark_sha256")

    def __init__(self, known: Object | None) -> None:
        known = known or {}
        self.committed = jsonio.int_of(known, "committed")
        self.generation = jsonio.int_of(known, "generation") or 1
        self.mark_length = jsonio.int_of(known, "mark_length")
        self.mark_sha256 = jsonio.text_of(known, "mark_sha256")


class Slice:
    """One stretch of a file: bytes `start` to `end`, and what they say."""

    __slots__ = ("end", "lines", "mark_length", "mark_sha256", "reading", "sha256", "start")

    def __init__(self, start: int, end: int, lines: int, digest: str, reading: Reading, mark: bytes) -> None:
        self.start = start
        self.end = end
        self.lines = lines
        self.sha256 = digest
        self.reading = reading
        self.mark_length = len(mark)
        self.mark_sha256 = hexdigest(mark)


def open_transcript(path: str) -> int:
    """A descriptor for reading; TranscriptError when there is no regular file or it can't be opened."""
    try:
        # Without O_NONBLOCK, opening a FIFO would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise TranscriptError("transcript_missing", f"{path} does not exist", "Was it moved or deleted?") from None
    except OSError as error:
        raise TranscriptError(
            "transcript_unreadable", f"{path} can't be opened: {error.strerror}", "Mend it."
        ) from error
    # S_IFMT and S_IFREG, without importing `stat`.
    if os.fstat(descriptor).st_mode & 0o170000 != 0o100000:
        os.close(descriptor)
        raise TranscriptError("transcript_unreadable", f"{path} is not a regular file", "Was it replaced by something?")
    return descriptor


def is_rewritten(descriptor: int, position: Position) -> bool:
    """True when the file is not what was read before plus more: it must be read again from its start."""
    if position.committed == 0:
        return False
    if os.fstat(descriptor).st_size < position.committed:
        return True
    mark = os.pread(descriptor, position.mark_length, position.committed - position.mark_length)
    return hexdigest(mark) != position.mark_sha256


def read_slice(descriptor: int, start: int, read_record: ReadRecord) -> Slice | None:
    """The next slice from byte `start`; None when no complete line is there yet."""
    raw = os.pread(descriptor, SLICE_BYTES, start)
    end = raw.rfind(b"\n") + 1
    while not end and len(raw) >= SLICE_BYTES:
        if len(raw) > LINE_BYTES:
            return _read_long_line(descriptor, start)
        more = os.pread(descriptor, SLICE_BYTES, start + len(raw))
        if not more:
            break
        end = len(raw) + more.find(b"\n") + 1 if b"\n" in more else 0
        raw += more
    if start + len(raw) >= os.fstat(descriptor).st_size and end < len(raw) and _is_object(raw[end:]):
        # The last line lacks its line end, but it is whole: no JSON object is the beginning of another.
        end = len(raw)
    if not end:
        return None
    raw = raw[:end]
    reading = Reading()
    lines = _read_lines(raw, start, read_record, reading)
    return Slice(start, start + end, lines, hexdigest(raw), reading, raw[-_MARK_BYTES:])


def _read_lines(raw: bytes, start: int, read_record: ReadRecord, reading: Reading) -> int:
    position = start
    lines = 0
    dirty = jsonio.may_need_cleaning(raw)
    for line in raw.split(b"\n"):
        if line and not line.isspace():
            lines += 1
            # A byte order mark is no part of the record, but of the file.
            body = line.removeprefix(b"\xef\xbb\xbf") if position == 0 else line
            _read_line(body, position, read_record, reading, dirty=dirty)
        position += len(line) + 1
    return lines


def _read_line(line: bytes, position: int, read_record: ReadRecord, reading: Reading, *, dirty: bool) -> None:
    text = line.decode("utf-8", "replace")
    try:
        value = jsonio.loads(text)
        if dirty and jsonio.may_need_cleaning(line):
            value, _ = jsonio.clean(value)
    except ValueError:
        _rescue(text, position, read_record, reading)
        return
    if isinstance(value, dict):
        read_record(value, position, reading)
    else:
        reading.count_unknown("not_object")


def _rescue(text: str, position: int, read_record: ReadRecord, reading: Reading) -> None:
    """Take the whole objects out of a line that holds several, or one after the rest of a broken one."""
    inner = Reading()
    found = 0
    start = 0
    while (start := text.find('{"', start)) >= 0:
        try:
            value, start = jsonio.scan(text, start)
            value, _ = jsonio.clean(value)
        except ValueError:
            # From here no object begins. The next record may begin after the break.
            start = text.find('{"parentUuid"', start + 1)
            if start < 0:
                break
            continue
        if isinstance(value, dict) and "type" in value:
            read_record(value, position + found, inner)
            found += 1
    reading.turns.extend(inner.turns)
    reading.facts.update(inner.facts)
    reading.count_unknown("glued" if found else "damaged")


def _is_object(raw: bytes) -> bool:
    if not raw.rstrip().endswith(b"}"):
        return False
    try:
        return isinstance(jsonio.loads(raw.decode("utf-8", "replace")), dict)
    except ValueError:
        return False


def _read_long_line(descriptor: int, start: int) -> Slice | None:
    """A stub for a line that is too long to be parsed; None when its end is not there yet."""
    digest = sha256()
    end = start
    mark = b""
    while True:
        raw = os.pread(descriptor, SLICE_BYTES, end)
        if not raw:
            return None
        cut = raw.find(b"\n") + 1
        if cut:
            raw = raw[:cut]
        digest.update(raw)
        mark = (mark + raw)[-_MARK_BYTES:]
        end += len(raw)
        if cut:
            break
    reading = Reading()
    reading.count_unknown("too_long")
    name = digest.hexdigest()
    stub = f"[a line of {end - start} bytes, sha256 {name[:12]}, was too long to be read]"
    reading.turns.append(turn("line-" + name[:32], start, "system", "notice", stub))
    return Slice(start, end, 1, name, reading, mark)


def first_cwd(descriptor: int) -> str:
    """The folder that the first lines of a transcript name; "" when they name none."""
    for line in os.pread(descriptor, _HEAD_BYTES, 0).split(b"\n")[:-1]:
        if b'"cwd"' not in line:
            continue
        try:
            record = jsonio.loads(line.decode("utf-8", "replace"))
        except ValueError:
            continue
        if isinstance(record, dict) and jsonio.text_of(record, "cwd"):
            return jsonio.clean_text(jsonio.text_of(record, "cwd"))[0]
    return ""
