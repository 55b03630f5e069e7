"""The editor of Claude Code's settings: our hooks in, our hooks out, everything else to the byte."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
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
        '{"a": 1e400, "b": "\\ud83d", "c": 1.10}',
        '{\r\n    "a": [1, 2]\r\n}\r\n',
        '{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"\\ud83d"}]}]}}',
        " \n",
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


OLD = {"type": "command", "command": "'/old dir/venv/bin/agentmem-hook' stop"}


def test_older_entries_become_one_of_today_and_go_with_it(file: Path) -> None:
    write(
        file, json.dumps({"hooks": {"Stop": [{"hooks": [OLD]}, {"hooks": [FOREIGN, OLD]}], "Old": [{"hooks": [OLD]}]}})
    )
    change = install(file)
    known = json.loads(file.read_text())
    assert known["hooks"]["Stop"] == [{"hooks": [wanted()["Stop"]]}, {"hooks": [FOREIGN]}]
    assert "Old" not in known["hooks"]
    assert (change.events["Stop"], change.events["Old"], change.events["SessionEnd"]) == ("updated", "removed", "added")
    uninstall(file)
    assert json.loads(file.read_text()) == {"hooks": {"Stop": [{"hooks": [FOREIGN]}]}}


def test_a_moved_installation_replaces_its_entries(file: Path) -> None:
    write(file, "{}")
    install(file)
    moved = claude_settings.wanted_hooks("/new/python", "/new/hooks", "")
    install(file, moved)
    known = claude_settings.registered(json.loads(file.read_text()))
    assert all(hooks == [moved[event]] for event, hooks in known.items())
    uninstall(file)
    assert file.read_bytes() == b"{}"


def test_an_upgrade_after_a_change_of_somebody_else_leaves_nothing_of_ours_behind(file: Path) -> None:
    write(file, '{\n  "list": [1, 2]\n}\n')
    install(file)
    theirs = file.read_text().replace("[1, 2]", "[1, 3]")
    write(file, theirs)
    install(file, claude_settings.wanted_hooks("/new/python", "/new/hooks", ""))
    uninstall(file)
    assert file.read_text() == '{\n  "list": [1, 3]\n}\n'


def test_what_was_never_there_goes_though_it_was_changed(file: Path) -> None:
    file.parent.mkdir()
    install(file)
    known = json.loads(file.read_text())
    write(file, json.dumps(known))
    assert uninstall(file).changed
    assert not file.exists()
    install(file)
    write(file, json.dumps({**json.loads(file.read_text()), "theirs": 1}))
    uninstall(file)
    assert json.loads(file.read_text()) == {"theirs": 1}


def test_taking_out_what_is_not_in_changes_nothing(file: Path) -> None:
    before = write(file, '\ufeff{"hooks":{"Stop":[]}}')
    assert not uninstall(file).changed
    assert file.read_bytes() == before
    file.unlink()
    assert not uninstall(file).changed
    assert not file.exists()


def test_a_byte_order_mark_goes_though_the_hooks_are_there(file: Path) -> None:
    install(write(file, "{}") and file)
    before = file.read_bytes()
    write(file, b"\xef\xbb\xbf" + before)
    assert install(file).changed
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ('{ // a comment\n "a": 1 }', "settings_not_json"),
        ('{"a": 1,}', "settings_not_json"),
        (b"\xff\xfe{}", "settings_not_json"),
        ('{"a": NaN}', "settings_not_json"),
        ("[" * 100_000 + "]" * 100_000, "settings_not_json"),
        ('{"hooks": {"Stop": [{"hooks": [{"command": "x", "timeout": 1e400}]}]}}', "settings_odd"),
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


def test_a_read_only_file_stays(file: Path) -> None:
    before = write(file, "{}")
    file.chmod(0o444)  # for root as well, who could write it
    with pytest.raises(SettingsError) as caught:
        install(file)
    assert caught.value.code == "settings_unwritable"
    assert '"SessionStart"' in caught.value.hint
    assert file.read_bytes() == before
    assert drafts(file) == []


def test_a_folder_in_its_place_is_an_error(file: Path) -> None:
    file.mkdir(parents=True)
    with pytest.raises(SettingsError) as caught:
        install(file)
    assert caught.value.code == "settings_unreadable"


def test_a_damaged_copy_of_the_original_is_an_error_and_the_file_stays(file: Path) -> None:
    install(write(file, "{}") and file)
    before = file.read_bytes()
    for note in (file.parent / "kept").glob("*.json"):
        note.write_text("{")
    with pytest.raises(SettingsError) as caught:
        uninstall(file)
    assert caught.value.code == "kept_damaged"
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
    uninstall(file)
    assert file.is_symlink()
    assert real.read_text() == "{}"


def test_a_symlink_to_nothing_stays_one(file: Path, tmp_path: Path) -> None:
    file.parent.mkdir()
    file.symlink_to(tmp_path / "later.json")
    install(file)
    assert "SessionStart" in (tmp_path / "later.json").read_text()
    uninstall(file)
    assert file.is_symlink()
    assert not (tmp_path / "later.json").exists()
    file.unlink()
    file.symlink_to(tmp_path / "missing" / "later.json")
    with pytest.raises(SettingsError):
        install(file)


def test_a_dry_run_changes_nothing(file: Path) -> None:
    before = write(file, "{}")
    change = claude_settings.install(os.fspath(file), wanted(), os.fspath(file.parent / "kept"), dry_run=True)
    assert sorted(change.events) == sorted(claude_settings.EVENTS)
    assert file.read_bytes() == before
    assert not (file.parent / "kept").exists()


def drafts(file: Path) -> list[str]:
    return [name for name in os.listdir(file.parent) if name not in (file.name, "kept")]


def test_what_somebody_else_writes_at_the_last_moment_is_not_lost(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = write(file, "{}")
    draft, overtaken = claude_settings.write_draft, []

    def draft_and_be_overtaken(path: str, content: bytes) -> str:
        made = draft(path, content)
        if not overtaken:
            overtaken.append(write(file, '{"theirs": true}'))
        return made

    monkeypatch.setattr(claude_settings, "write_draft", draft_and_be_overtaken)
    install(file)
    known = json.loads(file.read_text())
    assert known["theirs"] is True
    assert "Stop" in known["hooks"]
    assert drafts(file) == []
    uninstall(file)
    assert before != file.read_bytes() == overtaken[0]


def test_who_had_read_the_old_file_and_writes_over_ours_has_the_hooks_too(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, "{}")
    publish, overwritten = claude_settings.publish, []

    def publish_and_be_overwritten(draft: str, path: str) -> None:
        publish(draft, path)
        if not overwritten:
            overwritten.append(write(file, '{"theirs": true}'))

    monkeypatch.setattr(claude_settings, "publish", publish_and_be_overwritten)
    install(file)
    known = json.loads(file.read_text())
    assert known["theirs"] is True
    assert known["hooks"].keys() == claude_settings.EVENTS.keys()


def test_who_writes_all_the_time_is_told_of(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(file, "{}")
    draft = claude_settings.write_draft
    count = iter(range(1000))

    def draft_and_be_overtaken(path: str, content: bytes) -> str:
        made = draft(path, content)
        write(file, f'{{"theirs": {next(count)}}}')
        return made

    monkeypatch.setattr(claude_settings, "write_draft", draft_and_be_overtaken)
    with pytest.raises(SettingsError) as caught:
        install(file)
    assert caught.value.code == "settings_busy"
    assert next(count) < 10
    assert drafts(file) == []


def test_the_copy_of_the_original_is_for_its_owner_only(file: Path) -> None:
    install(write(file, '{"env": {"TOKEN": "secret"}}') and file)
    folder = file.parent / "kept"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    uninstall(file)
    assert not list(folder.glob("*.json"))


MANAGED = [
    ("managed-settings.json", {"disableAllHooks": True}, "disableAllHooks"),
    ("managed-settings.json", {"allowManagedHooksOnly": True}, "allowManagedHooksOnly"),
    ("managed-settings.d/10-hooks.json", {"allowManagedHooksOnly": True}, "10-hooks.json"),
]


@pytest.mark.parametrize(("name", "content", "reason"), MANAGED)
def test_an_administrator_may_switch_hooks_off(
    file: Path, tmp_path: Path, name: str, content: Object, reason: str
) -> None:
    write(file, "{}")
    managed = tmp_path / "managed"
    assert claude_settings.switched_off(os.fspath(file), os.fspath(managed)) == ""
    write(managed / "managed-settings.d" / "20-other.json", '{"env": {}}')
    write(managed / "managed-settings.d" / ".hidden.json", '{"disableAllHooks": true}')
    assert claude_settings.switched_off(os.fspath(file), os.fspath(managed)) == ""
    write(managed / name, json.dumps(content))
    assert reason in claude_settings.switched_off(os.fspath(file), os.fspath(managed))
    write(managed / name, "{")
    assert "not known" in claude_settings.switched_off(os.fspath(file), os.fspath(managed))


def test_the_user_may_switch_hooks_off(file: Path, tmp_path: Path) -> None:
    write(file, '{"disableAllHooks": true}')
    assert "disableAllHooks" in claude_settings.switched_off(os.fspath(file), os.fspath(tmp_path))


def test_events_under_a_matcher_are_named(file: Path) -> None:
    install(write(file, "{}") and file)
    known = json.loads(file.read_text())
    assert claude_settings.narrowed(known) == []
    known["hooks"]["SessionStart"][0]["matcher"] = "compact"
    known["hooks"]["Stop"].append({"matcher": "x", "hooks": [FOREIGN]})
    assert claude_settings.narrowed(known) == ["SessionStart"]


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


_styles = st.fixed_dictionaries(
    {
        "indent": st.sampled_from([None, 0, 1, 2, 4, "\t"]),
        "separators": st.sampled_from([None, (",", ":"), (" , ", " : ")]),
        "ensure_ascii": st.booleans(),
    }
)


@settings(max_examples=40)
@given(_settings, _styles, st.sampled_from(["\n", "\r\n"]), st.sampled_from(["", "\n", " "]))
def test_any_settings_keep_what_is_not_ours(
    tmp_path_factory: pytest.TempPathFactory, known: Any, style: Any, newline: str, end: str
) -> None:
    file = tmp_path_factory.mktemp("settings") / "settings.json"
    text = (json.dumps(known, **style) + end).replace("\n", newline)
    before = write(file, text.encode("utf-8", "backslashreplace"))
    install(file)
    first = file.read_bytes()
    after = json.loads(first)
    for event, groups in known.get("hooks", {}).items():
        assert after["hooks"][event][: len(groups)] == groups
    assert list(after) == [*known, *(["hooks"] if "hooks" not in known else [])]
    assert {**after, "hooks": 0} == {**known, "hooks": 0}
    install(file)
    assert file.read_bytes() == first
    # A change of somebody else: our hooks are taken out one by one.
    write(file, json.dumps({**after, "theirs": 1}))
    uninstall(file)
    rest = json.loads(file.read_text())
    assert rest.pop("theirs") == 1
    expected = {event: groups for event, groups in known.get("hooks", {}).items() if groups}
    assert {event: groups for event, groups in rest.pop("hooks", {}).items() if groups} == expected
    assert rest == {key: value for key, value in known.items() if key != "hooks"}
    # And without one the very bytes come back.
    write(file, before)
    install(file)
    uninstall(file)
    assert file.read_bytes() == before
