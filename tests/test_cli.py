"""The command line as a whole: help for everything, and quick."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest

from agentmem.cli import COMMANDS, group


def command_of(name: str) -> click.Command:
    found = group.get_command(click.Context(group), name)
    assert found is not None
    return found


def check(command: click.Command, name: str) -> None:
    assert command.help, name
    assert command.help.split("\n")[0].endswith("."), name
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts}"
            assert parameter.help.split("  [")[0].rstrip()[-1] in ".:", f"{name} {parameter.opts}"
        else:
            assert parameter.human_readable_name.upper() in command.help, f"{name} {parameter.name}"
    if isinstance(command, click.Group):
        for inner in command.commands:
            check(command.commands[inner], f"{name} {inner}")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_and_option(name: str) -> None:
    command = command_of(name)
    assert command.name == name
    assert COMMANDS[name].endswith(".")
    check(command, name)


def test_help_loads_no_command() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "from agentmem.cli import main; main()", "--help"],
        # What measures coverage imports a lot of its own.
        env={name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Commands:" in done.stdout
    loaded = {line.rsplit("|", 1)[1].strip() for line in done.stderr.split("\n") if line.startswith("import time:")}
    assert "click" in loaded
    assert not {"rich", "psycopg", "dotenv", "json", "ctypes", "agentmem.db", "agentmem.commands"} & loaded


def test_an_unknown_command_is_wrong_usage() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from agentmem.cli import main; main()", "nothing"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "No such command" in done.stderr
