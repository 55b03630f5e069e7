"""Claude Code's settings file: our hooks put in, found again, and taken out, and nothing else touched.

What is registered is a program and its arguments, so no shell comes between. A file that is not plain JSON of the
known shape is left alone, with what to add by hand. Before the first change the file is kept, so that taking the hooks
out gives back the very bytes when nothing else has changed since.

Source: https://code.claude.com/docs/en/hooks
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, NamedTuple, cast

from agentmem.errors import SettingsError
from agentmem.paths import make_private
from agentmem.replace import replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agentmem.jsonio import Json, Object

CLIENT = "claude-code"
EVENTS = {
    "SessionStart": ("session_start.py", 30),
    "UserPromptSubmit": ("capture.py", 10),
    "Stop": ("capture.py", 10),
    "StopFailure": ("capture.py", 10),
    "SubagentStop": ("capture.py", 10),
    "PreCompact": ("capture.py", 10),
    # The client gives all of them 1.5 s unless one asks for more.
    "SessionEnd": ("capture.py", 10),
}
"""Event -> the shim that serves it, and how many seconds the client gives it."""

_MOST_TRIES = 5


class Change(NamedTuple):
    """What an edit did (or would do) to a file."""

    path: str
    changed: bool
    events: list[str]
    """Events whose entries were added, moved or removed."""


class _File(NamedTuple):
    raw: bytes | None
    settings: Object
    indent: str | int


def config_dir(environ: Mapping[str, str]) -> str:
    """The client's folder: CLAUDE_CONFIG_DIR, or ~/.claude."""
    return environ.get("CLAUDE_CONFIG_DIR") or os.path.join(os.path.expanduser("~"), ".claude")


def settings_file(folder: str) -> str:
    """The user's settings file in the client's folder."""
    return os.path.join(folder, "settings.json")


def wanted_hooks(executable: str, hooks_dir: str, home: str) -> dict[str, Object]:
    """Event -> the hook object to register. `home`: AGENTMEM_HOME when it is set, else ""."""
    wanted: dict[str, Object] = {}
    for event, (shim, seconds) in EVENTS.items():
        arguments: list[Json] = ["-I", "-S", os.path.join(hooks_dir, shim), CLIENT, event]
        if home:
            arguments += ["--home", home]
        wanted[event] = {"type": "command", "command": executable, "args": arguments, "timeout": seconds}
    return wanted


def is_ours(hook: Json) -> bool:
    """Whether agentmem registered this hook object: this version or an older one, wherever it was installed."""
    if not isinstance(hook, dict):
        return False
    arguments = [item for item in cast("list[Json]", hook.get("args") or []) if isinstance(item, str)]
    for place, argument in enumerate(arguments):
        folder, shim = os.path.split(argument)
        if shim in ("session_start.py", "capture.py") and os.path.basename(folder) in ("hooks", "_hooks"):
            return arguments[place + 1 : place + 2] == [CLIENT]
    command = hook.get("command")
    if not isinstance(command, str) or arguments:
        return False
    words = command.split()
    return bool(words) and os.path.basename(words[0].strip("\"'")).startswith("agentmem")


def read_settings(path: str) -> Object:
    """The settings; {} when there is no file. SettingsError: settings_not_json, settings_shape, settings_unreadable."""
    return _read(path).settings


def registered(settings: Object) -> dict[str, list[Object]]:
    """Event -> our hook objects there, as they are."""
    found: dict[str, list[Object]] = {}
    for event, groups in _hooks_of(settings, "settings").items():
        for group in groups:
            found.setdefault(event, []).extend(
                cast("Object", hook) for hook in cast("list[Json]", group.get("hooks") or []) if is_ours(hook)
            )
    return {event: hooks for event, hooks in found.items() if hooks}


def install(path: str, wanted: dict[str, Object], keep_dir: str, *, dry_run: bool = False) -> Change:
    """Register exactly one hook of ours for each event; other entries and keys stay as they are.

    `keep_dir` is where the file's first state is kept. SettingsError says what to add by hand when the file can't be
    edited.
    """

    def edit(settings: Object) -> list[str]:
        return _put_in(settings, wanted, path)

    try:
        return _change(path, edit, keep_dir, dry_run=dry_run)
    except SettingsError as error:
        addition = {"hooks": {event: [{"hooks": [hook]}] for event, hook in wanted.items()}}
        hint = f"{error.hint} Or add this to it by hand:\n{json.dumps(addition, indent=2)}"
        raise SettingsError(error.code, error.message, hint.strip()) from error


def uninstall(path: str, keep_dir: str, *, dry_run: bool = False) -> Change:
    """Take our hooks out; the bytes from before the first install when nothing else has changed since."""
    file = _read(path)
    kept = _kept(path, keep_dir)
    if file.raw is not None and kept is not None and hashlib.sha256(file.raw).hexdigest() == kept["written"]:
        events = sorted(registered(file.settings))
        if not dry_run:
            _give_back(path, kept["original"])
            os.unlink(_kept_file(path, keep_dir))
        return Change(path, changed=True, events=events)
    change = _change(path, lambda settings: _take_out(settings, path), keep_dir="", dry_run=dry_run)
    if kept is not None and not dry_run:
        os.unlink(_kept_file(path, keep_dir))
    return change


def _put_in(settings: Object, wanted: dict[str, Object], path: str) -> list[str]:
    hooks = _hooks_of(settings, path)
    changed: list[str] = []
    for event in sorted({*wanted, *hooks}):
        groups = hooks.get(event, [])
        ours = [hook for group in groups for hook in cast("list[Json]", group.get("hooks") or []) if is_ours(hook)]
        target = [wanted[event]] if event in wanted else []
        if ours == target:
            continue
        changed.append(event)
        _remove(groups)
        if target:
            groups.append({"hooks": [target[0]]})
        _set(settings, event, groups)
    return changed


def _take_out(settings: Object, path: str) -> list[str]:
    changed: list[str] = []
    for event, groups in _hooks_of(settings, path).items():
        if _remove(groups):
            changed.append(event)
            _set(settings, event, groups)
    if changed and settings.get("hooks") == {}:
        del settings["hooks"]
    return changed


def _remove(groups: list[Object]) -> bool:
    """Remove our hooks from the groups of an event, and groups that only held ours."""
    removed = False
    for group in list(groups):
        inside = cast("list[Json]", group.get("hooks") or [])
        rest = [hook for hook in inside if not is_ours(hook)]
        if len(rest) == len(inside):
            continue
        removed = True
        if rest:
            group["hooks"] = rest
        else:
            groups.remove(group)
    return removed


def _set(settings: Object, event: str, groups: list[Object]) -> None:
    hooks = cast("Object", settings.setdefault("hooks", {}))
    if groups:
        hooks[event] = cast("list[Json]", groups)
    else:
        hooks.pop(event, None)


def _hooks_of(settings: Object, path: str) -> dict[str, list[Object]]:
    """Event -> its groups; SettingsError when any of it has another shape than we know."""
    hooks = settings.get("hooks", {})
    if not isinstance(hooks, dict):
        raise SettingsError("settings_shape", f"{path}: `hooks` is not an object", "Mend that key.")
    found: dict[str, list[Object]] = {}
    for event, groups in hooks.items():
        if not isinstance(groups, list):
            raise SettingsError("settings_shape", f"{path}: `hooks.{event}` is not a list", "Mend that key.")
        for group in groups:
            if not isinstance(group, dict) or not isinstance(group.get("hooks", []), list):
                raise SettingsError("settings_shape", f"{path}: `hooks.{event}` holds something odd", "Mend that key.")
        found[event] = cast("list[Object]", groups)
    return found


def _change(path: str, edit: Callable[[Object], list[str]], keep_dir: str, *, dry_run: bool) -> Change:
    """Read, edit and write the file, again when somebody else wrote it meanwhile."""
    for _ in range(_MOST_TRIES):
        file = _read(path)
        events = edit(file.settings)
        if not events or dry_run:
            return Change(path, bool(events), events)
        after = (json.dumps(file.settings, indent=file.indent, ensure_ascii=False) + "\n").encode("utf-8")
        if _bytes(path) != file.raw:
            continue
        if keep_dir:
            _keep(path, keep_dir, file.raw, after)
        _write(path, after)
        return Change(path, changed=True, events=events)
    raise SettingsError("settings_busy", f"{path} was changed by others {_MOST_TRIES} times in a row", "Try again.")


def _bytes(path: str) -> bytes | None:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError("settings_unreadable", f"{path}: {error.strerror}", "Mend its owner and mode.") from error


def _read(path: str) -> _File:
    raw = _bytes(path)
    if raw is None or not raw.strip():
        return _File(raw, {}, 2)
    try:
        text = raw.decode("utf-8-sig")
        settings = json.loads(text)
    except ValueError as error:
        raise SettingsError("settings_not_json", f"{path} is not JSON: {error}", "Mend it.") from error
    if not isinstance(settings, dict):
        raise SettingsError("settings_shape", f"{path} is not an object", "Mend it.")
    indented = [line for line in text.split("\n")[1:] if line[:1] in (" ", "\t")]
    indent: str | int = 2
    if indented:
        indent = indented[0][: len(indented[0]) - len(indented[0].lstrip())]
    return _File(raw, cast("Object", settings), indent)


def _write(path: str, content: bytes) -> None:
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        # A file that its owner made read-only is not ours to replace, though the folder would allow it.
        if os.path.exists(path) and not os.access(path, os.W_OK):
            raise PermissionError(13, "it is read-only")
        replace_file(path, content)
    except OSError as error:
        raise SettingsError("settings_unwritable", f"{path}: {error.strerror}", "Mend its owner and mode.") from error


def _kept_file(path: str, keep_dir: str) -> str:
    return os.path.join(keep_dir, hashlib.sha256(os.path.abspath(path).encode()).hexdigest()[:16] + ".json")


def _keep(path: str, keep_dir: str, before: bytes | None, after: bytes) -> None:
    """Note what we wrote, and the state from before our first change."""
    make_private(keep_dir)
    kept = _kept(path, keep_dir)
    if kept is not None and before is not None and hashlib.sha256(before).hexdigest() == kept["written"]:
        original = kept["original"]
    else:
        original = None if before is None else before.hex()
    note = {"path": path, "original": original, "written": hashlib.sha256(after).hexdigest()}
    replace_file(_kept_file(path, keep_dir), json.dumps(note).encode(), 0o600)


def _kept(path: str, keep_dir: str) -> dict[str, str | None] | None:
    try:
        with open(_kept_file(path, keep_dir), encoding="utf-8") as stream:
            return json.load(stream)
    except FileNotFoundError:
        return None


def _give_back(path: str, original: str | None) -> None:
    if original is None:
        os.unlink(path)
    else:
        _write(path, bytes.fromhex(original))
