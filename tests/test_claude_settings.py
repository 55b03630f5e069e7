"""The editor of Claude Code's settings: our hooks in, our hooks out, everything else to the byte."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem import claude_settings
from agentmem.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

    from agentmem.jsonio import Object

PYTHON = "/opt/a b/venv/bin/python"
HOOKS = "/opt/a b/site-packages/agentmem/_hooks"
FOREIGN = {"type": "command", "command": "other --flag"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "한글 x" / "settings.json"


def wanted(home: str = "") -> dict[str, Object]:
    return claude_settings.wanted_hooks(PYTHON, HOOKS, home)


def install(file: Path, hooks: dict[str, Object] | None = None) -> claude_settings.Change:
    return claude_settings.install(os.fspath(file), hooks or wanted(), os.fspath(file.parent / "kept"))


def uninstall(file: Path) -> claude_settings.Change:
    return claude_settings.uninstall(os.fspath(file), os.fspath(file.parent / "kept"))


def write(file: Path, content: str | bytes) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(raw)
    return raw


def test_what_is_registered_has_no_shell_in_it() -> None:
    for event, hook in wanted("/a home").items():
        assert hook["command"] == PYTHON
        arguments = hook["args"]
        assert isinstance(arguments, list)
        assert arguments[:2] == ["-I", "-S"]
        assert str(arguments[2]).startswith(HOOKS + "/")
        assert arguments[3:] == ["claude-code", event, "--home", "/a home"]
    assert "SessionEnd" in wanted()


def test_into_no_file_and_out_again(file: Path) -> None:
    file.parent.mkdir()
    assert install(file).changed
    assert claude_settings.registered(json.loads(file.read_text())).keys() == claude_settings.EVENTS.keys()
    assert uninstall(file).changed
    assert not file.exists()


def test_twice_is_once(file: Path) -> None:
    write(file, '{"env": {"A": "1"}}')
    install(file)
    first = file.read_bytes()
    assert not install(file).changed
    assert file.read_bytes() == first


@pytest.mark.parametrize(
    "content",
    [
        '{"hooks":{"SessionStart":[{"matcher":"compact","hooks":[{"type":"command","command":"o --x"}]}]},"odd":[1]}',
        '{\n\t"b": 1,\n\t"a": "한국어 🙂"\n}',
        '{"hooks": {}}\n\n',
        "\ufeff{}",
        "",
        '{"hooks": {"Stop": []}}',
    ],
)
def test_out_again_gives_back_the_bytes(file: Path, content: str) -> None:
    before = write(file, content)
    install(file)
    assert file.read_bytes() != before
    uninstall(file)
    assert file.read_bytes() == before


def test_a_hook_in_a_group_of_another_tool_stays_there(file: Path) -> None:
    install(write(file, "{}") and file)
    known = json.loads(file.read_text())
    known["hooks"]["Stop"][0]["hooks"].insert(0, FOREIGN)
    known["hooks"]["Notification"] = [{"hooks": [FOREIGN]}]
    write(file, json.dumps(known))
    uninstall(file)
    left = json.loads(file.read_text())
    assert left == {"hooks": {"Stop": [{"hooks": [FOREIGN]}], "Notification": [{"hooks": [FOREIGN]}]}}


@pytest.mark.parametrize(
    "old",
    [
        {"type": "command", "command": "/old/venv/bin/agentmem-hook stop"},
        {"type": "command", "command": '"/old dir/agentmem" hook stop'.replace(" dir", "")},
        {
            "type": "command",
            "command": "/old/python",
            "args": ["-I", "-S", "/old/hooks/capture.py", "claude-code", "Stop"],
        },
    ],
)
def test_older_entries_become_one_of_today(file: Path, old: dict[str, Any]) -> None:
    write(file, json.dumps({"hooks": {"Stop": [{"hooks": [old]}, {"hooks": [FOREIGN, old]}]}}))
    install(file)
    known = json.loads(file.read_text())
    assert claude_settings.registered(known)["Stop"] == [wanted()["Stop"]]
    assert {"hooks": [FOREIGN]} in known["hooks"]["Stop"]


def test_a_moved_installation_replaces_its_entries(file: Path) -> None:
    write(file, "{}")
    install(file)
    moved = claude_settings.wanted_hooks("/new/python", "/new/hooks", "")
    install(file, moved)
    known = claude_settings.registered(json.loads(file.read_text()))
    assert all(hooks == [moved[event]] for event, hooks in known.items())
    uninstall(file)
    assert file.read_bytes() == b"{}"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ('{ // a comment\n "a": 1 }', "settings_not_json"),
        ('{"a": 1,}', "settings_not_json"),
        (b"\xff\xfe{}", "settings_not_json"),
        ("[]", "settings_shape"),
        ('{"hooks": []}', "settings_shape"),
        ('{"hooks": {"Stop": {}}}', "settings_shape"),
        ('{"hooks": {"Stop": ["x"]}}', "settings_shape"),
        ('{"hooks": {"Stop": [{"hooks": 3}]}}', "settings_shape"),
    ],
)
def test_what_is_not_understood_stays_and_the_lines_to_add_are_told(
    file: Path, content: str | bytes, code: str
) -> None:
    before = write(file, content)
    with pytest.raises(SettingsError) as caught:
        install(file)
    assert caught.value.code == code
    assert '"SessionStart"' in caught.value.hint
    assert file.read_bytes() == before


def test_a_read_only_file_stays(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = write(file, "{}")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everything
    with pytest.raises(SettingsError) as caught:
        install(file)
    assert caught.value.code == "settings_unwritable"
    assert file.read_bytes() == before


def test_a_symlink_stays_one(file: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    write(real, "{}")
    real.chmod(0o640)
    file.parent.mkdir()
    file.symlink_to(real)
    install(file)
    assert file.is_symlink()
    assert "SessionStart" in real.read_text()
    assert real.stat().st_mode & 0o777 == 0o640


def test_a_dry_run_changes_nothing(file: Path) -> None:
    before = write(file, "{}")
    change = claude_settings.install(os.fspath(file), wanted(), os.fspath(file.parent / "kept"), dry_run=True)
    assert sorted(change.events) == sorted(claude_settings.EVENTS)
    assert file.read_bytes() == before
    assert not (file.parent / "kept").exists()


def test_a_write_of_somebody_else_in_between_is_not_lost(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(file, "{}")
    read = claude_settings._read
    reads: list[str] = []

    def read_and_be_overtaken(path: str) -> Any:
        found = read(path)
        if not reads:
            write(file, '{"theirs": true}')
        reads.append(path)
        return found

    monkeypatch.setattr(claude_settings, "_read", read_and_be_overtaken)
    install(file)
    known = json.loads(file.read_text())
    assert known["theirs"] is True
    assert "Stop" in known["hooks"]


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
_foreign_hooks = st.fixed_dictionaries({"type": st.just("command"), "command": st.sampled_from(["x", "y --z"])})
_groups = st.lists(
    st.fixed_dictionaries({"hooks": st.lists(_foreign_hooks, max_size=3)}, optional={"matcher": st.just("*")}),
    max_size=3,
)
_settings = st.fixed_dictionaries(
    {},
    optional={
        "env": _values,
        "permissions": _values,
        "hooks": st.dictionaries(st.sampled_from([*claude_settings.EVENTS, "Notification"]), _groups, max_size=4),
    },
)


@given(_settings, st.sampled_from([None, 1, 2, 4, "\t"]))
def test_any_settings_keep_what_is_not_ours(tmp_path_factory: pytest.TempPathFactory, known: Any, indent: Any) -> None:
    file = tmp_path_factory.mktemp("settings") / "settings.json"
    before = write(file, json.dumps(known, indent=indent, ensure_ascii=False))
    install(file)
    after = json.loads(file.read_text())
    for event, groups in known.get("hooks", {}).items():
        assert after["hooks"][event][: len(groups)] == groups
    assert {key: value for key, value in after.items() if key != "hooks"} == {
        key: value for key, value in known.items() if key != "hooks"
    }
    # A change of somebody else: our hooks are taken out one by one.
    after["theirs"] = 1
    write(file, json.dumps(after))
    uninstall(file)
    rest = json.loads(file.read_text())
    assert rest.pop("theirs") == 1
    expected = {event: groups for event, groups in known.get("hooks", {}).items() if groups}
    assert {event: groups for event, groups in rest.get("hooks", {}).items() if groups} == expected
    # And without one the very bytes come back.
    write(file, before)
    install(file)
    uninstall(file)
    assert file.read_bytes() == before
