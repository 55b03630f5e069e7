"""What commands print: tables on a terminal, tab-separated lines when piped, JSON when asked for.

Stored text comes from anywhere: nothing in it may steer the terminal. JSON is printed in ASCII only, so there it is
escaped; everywhere else it goes through `plain` or `line`.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import click

from agentmem.clock import span

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from rich.console import Console

# A terminal's own commands (ECMA-48), with what they carry, before the single characters that are left of them.
_COMMANDS = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"
    "|(?:\x1b[\\]P^_X]|[\x9d\x90\x9e\x9f\x98])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b[ -/]*[0-~]"
)
# Controls, and what is invisible or turns the direction of writing. Joiners stay: emoji and several scripts need them.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
_LINE_ENDS = re.compile("\r\n?|[\u2028\u2029\x85\x0b\x0c]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_MOST_PIPED = 500
_LEAST_FLEXIBLE = 30
_GAP = 2


class Column(NamedTuple):
    """A column of a table; those with a `rank` are left out of a narrow terminal, the highest rank first."""

    name: str
    rank: int = 0
    flexible: bool = False
    """Gets the room that is left over; one a table."""
    right: bool = False
    style: str = ""


class Row(NamedTuple):
    """A row of a table. note: printed below it on a terminal and as the last column elsewhere; style: rich's."""

    cells: Sequence[object]
    note: str = ""
    style: str = ""


def plain(text: object) -> str:
    """The text without anything that a terminal would act on or hide; line ends stay, tabs become spaces."""
    kept = _LINE_ENDS.sub("\n", _COMMANDS.sub("", str(text)))
    return _SURROGATES.sub("\ufffd", _INVISIBLE.sub("", kept)).replace("\t", "    ")


def line(text: object, most: int = 0) -> str:
    """The same in one line, cut to `most` characters when that is not 0."""
    text = str(text)
    if most:
        # Only so much of a long text has to be looked at.
        text = text[: most * 8]
    kept = " ".join(plain(text).split())
    return kept if not most or len(kept) <= most else kept[: most - 1].rstrip() + "…"


def console(*, stderr: bool = False) -> Console:
    """A terminal that takes text as it is: no markup, no highlighting. NO_COLOR is respected by rich."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def on_terminal() -> bool:
    """Whether what is printed is read by a person."""
    return sys.stdout.isatty()


def say(text: str, style: str = "", indent: int = 0) -> None:
    """Print text that is safe already, on a terminal styled and wrapped at words."""
    if not on_terminal():
        click.echo("\n".join(" " * indent + part for part in text.split("\n")))
        return
    from rich.padding import Padding
    from rich.text import Text

    console().print(Padding(Text(text, style=style, overflow="fold"), (0, 0, 0, indent)))


def complain(text: str) -> None:
    """Print on stderr, on a terminal wrapped at words."""
    if not sys.stderr.isatty():
        click.echo(plain(text), err=True)
        return
    from rich.text import Text

    console(stderr=True).print(Text(plain(text), overflow="fold"))


def fields(rows: Sequence[tuple[str, object, str]]) -> None:
    """Print names with their values and the values' styles; empty values are left out."""
    shown = [(name, line(value), style) for name, value, style in rows if value not in ("", None)]
    if not on_terminal():
        for name, value, _ in shown:
            click.echo(f"{name}\t{value}")
        return
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, _GAP))
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for name, value, style in shown:
        grid.add_row(name, Text(value, style=style))
    console().print(grid)


def table(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Print rows under the columns' names on a terminal, tab-separated without names elsewhere."""
    texts = [[line("" if cell is None else cell, _MOST_PIPED) for cell in row.cells] for row in rows]
    if on_terminal():
        _draw(columns, rows, texts)
        return
    noted = any(row.note for row in rows)
    for row, cells in zip(rows, texts, strict=True):
        click.echo("\t".join([*cells, line(row.note, _MOST_PIPED)] if noted else cells))


def _draw(columns: Sequence[Column], rows: Sequence[Row], texts: list[list[str]]) -> None:
    from rich.cells import cell_len, set_cell_size
    from rich.padding import Padding
    from rich.text import Text

    terminal = console()
    widths = [max([cell_len(cells[at]) for cells in texts], default=0) for at in range(len(columns))]
    shown = [at for at, width in enumerate(widths) if width]
    widths = [max(width, cell_len(column.name)) for width, column in zip(widths, columns, strict=True)]
    _fit(columns, widths, shown, terminal.width)

    def draw(cells: Sequence[str], styles: Sequence[str], style: str) -> None:
        drawn = Text(style=style, no_wrap=True, overflow="ellipsis")
        for place, at in enumerate(shown):
            text = cells[at]
            if cell_len(text) > widths[at]:
                text = set_cell_size(text, max(widths[at] - 1, 0)).rstrip() + "…"
            missing = " " * (widths[at] - cell_len(text))
            drawn.append(missing + text if columns[at].right else text + missing, style=styles[at])
            drawn.append(" " * _GAP if place < len(shown) - 1 else "")
        drawn.rstrip()
        terminal.print(drawn, crop=True, no_wrap=True, overflow="ellipsis")

    draw([column.name for column in columns], [""] * len(columns), "bold")
    for row, cells in zip(rows, texts, strict=True):
        draw(cells, [column.style for column in columns], row.style)
        if row.note:
            terminal.print(Padding(Text(line(row.note), style=row.style), (0, 0, 0, 4)))


def _fit(columns: Sequence[Column], widths: list[int], shown: list[int], room: int) -> None:
    """Leave out columns, highest rank first, and set the width of the flexible one."""

    def left() -> int:
        fixed = sum(widths[at] for at in shown if not columns[at].flexible)
        return room - fixed - _GAP * (len(shown) - 1)

    flexible = next((at for at in shown if columns[at].flexible), None)
    wanted = min(widths[flexible], _LEAST_FLEXIBLE) if flexible is not None else 0
    for at in sorted((at for at in shown if columns[at].rank), key=lambda at: -columns[at].rank):
        if left() >= wanted:
            break
        shown.remove(at)
    if flexible is not None:
        widths[flexible] = max(min(widths[flexible], left()), 4)


def as_json(document: object) -> None:
    """Print one JSON document, in ASCII; times in ISO 8601."""
    click.echo(json.dumps(document, indent=2, default=_in_json))


def _in_json(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, set):
        return sorted(str(item) for item in value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    raise TypeError(f"{type(value).__name__} has no JSON form")


def ago(moment: datetime | None) -> str:
    """How long ago a time was, in words."""
    return f"{span(max(0.0, (datetime.now(UTC) - moment).total_seconds()))} ago" if moment else "never"


def local(moment: datetime | None) -> str:
    """A time in the person's own zone, to the minute."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M") if moment else ""


def when(moment: datetime | None, *, seconds: bool = False) -> str:
    """A time in the person's own zone, short on a terminal: without the date today, without the year this year."""
    if moment is None:
        return ""
    there = moment.astimezone()
    clock = "%H:%M:%S" if seconds else "%H:%M"
    if not on_terminal():
        return there.strftime(f"%Y-%m-%d {clock}")
    now = datetime.now(UTC).astimezone()
    if there.date() == now.date():
        return there.strftime(clock)
    return there.strftime(f"%m-%d {clock}" if there.year == now.year else "%Y-%m-%d")


def size(count: int) -> str:
    """A number of bytes in a unit that suits it; 1 MB is a million."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"


def count(number: int, word: str) -> str:
    """A number with its noun: "1 session", "1,204 sessions"."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


@contextmanager
def bytes_bar(title: str, total: int) -> Generator[Callable[[int], None]]:
    """A progress bar in bytes on a terminal, nothing elsewhere; its value is called with each further count."""
    if not sys.stderr.isatty() or not total:
        yield lambda _size: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console(stderr=True), transient=True, expand=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda further: progress.advance(task, further)
