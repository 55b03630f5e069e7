"""What is printed: nothing that is stored can steer a terminal, and no terminal is too narrow."""

from __future__ import annotations

import json
import unicodedata
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from agentmem import output
from agentmem.output import Column, Row

TEXT = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from("\x1b[]0;?m\x07\x9b\x9c\x9d\\\r\n\t\u202e\u2028\u200d\ud800한👩\u3000"),
    ),
    max_size=60,
)


@given(TEXT)
def test_nothing_is_left_that_steers_a_terminal(text: str) -> None:
    kept = output.plain(text)
    for character in kept:
        assert character == "\n" or unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp"), repr(kept)
    assert not set(kept) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\ufeff\u200b")
    assert output.plain(kept) == kept


@given(TEXT, st.integers(0, 30))
def test_one_line_is_one_line(text: str, most: int) -> None:
    kept = output.line(text, most)
    assert "\n" not in kept
    assert not most or len(kept) <= most


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a \x1b[31;1mred\x1b[0m word", "a red word"),
        ("\x1b]0;a title\x07after", "after"),
        ("\x1b]8;;https://x.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b2Jcleared", "cleared"),
        ("\x1b]52;not ended, so it is text", "52;not ended, so it is text"),
        ("back\x08\x08space and bell\x07", "backspace and bell"),
        ("\u202egnirts\u202c", "gnirts"),
        ("one\r\ntwo\rthree\u2028four", "one\ntwo\nthree\nfour"),
        ("a\tb", "a    b"),
        ("half an emoji \ud83d", "half an emoji \ufffd"),
        ("한국어 👩\u200d💻 é ا", "한국어 👩\u200d💻 é ا"),
    ],
)
def test_what_is_kept_of_a_text(text: str, kept: str) -> None:
    assert output.plain(text) == kept


COLUMNS = (
    Column("id"),
    Column("project", rank=1),
    Column("client", rank=2),
    Column("never filled", rank=3),
    Column("count", right=True),
    Column("words", flexible=True),
)
ROWS = [
    Row(["aaaaaaaa", "a-project", "claude-code", "", 7, "한국어로 된 아주 긴 질문입니다 " * 5]),
    Row(["bbbbbbbb", "b", "codex", None, 12345, "short"], note="the cause of something, in many words " * 4),
    Row(["cccccccc", "👩\u200d💻", "codex", "", 0, "x" * 300]),
]


def drawn(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int) -> list[str]:
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    output.table(COLUMNS, ROWS)
    return capsys.readouterr().out.split("\n")[:-1]


@pytest.mark.parametrize("width", [*range(1, 60), 79, 80, 100, 120, 200, 500])
def test_a_table_fits_any_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    lines = drawn(capsys, monkeypatch, width)
    assert max(cell_len(line) for line in lines) <= width
    if width >= 20:
        assert [line[:8] for line in lines if line[:8] in ("aaaaaaaa", "bbbbbbbb", "cccccccc")] == [
            "aaaaaaaa", "bbbbbbbb", "cccccccc",
        ]  # fmt: skip


def test_a_table_drops_the_least_telling_columns_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def headers(width: int) -> list[str]:
        return drawn(capsys, monkeypatch, width)[0].split()

    assert headers(120) == ["id", "project", "client", "count", "words"]
    assert headers(60) == ["id", "project", "count", "words"]
    assert headers(48) == ["id", "count", "words"]


def test_a_table_says_the_cause_in_full(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(" ".join(drawn(capsys, monkeypatch, 60)).split())
    assert "the cause of something, in many words " * 4 in text + " "


def test_piped_it_is_tab_separated_with_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(COLUMNS, [Row(["a\tb", None, "c\nd", "", 1, "\x1b[31me"]), Row(["f", "", "", "", 2, ""], note="why")])
    assert capsys.readouterr().out == "a b\t\tc d\t\t1\te\t\nf\t\t\t\t2\t\twhy\n"


def test_json_is_ascii_with_times_that_can_be_read_again(capsys: pytest.CaptureFixture[str]) -> None:
    at = datetime(2026, 12, 1, 14, 0, 0, 5, timezone(timedelta(hours=9)))
    output.as_json({"at": at, "id": UUID(int=7), "text": "\x1b[31m\u202e한\x9b"})
    raw = capsys.readouterr().out
    assert raw.isascii()
    assert "\x1b" not in raw
    assert json.loads(raw) == {
        "at": "2026-12-01T05:00:00.000005+00:00",
        "id": "00000000-0000-0000-0000-000000000007",
        "text": "\x1b[31m\u202e한\x9b",
    }
    with pytest.raises(TypeError, match="object has no JSON form"):
        output.as_json({"at": object()})


def test_times_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    at = datetime(2025, 3, 4, 23, 30, tzinfo=UTC)
    here = at.astimezone()
    assert output.local(at) == here.strftime("%Y-%m-%d %H:%M")
    assert output.when(at, seconds=True) == here.strftime("%Y-%m-%d %H:%M:%S")
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    assert output.when(at) == here.strftime("%Y-%m-%d")
    now = datetime.now(UTC)
    assert output.when(now) == now.astimezone().strftime("%H:%M")
    assert output.when(None) == output.local(None) == ""


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "less than a minute ago"), (61, "1 minute ago"), (7200, "2 hours ago"), (-50, "less")]
)
def test_ages(seconds: int, words: str) -> None:
    assert output.ago(datetime.now(UTC) - timedelta(seconds=seconds)).startswith(words)
    assert output.ago(None) == "never"


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (1_500_000, "1.5 MB"), (2 * 10**9, "2.0 GB")],
)
def test_sizes(count: int, words: str) -> None:
    assert output.size(count) == words


def test_counts() -> None:
    assert output.count(1, "session") == "1 session"
    assert output.count(1234, "session") == "1,234 sessions"
