"""Options that several commands share."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    Decorator = Callable[[Callable[..., None]], Callable[..., None]]
    _MomentType = click.ParamType[datetime]
else:
    _MomentType = click.ParamType

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Since(_MomentType):
    """A span of time (90m, 24h, 2d, 1w) or a date or time in ISO 8601, as the moment from which on."""

    name = "when"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """The moment; wrong usage when it is none of these."""
        text = str(value).strip()
        match = re.fullmatch(r"(\d{1,6})([mhdw])", text)
        try:
            if match:
                return datetime.now(UTC) - timedelta(**{_UNITS[match[2]]: int(match[1])})
            return datetime.fromisoformat(text).astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail(f"{text!r} is no span or date: use 90m, 24h, 2d, 1w or 2026-01-31", param, ctx)


def as_json(function: Callable[..., None]) -> Callable[..., None]:
    """The option `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(function)


def since(text: str) -> Decorator:
    """The option `--since`; `text` says what it does in this command."""
    return click.option(
        "--since", "after", type=Since(), metavar="WHEN", help=f"{text}: 90m, 24h, 2d, 1w or 2026-01-31."
    )


def config_dir(function: Callable[..., None]) -> Callable[..., None]:
    """The option `--config-dir`."""
    return click.option(
        "--config-dir",
        "--client-dir",
        "config_dir",
        default="",
        metavar="DIR",
        help="Claude Code's folder.  [default: $CLAUDE_CONFIG_DIR or ~/.claude]",
    )(function)
