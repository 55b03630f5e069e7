"""`agentmem drain`: store what waits in the spool."""

from __future__ import annotations

import os
import sys
import time

import click

from agentmem import drain, output, paths, settings, spool, store

_SECONDS = 3600.0


@click.command("drain")
def command() -> None:
    """Store what waits in the spool, now; exit with 1 when something is left."""
    where = paths.find_paths(dict(os.environ))
    known = settings.load(where)
    if not spool.waiting(where):
        click.echo("the spool is empty")
        return
    connection = store.connect(where, known, time.monotonic() + 10)
    try:
        done = drain.drain(connection, where, known, time.monotonic() + _SECONDS)
    finally:
        connection.close()
    for name, error in done.errors:
        click.echo(f"left: {name}: {output.plain(error)}", err=True)
    left = len(spool.waiting(where))
    click.echo(f"{done.stored} events stored, {left} left")
    sys.exit(1 if left else 0)
