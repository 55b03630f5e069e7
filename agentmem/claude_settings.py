"""Claude Code's settings file: our hooks put in, found again, and taken out, and nothing else touched.

A file that is not plain JSON of the known shape is left alone, with what to add by hand. Before the first change the
file is kept, so that taking the hooks out gives back the very bytes when nothing else has changed since.

Source: https://code.claude.com/docs/en/settings
"""

from __future__ import annotations

import copy
import json
import os
import sys
import time
from typing import TYPE_CHECKING, NamedTuple, cast

from agentmem import claude_hooks, json_splice, kept, locks
from agentmem.claude_hooks import EVENTS as EVENTS
from agentmem.claude_hooks import wanted_hooks as wanted_hooks
from agentmem.errors import SettingsError
from agentmem.paths import make_private
from agentmem.replace import publish, write_draft

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentmem.claude_hooks import Groups
    from agentmem.jsonio import Json, Object

_MOST_TRIES = 5
_LOCK_SECONDS = 10.0
_BOM = b"\xef\xbb\xbf"


class Change(NamedTuple):
    """What an edit did (or would do) to a file."""

    path: str
    changed: bool
    events: dict[str, str]
    """Event -> what became of its entry: added, updated or removed."""


class _File(NamedTuple):
    raw: bytes | None
    text: str
    """What it says, "{}" when there is nothing."""
    settings: Object


def config_dir(environ: Mapping[str, str]) -> str:
    """The client's folder: CLAUDE_CONFIG_DIR, or ~/.claude."""
    return environ.get("CLAUDE_CONFIG_DIR") or os.path.join(os.path.expanduser("~"), ".claude")


def settings_file(folder: str) -> str:
    """The user's settings file in the client's folder."""
    return os.path.join(folder, "settings.json")


def managed_dir() -> str:
    """Where an administrator's settings for the client are."""
    return "/Library/Application Support/ClaudeCode" if sys.platform == "darwin" else "/etc/claude-code"


def read_settings(path: str) -> Object:
    """The settings; {} when there is no file. SettingsError: settings_not_json, settings_shape, settings_unreadable."""
    return _read(path).settings


def registered(settings: Object) -> dict[str, list[Object]]:
    """Event -> our hook objects there, as they are."""
    return claude_hooks.ours_in(_hooks_of(settings, "settings"))


def narrowed(settings: Object) -> list[str]:
    """Events in which a hook of ours stands under a matcher, so that it doesn't run every time."""
    return [
        event
        for event, groups in _hooks_of(settings, "settings").items()
        if claude_hooks.ours_in({event: [group for group in groups if not claude_hooks.is_for_all(group)]})
    ]


def switched_off(path: str, managed: str) -> str:
    """Why the client runs none of the hooks in this file, or "". `managed`: the folder of `managed_dir()`."""
    none_run = "so Claude Code runs none of these hooks"
    if read_settings(path).get("disableAllHooks") is True:
        return f"disableAllHooks is true in {path}, {none_run}"
    for file in _managed_files(managed):
        try:
            settings = read_settings(file)
        except SettingsError as error:
            return f"{error.message}, so it is not known whether your administrator lets Claude Code run these hooks"
        for key in ("disableAllHooks", "allowManagedHooksOnly"):
            if settings.get(key) is True:
                return f"{key} is true in your administrator's {file}, {none_run}"
    return ""


def _managed_files(folder: str) -> list[str]:
    more = os.path.join(folder, "managed-settings.d")
    names = sorted(os.listdir(more)) if os.path.isdir(more) else []
    files = [os.path.join(more, name) for name in names if name.endswith(".json") and not name.startswith(".")]
    return [os.path.join(folder, "managed-settings.json"), *files]


def install(path: str, wanted: dict[str, Object], keep_dir: str, *, dry_run: bool = False) -> Change:
    """Register exactly one hook of ours for each event; other entries and keys stay as they are.

    `keep_dir` is where the file's first state is kept. SettingsError says what to add by hand when the file can't be
    edited: settings_not_json, settings_shape, settings_unreadable, settings_unwritable, settings_busy, settings_odd.
    """
    try:
        return _change(path, wanted, keep_dir, dry_run=dry_run)
    except SettingsError as error:
        addition = {"hooks": {event: [{"hooks": [hook]}] for event, hook in wanted.items()}}
        hint = f"{error.hint} Or add this to it by hand:\n{json.dumps(addition, indent=2, ensure_ascii=False)}"
        raise SettingsError(error.code, error.message, hint.strip()) from error


def uninstall(path: str, keep_dir: str, *, dry_run: bool = False) -> Change:
    """Take our hooks out; the bytes from before the first install when nothing else has changed since."""
    change = _change(path, {}, keep_dir, dry_run=dry_run)
    if not dry_run:
        kept.forget(path, keep_dir)
    return change


def _change(path: str, wanted: dict[str, Object], keep_dir: str, *, dry_run: bool) -> Change:
    """Make `wanted` the only hooks of ours in the file."""
    if dry_run:
        file = _read(path)
        after = _edited(file, wanted, path, keep_dir)
        return Change(path, after != file.raw, _summary(file, wanted, path))
    make_private(keep_dir)
    lock = locks.wait_for_lock(os.path.join(keep_dir, "lock"), time.monotonic() + _LOCK_SECONDS)
    if lock is None:
        raise SettingsError("settings_busy", f"another agentmem has been editing {path} all the time", "Try again.")
    try:
        return _change_alone(path, wanted, keep_dir)
    finally:
        os.close(lock)


def _change_alone(path: str, wanted: dict[str, Object], keep_dir: str) -> Change:
    """Read, edit, write, and read again, until the file is as it should be: other programs don't know our lock."""
    done = Change(path, changed=False, events={})
    for _ in range(_MOST_TRIES):
        file = _read(path)
        after = _edited(file, wanted, path, keep_dir)
        if after == file.raw:
            return done
        if wanted and after is not None:
            kept.save(path, keep_dir, _edited(file, {}, path, keep_dir), after)
        if _write(path, file.raw, after):
            done = Change(path, changed=True, events={**done.events, **_summary(file, wanted, path)})
    raise SettingsError("settings_busy", f"{path} was changed by others {_MOST_TRIES} times in a row", "Try again.")


def _differing(file: _File, wanted: dict[str, Object], path: str) -> dict[str, Groups]:
    """Event -> the groups that it has to get, for each that is not as wanted."""
    hooks = _hooks_of(file.settings, path)
    events = [*wanted, *(event for event in hooks if event not in wanted)]
    found = {event: claude_hooks.converged(hooks.get(event, []), wanted.get(event)) for event in events}
    return {event: groups for event, groups in found.items() if groups != hooks.get(event, [])}


def _summary(file: _File, wanted: dict[str, Object], path: str) -> dict[str, str]:
    had = registered(file.settings)
    return {
        event: "removed" if event not in wanted else "updated" if event in had else "added"
        for event in _differing(file, wanted, path)
    }


def _edited(file: _File, wanted: dict[str, Object], path: str, keep_dir: str) -> bytes | None:
    """The file's bytes with `wanted` as our only hooks; None when it should not be there."""
    note = None if wanted else kept.load(path, keep_dir)
    if note is not None and note.is_ours(file.raw):
        return note.original
    differing = _differing(file, wanted, path)
    if not differing:
        # The client doesn't read a file that begins with a byte order mark.
        return file.raw.removeprefix(_BOM) if wanted and file.raw else file.raw
    try:
        text, intended = _spliced(file, differing)
        is_right = json_splice.loads(text) == intended
    except ValueError as error:
        raise _odd(path) from error
    if not is_right:
        raise _odd(path)
    if note is not None and note.original is None and not intended:
        return None
    # A lone surrogate can only stand in JSON as an escape, which is what Python writes for it too.
    return text.encode("utf-8", "backslashreplace")


def _odd(path: str) -> SettingsError:
    message = f"{path} can't be edited without a change to other things in it"
    return SettingsError("settings_odd", message, "Look for odd numbers and for keys that stand twice.")


def _spliced(file: _File, differing: dict[str, Groups]) -> tuple[str, Object]:
    """The text with these groups in it, and what it should say."""
    text, intended = file.text, copy.deepcopy(file.settings)
    hooks = cast("Object", intended.setdefault("hooks", {}))
    for event, groups in differing.items():
        if groups:
            hooks[event] = cast("Json", groups)
            text = json_splice.set_member(text, ("hooks", event), hooks[event])
        else:
            del hooks[event]
            text = json_splice.drop_member(text, ("hooks", event))
    if not hooks:
        del intended["hooks"]
        text = json_splice.drop_member(text, ("hooks",))
    return text, intended


def _hooks_of(settings: Object, path: str) -> dict[str, Groups]:
    """Event -> its groups; SettingsError when any of it has another shape than we know."""
    hooks = settings.get("hooks", {})
    if not isinstance(hooks, dict):
        raise SettingsError("settings_shape", f"{path}: `hooks` is not an object", "Mend that key.")
    found: dict[str, Groups] = {}
    for event, groups in hooks.items():
        if not isinstance(groups, list):
            raise SettingsError("settings_shape", f"{path}: `hooks.{event}` is not a list", "Mend that key.")
        for group in groups:
            if not isinstance(group, dict) or not isinstance(group.get("hooks", []), list):
                raise SettingsError("settings_shape", f"{path}: `hooks.{event}` holds something odd", "Mend that key.")
        found[event] = cast("Groups", groups)
    return found


def _bytes(path: str) -> bytes | None:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(
            "settings_unreadable", f"{path} can't be read: {error.strerror}", "Mend its owner and mode."
        ) from error


def _read(path: str) -> _File:
    raw = _bytes(path)
    if raw is None or not raw.removeprefix(_BOM).strip():
        return _File(raw, "{}\n", {})
    try:
        text = raw.decode("utf-8-sig")
        settings = json_splice.loads(text)
    except ValueError as error:
        raise SettingsError("settings_not_json", f"{path} is not JSON: {error}", "Mend it.") from error
    if not isinstance(settings, dict):
        raise SettingsError("settings_shape", f"{path} is not an object", "Mend it.")
    return _File(raw, text, settings)


def _write(path: str, before: bytes | None, after: bytes | None) -> bool:
    """Make the file `after` (None: remove it); False when it is no longer as it was `before`."""
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)
        # A file that its owner made read-only is not ours to replace, though the folder, or root, would allow it.
        if before is not None and not (os.access(path, os.W_OK) and os.stat(path).st_mode & 0o222):
            raise PermissionError(13, "it is read-only")
        if after is None:
            unchanged = _bytes(path) == before
            if unchanged:
                os.unlink(os.path.realpath(path))
            return unchanged
        return _replace_if(path, before, after)
    except OSError as error:
        raise SettingsError(
            "settings_unwritable", f"{path} can't be written: {error.strerror}", "Mend its owner and mode."
        ) from error


def _replace_if(path: str, before: bytes | None, after: bytes) -> bool:
    draft = write_draft(path, after)
    unchanged = False
    try:
        # As late as can be: between this look and the renaming there are only microseconds.
        unchanged = _bytes(path) == before
    finally:
        if not unchanged:
            os.unlink(draft)
    if unchanged:
        publish(draft, path)
    return unchanged
