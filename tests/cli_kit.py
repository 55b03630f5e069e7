"""The command line as a person runs it, on the installation of a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hook_kit import Machine


MEASURED = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
"""What makes a command's process count for the coverage of the tests."""


def agentmem(machine: Machine, *arguments: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
    """Run `agentmem ARGUMENTS`; its exit code has to be `code` (None: any)."""
    done = subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), "agentmem"), *arguments],
        env={**machine.environ(), **MEASURED},
        cwd=machine.work,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert code is None or done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def checks(machine: Machine, *arguments: str, code: int | None) -> dict[str, list[dict[str, Any]]]:
    """What the doctor found: name -> its checks."""
    found: dict[str, list[dict[str, Any]]] = {}
    for check in json.loads(agentmem(machine, "doctor", "--json", *arguments, code=code).stdout):
        found.setdefault(check["name"], []).append(check)
    return found
