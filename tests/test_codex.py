"""Recordings of the real client, read record by record; rollouts of older versions; records of every shape."""

from __future__ import annotations

import functools
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem import codex_files, jsonio, transcript
from agentmem.codex import read_record
from agentmem.errors import TranscriptError
from agentmem.reading import Reading

TESTS = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(TESTS, "data", "codex")
FILES = sorted(glob.glob(os.path.join(DATA, "sessions", "**", "*.jsonl"), recursive=True))
KINDS = {
    "prompt", "command", "notification", "interrupt", "meta", "summary", "boundary", "answer", "thinking",
    "tool_call", "tool_result", "api_error", "notice",
}  # fmt: skip
THREAD = "01a23036-d56d-7741-a935-5fb578c3a60f"
OTHER = "01a23036-d953-7212-977d-f77691d3ea65"


def lines_of(path: str) -> list[bytes]:
    with open(path, "rb") as stream:
        return [line for line in stream.read().split(b"\n") if line]


def parse(line: bytes) -> dict[str, Any]:
    value, _ = jsonio.clean(jsonio.loads(line.decode("utf-8")))
    assert isinstance(value, dict)
    return value


@functools.cache
def read(path: str) -> Reading:
    source = codex_files.source_of(path)
    reading = Reading()
    position = 0
    for line in lines_of(path):
        read_record(parse(line), position, source.session, reading, agent_file=bool(source.parent))
        position += len(line) + 1
    return reading


def files_of(scenario: str) -> tuple[str, ...]:
    """The rollouts of a scenario, the oldest first."""
    return tuple(file for file in FILES if os.path.basename(os.path.dirname(file)) == scenario)


def plain(text: str) -> str:
    """Without the script that the model followed, and with only the label of a mark."""
    return re.sub(
        r"lab-[a-z0-9-]+?-([a-z0-9]+)-[0-9a-f]{8}", r"\1", re.sub(r" (@@|%%)\[.*\]\1", "", text, flags=re.DOTALL)
    )


def conversation(path: str, *, own: bool = False) -> list[tuple[str, str]]:
    """What was said and done, without the client's own messages; `own`: and without what was copied."""
    return [
        (turn["kind"], plain(turn["text"])[:60])
        for turn in read(path).turns
        if turn["kind"] != "meta" and not (own and turn["origin"])
    ]


def of_kind(path: str, kind: str) -> list[dict[str, Any]]:
    return [turn for turn in read(path).turns if turn["kind"] == kind]


def one(record: Any, session: str = THREAD, **options: Any) -> tuple[dict[str, Any], Reading]:
    reading = Reading()
    read_record(record, 7, session, reading, **options)
    (turn,) = reading.turns
    return turn, reading


def several(*records: dict[str, Any], session: str = THREAD, **options: Any) -> Reading:
    reading = Reading()
    for position, record in enumerate(records):
        read_record(record, position, session, reading, **options)
    return reading


def item(payload: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"timestamp": "2026-12-01T06:07:09.686Z", "type": "response_item", "payload": payload, **more}


def event(payload: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"timestamp": "2026-12-01T06:07:09.686Z", "type": "event_msg", "payload": payload, **more}


def said(text: Any, role: str = "user", kinds: Any = None, about: Any = None) -> dict[str, Any]:
    content = [{"type": "input_text", "text": part} for part in ([text] if isinstance(text, str) else text)]
    meta = {"content_item_kinds": kinds, "content_item_metadata": about}
    return item(
        {"type": "message", "role": role, "content": content, "internal_chat_message_metadata_passthrough": meta}
    )


# What the real client wrote.

DONE = ("tool_result", "")
CONVERSATIONS: dict[str, list[list[tuple[str, str]]]] = {
    "startup": [[("prompt", "hello"), ("answer", "answer to hello")]],
    "resume": [
        [
            ("prompt", "first"),
            ("answer", "answer to first"),
            ("prompt", "second"),
            ("answer", "answer to second"),
            ("prompt", "third"),
            ("answer", "answer to third"),
        ]
    ],
    "tools": [
        [
            ("prompt", "work"),
            ("tool_call", "apply_patch written.txt"),
            DONE,
            ("tool_call", "exec_command cat edited.txt"),
            DONE,
            ("tool_call", "apply_patch edited.txt"),
            DONE,
            ("tool_call", "exec_command echo to-stdout; echo to-stderr >&2"),
            DONE,
            ("tool_call", "exec_command exit 3"),
            ("tool_result", "Exit code 3"),
            ("tool_call", "exec_command sleep 0.2; echo first"),
            ("tool_call", "exec_command cat absent"),
            DONE,
            ("tool_result", "Exit code 1\ncat: absent: No such file or directory"),
            ("answer", "answer to work"),
        ]
    ],
    "subagent": [
        [
            ("prompt", "outer"),
            ("tool_call", "multi_agent_v1.spawn_agent inner"),
            DONE,
            ("tool_call", "exec_command sleep 5"),
            DONE,
            ("notification", '<subagent_notification>\n{"agent_path":"01a23214-0bdc-76b0-91'),
            ("answer", "answer to outer"),
        ],
        [
            ("prompt", "inner"),
            ("tool_call", "exec_command echo from-the-subagent"),
            DONE,
            ("answer", "answer to inner"),
        ],
    ],
    "subagent-v2": [
        [
            ("prompt", "outer"),
            ("tool_call", "collaboration.spawn_agent inner"),
            DONE,
            ("tool_call", "collaboration.wait_agent"),
            DONE,
            ("notification", "Message Type: FINAL_ANSWER\nTask name: /root\nSender: /root/t1\n"[:60]),
            ("answer", "answer to outer"),
        ],
        [("prompt", "Message Type: NEW_TASK\nTask name: /root/t1\nSender: /root\nPay"), ("answer", "mock reply")],
    ],
    "fork": [
        [
            ("prompt", "first"),
            ("tool_call", "exec_command echo before the fork"),
            DONE,
            ("answer", "answer to first"),
        ],
        [("prompt", "second"), ("answer", "answer to second")],
    ],
    "compact": [
        [
            ("prompt", "first"),
            ("tool_call", "exec_command echo work"),
            DONE,
            ("answer", "answer to first"),
            ("summary", "Another language model started to solve this problem and pro"),
            ("boundary", "Conversation compacted"),
            ("prompt", "after"),
            ("answer", "answer to after"),
        ]
    ],
    "api-error": [
        [("prompt", "http"), ("api_error", "We’re currently experiencing high demand, which may cause te")],
        [("prompt", "failed"), ("api_error", "stream disconnected before completion: boom")],
    ],
    "interrupt": [
        [
            ("prompt", "open"),
            ("tool_call", "exec_command echo before the end"),
            DONE,
            ("interrupt", "[Turn interrupted]"),
        ]
    ],
    "sigkill": [[("prompt", "open"), ("tool_call", "exec_command echo before the end"), DONE]],
    "hook-context": [
        [
            ("prompt", "block"),
            ("tool_call", "exec_command echo hi"),
            DONE,
            ("answer", "one"),
            ("answer", 'continued after: <hook_prompt hook_run_id="stop:12:/home/dev'),
        ]
    ],
    "prompt-blocked": [[]],
    "detached": [[("prompt", "detached"), ("answer", "answer to detached")]],
    "thinking": [
        [
            ("prompt", "think"),
            ("thinking", "**Looking**\n\nlet me think about the files"),
            ("tool_call", "exec_command echo thought"),
            DONE,
            ("thinking", "second thoughts"),
            ("answer", "answer to think"),
        ]
    ],
    "codemode": [
        [
            ("prompt", "js"),
            ("tool_call", "exec const r = await tools.exec_command({cmd:'echo from-js'}"),
            ("tool_call", "exec_command echo from-js"),
            DONE,
            ("tool_call", 'exec const r = await tools.apply_patch("*** Begin Patch\\n***'),
            ("tool_call", "apply_patch /home/dev/project/a.txt\napply_patch /home/dev/project/new.txt"[:60]),
            DONE,
            ("tool_call", "exec const r = await tools.exec_command({cmd:'echo bad; exit"),
            ("tool_call", "exec_command echo bad; exit 3\nExit code 3\nbad"),
            DONE,
            ("tool_call", "exec throw new Error('boom')"),
            ("tool_result", "Script error:\nError: boom\n    at exec_main.mjs:1:7"),
            ("answer", "answer to js"),
        ]
    ],
    "review": [
        [("command", "/review review"), ("answer", "looks fine")],
        [("prompt", "review"), ("answer", "looks fine")],
    ],
    "tui-shell": [
        [
            ("prompt", "first"),
            ("answer", "answer to first"),
            ("command", "!echo typed-by-hand; exit 2"),
            ("prompt", "second"),
            ("answer", "answer to second"),
        ]
    ],
    "tui-steer": [
        [
            ("prompt", "slow"),
            ("tool_call", "exec_command sleep 4; echo slow"),
            DONE,
            ("prompt", "also look at the readme steer"),
            ("answer", "answer to slow"),
        ]
    ],
    "tui-escape": [
        [
            ("prompt", "stream"),
            ("interrupt", "[Turn interrupted]"),
            ("prompt", "tool"),
            ("tool_call", "exec_command sleep 20; echo slow"),
            ("tool_result", "aborted by user"),
            ("interrupt", "[Turn interrupted]"),
        ]
    ],
}


@pytest.mark.parametrize("scenario", CONVERSATIONS)
def test_conversation(scenario: str) -> None:
    assert [conversation(file) for file in files_of(scenario)] == CONVERSATIONS[scenario]


@pytest.mark.parametrize("path", FILES, ids=[os.path.relpath(file, DATA)[9:-20] for file in FILES])
def test_every_line_of_the_recordings(path: str) -> None:
    reading = read(path)
    assert sum(reading.kinds.values()) == len(lines_of(path))
    assert reading.unknown == {}
    uuids = [turn["uuid"] for turn in reading.turns]
    assert len(set(uuids)) == len(uuids)
    assert all(turn["kind"] in KINDS and turn["at"] for turn in reading.turns)
    # Read again, and from the middle, the same lines give the same ids.
    lines = lines_of(path)
    again = Reading()
    for line in lines[len(lines) // 2 :]:
        read_record(parse(line), 1, THREAD, again)
    assert {turn["uuid"] for turn in again.turns} <= set(uuids)


@pytest.mark.parametrize("path", FILES, ids=[os.path.relpath(file, DATA)[9:-20] for file in FILES])
def test_nothing_is_doubled_and_nothing_lost(path: str) -> None:
    """The client writes what was said twice; the second writing, which is not read, tells what must be there."""
    prompts: list[str] = []
    answers: list[str] = []
    for line in lines_of(path):
        record = parse(line)
        done = record["payload"].get("item") or {}
        if record["type"] != "event_msg" or done.get("type") not in ("UserMessage", "AgentMessage"):
            continue
        text = "\n".join(part["text"] for part in done["content"] if "text" in part)
        (prompts if done["type"] == "UserMessage" else answers).append(text)
    own = [turn for turn in read(path).turns if not turn["origin"]]
    found = [turn["text"] for turn in own if turn["kind"] == "prompt"]
    if "image" in path:
        assert found[0].endswith(prompts[0].removesuffix("\n"))
        found = prompts
    spoken = [turn["text"] for turn in own if turn["kind"] == "answer"]
    if "review" in path and not found:
        # A review is asked for by a command; its answer is the reviewer's, who is a subagent.
        found = [turn["text"].removeprefix("/review ") for turn in own if turn["kind"] == "command"]
        answers = ["looks fine"]
    assert [text for text in found if not text.startswith("Message Type:")] == prompts
    assert spoken == answers


def test_what_hooks_added_is_not_stored() -> None:
    (path,) = files_of("hook-context")
    assert "digest-injected-by-" in b"".join(lines_of(path)).decode()
    assert "digest-injected-by-" not in json.dumps(read(path).turns)
    metas = [turn["text"] for turn in of_kind(path, "meta")]
    assert metas.count("[hooks.additional_context]") == 2
    assert "[agents_md.instructions, environments.environment_context]" in metas
    assert any(text.startswith("<hook_prompt") and "go on once" in text for text in metas)


def test_the_summary_is_said_once() -> None:
    (path,) = files_of("compact")
    holders = [turn for turn in read(path).turns if "MOCK SUMMARY" in turn["text"]]
    assert [turn["kind"] for turn in holders] == ["summary"]
    assert "environment_context" not in holders[0]["text"]


def test_facts() -> None:
    (path,) = files_of("startup")
    assert read(path).facts == {
        "cwd": "/home/dev/project",
        "version": "0.171.0",
        "entrypoint": "codex_exec",
        "branch": "main",
        "model": "gpt-5.5",
    }
    (path,) = files_of("detached")
    assert read(path).facts["branch"] is None
    (path,) = files_of("tui-shell")
    assert read(path).facts["entrypoint"] == "codex-tui"


def test_a_fork_names_its_origin() -> None:
    first, second = files_of("fork")
    assert "forked_from" not in read(first).facts
    assert read(second).facts["forked_from"] == codex_files.thread_of(first)
    assert {turn["origin"] for turn in read(second).turns} == {None}


@pytest.mark.parametrize("scenario", ["subagent", "subagent-v2", "subagent-forked", "subagent-forked-v2"])
def test_subagents_name_their_parent(scenario: str) -> None:
    outer, inner = files_of(scenario)
    assert "parent" not in read(outer).facts
    assert read(inner).facts["parent"] == codex_files.thread_of(outer)
    assert read(inner).facts["agent_type"] == "default"
    assert "forked_from" not in read(inner).facts


@pytest.mark.parametrize("scenario", ["subagent-forked", "subagent-forked-v2"])
def test_what_a_subagent_was_given_of_its_parent(scenario: str) -> None:
    outer, inner = files_of(scenario)
    parent = codex_files.thread_of(outer)
    copied = [turn for turn in read(inner).turns if turn["origin"]]
    assert {turn["origin"] for turn in copied} == {parent}
    assert "outer" in [plain(turn["text"]) for turn in copied]
    ids = {turn["uuid"]: turn["text"] for turn in read(outer).turns}
    known = [turn for turn in copied if turn["kind"] in ("prompt", "answer", "tool_call", "tool_result")]
    assert all(ids[turn["uuid"]] == turn["text"] for turn in known)
    own = conversation(inner, own=True)
    assert own[0][0] == "prompt"
    assert ("prompt", "outer") not in own


def test_patches() -> None:
    (path,) = files_of("patches")
    calls = [turn["tools"] for turn in of_kind(path, "tool_call")]
    changes = [[(call["target"], call["change"]) for call in call_list if "change" in call] for call_list in calls]
    assert changes[:3] == [
        [("a.txt", "update"), ("sub/new.txt", "add")],
        [("absent.txt", "update")],
        [("a.txt", "update"), ("b.txt", "move"), ("sub/new.txt", "delete")],
    ]
    assert calls[0][0]["name"] == "exec_command"
    assert calls[0][0]["target"] == "apply_patch <<'EOF'"
    results = [turn["tools"][0] for turn in of_kind(path, "tool_result")]
    assert [result["error"] for result in results[:5]] == [False, True, False, False, True]
    assert results[4]["exit_code"] == 4
    assert all(result["error"] for result in results[5:])


def test_results_hash_the_output_alone() -> None:
    (path,) = files_of("tools")
    result = of_kind(path, "tool_result")[1]["tools"][0]
    assert result["sha256"] == hashlib.sha256(b"one\ntwo\n").hexdigest()
    assert (result["size"], result["lines"], result["exit_code"], result["error"]) == (8, 2, 0, False)


def test_nested_calls_tell_their_outcome() -> None:
    (path,) = files_of("codemode")
    nested = [turn["tools"] for turn in of_kind(path, "tool_call") if turn["tools"][0]["id"].startswith("exec-")]
    assert [[tool["name"] for tool in tools] for tools in nested] == [
        ["exec_command"],
        ["apply_patch", "apply_patch"],
        ["exec_command"],
    ]
    assert nested[0][0]["sha256"] == hashlib.sha256(b"from-js\n").hexdigest()
    assert [tools[0]["error"] for tools in nested] == [False, False, True]


def test_pictures_are_stubs() -> None:
    (path,) = files_of("image")
    (prompt,) = of_kind(path, "prompt")
    stub = r"\[image png \d+ bytes sha256:[0-9a-f]{12}\]"
    assert re.match(stub + "\n", prompt["text"])
    assert "<image" not in prompt["text"]
    assert "base64" not in json.dumps(read(path).turns)
    (result,) = of_kind(path, "tool_result")
    assert re.fullmatch(stub, result["tools"][0]["media"][0])


def test_odd_characters() -> None:
    (path,) = files_of("nul-and-control")
    (answer,) = of_kind(path, "answer")
    assert answer["text"].endswith("nul� esc\x1b[31m ls\u2028 ps\u2029 rlo\u202e 한국어 🙂 end")
    (prompt,) = of_kind(path, "prompt")
    assert "한국어 🙂 ls\u2028 esc\x1b[31m" in prompt["text"]


def test_payloads_name_what_is_there() -> None:
    names = {file.removesuffix(".json").partition(".")[0] for file in os.listdir(os.path.join(DATA, "payloads"))}
    assert names >= {
        "SessionStart", "UserPromptSubmit", "Stop", "SubagentStop", "Interrupt", "PreCompact", "SessionEnd",
    }  # fmt: skip
    for file in glob.glob(os.path.join(DATA, "payloads", "*.json")):
        with open(file, encoding="utf-8") as stream:
            payload = json.load(stream)
        assert payload["hook_event_name"] == os.path.basename(file).partition(".")[0]
        assert codex_files.thread_of(payload["transcript_path"])
        assert codex_files.codex_home_of(payload["transcript_path"]) == "/home/dev/.codex"


# Older versions.


def test_headerless_rollout_of_2025() -> None:
    reading = several(
        {"id": THREAD, "timestamp": "2025-06-01T00:00:00.000Z", "instructions": None, "git": {"branch": "dev"}},
        {"record_type": "state"},
        {"type": "message", "role": "user", "id": None, "content": [
            {"type": "input_text", "text": "<environment_context>\n  <cwd>/srv/old</cwd>\n</environment_context>"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "old q"}]},
        {"type": "reasoning", "summary": [], "encrypted_content": "AAAA"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "function_call", "name": "shell", "call_id": "call_abcdefghijklmnop",
         "arguments": '{"command":["bash","-lc","ls"]}'},
        {"type": "function_call_output", "call_id": "call_abcdefghijklmnop",
         "output": '{"output":"f\\n","metadata":{"exit_code":2}}'},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "old a"}]},
    )  # fmt: skip
    assert [(turn["kind"], turn["text"]) for turn in reading.turns] == [
        ("meta", "[environment_context]"),
        ("prompt", "old q"),
        ("thinking", "hm"),
        ("tool_call", "shell ls"),
        ("tool_result", "Exit code 2\nf"),
        ("answer", "old a"),
    ]
    assert reading.facts == {"branch": "dev", "cwd": "/srv/old"}
    assert sum(reading.kinds.values()) == 9
    assert reading.unknown == {}
    assert {turn["at"] for turn in reading.turns} == {None}
    assert reading.turns[3]["uuid"] == "function_call:call_abcdefghijklmnop"
    assert reading.turns[4]["tools"][0]["size"] == 2


def test_events_beside_items_are_only_counted() -> None:
    """Versions before item_completed wrote user_message and agent_message beside the items."""
    reading = several(
        said("q"),
        event({"type": "user_message", "message": "q", "images": []}),
        event({"type": "agent_reasoning", "text": "hm"}),
        item({"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}),
        event({"type": "agent_message", "message": "a"}),
        item({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}),
    )
    assert [(turn["kind"], turn["text"]) for turn in reading.turns] == [
        ("prompt", "q"),
        ("thinking", "hm"),
        ("answer", "a"),
    ]
    assert reading.unknown == {}
    assert reading.kinds["event_msg:user_message"] == 1


def test_later_heads_are_those_of_ancestors() -> None:
    head = {"type": "session_meta", "payload": {"id": THREAD, "cwd": "/new", "cli_version": "0.40.0"}}
    old = {"type": "session_meta", "payload": {"id": OTHER, "cwd": "/old", "cli_version": "0.20.0"}}
    oldest = {"type": "session_meta", "payload": {"id": "x", "cwd": "/oldest"}}
    reading = several(head, old, oldest, said("copied, or not"))
    assert reading.facts == {"cwd": "/new", "version": "0.40.0", "forked_from": OTHER}
    # Where a copy has no end that can be seen, nothing is said to be copied.
    assert reading.turns[0]["origin"] is None
    assert several(old, session=THREAD).facts["cwd"] == "/old"


def test_old_summary_is_no_answer() -> None:
    message = "Another language model started to solve this problem. Here is the summary:\nso far so good"
    reading = several(
        item({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}),
        item({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "so far so good"}]}),
        {"type": "compacted", "payload": {"message": message, "replacement_history": [{"role": "user"}]}},
        {"type": "event_msg", "payload": {"type": "context_compacted"}},
        {"type": "compacted", "payload": {"message": "", "replacement_history": []}},
        said(message),
    )
    assert [turn["kind"] for turn in reading.turns] == ["answer", "meta", "summary", "boundary", "summary"]
    assert reading.kinds["compacted"] == 2


# Who speaks.

USER = {"provenance": {"type": "user"}}
HARNESS = {"provenance": {"type": "harness", "hook": False}}


@pytest.mark.parametrize(
    ("texts", "kinds", "about", "kind", "text"),
    [
        (["fix it"], ["user.text"], [USER], "prompt", "fix it"),
        (["fix it"], None, None, "prompt", "fix it"),
        (["fix it"], ["unknown"], None, "prompt", "fix it"),
        (["<environment_context>x"], ["user.text"], [USER], "prompt", "<environment_context>x"),
        (["<environment_context>x"], ["user.text"], None, "prompt", "<environment_context>x"),
        (["<subagent_notification>x"], ["user.text"], [USER], "prompt", "<subagent_notification>x"),
        (["<environment_context>x"], None, None, "meta", "[environment_context]"),
        (["# AGENTS.md instructions for /p\n\n<INSTRUCTIONS>\nx"], None, None, "meta", "[text]"),
        (["<user_instructions>\nx\n</user_instructions>"], None, None, "meta", "[user_instructions]"),
        (["<skill>\n<name>x</name>"], None, None, "meta", "[skill]"),
        (["<turn_aborted>\nx"], ["generic.turn_aborted"], [HARNESS], "meta", "[generic.turn_aborted]"),
        (["whatever"], ["brand.new_kind"], [HARNESS], "meta", "[brand.new_kind]"),
        (["whatever"], ["unknown"], [HARNESS], "meta", "[text]"),
        (["<hook_prompt hook_run_id=\"x\">on</hook_prompt>"], None, None, "meta",
         "<hook_prompt hook_run_id=\"x\">on</hook_prompt>"),
        (["<subagent_notification>\n{}"], None, None, "notification", "<subagent_notification>\n{}"),
        (["<user_shell_command>\n<command>\nls\n</command>\n<result>\nx</result>"], None, None, "command", "!ls"),
        (["<environment_context>x", "and do it"], None, None, "prompt", "and do it"),
        (["# Context from my IDE setup:\n\n## Open tabs\n- a\n\n## My request for Codex:\nfix it\n"], ["user.text"],
         [USER], "prompt", "fix it"),
        ([], None, None, "meta", ""),
        ([""], ["user.text"], [USER], "meta", "[user.text]"),
    ],
)  # fmt: skip
def test_user_messages(texts: list[str], kinds: Any, about: Any, kind: str, text: str) -> None:
    turn, reading = one(said(texts, kinds=kinds, about=about))
    assert (turn["role"], turn["kind"], turn["text"]) == ("user", kind, text)
    assert reading.kinds == {"response_item:message": 1}


def test_developer_messages_are_only_named() -> None:
    turn, _ = one(said("<permissions instructions>secret", role="developer", kinds=["permissions.instructions"]))
    assert (turn["role"], turn["kind"], turn["text"]) == ("system", "meta", "[permissions.instructions]")
    turn, _ = one(said("<permissions instructions>secret", role="system"))
    assert turn["text"] == "[permissions]"


# Tools.


@pytest.mark.parametrize(
    ("payload", "name", "target"),
    [
        ({"type": "function_call", "name": "exec_command", "arguments": '{"cmd":"ls -l"}'}, "exec_command", "ls -l"),
        ({"type": "function_call", "name": "shell", "arguments": '{"command":["git","log"]}'}, "shell", "git log"),
        ({"type": "function_call", "name": "shell", "arguments": "not JSON"}, "shell", "not JSON"),
        ({"type": "function_call", "name": "get", "namespace": "mcp__web__", "arguments": '{"url":"u"}'},
         "mcp__web__get", "u"),
        ({"type": "function_call", "name": "spawn_agent", "namespace": "team", "arguments": '{"message":"do"}'},
         "team.spawn_agent", "do"),
        ({"type": "function_call", "name": "update_plan", "arguments": '{"plan":[]}'}, "update_plan", ""),
        ({"type": "function_call", "arguments": 7}, "unknown", ""),
        ({"type": "local_shell_call", "action": {"type": "exec", "command": ["pwd"]}}, "local_shell", "pwd"),
        ({"type": "web_search_call", "action": {"type": "search", "query": "q"}}, "web_search", "q"),
        ({"type": "web_search_call", "action": {"type": "open_page", "url": "u"}}, "web_search", "u"),
        ({"type": "tool_search_call", "arguments": {"query": "q"}}, "tool_search", "q"),
        ({"type": "image_generation_call", "revised_prompt": "a cat", "result": "AAAA"}, "image_generation", "a cat"),
        ({"type": "custom_tool_call", "name": "apply_patch", "input": "no patch"}, "apply_patch", ""),
    ],
)  # fmt: skip
def test_calls(payload: dict[str, Any], name: str, target: str) -> None:
    turn, reading = one(item({**payload, "call_id": "c1"}))
    (tool,) = turn["tools"]
    assert (turn["role"], turn["kind"], tool["name"], tool["target"]) == ("assistant", "tool_call", name, target)
    assert turn["text"] == f"{name} {target}".rstrip()
    assert reading.unknown == {}


@pytest.mark.parametrize(
    ("output", "body", "error", "code"),
    [
        ("plain", "plain", False, None),
        ("Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 7\nOutput:\nx\n", "x\n", True, 7),
        ("Exit code: 0\nWall time: 0 seconds\nOutput:\nExit code: 9 is a text\n", "Exit code: 9 is a text\n", False, 0),
        ("Wall time: 1.6 seconds\naborted by user", "aborted by user", True, None),
        ("Process running with session ID 5\nOutput:\n", "", False, None),
        ('{"output":"f\\n","metadata":{"exit_code":0}}', "f\n", False, 0),
        ('{"output":', '{"output":', False, None),
        ("unsupported call: x", "unsupported call: x", True, None),
        ({"content": "no", "success": False}, "no", True, None),
        ({"content": [{"type": "input_text", "text": "yes"}], "success": True}, "yes", False, None),
        ([{"type": "input_text", "text": "a\n"}, {"type": "input_text", "text": "b"}], "a\nb", False, None),
        (None, "", False, None),
        (7, "", False, None),
    ],
)  # fmt: skip
def test_results(output: Any, body: str, error: bool, code: int | None) -> None:
    turn, _ = one(item({"type": "function_call_output", "call_id": "c1", "output": output}))
    (tool,) = turn["tools"]
    assert (turn["role"], turn["kind"]) == ("user", "tool_result")
    assert (tool["error"], tool.get("exit_code"), tool["size"]) == (error, code, len(body.encode()))
    assert tool["sha256"] == hashlib.sha256(body.encode()).hexdigest()
    assert bool(turn["text"]) == error


def test_answers_to_questions_are_words() -> None:
    output = '{"answers":{"q1":{"answers":["the blue one"]}}}'
    turn, _ = one(item({"type": "function_call_output", "call_id": "c1", "output": output}))
    assert "the blue one" in turn["text"]


def test_errors_are_cut() -> None:
    output = "Process exited with code 1\nOutput:\n" + "x" * 5000
    turn, _ = one(item({"type": "function_call_output", "call_id": "c1", "output": output}))
    assert turn["text"] == "Exit code 1\n" + "x" * 1000
    assert turn["tools"][0]["size"] == 5000


# Events.


@pytest.mark.parametrize(
    ("payload", "kind", "text"),
    [
        ({"type": "turn_aborted", "reason": "interrupted"}, "interrupt", "[Turn interrupted]"),
        ({"type": "turn_aborted"}, "interrupt", "[Turn interrupted]"),
        ({"type": "turn_aborted", "reason": "review_ended"}, "notice", "[Turn review_ended]"),
        ({"type": "task_complete", "error": {"message": "no"}}, "api_error", "no"),
        ({"type": "turn_complete", "error": "no"}, "api_error", "no"),
        ({"type": "error", "message": "no"}, "api_error", "no"),
        ({"type": "thread_rolled_back", "num_turns": 2}, "notice", "[2 turns taken back]"),
        ({"type": "entered_review_mode", "user_facing_hint": "changes"}, "command", "/review changes"),
        ({"type": "context_compacted"}, "boundary", "Conversation compacted"),
    ],
)
def test_events(payload: dict[str, Any], kind: str, text: str) -> None:
    turn, reading = one(event(payload))
    assert (turn["kind"], turn["text"]) == (kind, text)
    assert reading.kinds == {"event_msg:" + payload["type"]: 1}


def test_a_turn_that_ended_well_is_no_turn() -> None:
    reading = several(event({"type": "task_complete", "error": None}), event({"type": "token_count"}))
    assert reading.turns == []
    assert reading.kinds == {"event_msg:task_complete": 1, "event_msg:token_count": 1}


def test_a_thread_gets_a_name() -> None:
    reading = several(event({"type": "thread_name_updated", "thread_name": "good name"}))
    assert (reading.facts, reading.turns) == ({"title": "good name"}, [])


def test_unknown_types_are_counted() -> None:
    reading = several(
        event({"type": "brand_new", "x": 1}),
        event({"type": "item_completed", "item": {"type": "BrandNew"}}),
        item({"type": "x" * 500}),
        {"type": "world_state", "payload": {"x": 1}},
        {"type": "newer", "payload": {}},
        {"type": 7},
        {},
    )
    assert reading.unknown == {
        "event_msg:brand_new": 1, "event_msg:item_completed:BrandNew": 1, "response_item:" + "x" * 80: 1, "newer": 1,
        "without_type": 2,
    }  # fmt: skip
    assert sum(reading.kinds.values()) == 7


def test_ids() -> None:
    long = "msg_01a23216fa987031a9c38d8d"
    assert one(item({"type": "message", "role": "user", "id": long, "content": "q"}))[0]["uuid"] == long
    call = {"type": "function_call", "name": "x", "call_id": "call_0123456789abcdef"}
    assert one(item(call))[0]["uuid"] == "function_call:call_0123456789abcdef"
    # Some model servers number their calls: such an id comes again and tells no line from another.
    short = [one(item({**call, "call_id": "call_0"}, ordinal=ordinal))[0]["uuid"] for ordinal in (4, 9, 4)]
    assert short[0].startswith("line-")
    assert short[0] == short[2] != short[1]


def test_the_same_words_twice_without_a_time() -> None:
    line = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]}
    first, second = several(line, line).turns
    assert first["uuid"] != second["uuid"]
    assert [turn["uuid"] for turn in several(line, line).turns] == [first["uuid"], second["uuid"]]


# Files.


@pytest.mark.parametrize(
    ("path", "thread"),
    [
        (f"/h/sessions/2026/12/01/rollout-2026-12-01T06-07-09-{THREAD}.jsonl", THREAD),
        (f"C:\\h\\rollout-2026-12-01T06-07-09-{THREAD}.jsonl", THREAD),
        (f"rollout-2026-12-01T06-07-09-{THREAD}.jsonl.zst", THREAD),
        (f"rollout-2026-12-01T06-07-09-{THREAD}.json", ""),
        (f"rollout-{THREAD[:-1]}x.jsonl", ""),
        (f"other-{THREAD}.jsonl", ""),
        ("", ""),
    ],
)
def test_thread_of(path: str, thread: str) -> None:
    assert codex_files.thread_of(path) == thread


def place(home: Any, day: str, thread: str, head: dict[str, Any] | None = None, suffix: str = ".jsonl") -> str:
    folder = home / day
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rollout-2026-01-02T03-04-05-{thread}{suffix}"
    path.write_text(json.dumps({"type": "session_meta", "payload": head or {"id": thread}}) + "\n")
    return os.fspath(path)


def test_find_rollout(tmp_path: Any) -> None:
    home = os.fspath(tmp_path)
    assert codex_files.find_rollout(home, THREAD) == ""
    wrong_day = place(tmp_path, "sessions/2024/02/29", THREAD)
    assert codex_files.find_rollout(home, THREAD) == wrong_day
    archived = place(tmp_path, "archived_sessions", THREAD)
    assert codex_files.find_rollout(home, THREAD) == archived
    # The id's own time, in milliseconds, is of this day.
    right_day = place(tmp_path, "sessions/2026/12/01", THREAD, suffix=".jsonl.zst")
    assert codex_files.find_rollout(home, THREAD) == archived
    os.rename(right_day, right_day.removesuffix(".zst"))
    assert codex_files.find_rollout(home, THREAD) == right_day.removesuffix(".zst")
    for odd in ("", "../" + THREAD, "x" * 36, THREAD + "/"):
        assert codex_files.find_rollout(home, odd) == ""


def test_only_compressed(tmp_path: Any) -> None:
    compressed = place(tmp_path, "sessions/2025/01/01", THREAD, suffix=".jsonl.zst")
    assert codex_files.find_rollout(os.fspath(tmp_path), THREAD) == compressed
    assert codex_files.compressed_rollouts(os.fspath(tmp_path)) == [compressed]
    assert list(codex_files.all_sources(os.fspath(tmp_path))) == []
    place(tmp_path, "sessions/2025/01/01", THREAD)
    assert codex_files.compressed_rollouts(os.fspath(tmp_path)) == []


def test_likely_days(tmp_path: Any) -> None:
    """A thread's folder is found without looking into all others, leap days included."""
    for milliseconds, day in (
        (1_709_164_800_000, "2024/02/29"),
        (1_709_251_200_000, "2024/03/01"),
        (1_767_225_599_999, "2025/12/31"),
        (0, "1970/01/01"),
    ):
        digits = f"{milliseconds:012x}"
        thread = f"{digits[:8]}-{digits[8:]}-7000-8000-000000000000"
        first = next(iter(codex_files._likely_folders("/h", thread)))
        assert first == f"/h/sessions/{day}"


def test_all_sources(tmp_path: Any) -> None:
    child = "01a23036-a378-78c3-bd24-48e2e843010b"
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": THREAD, "agent_role": "explorer"}}}
    paths = [
        place(tmp_path, "sessions/2026/12/01", THREAD),
        place(tmp_path, "sessions/2026/12/01", child, {"id": child, "source": spawn}),
        place(tmp_path, "archived_sessions", OTHER),
    ]
    (tmp_path / "sessions/2026/12/01/notes.jsonl").write_text("{}\n")
    (tmp_path / "sessions/stray").write_text("x")
    found = list(codex_files.all_sources(os.fspath(tmp_path)))
    assert sorted(source.path for source in found) == sorted(paths)
    by_thread = {source.session: (source.parent, source.agent_type) for source in found}
    assert by_thread == {THREAD: ("", ""), child: (THREAD, "explorer"), OTHER: ("", "")}
    os.utime(paths[0], (1000, 1000))
    assert THREAD not in {source.session for source in codex_files.all_sources(os.fspath(tmp_path), 2000.0)}
    assert list(codex_files.all_sources(os.fspath(tmp_path / "nowhere"))) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_may_not_be_read(tmp_path: Any) -> None:
    place(tmp_path, "sessions/2026/12/01", THREAD)
    (tmp_path / "sessions/2026/12/01").chmod(0)
    try:
        errors: list[Any] = []
        assert list(codex_files.all_sources(os.fspath(tmp_path), 0.0, errors)) == []
        assert [error.code for error in errors] == ["transcript_unreadable"]
        with pytest.raises(TranscriptError):
            list(codex_files.all_sources(os.fspath(tmp_path)))
    finally:
        (tmp_path / "sessions/2026/12/01").chmod(0o700)


def test_a_rollout_that_was_archived(tmp_path: Any) -> None:
    path = place(tmp_path, "sessions/2026/12/01", THREAD)
    (source,) = codex_files.sources_of(THREAD, path)
    assert (source.path, source.session, source.parent) == (path, THREAD, "")
    (tmp_path / "archived_sessions").mkdir()
    moved = shutil.move(path, tmp_path / "archived_sessions")
    (source,) = codex_files.sources_of(THREAD, path)
    assert source.path == os.fspath(moved)
    os.remove(moved)
    assert codex_files.sources_of(THREAD, path) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[1]\n", b"\xff\xfe\n", b'{"payload":7}\n'])
def test_a_head_that_says_nothing(tmp_path: Any, content: bytes) -> None:
    path = place(tmp_path, "sessions/2026/12/01", THREAD)
    with open(path, "wb") as stream:
        stream.write(content)
    source = codex_files.source_of(path)
    assert (source.session, source.parent, source.agent_type) == (THREAD, "", "")


def test_a_recording_is_read_in_slices() -> None:
    (path,) = files_of("patches")
    descriptor = transcript.open_transcript(path)
    try:
        piece = transcript.read_slice(
            descriptor, 0, lambda record, at, reading: read_record(record, at, codex_files.thread_of(path), reading)
        )
    finally:
        os.close(descriptor)
    assert piece is not None
    assert piece.end == os.path.getsize(path)
    assert [turn["uuid"] for turn in piece.reading.turns] == [turn["uuid"] for turn in read(path).turns]


# Every shape.

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20),
    st.sampled_from([
        "user", "assistant", "developer", "message", "reasoning", "input_text", "input_image", "user.text", "harness",
        "exec-1", THREAD, OTHER, "apply_patch", "exec_command", "*** Begin Patch\n*** Add File: a\n", '{"cmd":"ls"}',
        '{"output":"x","metadata":7}', "Process exited with code 1\nOutput:\nx", "Wall time: \n",
        "data:image/png;base64,A",
        "<environment_context><cwd>/x</cwd>", "<user_shell_command>", "<hook_prompt", "interrupted", "Script failed",
        "UserMessage", "CommandExecution", "FileChange", "McpToolCall", "ContextCompaction", "EnteredReviewMode",
        "2026-12-01T00:00:00Z",
    ]),
)  # fmt: skip
NAMES = st.sampled_from([
    "type", "payload", "role", "content", "text", "image_url", "id", "call_id", "name", "namespace", "arguments",
    "input", "output", "summary", "action", "command", "query", "queries", "item", "changes", "status",
    "exit_code", "aggregated_output", "error", "message", "reason", "turn_id", "thread_id", "source", "subagent",
    "thread_spawn", "parent_thread_id", "git", "branch", "cwd", "model", "history_base", "forked_from_id", "metadata",
    "internal_chat_message_metadata_passthrough", "content_item_kinds", "content_item_metadata", "provenance",
    "timestamp", "ordinal", "replacement_history", "success", "tools", "server", "tool", "num_turns", "instructions",
    "record_type", "user_facing_hint", "compaction_output", "thread_name", "encrypted_content",
])  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=6)),
    max_leaves=20,
)
ITEM_TYPES = st.sampled_from([
    "message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
    "local_shell_call", "web_search_call", "tool_search_call", "agent_message", "image_generation_call", "new",
    "item_completed", "turn_aborted", "task_complete", "error", "thread_rolled_back", "entered_review_mode",
    "thread_name_updated",
])  # fmt: skip
PAYLOADS = st.builds(
    lambda kind, done, rest: {"item": done, **rest, "type": kind},
    ITEM_TYPES,
    st.builds(
        lambda kind, rest: {**rest, "type": kind, "id": "exec-123"},
        st.sampled_from(["CommandExecution", "FileChange", "McpToolCall", "DynamicToolCall", "EnteredReviewMode"]),
        st.dictionaries(NAMES, VALUES, max_size=6),
    ),
    st.dictionaries(NAMES, VALUES, max_size=8),
)
TYPES = st.sampled_from(["response_item", "event_msg", "session_meta", "turn_context", "compacted", "new"])
RECORDS = st.builds(
    lambda kind, payload, rest: {**rest, "type": kind, "payload": payload},
    TYPES,
    PAYLOADS,
    st.dictionaries(NAMES, VALUES, max_size=3),
)
ANY_RECORD = st.one_of(RECORDS, PAYLOADS, st.dictionaries(NAMES, VALUES, max_size=8))


@given(record=ANY_RECORD, agent_file=st.booleans())
def test_every_shape_is_taken(record: Any, agent_file: bool) -> None:
    reading = Reading()
    read_record(record, 3, THREAD, reading, agent_file=agent_file)
    assert sum(reading.kinds.values()) == 1
    assert len(reading.turns) <= 1
    for turn in reading.turns:
        assert turn["kind"] in KINDS
        assert turn["role"] in ("user", "assistant", "system")
        assert turn["uuid"]
        assert isinstance(turn["text"], str)
        for name in ("at", "parent", "message", "model", "agent", "origin"):
            assert turn[name] is None or (isinstance(turn[name], str) and turn[name])
        assert turn["tools"] is None or all(isinstance(tool, dict) for tool in turn["tools"])
    # What it yields can be sent to the database, and reading again yields the same.
    jsonio.dumps([*reading.turns, reading.facts])
    again = Reading()
    read_record(record, 3, THREAD, again, agent_file=agent_file)
    assert [turn["uuid"] for turn in again.turns] == [turn["uuid"] for turn in reading.turns]


@given(meta=st.dictionaries(NAMES, VALUES, max_size=8), position=st.sampled_from([0, 9]))
def test_every_head_is_taken(meta: Any, position: int) -> None:
    reading = Reading()
    read_record({"type": "session_meta", "ordinal": 0, "payload": meta}, position, THREAD, reading)
    assert reading.kinds == {"session_meta": 1}
    assert all(value is None or isinstance(value, str) for value in reading.facts.values())


def test_nesting_that_can_be_read_but_not_written() -> None:
    before = '{"type":"response_item","payload":{"type":"function_call","name":"odd","call_id":"c","arguments":{"x":'
    for levels in range(3000, 0, -1):
        try:
            record = jsonio.loads(before + "[" * levels + "]" * levels + "}}}")
        except ValueError:
            continue
        break
    turn, _ = one(record)
    assert turn["tools"][0]["name"] == "odd"
    assert turn["uuid"] == one(record)[0]["uuid"]


def test_a_hook_can_afford_it() -> None:
    """What a hook imports for a rollout loads nothing dear of the standard library."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from agentmem import codex, codex_files\n"
        "dear = {'json', 're', 'enum', 'typing', 'hashlib', 'datetime', 'pathlib', 'collections', 'shutil'}\n"
        "assert not dear & set(sys.modules), sorted(dear & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, os.path.dirname(TESTS)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
