"""Recordings of the real client, read record by record; and records of every shape that it never wrote."""

from __future__ import annotations

import functools
import glob
import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem import jsonio
from agentmem.claude_code import read_record
from agentmem.reading import Reading

TESTS = os.path.dirname(os.path.abspath(__file__))
TRANSCRIPTS = os.path.join(TESTS, "data", "claude", "transcripts")
FILES = sorted(glob.glob(os.path.join(TRANSCRIPTS, "**", "*.jsonl"), recursive=True))
KINDS = {
    "prompt", "command", "notification", "interrupt", "meta", "summary", "boundary", "answer", "thinking",
    "tool_call", "tool_result", "api_error", "notice",
}  # fmt: skip
REFUSED = "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, "
REFUSED += "the new_string was NOT written to the file). "
CAVEAT = "<local-command-caveat>The command below was run directly in Claude Code, not sent to you as a request, and "
CAVEAT += "its output goes straight to the user. It's recorded here as context for later messages."
CAVEAT += "</local-command-caveat>"


def lines_of(path: str) -> list[bytes]:
    with open(path, "rb") as stream:
        return [line for line in stream.read().split(b"\n") if line]


def parse(line: bytes) -> dict[str, Any]:
    value, _ = jsonio.clean(jsonio.loads(line.decode("utf-8")))
    assert isinstance(value, dict)
    return value


@functools.cache
def read(path: str, session: str = "") -> Reading:
    reading = Reading()
    name = os.path.basename(path).removesuffix(".jsonl")
    position = 0
    for line in lines_of(path):
        read_record(parse(line), position, session or name, reading, agent_file=name.startswith("agent-"))
        position += len(line) + 1
    return reading


def file_of(scenario: str, start: str = "") -> str:
    (path,) = glob.glob(os.path.join(TRANSCRIPTS, scenario, start + "*.jsonl"))
    return path


def plain(text: str) -> str:
    """Without the script that the model followed, and with only the label of a mark."""
    return re.sub(r"lab-[a-z-]+?-([a-z0-9]+)-[0-9a-f]{8}", r"\1", re.sub(r" MOCK:\[.*\]", "", text))


def conversation(path: str, length: int = 60) -> list[tuple[str, str]]:
    return [(turn["kind"], plain(turn["text"])[:length]) for turn in read(path).turns]


def of_kind(path: str, kind: str) -> list[dict[str, Any]]:
    return [turn for turn in read(path).turns if turn["kind"] == kind]


def one(record: Any, session: str = "s", **options: Any) -> tuple[dict[str, Any], Reading]:
    reading = Reading()
    read_record(record, 7, session, reading, **options)
    (turn,) = reading.turns
    return turn, reading


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "user", "uuid": "u1", "sessionId": "s", "message": {"role": "user", "content": content}, **more}


def assistant(content: Any, **more: Any) -> dict[str, Any]:
    message = {"id": "msg_1", "role": "assistant", "model": "claude-opus-5-5", "content": content}
    return {"type": "assistant", "uuid": "u2", "sessionId": "s", "message": message, **more}


# What the real client wrote.

CONVERSATIONS: dict[str, list[tuple[str, str]]] = {
    "startup": [("prompt", "hello"), ("answer", "answer to hello")],
    "resume": [
        ("prompt", "first"),
        ("answer", "answer to first"),
        ("prompt", "second"),
        ("answer", "answer to second"),
        ("prompt", "third"),
        ("answer", "answer to third"),
    ],
    "tools": [
        ("prompt", "work"),
        ("answer", "I begin."),
        ("tool_call", "Write /home/dev/project/written.txt"),
        ("tool_result", ""),
        ("tool_call", "Read /home/dev/project/edited.txt"),
        ("tool_result", ""),
        ("tool_call", "Edit /home/dev/project/edited.txt"),
        ("tool_result", ""),
        ("tool_call", "Bash echo to-stdout; echo to-stderr >&2"),
        ("tool_result", ""),
        ("tool_call", "Bash exit 3"),
        ("tool_result", "Exit code 3"),
        ("tool_call", "Bash sleep 0.2; echo first"),
        ("tool_call", "Read /home/dev/project/absent"),
        ("tool_result", "File does not exist. Note: your current working directory is"[:60]),
        ("tool_result", ""),
        ("answer", "answer to work"),
    ],
    "subagent": [
        ("prompt", "outer"),
        ("tool_call", "Agent look around"),
        ("tool_result", ""),
        ("answer", "answer to outer"),
    ],
    "background": [
        ("prompt", "outer"),
        ("tool_call", "Agent look around"),
        ("tool_result", ""),
        ("answer", "answer to outer"),
        ("meta", ""),
        ("notification", "<task-notification>\n<task-id>a96a9f14adea3bbe6</task-id>\n<to"),
        ("answer", "done"),
    ],
    "notified": [
        ("prompt", "n"),
        ("tool_call", "Bash sleep 1; echo done-in-background"),
        ("tool_result", ""),
        ("tool_call", "Bash for i in $(seq 30); do sleep 0.1; done; echo slow"),
        ("tool_result", ""),
        ("notification", "<task-notification>\n<task-id>b0rspplu5</task-id>\n<tool-use-i"),
        ("answer", "answer to n"),
    ],
    "interrupt": [
        ("prompt", "open"),
        ("tool_call", "Bash echo before the end"),
        ("tool_result", ""),
        ("interrupt", "[Request interrupted by user]"),
    ],
    "sigkill": [("prompt", "open"), ("tool_call", "Bash echo before the end"), ("tool_result", "")],
    "continued": [
        ("prompt", "open"),
        ("tool_call", "Bash echo before the end"),
        ("tool_result", ""),
        ("meta", "No response requested."),
        ("prompt", "again"),
        ("answer", "answer to again"),
    ],
    "thinking": [
        ("prompt", "think"),
        ("thinking", "let me think about the files"),
        ("answer", "I look."),
        ("tool_call", "Bash echo thought"),
        ("tool_result", ""),
        ("thinking", "second thoughts"),
        ("thinking", ""),
        ("answer", "answer to think"),
    ],
    "stop-blocked": [
        ("prompt", "block"),
        ("answer", "one"),
        ("meta", "Stop hook feedback:\n[/usr/bin/python3 -I -S /home/dev/hooks/"),
        ("answer", "done"),
        ("meta", "Stop hook feedback:\n[/usr/bin/python3 -I -S /home/dev/hooks/"),
        ("answer", "done"),
        ("meta", "Stop hook feedback:\n[/usr/bin/python3 -I -S /home/dev/hooks/"),
        ("notice", "A hook blocked the turn from ending 3 consecutive times—over"),
    ],
    "prompt-blocked": [("notice", "UserPromptSubmit operation blocked by hook:\n[/usr/bin/python")],
    "tui-escape": [
        ("prompt", "tool"),
        ("tool_call", "Bash for i in $(seq 300); do sleep 0.1; done; echo slow"),
        ("tool_result", REFUSED[:60]),
        ("interrupt", "[Request interrupted by user for tool use]"),
        ("prompt", "stream"),
        ("answer", "half an answer"),
        ("interrupt", "[Request interrupted by user]"),
    ],
    "tui-queued": [
        ("prompt", "slow"),
        ("tool_call", "Bash sleep 4; echo slow"),
        ("tool_result", ""),
        ("prompt", "queued also look at the readme"),
        ("prompt", "queued2 and a second one"),
        ("answer", "answer to slow"),
        ("prompt", "sleepy"),
        ("answer", "answer to sleepy"),
        ("prompt", "queued3 after the answer"),
        ("answer", "done"),
    ],
    "tui-mention": [
        ("prompt", "look at @note.txt at"),
        ("answer", "answer to at"),
        ("prompt", "fail"),
        ("api_error", "API Error: 529 mock failure. This is a server-side issue, us"),
    ],
    "tui-resume-background": [
        ("prompt", "first"),
        ("answer", "answer to first"),
        ("prompt", "second"),
        ("answer", "answer to second"),
        ("prompt", "bg"),
        ("tool_call", "Bash sleep 3; echo done-in-background"),
        ("tool_result", ""),
        ("answer", "answer to bg"),
        ("notification", "<task-notification>\n<task-id>bbx6d7w3c</task-id>\n<tool-use-i"),
        ("answer", "done"),
    ],
}


@pytest.mark.parametrize("scenario", CONVERSATIONS)
def test_conversation(scenario: str) -> None:
    assert conversation(file_of(scenario)) == CONVERSATIONS[scenario]


def test_api_errors() -> None:
    refused = conversation(file_of("api-error", "a947"))
    assert refused == [("prompt", "400"), ("api_error", "API Error: 400 mock failure")]
    (overloaded,) = of_kind(file_of("api-error", "3718"), "api_error")
    assert overloaded["text"].startswith("API Error: 529 mock failure.")
    assert overloaded["model"] is None
    assert "model" not in read(file_of("api-error", "3718")).facts


def test_compaction_by_hand() -> None:
    path = file_of("compact", "f3d2")
    assert conversation(path) == [
        ("prompt", "first"),
        ("tool_call", "Bash echo work"),
        ("tool_result", ""),
        ("answer", "answer to first"),
        ("boundary", "Conversation compacted"),
        ("summary", "This session is being continued from a previous conversation"),
        ("meta", CAVEAT[:60]),
        ("command", "/compact keep the files"),
        ("notification", "<local-command-stdout>Compacted (ctrl+o to see full summary)"),
        ("prompt", "after"),
        ("answer", "answer to after"),
    ]
    (summary,) = of_kind(path, "summary")
    assert "MOCK SUMMARY of the conversation." in summary["text"]
    assert "<system-reminder>" not in summary["text"]
    (boundary,) = of_kind(path, "boundary")
    assert boundary["role"] == "system"
    assert boundary["parent"] in {parse(line).get("uuid", "") for line in lines_of(path)}


def test_compaction_by_itself() -> None:
    assert conversation(file_of("compact", "ca62")) == [
        ("prompt", "auto"),
        ("tool_call", "Bash echo 1"),
        ("tool_result", ""),
        ("tool_call", "Bash echo 2"),
        ("tool_result", ""),
        ("boundary", "Conversation compacted"),
        ("summary", "This session is being continued from a previous conversation"),
        ("answer", "Hello from the mock."),
    ]


def test_clear_makes_two_sessions() -> None:
    assert conversation(file_of("tui-clear", "431b")) == [("prompt", "first"), ("answer", "answer to first")]
    assert conversation(file_of("tui-clear", "1ea5")) == [
        ("meta", CAVEAT[:60]),
        ("command", "/clear"),
        ("notice", "<local-command-stdout></local-command-stdout>"),
        ("prompt", "second"),
        ("answer", "answer to second"),
    ]


SLASH = [
    ("prompt", "first"),
    ("answer", "answer to first"),
    ("command", "/hello there friend"),
    ("meta", "Say hi there friend\n"),
    ("answer", "CMD"),
    ("command", "/rename my-name"),
    ("notice", "<local-command-stdout>Session renamed to: my-name</local-com"),
    ("meta", ""),
    ("command", "!echo from-bash-mode"),
    ("notification", "<bash-stdout>from-bash-mode</bash-stdout><bash-stderr></bash"),
    ("answer", "done"),
    ("meta", CAVEAT[:60]),
    ("command", "/model sonnet"),
    ("notification", "<local-command-stdout>Set model to `Sonnet 5.5` and saved as"),
    ("command", "/context"),
]


def test_slash_commands() -> None:
    path = file_of("tui-slash", "c8c8")
    assert conversation(path)[: len(SLASH)] == SLASH
    assert conversation(path)[-2:] == [("prompt", "second"), ("answer", "answer to second")]
    # The terminal writes some commands as user lines, some as system lines: a person typed them all.
    assert {turn["role"] for turn in of_kind(path, "command")} == {"user"}
    facts = read(path).facts
    assert facts["title"] == "my-name"
    assert facts["model"] == "claude-sonnet-5-5"


def test_command_without_a_prompt() -> None:
    assert [kind for kind, _ in conversation(file_of("skill", "91a4"))] == ["meta", "command", "notice"]
    assert conversation(file_of("skill", "5782"))[0] == ("command", "/hello there friend")


def test_branch_marks_every_copied_line() -> None:
    path = file_of("tui-slash", "f239")
    original = "c8c8ddeb-d35d-4ae9-ad68-0dbd5f279f31"
    turns = read(path).turns
    copied = [turn for turn in turns if turn["origin"]]
    assert {turn["origin"] for turn in copied} == {original}
    assert [turn["uuid"] for turn in copied] == [turn["uuid"] for turn in read(file_of("tui-slash", "c8c8")).turns]
    own = [(turn["kind"], plain(turn["text"])[:30]) for turn in turns if not turn["origin"]]
    assert own[0] == ("command", "/branch")
    assert own[2:] == [("prompt", "third"), ("answer", "answer to third")]
    assert read(path).facts["forked_from"] == original
    assert "forked_from" not in read(file_of("tui-slash", "c8c8")).facts


def test_fork_marks_only_answers() -> None:
    original, fork = file_of("fork", "5317"), file_of("fork", "18a2")
    before = {turn["uuid"] for turn in read(original).turns}
    copied = [turn for turn in read(fork).turns if turn["uuid"] in before]
    assert len(copied) == len(before) == 4
    assert [turn["origin"] for turn in copied if turn["role"] == "assistant"] == [original.split("/")[-1][:-6]] * 2
    assert read(fork).facts["forked_from"] == original.split("/")[-1][:-6]
    assert [turn["origin"] for turn in read(fork).turns if turn["uuid"] not in before] == [None, None]


@pytest.mark.parametrize("path", [path for path in FILES if "subagents" in path])
def test_subagents_own_file(path: str) -> None:
    assert [turn["kind"] for turn in read(path).turns] == ["prompt", "tool_call", "tool_result", "answer"]
    for turn in read(path, "SESSION/agent").turns:
        assert turn["agent"] is None
        assert turn["origin"] is None
    assert "forked_from" not in read(path, "SESSION/agent").facts


def test_subagents_lines_in_the_main_file() -> None:
    (path,) = glob.glob(os.path.join(TRANSCRIPTS, "subagent", "*", "subagents", "*.jsonl"))
    session = path.split("/")[-3]
    reading = Reading()
    for line in lines_of(path):
        read_record(parse(line), 0, session, reading)
    assert [turn["agent"] for turn in reading.turns] == ["a3b5d1ecc1b65732f"] * 4
    # What its lines say of place and model is said of the subagent.
    assert reading.facts == {}


# What holds for every recording.


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(path.split("/")[-2:])[:60])
class TestEveryRecording:
    def test_each_line_is_counted_once_and_none_is_unknown(self, path: str) -> None:
        types = Counter(
            f"system:{record['subtype']}" if record["type"] == "system" else record["type"]
            for record in map(json.loads, lines_of(path))
        )
        assert read(path).kinds == types
        assert read(path).unknown == {}

    def test_lines_and_turns_match(self, path: str) -> None:
        expected = []
        for record in map(parse, lines_of(path)):
            queued = record["type"] == "attachment" and record["attachment"]["type"] == "queued_command"
            counted = record.get("subtype") in ("turn_duration", "stop_hook_summary")
            if queued or (record["type"] in ("user", "assistant", "system") and not counted):
                expected.append(record["uuid"])
        assert [turn["uuid"] for turn in read(path).turns] == expected

    def test_turns_are_whole(self, path: str) -> None:
        for turn in read(path).turns:
            assert turn["kind"] in KINDS
            assert re.fullmatch(r"2026-12-01T\d\d:\d\d:\d\d\.\d{3}Z", turn["at"])
            assert (turn["tools"] is not None) == (turn["kind"] in ("tool_call", "tool_result"))
        positions = [turn["position"] for turn in read(path).turns]
        assert positions == sorted(set(positions))

    def test_nothing_that_was_injected_is_a_turn(self, path: str) -> None:
        said = jsonio.dumps([*read(path).turns])
        assert b"digest-injected-by-" in b"".join(lines_of(path)) or "subagents" in path or "skill" in path
        assert "digest-injected-by-" not in said
        assert "<system-reminder>" not in said
        assert "hook additional context" not in said

    def test_nothing_of_attachments_and_requests_is_a_turn(self, path: str) -> None:
        """Long texts of the lines that are only counted don't come back in a turn."""
        said = jsonio.dumps([turn["text"] for turn in read(path).turns])
        for record in map(parse, lines_of(path)):
            kind = record["type"]
            if kind == "attachment" and record["attachment"]["type"] in ("environment", "session_context", "file"):
                texts = strings(record["attachment"])
                assert texts
                for text in texts:
                    assert len(text) < 20 or jsonio.dumps(text)[1:-1] not in said
            if kind in ("api-request-shape", "api-request"):
                assert str(record.get("shapeHash")) not in said

    def test_lines_of_one_answer_share_its_id(self, path: str) -> None:
        for record in map(parse, lines_of(path)):
            if record["type"] == "assistant":
                (turn,) = [turn for turn in read(path).turns if turn["uuid"] == record["uuid"]]
                assert turn["message"] == record["message"]["id"]

    def test_facts(self, path: str) -> None:
        facts = read(path).facts
        assert facts["cwd"] == "/home/dev/project"
        assert facts["branch"] == "main"
        assert facts["version"] == "2.1.332"
        assert facts["entrypoint"] in ("cli", "sdk-cli")
        assert facts.get("model", "claude-opus-5-5") in ("claude-opus-5-5", "claude-sonnet-5-5")


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in inner for text in strings(item)]


# Tools.


def test_tool_calls() -> None:
    calls = [turn["tools"][0] for turn in of_kind(file_of("tools"), "tool_call")]
    assert [(call["name"], call["target"]) for call in calls[:2]] == [
        ("Write", "/home/dev/project/written.txt"),
        ("Read", "/home/dev/project/edited.txt"),
    ]
    given = '{"file_path":"/home/dev/project/written.txt","content":"beta\\n"}'
    assert calls[0] == {**calls[0], "id": "toolu_mock00000200", "input_size": len(given)}


def test_tool_results() -> None:
    results = [turn["tools"][0] for turn in of_kind(file_of("tools"), "tool_result")]
    output = b"to-stdout\nto-stderr"
    assert results[3] == {
        "id": "toolu_mock00000500",
        "size": len(output),
        "sha256": hashlib.sha256(output).hexdigest(),
        "error": False,
        "lines": 2,
    }
    assert [result["error"] for result in results] == [False, False, False, False, True, True, False]


def test_refusals_are_errors() -> None:
    plainly, with_words = of_kind(file_of("tui-reject"), "tool_result")
    for turn in (plainly, with_words):
        assert turn["tools"][0]["error"] is True
        assert turn["tools"][0]["denied"] == "user-rejected"
    assert with_words["text"] == REFUSED + "To tell you how to proceed, the user said:\nuse the trash instead"


def test_answers_to_questions_are_kept() -> None:
    first, second, *_ = of_kind(file_of("tui-question"), "tool_result")
    assert '"Which database shall we use?"="Postgres"' in first["text"]
    assert '"Which database shall we use?"="neither: flat files"' in second["text"]
    assert first["tools"][0]["error"] is False
    call = of_kind(file_of("tui-question"), "tool_call")[0]
    assert call["text"] == "AskUserQuestion Which database shall we use?"


def test_output_in_a_side_file() -> None:
    (turn,) = of_kind(file_of("persisted"), "tool_result")
    folder = "/home/dev/.claude/projects/-home-dev-project/0943ecf9-6ef3-4e11-9285-a09af329ca46"
    assert turn["tools"][0]["externalised"] == folder + "/tool-results/bh9s5nix8.txt"
    assert turn["text"] == ""


def test_pictures_become_stubs() -> None:
    records = [parse(line) for line in lines_of(file_of("image", "e97f"))]
    blocks = next(record["message"]["content"] for record in records if record["type"] == "user")
    hashes = [hashlib.sha256(block["source"]["data"].encode()).hexdigest()[:12] for block in blocks[:2]]
    prompt = of_kind(file_of("image", "e97f"), "prompt")[0]["text"]
    assert prompt.startswith(
        f"[image png 404 bytes sha256:{hashes[0]}]\n[document pdf 189 bytes sha256:{hashes[1]}]\nwhat is in"
    )
    (result,) = of_kind(file_of("image", "6e0d"), "tool_result")
    assert result["text"] == ""
    (stub,) = result["tools"][0]["media"]
    assert re.fullmatch(r"\[image png 268 bytes sha256:[0-9a-f]{12}\]", stub)


def test_odd_characters() -> None:
    path = file_of("nul-and-control")
    answer = of_kind(path, "answer")[-1]["text"]
    assert answer.endswith("nul\ufffd esc\x1b[31m ls\u2028 ps\u2029 rlo\u202e 한국어 🙂 lone\ufffd end")
    jsonio.dumps([*read(path).turns]).encode("utf-8")


@pytest.mark.parametrize(
    ("given", "target"),
    [
        ({"file_path": "/a b", "old_string": "x"}, "/a b"),
        ({"notebook_path": "/n.ipynb", "new_source": "x"}, "/n.ipynb"),
        ({"description": "build it", "command": "make\nmake test"}, "make\nmake test"),
        ({"command": "x" * 3000}, "x" * 2000),
        ({"pattern": "**/*.py", "path": "/src"}, "**/*.py"),
        ({"url": "https://example.org", "prompt": "what"}, "https://example.org"),
        ({"prompt": "p" * 300, "subagent_type": "general-purpose"}, "p" * 200),
        ({"description": "look around", "prompt": "p" * 300}, "look around"),
        ({"query": "select:Write"}, "select:Write"),
        ({"issue_id": "AB-1", "n": 1}, "AB-1"),
        ({"file_path": ["/a"], "n": {}}, ""),
        ({}, ""),
        (None, ""),
        ("odd", ""),
    ],
)
def test_target(given: Any, target: str) -> None:
    turn, _ = one(assistant([{"type": "tool_use", "id": "t", "name": "Tool", "input": given}]))
    assert turn["tools"][0]["target"] == target
    assert turn["text"] == f"Tool {target}".rstrip()


# What older and other clients write.


@pytest.mark.parametrize(
    ("content", "kind", "text"),
    [
        ("hello", "prompt", "hello"),
        ("  hello\n", "prompt", "  hello\n"),
        ("", "meta", ""),
        ([], "meta", ""),
        (None, "meta", ""),
        (7, "meta", ""),
        (["a", "b"], "prompt", "a\nb"),
        ({"type": "text", "text": "alone"}, "prompt", "alone"),
        ([{"type": "text", "text": "a"}, 3, None, [], {"type": "new", "x": 1}], "prompt", "a"),
        ([{"type": "text", "text": 5}, {"type": ["odd"]}], "meta", ""),
        ("a<system-reminder>x</system-reminder>b", "prompt", "ab"),
        ("<system-reminder>x</system-reminder>\nreal words\n<system-reminder>y</system-reminder>",
         "prompt", "real words"),
        ("<system-reminder>\nonly this\n</system-reminder>", "meta", ""),
        ("what does <system-reminder> mean?", "prompt", "what does <system-reminder> mean?"),
        ("<user-prompt-submit-hook>old digest</user-prompt-submit-hook>\n\ngo on", "prompt", "go on"),
        ([{"type": "text", "text": "<ide_opened_file>x.py</ide_opened_file>"}, {"type": "text", "text": "fix"}],
         "prompt", "fix"),
        ("<command-name>/clear</command-name>\n <command-message>x</command-message>\n <command-args></command-args>",
         "command", "/clear"),
        ("<command-message>x</command-message>\n<command-name>review</command-name>\n<command-args> 12 </command-args>",
         "command", "/review 12"),
        ("<bash-input>ls -l</bash-input>", "command", "!ls -l"),
        ("<bash-input>cut", "command", "!cut"),
        ("<user-memory-input>use tabs</user-memory-input>", "prompt", "# use tabs"),
        ("<bash-stdout>x</bash-stdout><bash-stderr></bash-stderr>", "notification",
         "<bash-stdout>x</bash-stdout><bash-stderr></bash-stderr>"),
        ('<teammate-message teammate_id="lead">go</teammate-message>', "notification",
         '<teammate-message teammate_id="lead">go</teammate-message>'),
        ("<local-command-stdout>ok</local-command-stdout>", "notification",
         "<local-command-stdout>ok</local-command-stdout>"),
        ("[Request interrupted by user]", "interrupt", "[Request interrupted by user]"),
        ([{"type": "text", "text": "[Request interrupted by user for tool use]"}], "interrupt",
         "[Request interrupted by user for tool use]"),
        ("[Request interrupted by user]\nwhat is that?", "prompt", "[Request interrupted by user]\nwhat is that?"),
    ],
)  # fmt: skip
def test_user_content(content: Any, kind: str, text: str) -> None:
    turn, reading = one(user(content))
    assert (turn["kind"], turn["text"], turn["role"]) == (kind, text, "user")
    assert reading.kinds == {"user": 1}


def test_origin_tells_who_spoke() -> None:
    pasted = "<task-notification>pasted by a person</task-notification>"
    assert one(user(pasted, origin={"kind": "human"}))[0]["kind"] == "prompt"
    assert one(user(pasted))[0]["kind"] == "notification"
    wrapped = "<system-reminder>a worker is done</system-reminder>"
    turn, _ = one(user(wrapped, origin={"kind": "task-notification"}))
    assert (turn["kind"], turn["text"]) == ("notification", wrapped)
    assert one(user("go on", origin={"kind": "peer"}))[0]["kind"] == "notification"
    assert one(user("go on", origin="odd"))[0]["kind"] == "prompt"


def test_meta_and_summary_come_before_the_text() -> None:
    assert one(user("do it", isMeta=True))[0]["kind"] == "meta"
    assert one(user("so far", isCompactSummary=True))[0]["kind"] == "summary"
    assert one(user("do it", isMeta="no"))[0]["kind"] == "prompt"


@pytest.mark.parametrize(
    ("mode", "prompt", "kind", "text"),
    [
        ("prompt", "and tests", "prompt", "and tests"),
        (None, [{"type": "text", "text": "and tests"}], "prompt", "and tests"),
        ("task-notification", "<task-notification>x", "notification", "<task-notification>x"),
        ("bash", "ls", "command", "!ls"),
        ("poll-event", "ping", "notification", "ping"),
        (["odd"], {"odd": 1}, "meta", ""),
    ],
)
def test_queued_prompts(mode: Any, prompt: Any, kind: str, text: str) -> None:
    attachment = {"type": "queued_command", "commandMode": mode, "prompt": prompt}
    turn, reading = one({"type": "attachment", "uuid": "u", "attachment": attachment})
    assert (turn["role"], turn["kind"], turn["text"]) == ("user", kind, text)
    assert reading.kinds == {"attachment": 1}


def test_lines_that_hold_several_blocks() -> None:
    call = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}
    turn, _ = one(assistant([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I look."}, call, call]))
    assert (turn["kind"], turn["text"], len(turn["tools"])) == ("tool_call", "I look.\nBash ls\nBash ls", 2)
    results = [
        {"type": "tool_result", "tool_use_id": "t1", "content": "fine"},
        {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "broken"}], "is_error": True},
        {"type": "text", "text": "<system-reminder>x</system-reminder>and go on"},
    ]
    turn, _ = one(user(results))
    assert (turn["kind"], turn["text"]) == ("tool_result", "broken\nand go on")
    assert [tool["error"] for tool in turn["tools"]] == [False, True]


@pytest.mark.parametrize(("output", "lines"), [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n", 1), (None, 0)])
def test_lines_of_a_result(output: Any, lines: int) -> None:
    block = {"type": "tool_result", "tool_use_id": "t", "content": output}
    assert one(user([block]))[0]["tools"][0]["lines"] == lines


def test_errors_are_cut_and_words_are_not() -> None:
    block = {"type": "tool_result", "tool_use_id": "t", "content": "x" * 5000, "is_error": True}
    turn, _ = one(user([block]))
    assert len(turn["text"]) == 1000
    assert turn["tools"][0]["size"] == 5000
    assert len(one(user([block], holdsPersonsWords=True))[0]["text"]) == 5000
    old = {"type": "tool_result", "tool_use_id": "t", "content": REFUSED}
    assert one(user([old]))[0]["tools"][0]["denied"] == "user-rejected"


@pytest.mark.parametrize(
    ("source", "stub"),
    [
        ({"type": "base64", "media_type": "image/jpeg", "data": "QUJDRA=="},
         r"\[image jpeg 4 bytes sha256:[0-9a-f]{12}\]"),
        ({"type": "base64", "data": "QUJD"}, r"\[image data 3 bytes sha256:[0-9a-f]{12}\]"),
        ({"type": "url", "url": "https://example.org/a.png"}, r"\[image https://example.org/a.png\]"),
        ({"type": "file", "file_id": "file_1"}, r"\[image file_1\]"),
        ({"type": "base64", "data": 5}, r"\[image without data\]"),
        (None, r"\[image without data\]"),
    ],
)  # fmt: skip
def test_stub(source: Any, stub: str) -> None:
    turn, _ = one(user([{"type": "image", "source": source}]))
    assert turn["kind"] == "prompt"
    assert re.fullmatch(stub, turn["text"])


def test_spilled_output_without_a_path() -> None:
    block = {"type": "tool_result", "tool_use_id": "t", "content": "<persisted-output>\n\nsaved to: nowhere"}
    assert one(user([block]))[0]["tools"][0]["externalised"] == ""
    named = one(user([block], toolUseResult={"persistedOutputPath": "/f"}))[0]
    assert named["tools"][0]["externalised"] == "/f"


def test_lines_without_uuid() -> None:
    record = user("hello")
    del record["uuid"]
    turn, _ = one(record)
    assert turn["uuid"] == "line-" + hashlib.sha256(jsonio.dumps(record).encode()).hexdigest()[:32]
    assert one(dict(record))[0]["uuid"] == turn["uuid"]
    assert one({**record, "timestamp": "x"})[0]["uuid"] != turn["uuid"]


@pytest.mark.parametrize(
    ("more", "session", "origin"),
    [
        ({}, "s", None),
        ({}, "new", "s"),
        ({"forkedFrom": {"sessionId": "old", "messageUuid": "u"}}, "s", "old"),
        ({"requestSessionId": "old"}, "s", "old"),
        ({"forkedFrom": "odd", "sessionId": None}, "s", None),
        ({"forkedFrom": {"sessionId": "s"}}, "s", None),
    ],
)
def test_origin(more: Any, session: str, origin: str | None) -> None:
    turn, reading = one(assistant("x", **more), session)
    assert turn["origin"] == origin
    assert reading.facts.get("forked_from") == origin


def test_sidechains() -> None:
    assert one(user("x", isSidechain=True, agentId="ag1"))[0]["agent"] == "ag1"
    assert one(user("x", isSidechain=True))[0]["agent"] == "sidechain"
    assert one(user("x", isSidechain=True, agentId="ag1"), agent_file=True)[0]["agent"] is None
    assert one(user("x", isSidechain=False, agentId="ag1"))[0]["agent"] is None


def test_detached_head_is_no_branch() -> None:
    for name in ("HEAD", ""):
        reading = Reading()
        read_record(user("a", gitBranch="main"), 0, "s", reading)
        read_record(user("b", gitBranch=name), 9, "s", reading)
        assert reading.facts["branch"] is None
    assert "branch" not in one(user("c"))[1].facts


def test_unknown_types_are_counted() -> None:
    reading = Reading()
    for record in ({"type": "brand-new"}, {"type": "x" * 500}, {"type": 7}, {"type": ["user"]}, {}):
        read_record(record, 0, "s", reading)
    read_record({"type": "system", "subtype": "brand_new", "content": "look"}, 0, "s", reading)
    assert reading.unknown == {"brand-new": 1, "x" * 80: 1, "without_type": 3, "system:brand_new": 1}
    assert sum(reading.kinds.values()) == 6
    # An unknown system line is a notice all the same.
    assert [(turn["kind"], turn["text"]) for turn in reading.turns] == [("notice", "look")]


def test_synthetic_answers_name_no_model() -> None:
    record = assistant("No response requested.")
    record["message"]["model"] = "<synthetic>"
    turn, reading = one(record)
    assert (turn["kind"], turn["model"]) == ("meta", None)
    assert "model" not in reading.facts


# Every shape.

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20),
    st.sampled_from(["user", "assistant", "system", "text", "image", "tool_use", "tool_result", "base64", "s", "<",
                     "<command-name>", "<bash-input>", "<system-reminder></system-reminder>", "<persisted-output>",
                     "[Request interrupted]", "queued_command", "2026-12-01T00:00:00Z", "compact_boundary"]),
)  # fmt: skip
NAMES = st.sampled_from([
    "type", "subtype", "message", "content", "text", "source", "data", "media_type", "input", "name", "id", "uuid",
    "tool_use_id", "is_error", "isMeta", "isCompactSummary", "isSidechain", "isApiErrorMessage", "agentId", "origin",
    "kind", "sessionId", "forkedFrom", "toolUseResult", "answers", "toolDenialKind", "attachment", "prompt",
    "commandMode", "timestamp", "parentUuid", "model", "cwd", "gitBranch", "customTitle", "thinking", "questions",
    "question", "file_path", "error", "persistedOutputPath",
])  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=6)),
    max_leaves=20,
)
TYPES = st.sampled_from(["user", "assistant", "system", "attachment", "custom-title", "agent-name", "new"])
RECORDS = st.builds(
    lambda kind, attachment, rest: {"attachment": attachment, **rest, "type": kind},
    TYPES,
    st.fixed_dictionaries({"type": st.just("queued_command"), "prompt": VALUES, "commandMode": SCALARS}),
    st.dictionaries(NAMES, VALUES, max_size=8),
)
ANY_RECORD = st.one_of(RECORDS, st.dictionaries(NAMES, VALUES, max_size=8))


@given(record=ANY_RECORD, agent_file=st.booleans())
def test_every_shape_is_taken(record: Any, agent_file: bool) -> None:
    reading = Reading()
    read_record(record, 3, "s", reading, agent_file=agent_file)
    assert sum(reading.kinds.values()) == 1
    assert len(reading.turns) <= 1
    for turn in reading.turns:
        assert turn["kind"] in KINDS
        assert turn["role"] in ("user", "assistant", "system")
        assert turn["uuid"]
        assert isinstance(turn["text"], str)
        for name in ("at", "parent", "message", "model", "agent", "origin"):
            assert turn[name] is None or (isinstance(turn[name], str) and turn[name])
    # What it yields can be sent to the database.
    jsonio.dumps([*reading.turns, reading.facts])


def deepest(before: str, after: str) -> dict[str, Any]:
    """A record with the deepest list in it that can be read here."""
    for levels in range(3000, 0, -1):
        try:
            record = jsonio.loads(before + "[" * levels + "]" * levels + after)
        except ValueError:
            continue
        assert isinstance(record, dict)
        return record
    raise AssertionError("nothing can be read")


def test_nesting_that_can_be_read_but_not_written() -> None:
    record = deepest('{"type":"user","message":{"content":', "}}")
    turn, _ = one(record)
    assert turn["kind"] == "meta"
    assert turn["uuid"] == one(record)[0]["uuid"]
    before = '{"type":"assistant","uuid":"u","message":{"content":[{"type":"tool_use","name":"Odd","input":{"x":'
    turn, _ = one(deepest(before, "}}]}}"))
    assert turn["tools"][0]["name"] == "Odd"


def test_damaged_text_where_json_is_not_imported() -> None:
    """A hook imports no `json`; Python 3.11's scanner then breaks with SystemError instead of ValueError."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from agentmem import claude_code, jsonio\n"
        "assert not {'json', 're', 'enum', 'typing', 'hashlib'} & set(sys.modules), sorted(sys.modules)\n"
        'for text in (\'{"a": "b\', \'{"a" 1}\', \'{"a":1,}\', "{"):\n'
        "    try: jsonio.loads(text)\n"
        "    except ValueError: continue\n"
        "    raise SystemExit(text)\n"
        "assert jsonio.loads('[1]') == [1]\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, os.path.dirname(TESTS)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
