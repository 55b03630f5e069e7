"""`agentmem drain`: store what waits in the spool."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from agentmem import drain, output, paths, runs, settings, spool, store

if TYPE_CHECKING:
    from psycopg.rows import DictRow

    from agentmem.paths import Paths

_CONNECT_SECONDS = 15.0
_SECONDS = 3600.0


@click.command("drain")
def command() -> None:
    """Store what waits in the spool, now.

    Exit code 1 when anything is left, each with the reason. Events that a running hook is at work with are its own.
    """
    where = paths.find_paths(dict(os.environ))
    known = settings.load(where)
    waiting = {run["name"]: run for run in runs.waiting(where, known, time.time()).runs}
    if not waiting:
        sys.exit(_sum_up(where, 0, 0))
    connection = store.connect(where, known, time.monotonic() + _CONNECT_SECONDS)
    try:
        done = drain.drain(
            connection,
            where,
            known,
            time.monotonic() + _SECONDS,
            progress=lambda name: _tell(where, name, waiting.get(name)),
        )
    finally:
        connection.close()
    for name, error in done.errors:
        output.complain(f"left: {_words(name, waiting.get(name))}: {error}\n  {error.hint}")
    left = len(runs.waiting(where, known, time.time()).stuck())
    sys.exit(_sum_up(where, done.stored, max(left, done.left)))


def _tell(where: Paths, name: str, run: DictRow | None) -> None:
    """One record was dealt with: say so when it is stored; what is left is said at the end."""
    if not os.path.exists(os.path.join(where.spool, name + ".json")) and run:
        output.say(output.line(f"stored: {_words(name, run)}"))


def _words(name: str, run: DictRow | None) -> str:
    if not run:
        return name
    session = f" of session {run['session_key'][:8]}" if run["session_key"] else ""
    return f"{run['event']}{session}, {output.when(run['started_at'], seconds=True)}"


def _sum_up(where: Paths, stored: int, left: int) -> int:
    """Say how it ended; the exit code."""
    damaged = len(spool.damaged(where))
    text = f"{output.count(stored, 'event')} stored, {left} left" if stored or left else "nothing waits"
    output.say(f"{text}; {output.count(damaged, 'event')} can't be read: see agentmem doctor" if damaged else text)
    return 1 if left or damaged else 0
