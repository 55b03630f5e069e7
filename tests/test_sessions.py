"""`agentmem sessions` and `agentmem show`: what was captured, as a person asks for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hook_kit
import pytest
from cli_kit import agentmem
from hook_kit import Machine
from terminal import on_terminal

from agentmem import conversation, db, sessions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hook_kit import Database, Session

postgres, database, machine = hook_kit.postgres, hook_kit.database, hook_kit.machine
RECORDED = Path(__file__).parent / "data" / "claude" / "transcripts"


def table(machine: Machine, *arguments: str) -> list[list[str]]:
    """The rows of `agentmem sessions`, piped."""
    return [line.split("\t") for line in agentmem(machine, "sessions", *arguments).stdout.split("\n")[:-1]]


def document(machine: Machine, *arguments: str) -> Any:
    return json.loads(agentmem(machine, *arguments, "--json").stdout)


def said(machine: Machine, key: str = "", *texts: str) -> Session:
    """A session in which these were said, in turns, and which was captured at its end."""
    made = machine.session(key)
    for place, text in enumerate(texts or ("a prompt", "an answer")):
        made.say("assistant" if place % 2 else "user", text)
    assert machine.hook("SessionEnd", made).code == 0
    return made


@pytest.fixture
def recorded(machine: Machine) -> Machine:
    """An installation that has captured what the real client wrote."""
    folder = machine.projects / "-home-dev-project"
    for scenario in RECORDED.iterdir():
        shutil.copytree(scenario, folder, dirs_exist_ok=True)
    agentmem(machine, "backfill")
    return machine


# The list


def test_nothing_is_stored_yet(machine: Machine) -> None:
    done = agentmem(machine, "sessions")
    assert done.stdout == ""
    assert done.stderr == (
        f"No session of the folder {machine.work} (no git repository) is stored."
        " None is at all yet: see agentmem doctor, agentmem backfill.\n"
    )
    assert agentmem(machine, "sessions", "--all").stderr.startswith("No session of any project is stored. None is")
    assert document(machine, "sessions") == []


def test_sessions_of_this_folder_newest_first(machine: Machine) -> None:
    first = said(machine, "", "the first question\nin two lines", "an answer")
    second = said(machine, "", "the second question")
    rows = table(machine)
    assert [[row[0], *row[2:]] for row in rows] == [
        [second.key[:8], "work", "claude-code", "", "1", "the second question", "unanswered"],
        [first.key[:8], "work", "claude-code", "", "1", "the first question in two lines", ""],
    ]
    assert table(machine, "-n", "1") == rows[:1]
    shown = document(machine, "sessions", "-n", "1")
    assert [(one["key"], one["prompts"], one["last_kind"]) for one in shown] == [(second.key, 1, "prompt")]


def test_another_folder_sees_nothing_and_is_told_where_to_look(machine: Machine, tmp_path: Path) -> None:
    said(machine)
    machine.work = tmp_path
    done = agentmem(machine, "sessions")
    assert done.stdout == ""
    assert "agentmem sessions --all; of another one: --project NAME: work (1)" in done.stderr
    assert len(table(machine, "--all")) == len(table(machine, "--project", "WORK")) == 1
    assert len(table(machine, "--project", os.fspath(tmp_path / "work"))) == 1
    assert "a project named nothing is stored" in agentmem(machine, "sessions", "--project", "nothing").stderr


def test_a_repository_is_one_project_from_every_folder_of_it(machine: Machine) -> None:
    subprocess.run(["git", "init", "-q", machine.work], check=True)
    said(machine)
    machine.work = machine.work / "deep" / "inside"
    machine.work.mkdir(parents=True)
    assert [row[2] for row in table(machine)] == ["work"]


def test_filters(machine: Machine) -> None:
    said(machine)
    assert len(table(machine, "--client", "claude-code", "--since", "1h")) == 1
    assert "that fits these options" in agentmem(machine, "sessions", "--client", "codex").stderr
    assert table(machine, "--since", "2100-01-01") == []
    for wrong in ("yesterday", "5", "-1d", "99999999d"):
        assert "is no span or date" in agentmem(machine, "sessions", "--since", wrong, code=2).stderr


def test_a_session_of_another_machine_names_it(machine: Machine, database: Database, tmp_path: Path) -> None:
    said(machine)
    other = Machine(tmp_path / "other", database.url, AGENTMEM_HOST_NAME="the-other-one")
    said(other)
    assert sorted(row[4] for row in table(machine, "--all")) == ["", "the-other-one"]


def test_subagents_are_hidden_unless_asked_for(recorded: Machine) -> None:
    keys = {row[0] for row in table(recorded, "--all", "-n", "100")}
    everything = {row[0] for row in table(recorded, "--all", "--subagents", "-n", "100")}
    assert everything - keys == {"cbb78ea4/a96a9f14adea3bbe6", "02987783/a3b5d1ecc1b65732f"}


def test_a_short_id_is_as_long_as_it_must_be(machine: Machine) -> None:
    """Ids that begin with the time are alike for a minute; `show` takes what `sessions` prints."""
    keys = ["01a231e8-0001-7000-8000-00000000000a", "01a231e8-0001-7000-8000-00000000000b", "ffffffff-0000"]
    for key in keys:
        said(machine, key)
    assert [row[0] for row in table(machine)] == [keys[2][:8], keys[1], keys[0]]
    for row in table(machine):
        assert document(machine, "show", row[0])["session"]["key"].startswith(row[0])


@pytest.mark.parametrize("columns", [20, 40, 80, 120])
def test_the_list_on_a_terminal(machine: Machine, columns: int) -> None:
    said(machine, "", "\x1b[31m한국어로 된 아주 긴 질문입니다 " * 10)
    screen = on_terminal(machine, "sessions", columns=columns)
    assert screen.code == 0
    header, row = screen.lines
    assert header.split()[:2] == ["session", "last"]
    assert ("first words" in header) == (columns >= 40)
    assert ("client" in header) == (columns >= 120)
    assert "…" in row
    assert "\x1b[36m" in screen.raw
    assert "\x1b[31m" not in screen.raw
    assert "\x1b[3" not in on_terminal(machine, "sessions", columns=columns, NO_COLOR="1").raw


# One session


def test_show_a_session(machine: Machine) -> None:
    made = said(machine, "", "what is\nthis?", "a test")
    lines = agentmem(machine, "show", made.key[:6]).stdout.split("\n")
    head = dict(line.split("\t") for line in lines[: lines.index("")])
    assert head["session"] == made.key
    assert head["project"] == f"work, {machine.work}"
    assert head["client"] == "claude-code, 2.1.332, claude-opus-5-5"
    assert head["ended"].endswith("(other)")
    assert head["captured"] == f"{made.size():,} bytes, 2 lines in 1 receipt: {made.path}"
    assert head["proof"] == "the receipts hold"
    assert [line for line in lines[lines.index("") :] if "2026" not in line] == [
        "", "what is", "this?", "", "a test", "",
    ]  # fmt: skip


def test_show_says_what_does_not_hold(machine: Machine, database: Database) -> None:
    made = said(machine)
    database.rows("update agentmem.turns set text = 'something else' where kind = 'answer'")
    shown = agentmem(machine, "show", made.key).stdout
    assert "is not what was stored [turn_changed]" in shown
    assert "1 problem; mend them with: agentmem backfill" in shown
    assert "the receipts hold" not in shown


def test_show_takes_a_beginning_that_is_unique(machine: Machine) -> None:
    for key in ("aaaa-1", "aaaa-2", "aaaa", "bbbb"):
        said(machine, key, f"question of {key}")
    assert document(machine, "show", "b")["session"]["key"] == "bbbb"
    assert document(machine, "show", "aaaa")["session"]["key"] == "aaaa"
    assert document(machine, "show", "aaaa-1")["session"]["key"] == "aaaa-1"
    several = agentmem(machine, "show", "aaaa-", code=1).stderr
    assert several.startswith("agentmem: 2 sessions' ids begin with 'aaaa-' [session_ambiguous]\n  Which one?\n")
    assert "aaaa-1  claude-code  'question of aaaa-1'" in several
    for unknown in ("c", "%", "aaaa_1", "\x1b[31m", "b/"):
        assert "session_unknown" in agentmem(machine, "show", unknown, code=1).stderr


def test_show_the_last_messages_and_how_to_see_more(machine: Machine) -> None:
    made = said(machine, "", *[f"text {number}" for number in range(50)])
    shown = agentmem(machine, "show", made.key).stdout
    assert f"(30 earlier messages; more: --turns 100; all: agentmem show {made.key[:8]} --all)" in shown
    assert [f"text {number}" in shown.split("\n") for number in (29, 30, 49)] == [False, True, True]
    assert "text 0\n" in agentmem(machine, "show", made.key, "--all").stdout
    three = document(machine, "show", made.key, "--turns", "3")
    assert [message["text"] for message in three["messages"]] == ["text 47", "text 48", "text 49"]
    assert three["earlier_messages"] == 47
    assert len(document(machine, "show", made.key, "--all")["messages"]) == 50


def test_lines_of_one_answer_are_one_message_and_results_stand_by_their_calls(recorded: Machine) -> None:
    shown = document(recorded, "show", "0745524b")
    assert [(one["kind"], one["text"], one["thinking"]) for one in shown["messages"][1:]] == [
        ("answer", "I look.", "let me think about the files"),
        ("answer", "answer to lab-thinking-think-4cd6467c", "second thoughts"),
    ]
    (call,) = shown["messages"][1]["tools"]
    assert (call["name"], call["target"]) == ("Bash", "echo thought")
    assert (call["result"]["lines"], call["result"]["size"], call["result"]["error"]) == (1, 7, False)
    text = agentmem(recorded, "show", "0745524b").stdout
    assert "(thinking) second thoughts\nanswer to lab-thinking-think-4cd6467c\n" in text
    assert "I look.\n  Bash echo thought\n    result: 1 line, 7 bytes\n" in text
    refused = agentmem(recorded, "show", "5d70b4da").stdout
    assert "the user said: use the trash instead" in refused
    assert "files\tx.txt\n" in refused


def test_a_fork_leaves_its_copied_history_out_unless_all_is_wanted(recorded: Machine) -> None:
    fork, original = "18a2e346-69b0-4369-b0d3-14f1f4e1ebbf", "5317f091-323a-436c-a9e5-ef69a9e55c60"
    shown = document(recorded, "show", fork)
    assert shown["session"]["forked_from"] == original
    assert {message["origin"] for message in shown["messages"]} == {None}
    assert not [message for message in shown["messages"] if "first" in message["text"]]
    everything = document(recorded, "show", fork, "--all")["messages"]
    assert len(everything) == len(shown["messages"]) + shown["copied_messages"]
    assert {message["origin"] for message in everything} == {None, original}
    text = agentmem(recorded, "show", fork).stdout
    assert f"({shown['copied_messages']} messages copied from the session that this one was forked from;" in text


def test_a_subagent_is_listed_and_shown_by_what_is_listed(recorded: Machine) -> None:
    (agent,) = document(recorded, "show", "cbb78ea4")["subagents"]
    assert agent["agent_type"] == "general-purpose"
    assert "cbb78ea4/a96a9f14adea3bbe6 general-purpose: lab-background" in agentmem(recorded, "show", "cbb78ea4").stdout
    shown = document(recorded, "show", "cbb78ea4/a96a")
    assert shown["session"]["parent"] == shown["session"]["key"].split("/")[0]


def test_every_recorded_session_is_shown_on_any_terminal(recorded: Machine, database: Database) -> None:
    keys = [row["key"] for row in database.rows("select key from agentmem.sessions order by key")]
    assert len(keys) == 36
    for place, key in enumerate(keys[::3]):
        screen = on_terminal(recorded, "show", key, "--all", columns=(15, 80, 120)[place % 3])
        assert screen.code == 0, screen.lines
        assert max(map(len, screen.lines)) <= (15, 80, 120)[place % 3]


def test_what_was_said_cannot_steer_the_terminal(machine: Machine) -> None:
    bad = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eevil\r\nsecond"
    made = said(machine, "", bad, bad)
    for raw in (on_terminal(machine, "show", made.key).raw, on_terminal(machine, "sessions").raw):
        assert not {"\x1b[2J", "\x1b]", "\x07", "\x9b", "\u202e"} & {part for part in (raw, *raw) if part}
        assert "\x1b[2J" not in raw
        assert "\x1b]" not in raw
        assert "evil" in raw


@pytest.mark.parametrize("encoding", ["ascii", "cp932", "utf-8"])
def test_a_terminal_whose_encoding_lacks_characters(machine: Machine, encoding: str) -> None:
    made = said(machine, "", "한국어 👩\u200d💻 " + "x" * 200, "answer")
    for arguments in (("sessions",), ("show", made.key)):
        screen = on_terminal(machine, *arguments, PYTHONIOENCODING=encoding)
        assert screen.code == 0
        assert ("한국어" in screen.raw) == (encoding == "utf-8")
        assert "xxx" in screen.raw


@pytest.fixture
def connection(machine: Machine, database: Database) -> Iterator[db.Connection]:
    with db.connect({"dbname": database.url}) as found:
        yield found


def test_any_number_of_last_messages_is_the_end_of_all(connection: db.Connection, recorded: Machine) -> None:
    """A message is never shown with lines missing."""
    rows = connection.execute("select id from agentmem.sessions").fetchall()
    for row in rows:
        whole = conversation.read(connection, row["id"], None)
        assert whole.earlier == 0
        for most in (1, 2, 3, 5, 8):
            some = conversation.read(connection, row["id"], most)
            assert some.messages == whole.messages[-most:], (row, most)
            assert some.earlier == len(whole.messages) - len(some.messages)


def test_lines_of_one_answer_with_others_between(connection: db.Connection, machine: Machine) -> None:
    """Results of parallel calls come as they are ready; the answer's next line can be after them."""
    made = machine.session()

    def call(message: str, number: int) -> None:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": f"c{number}"}}
        made.append(made.line("assistant", "", message={"id": message, "role": "assistant", "content": [block]}))

    def result(number: int) -> None:
        block = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "x" * number}
        made.append(made.line("user", "", message={"role": "user", "content": [block]}))

    made.say("user", "go")
    call("msg_1", 1)
    result(1)
    call("msg_2", 2)
    call("msg_1", 3)
    result(3)
    result(2)
    assert machine.hook("Stop", made).code == 0
    (row,) = connection.execute("select id from agentmem.sessions").fetchall()

    def sizes(most: int) -> list[list[tuple[str, int]]]:
        talk = conversation.read(connection, row["id"], most)
        assert talk.earlier == 3 - len(talk.messages)
        return [[(tool["target"], tool["result"]["size"]) for tool in one.tools] for one in talk.messages]

    assert sizes(3) == sizes(9) == [[], [("c1", 1), ("c3", 3)], [("c2", 2)]]
    assert sizes(2) == [[("c1", 1), ("c3", 3)], [("c2", 2)]]
    assert sizes(1) == [[("c2", 2)]]


def test_wanted_projects(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    here = sessions.wanted_project(".", os.fspath(tmp_path / "here"))
    assert here.identity == f"path:{tmp_path}/here"
    assert sessions.wanted_project("../here", os.fspath(tmp_path / "there")).identity == here.identity
    assert sessions.wanted_project("..", os.fspath(tmp_path / "here")).identity == f"path:{tmp_path}"
    assert sessions.wanted_project("name", "/") == sessions.Wanted("", "name", "a project named name")
