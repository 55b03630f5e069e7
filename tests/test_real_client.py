"""The main job with the real client: a session is captured and proved, and the next one starts with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import client_kit
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.client


class Machine:
    """A person's machine: a HOME that the product's own installer prepared, and a project."""

    def __init__(self, root: str) -> None:
        self.home = os.path.join(root, "home")
        self.project = os.path.join(root, "a project")
        os.makedirs(self.home)
        os.makedirs(self.project)
        self.env = {"HOME": self.home, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TERM": "dumb"}
        for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "the first commit"]):
            identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
            subprocess.run(["git", *identity, *command], cwd=self.project, env=self.env, check=True)
        client_kit.prepare(self.home, self.project)
        for command in ("init", "install"):
            self.agentmem(command)

    def agentmem(self, *arguments: str, code: int = 0) -> str:
        """Run the command line; its output."""
        done = subprocess.run(
            [os.path.join(os.path.dirname(sys.executable), "agentmem"), *arguments],
            env=self.env,
            cwd=self.project,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def drive(self, replies: dict[str, list[dict[str, Any]]], turns: list[dict[str, Any]]) -> client_kit.Report:
        """Run the client in the project."""
        return client_kit.drive(self.env, self.project, replies, turns)

    def shown(self, session: str) -> list[dict[str, Any]]:
        """The messages of a session as they are stored."""
        return json.loads(self.agentmem("show", session, "--all", "--json"))["messages"]

    def check_everything(self) -> None:
        """Every complete line on disk is captured, and the doctor agrees."""
        checks = json.loads(self.agentmem("doctor", "--json"))
        coverage = [check for check in checks if check["name"] == "coverage"]
        assert [check["verdict"] for check in coverage] == ["pass"]
        assert "(100.0 %)" in coverage[0]["why"], coverage


@pytest.fixture
def machine() -> Iterator[Machine]:
    client_kit.program()
    with tempfile.TemporaryDirectory(prefix="am-") as root:
        made = Machine(root)
        try:
            yield made
        finally:
            made.agentmem("db", "stop")


def test_a_session_is_captured_and_comes_back_at_the_next_start(machine: Machine) -> None:
    report = machine.drive(
        {"mark-one": [{"text": "the answer to one"}], "mark-two": [{"text": "the answer to two"}]},
        [{"prompt": "mark-one: remember the blue door"}, {"prompt": "mark-two: what now?"}],
    )
    assert [turn["code"] for turn in report.turns] == [0, 0]
    texts = [(turn["kind"], turn["text"]) for turn in machine.shown(report.session(0))]
    assert texts == [("prompt", "mark-one: remember the blue door"), ("answer", "the answer to one")]
    # The second session's request to the model holds the first one's question and answer, and the state of git.
    asked = report.asked("mark-two")
    assert "remember the blue door" in asked
    assert "the answer to one" in asked
    assert "the first commit" in asked
    assert "<agentmem-memory-" in asked
    machine.check_everything()


def test_tools_are_stored_by_name_and_target_and_their_output_as_a_stub(machine: Machine) -> None:
    target = os.path.join(machine.project, "written.txt")
    report = machine.drive(
        {
            "mark-tools": [
                {"tool": "Write", "input": {"file_path": target, "content": "some content"}},
                {"tool": "Bash", "input": {"command": "echo a-bulky-output; exit 3", "description": "a test"}},
                {"text": "done with tools"},
            ],
            "mark-next": [{"text": "ok"}],
        },
        [{"prompt": "mark-tools: work"}, {"prompt": "mark-next: go on"}],
    )
    tools = [tool for message in machine.shown(report.session(0)) for tool in message["tools"]]
    assert [(tool["name"], tool["result"]["error"]) for tool in tools] == [("Write", False), ("Bash", True)]
    assert tools[0]["target"] == target
    assert all(len(tool["result"]["sha256"]) == 64 for tool in tools)
    assert "written.txt" in report.asked("mark-next")
    machine.check_everything()


def test_a_resumed_session_stays_one(machine: Machine) -> None:
    replies = {f"mark-{name}": [{"text": f"answer {name}"}] for name in ("a", "b", "c")}
    first = machine.drive(replies, [{"prompt": "mark-a"}])
    session = first.session()
    machine.drive(replies, [{"prompt": "mark-b", "options": ["--resume", session]}])
    last = machine.drive(replies, [{"prompt": "mark-c", "options": ["--continue"]}])
    assert last.session() == session
    texts = [turn["text"] for turn in machine.shown(session) if turn["kind"] in ("prompt", "answer")]
    assert texts == ["mark-a", "answer a", "mark-b", "answer b", "mark-c", "answer c"]
    assert len(json.loads(machine.agentmem("sessions", "--json"))) == 1
    machine.check_everything()


def test_a_killed_session_is_stored_at_the_next_start_and_is_in_its_digest(machine: Machine) -> None:
    report = machine.drive(
        {
            "mark-killed": [
                {"tool": "Bash", "input": {"command": "echo before-the-end", "description": "a test"}},
                {"wait": 60, "text": "never said"},
            ],
            "mark-after": [{"text": "ok"}],
        },
        [
            {"prompt": "mark-killed: a long story", "kill_at": {"mark": "mark-killed", "step": 1}},
            {"prompt": "mark-after: what happened?"},
        ],
    )
    assert report.turns[0]["code"] == -9
    sessions = json.loads(machine.agentmem("sessions", "--json"))
    killed = [row for row in sessions if row["first_prompt"] == "mark-killed: a long story"]
    assert len(killed) == 1
    # How much the client had written by then varies; that all of it is stored is checked below.
    assert machine.shown(killed[0]["key"])[0]["kind"] == "prompt"
    asked = report.asked("mark-after")
    assert "a long story" in asked
    assert "OPEN END" in asked
    machine.check_everything()


def test_a_subagent_is_a_session_of_its_own_below_the_first(machine: Machine) -> None:
    call = {
        "description": "look",
        "prompt": "mark-inner: look around",
        "subagent_type": "general-purpose",
        "run_in_background": False,
    }
    report = machine.drive(
        {
            "mark-inner": [{"text": "nothing there"}],
            "mark-outer": [{"tool": "Agent", "input": call}, {"text": "the agent saw nothing"}],
        },
        [{"prompt": "mark-outer: send somebody"}],
    )
    shown = json.loads(machine.agentmem("show", report.session(), "--json"))
    assert [agent["agent_type"] for agent in shown["subagents"]] == ["general-purpose"]
    inner = [turn["text"] for turn in machine.shown(shown["subagents"][0]["key"]) if turn["kind"] == "answer"]
    assert inner == ["nothing there"]
    assert "nothing there" not in [message["text"] for message in shown["messages"]]
    machine.check_everything()
