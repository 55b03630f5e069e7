"""The hook objects that agentmem registers with Claude Code: what they are, and how they are known again.

Source: https://code.claude.com/docs/en/hooks
"""

from __future__ import annotations

import os
import shlex
from itertools import pairwise
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from agentmem.jsonio import Json, Object

    Groups: TypeAlias = list[Object]

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

_SHIMS = {shim for shim, _ in EVENTS.values()}


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
    command, arguments = hook.get("command"), hook.get("args")
    if not isinstance(command, str):
        return False
    if isinstance(arguments, list):
        words = [command, *(item for item in arguments if isinstance(item, str))]
    else:
        try:
            words = shlex.split(command)
        except ValueError:
            # No shell could run it either.
            return False
    return bool(words) and (_is_our_program(words[0]) or _has_our_shim(words))


def ours_in(hooks: Mapping[str, Groups]) -> dict[str, list[Object]]:
    """Event -> our hook objects in its groups, as they are; only events that have some."""
    found: dict[str, list[Object]] = {}
    for event, groups in hooks.items():
        ours = [cast("Object", hook) for group in groups for hook in _hooks_in(group) if is_ours(hook)]
        if ours:
            found[event] = ours
    return found


def is_for_all(group: Object) -> bool:
    """Whether the hooks of a group run whatever the event is about: it has no matcher, or one for everything."""
    return group.get("matcher") in (None, "", "*")


def converged(groups: Groups, target: Object | None) -> Groups:
    """The groups of an event with `target` as the only hook of ours (None: with none), others as they were.

    It takes the place of one that was there, so that an upgrade moves nothing.
    """
    found: Groups = []
    left = target
    for group in groups:
        inside = _hooks_in(group)
        rest: list[Json] = []
        for hook in inside:
            if not is_ours(hook):
                rest.append(hook)
            elif left is not None and is_for_all(group):
                rest.append(left)
                left = None
        if rest == inside:
            found.append(group)
        elif rest:
            found.append({**group, "hooks": rest})
    if left is not None:
        found.append({"hooks": [left]})
    return found


def _hooks_in(group: Object) -> list[Json]:
    return cast("list[Json]", group.get("hooks", []))


def _is_our_program(program: str) -> bool:
    """`agentmem` or `agentmem-...`; there are other tools whose names begin with the same letters."""
    name = os.path.basename(program).removesuffix(".exe")
    return name == "agentmem" or name.startswith("agentmem-")


def _has_our_shim(words: list[str]) -> bool:
    for word, following in pairwise(words):
        folder, shim = os.path.split(word)
        if shim in _SHIMS and os.path.basename(folder) in ("hooks", "_hooks") and following == CLIENT:
            return True
    return False
