"""The main job with the real client: a session is captured and proved, and the next one starts with it."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import client_kit
import psycopg
import pytest
import servers

from agentmem import cluster
from agentmem.paths import find_paths

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.client

KILLED = {"mark": "mark-killed", "step": 1}
"""The request at which a client is killed: a tool has run, the answer is still to come."""
NEVER_SAID = [
    {"tool": "Bash", "input": {"command": "echo before-the-end", "description": "a test"}},
    {"wait": 60, "text": "never said"},
]


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

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of a statement, past the product's own code."""
        server = cluster.cluster_for(find_paths(self.env), servers.bin_dir())
        with psycopg.connect(**cluster.connect_params(server)) as connection:  # type: ignore[arg-type]
            return connection.execute(sql, values or None).fetchall()  # type: ignore[arg-type]

    def next_session_is_told(self, *words: str) -> None:
        """What the model is asked in a session that starts now holds a digest with these words in it."""
        asked = self.drive({"mark-next": [{"text": "ok"}]}, [{"prompt": "mark-next: where were we?"}]).asked(
            "mark-next"
        )
        for word in ("<agentmem-memory-", *words):
            assert word in asked

    def check_everything(self) -> None:
        """Every complete line on disk is captured: as the files and the tables say, and as the doctor says."""
        pattern = os.path.join(self.home, ".claude", "projects", "**", "*.jsonl")
        files = glob.glob(pattern, recursive=True)
        assert files
        for path in files:
            self.check_file(path)
        checks = json.loads(self.agentmem("doctor", "--json"))
        coverage = [check for check in checks if check["name"] == "coverage"]
        assert [check["verdict"] for check in coverage] == ["pass"]
        assert "(100.0 %)" in coverage[0]["why"], coverage

    def check_file(self, path: str) -> None:
        """The receipts of a transcript prove all its complete lines, and what was said in it is stored."""
        with open(path, "rb") as stream:
            raw = stream.read()
        receipts = self.rows(
            "select r.start_offset, r.end_offset, r.sha256 from agentmem.receipts r"
            " join agentmem.transcripts f on f.id = r.transcript_id and f.generation = r.generation"
            " where f.path = %s order by r.start_offset",
            path,
        )
        end = 0
        for start, stop, digest in receipts:
            assert start == end, path
            assert hashlib.sha256(raw[start:stop]).hexdigest() == digest, path
            end = stop
        assert end == raw.rfind(b"\n") + 1, path
        lines = [json.loads(line) for line in raw[:end].splitlines()]
        said = {line["uuid"] for line in lines if line["type"] in ("user", "assistant")}
        turns = self.rows(
            "select t.uuid from agentmem.turns t join agentmem.transcripts f using (session_id) where f.path = %s", path
        )
        assert said <= {uuid for (uuid,) in turns}, path


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
            "mark-killed": NEVER_SAID,
            "mark-after": [{"text": "ok"}],
        },
        [
            {"prompt": "mark-killed: a long story", "kill_at": {**KILLED, "signal": signal.SIGKILL}},
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
    machine.next_session_is_told("send somebody", "the agent saw nothing")


def test_a_client_killed_before_the_first_answer_loses_nothing_that_is_on_disk(machine: Machine) -> None:
    kill = {"mark": "mark-killed", "step": 0, "signal": signal.SIGKILL}
    report = machine.drive(
        {"mark-killed": [{"wait": 60, "text": "never said"}]},
        [{"prompt": "mark-killed: begin", "kill_at": kill}],
    )
    assert report.turns[0]["code"] == -signal.SIGKILL
    machine.next_session_is_told()
    machine.check_everything()


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 0), ("SIGTERM", 143)])
def test_an_interrupted_session_is_stored_before_the_client_is_gone(machine: Machine, name: str, code: int) -> None:
    report = machine.drive(
        {"mark-killed": NEVER_SAID},
        [{"prompt": "mark-killed: stop me", "kill_at": {**KILLED, "signal": getattr(signal, name)}}],
    )
    assert report.turns[0]["code"] == code
    machine.check_everything()
    ended = "select first_prompt, end_reason from agentmem.sessions where ended_at is not null"
    assert machine.rows(ended) == [("mark-killed: stop me", "other")]
    machine.next_session_is_told("stop me")


def test_an_error_of_the_model_is_stored_as_one(machine: Machine) -> None:
    report = machine.drive(
        {"mark-error": [{"status": 400, "error": "the model is not well"}]}, [{"prompt": "mark-error: say something"}]
    )
    assert report.turns[0]["code"] == 1
    machine.check_everything()
    kinds = machine.rows("select kind from agentmem.turns where kind in ('prompt', 'answer', 'api_error') order by id")
    assert kinds == [("prompt",), ("api_error",)]
    machine.next_session_is_told("say something")


def test_a_fork_is_a_session_of_its_own_that_knows_what_it_copied(machine: Machine) -> None:
    replies = {f"mark-{name}": [{"text": f"answer {name}"}] for name in ("a", "b")}
    first = machine.drive(replies, [{"prompt": "mark-a"}]).session()
    fork = machine.drive(replies, [{"prompt": "mark-b", "options": ["--resume", first, "--fork-session"]}]).session()
    assert fork != first
    machine.check_everything()
    assert machine.rows("select forked_from from agentmem.sessions where key = %s", fork) == [(first,)]
    said = (
        "select t.text, t.origin from agentmem.turns t join agentmem.sessions s on s.id = t.session_id"
        " where s.key = %s and t.kind in ('prompt', 'answer') order by t.position"
    )
    copied = [("mark-a", first), ("answer a", first)]
    assert machine.rows(said, fork) == [*copied, ("mark-b", None), ("answer b", None)]
    assert machine.rows(said, first) == [("mark-a", None), ("answer a", None)]
    machine.next_session_is_told("answer a", "answer b")


def test_a_compacted_session_stays_whole_and_goes_on_with_a_digest(machine: Machine) -> None:
    replies = {
        "mark-early": [{"text": "an early answer"}],
        "mark-a": [{"text": "answer a"}],
        "mark-b": [{"text": "answer b"}],
    }
    machine.drive(replies, [{"prompt": "mark-early"}])
    session = machine.drive(replies, [{"prompt": "mark-a"}]).session()
    on = ["--resume", session]
    report = machine.drive(replies, [{"prompt": "/compact", "options": on}, {"prompt": "mark-b", "options": on}])
    assert report.session(1) == session
    machine.check_everything()
    events = machine.rows("select event, outcome from agentmem.hook_runs where session_key = %s", session)
    assert ("PreCompact", "ok") in events
    said = (
        "select t.text from agentmem.turns t join agentmem.sessions s on s.id = t.session_id"
        " where s.key = %s and t.kind in ('prompt', 'answer') order by t.position"
    )
    assert machine.rows(said, session) == [("mark-a",), ("answer a",), ("mark-b",), ("answer b",)]
    # The compaction took the digest of the start out of the model's view; the one after it names the earlier session.
    asked = report.asked("mark-b")
    assert "answer a" not in asked
    assert "mark-early" in asked
    assert "<agentmem-memory-" in asked
