"""Our hook objects among those of others."""

from __future__ import annotations

import os
from typing import Any

import pytest

from agentmem import claude_hooks

PYTHON = "/opt/a b/venv/bin/python"
HOOKS = "/opt/a b/site-packages/agentmem/_hooks"
THEIRS = {"type": "command", "command": "other --flag"}
WANTED = claude_hooks.wanted_hooks(PYTHON, HOOKS, "")


def test_what_is_registered_has_no_shell_in_it() -> None:
    for event, hook in claude_hooks.wanted_hooks(PYTHON, HOOKS, "/a home").items():
        shim = "session_start.py" if event == "SessionStart" else "capture.py"
        assert hook["type"] == "command"
        assert hook["command"] == PYTHON
        assert hook["args"] == ["-I", "-S", f"{HOOKS}/{shim}", "claude-code", event, "--home", "/a home"]
        assert "async" not in hook
    assert WANTED["Stop"]["args"] == ["-I", "-S", f"{HOOKS}/capture.py", "claude-code", "Stop"]


def test_every_event_has_its_time() -> None:
    seconds = {event: hook["timeout"] for event, hook in WANTED.items()}
    assert seconds.pop("SessionStart") == 30
    assert set(seconds) == {"UserPromptSubmit", "Stop", "StopFailure", "SubagentStop", "PreCompact", "SessionEnd"}
    assert set(seconds.values()) == {10}


def shell(command: str) -> dict[str, Any]:
    return {"type": "command", "command": command}


def direct(command: str, *arguments: Any) -> dict[str, Any]:
    return {"type": "command", "command": command, "args": list(arguments)}


OURS = [
    *WANTED.values(),
    direct("/old/python3.9", "/clone/hooks/capture.py", "claude-code", "Notification", "--home", "/x"),
    direct("/usr/local/bin/agentmem", "hook", "stop"),
    direct("C:/a/agentmem.exe", "hook"),
    shell("/old/venv/bin/agentmem-hook stop"),
    shell("'/old dir/venv/bin/agentmem' hook stop"),
    shell('"/old dir/agentmem"'),
    shell("python3 -I -S /old/agentmem/_hooks/session_start.py claude-code SessionStart"),
]
NOT_OURS: list[Any] = [
    THEIRS,
    shell("agentmemory hook stop"),
    shell("/x/agentmem2 hook"),
    shell("echo agentmem"),
    shell("cat /x/hooks/capture.py"),
    shell("it's not closed"),
    shell(""),
    shell("   "),
    direct("python3", "/x/hooks/capture.py"),
    direct("python3", "/x/hooks/capture.py", "codex", "Stop"),
    direct("python3", "/x/other/capture.py", "claude-code", "Stop"),
    direct("python3", "/x/hooks/mine.py", "claude-code", "Stop"),
    direct("python3", 5, None, {"a": 1}),
    {"type": "command", "command": "x", "args": 5},
    {"type": "command", "command": 5, "args": []},
    {"type": "prompt", "prompt": "agentmem"},
    {},
    "agentmem",
    None,
]


@pytest.mark.parametrize("hook", OURS, ids=str)
def test_ours_are_known_wherever_they_were_installed(hook: Any) -> None:
    assert claude_hooks.is_ours(hook)


@pytest.mark.parametrize("hook", NOT_OURS, ids=str)
def test_those_of_others_are_not_taken_for_ours(hook: Any) -> None:
    assert not claude_hooks.is_ours(hook)


STOP = WANTED["Stop"]
OLD = shell("/old/agentmem-hook stop")


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([], [{"hooks": [STOP]}]),
        ([{"hooks": [THEIRS]}], [{"hooks": [THEIRS]}, {"hooks": [STOP]}]),
        # In the place of the old one.
        ([{"hooks": [OLD]}, {"hooks": [THEIRS]}], [{"hooks": [STOP]}, {"hooks": [THEIRS]}]),
        ([{"x": 1, "hooks": [THEIRS, OLD, THEIRS]}], [{"x": 1, "hooks": [THEIRS, STOP, THEIRS]}]),
        ([{"matcher": "*", "hooks": [OLD]}], [{"matcher": "*", "hooks": [STOP]}]),
        # Duplicates become one.
        ([{"hooks": [OLD, STOP]}, {"hooks": [STOP, THEIRS]}], [{"hooks": [STOP]}, {"hooks": [THEIRS]}]),
        # Out from under a matcher.
        ([{"matcher": "Bash", "hooks": [STOP, THEIRS]}], [{"matcher": "Bash", "hooks": [THEIRS]}, {"hooks": [STOP]}]),
        ([{"matcher": "Bash", "hooks": [STOP]}, {"hooks": [OLD]}], [{"hooks": [STOP]}]),
        # What is empty already is not ours to tidy up.
        ([{"hooks": []}, {"matcher": "x"}], [{"hooks": []}, {"matcher": "x"}, {"hooks": [STOP]}]),
    ],
)
def test_there_is_one_of_ours_afterwards(groups: Any, expected: Any) -> None:
    before = repr(groups)
    assert claude_hooks.converged(groups, STOP) == expected
    assert claude_hooks.converged(expected, STOP) == expected
    assert repr(groups) == before


def test_without_a_target_ours_go() -> None:
    groups: Any = [{"hooks": [OLD]}, {"matcher": "x", "hooks": [THEIRS, STOP]}, {"hooks": []}]
    assert claude_hooks.converged(groups, None) == [{"matcher": "x", "hooks": [THEIRS]}, {"hooks": []}]


def test_the_shims_that_are_registered_are_there() -> None:
    from agentmem.paths import hooks_dir

    for shim, _ in claude_hooks.EVENTS.values():
        assert os.path.isfile(os.path.join(hooks_dir(), shim))
