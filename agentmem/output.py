"""What commands print: a table on a terminal, tab-separated lines when piped, JSON when asked for.

Stored text comes from anywhere: nothing in it may steer the terminal.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from agentmem.clock import span

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence


_MOST_CELL = 300


def plain(text: object) -> str:
    """The text with every control and format character but line ends as U+FFFD; tabs as spaces."""
    return "".join(c if c == "\n" or c.isprintable() else (" " if c == "\t" else "\ufffd") for c in str(text))


def line(text: object, most: int = 0) -> str:
    """The text in one line, cut to `most` characters when that is not 0."""
    kept = " ".join(plain(text).split())
    return kept if not most or len(kept) <= most else kept[: most - 1] + "…"


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], flexible: str = "") -> None:
    """Print rows: as a table on a terminal (the column `flexible` gets the room that is left), else tab-separated."""
    texts = [[line("" if value is None else value, _MOST_CELL) for value in row] for row in rows]
    if not sys.stdout.isatty():
        for row in texts:
            click.echo("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        drawn.add_column(column, no_wrap=True, overflow="ellipsis", ratio=1 if column == flexible else None)
    for row in texts:
        drawn.add_row(*[Text(value) for value in row])
    Console().print(drawn)


def as_json(document: object) -> None:
    """Print one JSON document; times in ISO 8601."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False, default=str))


def ago(moment: datetime | None) -> str:
    """How long ago a time was, in words."""
    return f"{span((datetime.now(UTC) - moment).total_seconds())} ago" if moment else "never"


def local(moment: datetime | None) -> str:
    """A time in the person's own zone, to the second."""
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S") if moment else ""


@contextmanager
def bytes_bar(title: str, total: int) -> Generator[Callable[[int], None]]:
    """A progress bar in bytes on a terminal, nothing elsewhere; its value takes each further count."""
    if not sys.stderr.isatty() or not total:
        yield lambda _size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn(title), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda size: progress.advance(task, size)
