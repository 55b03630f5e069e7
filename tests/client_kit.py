"""The real Claude Code, cut off from the network, with a model that answers as a test says."""

from __future__ import annotations

import functools
import glob
import json
import os
import shutil
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

VERSION = "2.1.332"
_HERE = os.path.dirname(os.path.abspath(__file__))
_KEY = "sk-ant-test-000000000000000000000000000000000000"
_TOOLS = "Bash,Write,Edit,Read,Agent,Task"


class Report(NamedTuple):
    """What the client's runs gave: exit code and JSON answer of each, and every request that the model got."""

    turns: list[dict[str, Any]]
    requests: list[dict[str, Any]]

    def session(self, turn: int = 0) -> str:
        """The id of the session that a run had."""
        return json.loads(self.turns[turn]["out"])["session_id"]

    def asked(self, mark: str) -> str:
        """Everything in the first request that holds the mark, as text."""
        for body in self.requests:
            text = json.dumps(body, ensure_ascii=False)
            if mark in text:
                return text
        pytest.fail(f"no request to the model holds {mark!r}")


def program() -> str:
    """The client's program; the test is skipped (in CI: fails) when it is not installed."""
    found = glob.glob(
        os.path.join(
            os.environ.get("AGENTMEM_TEST_CLIENTS", os.path.expanduser("~/.cache/agentmem-test")),
            f"claude-{VERSION}",
            "node_modules/@anthropic-ai/claude-code-*/claude",
        )
    )
    runnable = [path for path in found if _runs(path)]
    missing = "" if runnable else "the real client is not installed (./test.sh does it)"
    missing = missing or _no_network_of_its_own()
    if missing:
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return runnable[0]


def _alone() -> list[str]:
    """Runs a command in a network namespace that has nothing but a loopback."""
    if os.geteuid() == 0:
        return ["unshare", "--net"]
    return ["unshare", "--user", "--map-current-user", "--keep-caps", "--net"]


@functools.cache
def _no_network_of_its_own() -> str:
    """Why no such namespace can be made here; "" when it can."""
    if not shutil.which("unshare"):
        return "unshare (util-linux) is missing: the real client can't be cut off from the network"
    tried = subprocess.run([*_alone(), "true"], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"no network namespace can be made here: {tried.stderr.strip()}"


def _runs(path: str) -> bool:
    if "musl" in path and not glob.glob("/lib/ld-musl-*"):
        return False
    return os.access(path, os.X_OK)


def prepare(home: str, project: str) -> None:
    """What the client asks at its first start: onboarding, the key, trust in the folder."""
    state = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "autoUpdates": False,
        "customApiKeyResponses": {"approved": [_KEY[-20:]], "rejected": []},
        "projects": {project: {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
    }
    with open(os.path.join(home, ".claude.json"), "w", encoding="utf-8") as stream:
        json.dump(state, stream)


def drive(
    env: dict[str, str], project: str, replies: dict[str, list[dict[str, Any]]], turns: list[dict[str, Any]]
) -> Report:
    """Run the client once for each turn, in the project's folder, in a network namespace with nothing but loopback."""
    client = program()
    own = {
        **env,
        "ANTHROPIC_API_KEY": _KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_TMPDIR": os.path.join(env["HOME"], "tmp"),
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
    }
    os.makedirs(own["CLAUDE_CODE_TMPDIR"], exist_ok=True)
    job = {
        "client": [client, "-p", "--output-format", "json", "--allowedTools", _TOOLS],
        "env": own,
        "cwd": project,
        "replies": replies,
        "turns": turns,
    }
    done = subprocess.run(
        [*_alone(), sys.executable, os.path.join(_HERE, "model_server.py")],
        input=json.dumps(job).encode(),
        capture_output=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return Report(**json.loads(done.stdout))
