"""The command line: which commands there are, and the one place where their errors are shown.

A command's module is imported only when it is asked for, so that `agentmem --help` stays quick.
"""

from __future__ import annotations

import importlib
import io
import sys
from typing import NoReturn

import click

from agentmem import VERSION
from agentmem.errors import AgentmemError, internal_error

COMMANDS = {
    "init": "Write the settings, create the database and its schema.",
    "install": "Register the hooks with Claude Code.",
    "uninstall": "Take the hooks out again.",
    "doctor": "Prove that sessions are captured and come back, or exit 1.",
    "status": "What is stored, what is waiting, what failed.",
    "sessions": "List captured sessions, newest first.",
    "show": "Show one session as it was captured.",
    "log": "List hook runs, failed ones with their cause.",
    "drain": "Store what waits in the spool, now.",
    "backfill": "Capture transcripts that are on disk, and mend stored ones.",
    "db": "Start, stop, ask or migrate the database.",
}


class _Commands(click.Group):
    """A group that knows its commands by name and loads one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        return importlib.import_module(f"agentmem.commands.{cmd_name}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(VERSION, prog_name="agentmem")
def group() -> None:
    """Memory for coding agents that proves what it remembers.

    Every session of Claude Code is stored in a Postgres database of yours, and a new session starts with a
    digest of the last ones. `agentmem doctor` proves that it works.
    """


def main() -> None:
    """Run the command line; exit codes: 0 done, 1 failed or something was found to be wrong, 2 wrong usage."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character that the terminal's encoding lacks must not stop the command.
            stream.reconfigure(errors="replace")
    try:
        group.main(prog_name="agentmem")
    except AgentmemError as error:
        _fail(error)
    except Exception as error:  # noqa: BLE001 - the boundary of the command line: it is reported, and the command fails
        _fail(internal_error(error))


def _fail(error: AgentmemError) -> NoReturn:
    click.echo(f"agentmem: {error}", err=True)
    if error.hint:
        click.echo(f"  {error.hint}", err=True)
    sys.exit(1)
