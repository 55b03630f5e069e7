"""Reading transcripts in slices: every byte is accounted for, whatever it is, and however the file grew."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem import transcript
from agentmem.claude_code import read_record
from agentmem.errors import TranscriptError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentmem.jsonio import Object
    from agentmem.reading import Reading


def read(record: Object, position: int, reading: Reading) -> None:
    read_record(record, position, "s", reading)


def record(number: int, text: str = "words") -> bytes:
    message = {"role": "user", "content": text}
    return json.dumps({"type": "user", "uuid": f"u{number}", "message": message}, ensure_ascii=False).encode()


def slices(raw: bytes, start: int = 0) -> Iterator[transcript.Slice]:
    """All slices of a file with these bytes, from one byte on."""
    with tempfile.TemporaryFile() as file:
        file.write(raw)
        file.flush()
        while piece := transcript.read_slice(file.fileno(), start, read):
            yield piece
            assert piece.end > start
            start = piece.end


def turns(pieces: list[transcript.Slice]) -> list[Object]:
    return [turn for piece in pieces for turn in piece.reading.turns]


lines = st.one_of(
    st.integers(0, 9).map(record),
    st.builds(record, st.integers(0, 9), st.text(max_size=20)),
    st.sampled_from(
        [b"", b"  ", b"\r", b"[1]", b"null", b"{", b'{"type":"odd"}', b'{"type":"system"}\r', b"\xff\xfe", b"\0\0"]
    ),
    st.binary(max_size=20).map(lambda raw: raw.replace(b"\n", b" ")),
)
files = st.lists(lines, max_size=8).map(b"\n".join)


@given(files, st.booleans())
def test_every_complete_line_is_counted_once_and_hashed(raw: bytes, ended: bool) -> None:
    raw += b"\n" if ended else b""
    pieces = list(slices(raw))
    end = 0
    for piece in pieces:
        assert piece.start == end
        end = piece.end
        part = raw[piece.start : end]
        assert piece.sha256 == hashlib.sha256(part).hexdigest()
        assert piece.lines == sum(1 for line in part.split(b"\n") if line and not line.isspace())
        assert sum(piece.reading.kinds.values()) == piece.lines
        assert piece.mark_sha256 == hashlib.sha256(part[-piece.mark_length :]).hexdigest()
    # What is left has no line end and is no whole object.
    rest = raw[end:]
    assert b"\n" not in rest
    assert end == len(raw) or not raw.endswith(b"\n")


@given(st.lists(st.builds(record, st.integers(0, 99), st.text(max_size=20)), min_size=1, max_size=6), st.data())
def test_a_file_read_in_two_parts_gives_what_it_gives_at_once(records: list[bytes], data: st.DataObject) -> None:
    raw = b"".join(line + b"\n" for line in records)
    cut = data.draw(st.integers(0, len(raw)))
    first = list(slices(raw[:cut]))
    second = list(slices(raw, first[-1].end if first else 0))
    assert turns(first + second) == turns(list(slices(raw)))
    assert sum(piece.lines for piece in first + second) == len(records)


@given(st.lists(st.builds(record, st.integers(0, 99), st.text(max_size=20)), min_size=1, max_size=6), st.booleans())
def test_a_turn_stands_at_the_byte_where_its_line_begins(records: list[bytes], mark: bool) -> None:
    raw = (b"\xef\xbb\xbf" if mark else b"") + b"".join(line + b"\n" for line in records)
    for turn, line in zip(turns(list(slices(raw))), records, strict=True):
        position = turn["position"]
        assert isinstance(position, int)
        assert raw[position:].removeprefix(b"\xef\xbb\xbf").startswith(line)


def test_slices_are_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript, "SLICE_BYTES", 256)
    raw = b"".join(record(number) + b"\n" for number in range(50))
    pieces = list(slices(raw))
    assert len(pieces) > 10
    assert all(piece.end - piece.start <= 256 for piece in pieces)
    assert len(turns(pieces)) == 50


def test_a_line_longer_than_a_slice_is_read_and_one_that_is_too_long_is_a_stub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript, "SLICE_BYTES", 256)
    monkeypatch.setattr(transcript, "LINE_BYTES", 2000)
    long, huge = record(1, "x" * 1000), record(2, "y" * 9000)
    pieces = list(slices(record(0) + b"\n" + long + b"\n" + huge + b"\n" + record(3) + b"\n"))
    kinds = [turn["kind"] for turn in turns(pieces)]
    assert kinds == ["prompt", "prompt", "notice", "prompt"]
    assert str(len(huge) + 1) in str(turns(pieces)[2]["text"])
    # Before its end is there, it is not read at all.
    assert [piece.end for piece in slices(huge)] == []


def test_two_records_on_a_line_are_both_taken_and_a_broken_one_costs_only_itself() -> None:
    raw = record(1) + record(2) + b"\n" + record(3)[:20] + b"\n" + record(4) + b"\n"
    (piece,) = slices(raw)
    assert [turn["uuid"] for turn in piece.reading.turns] == ["u1", "u2", "u4"]
    assert piece.reading.kinds == {"glued": 1, "damaged": 1, "user": 1}


def test_a_half_line_waits_for_its_rest() -> None:
    (piece,) = slices(record(1) + b"\n" + record(2)[:-5])
    assert piece.end == len(record(1)) + 1
    assert list(slices(record(1)[:10])) == []


def test_a_rewritten_file_is_told_from_a_grown_one(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_bytes(record(1) + b"\n")
    (piece,) = slices(file.read_bytes())
    known = transcript.Position(
        {
            "committed": piece.end,
            "generation": 1,
            "mark_length": piece.mark_length,
            "mark_sha256": piece.mark_sha256,
        }
    )

    def rewritten(raw: bytes) -> bool:
        file.write_bytes(raw)
        descriptor = transcript.open_transcript(os.fspath(file))
        try:
            return transcript.is_rewritten(descriptor, known)
        finally:
            os.close(descriptor)

    assert not rewritten(record(1) + b"\n" + record(2))
    assert rewritten(record(2) + b"\n" + record(1))
    assert rewritten(record(1)[:5])
    assert not transcript.is_rewritten(0, transcript.Position(None))


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, code in (("missing", "missing"), ("", "unreadable"), ("fifo", "unreadable"), ("loop", "unreadable")):
        with pytest.raises(TranscriptError) as caught:
            transcript.open_transcript(os.fspath(tmp_path / name))
        assert caught.value.code == f"transcript_{code}"


def test_the_first_folder_is_the_projects(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    file.write_bytes(b'{"type":"mode"}\nbroken "cwd"\n{"cwd":"/a \\ud83d"}\n{"cwd":"/b"}\n')
    with file.open("rb") as stream:
        assert transcript.first_cwd(stream.fileno()) == "/a \ufffd"
