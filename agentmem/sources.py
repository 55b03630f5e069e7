"""Which files on disk hold a session, and where all of a client's sessions lie.

Claude Code keeps a session in `PROJECTS/SLUG/SESSION.jsonl` and its subagents in
`PROJECTS/SLUG/SESSION/subagents/agent-AGENT.jsonl`.
"""

from __future__ import annotations

import os

from agentmem import jsonio
from agentmem.errors import TranscriptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentmem.errors import AgentmemError

_SUFFIX = ".jsonl"
_AGENT = "agent-"


class Source:
    """A file that holds a session, or a subagent's part of one."""

    __slots__ = ("agent_type", "parent", "path", "session")

    def __init__(self, path: str, session: str, parent: str = "", agent_type: str = "") -> None:
        self.path = path
        self.session = session
        """Key of the session that the file holds: the client's id, or SESSION/AGENT."""
        self.parent = parent
        """Key of the session that started the subagent; "" for a session of its own."""
        self.agent_type = agent_type


def sources_of(session: str, transcript_path: str) -> list[Source]:
    """The files of one session that are there now: its own first, then its subagents'.

    The client may name a path that does not exist (a session resumed from another folder): the session is then
    looked for by its id under the sibling folders.
    """
    path = transcript_path
    if not os.path.isfile(path):
        path = _find(session, os.path.dirname(os.path.dirname(transcript_path))) or path
    found = [Source(path, session)] if os.path.lexists(path) else []
    found.extend(_subagents(session, path.removesuffix(_SUFFIX)))
    return found


def _find(session: str, projects: str) -> str:
    if not session or "/" in session:
        return ""
    for folder in _folders(projects, []):
        candidate = os.path.join(folder, session + _SUFFIX)
        if os.path.isfile(candidate):
            return candidate
    return ""


def _subagents(session: str, folder: str) -> list[Source]:
    subagents = os.path.join(folder, "subagents")
    errors: list[AgentmemError] = []
    names = _names(subagents, errors)
    if errors:
        # Reading the folder as if it were a file fails, too: that is how it is reported.
        return [Source(subagents, session + "/unreadable", session)]
    return [
        Source(
            os.path.join(subagents, name),
            session + "/" + name[len(_AGENT) : -len(_SUFFIX)],
            session,
            _agent_type(os.path.join(subagents, name[: -len(_SUFFIX)] + ".meta.json")),
        )
        for name in names
        if name.startswith(_AGENT) and name.endswith(_SUFFIX)
    ]


def _agent_type(meta: str) -> str:
    try:
        with open(meta, "rb") as stream:
            value = jsonio.loads(stream.read(1 << 20).decode("utf-8", "replace"))
    except (OSError, ValueError):
        # The client writes it beside the transcript; without it the subagent has no type, and nothing is lost.
        return ""
    return jsonio.text_of(value, "agentType") if isinstance(value, dict) else ""


def _names(folder: str, errors: list[AgentmemError] | None) -> list[str]:
    """What is in a folder, nothing when there is no such folder; one that may not be read goes into `errors`."""
    try:
        return sorted(os.listdir(folder))
    except PermissionError:
        error = TranscriptError(
            "transcript_unreadable", f"the folder {folder} can't be read: permission denied", "Mend its owner or mode."
        )
    except OSError:
        # Not there, no folder, a link that leads nowhere, a path that is too long for one: nothing is in it.
        return []
    if errors is None:
        raise error
    errors.append(error)
    return []


def _folders(projects: str, errors: list[AgentmemError] | None) -> list[str]:
    paths = [os.path.join(projects, name) for name in _names(projects, errors)]
    return [path for path in paths if os.path.isdir(path)]


def all_sources(
    projects: str, changed_since: float = 0.0, errors: list[AgentmemError] | None = None
) -> Iterator[Source]:
    """Every session's files under a client's folder of projects, changed at or after a time (seconds since 1970).

    A subagent's file is taken together with its session's. A folder that may not be read is left out and noted in
    `errors`; without that it is a TranscriptError.
    """
    for folder in _folders(projects, errors):
        for name in _names(folder, errors):
            path = os.path.join(folder, name)
            if not name.endswith(_SUFFIX):
                if changed_since == 0.0 and os.path.isdir(path):
                    yield from _orphans(path, folder)
            elif _changed(path) >= changed_since:
                yield from sources_of(name[: -len(_SUFFIX)], path)


def _changed(path: str) -> float:
    """When a file changed last; before all times when it isn't there (any more), or is no file."""
    try:
        found = os.stat(path)
    except OSError:
        # The client deletes old transcripts when it starts, which is when we look.
        return -1.0
    return found.st_mtime if found.st_mode & 0o170000 == 0o100000 else -1.0


def _orphans(folder: str, project: str) -> list[Source]:
    """Subagents whose session has no file of its own (any more)."""
    session = os.path.basename(folder)
    if os.path.exists(os.path.join(project, session + _SUFFIX)):
        return []
    return _subagents(session, folder)


def projects_dir(transcript_path: str) -> str:
    """The client's folder of all projects, as one transcript's path tells; "" when it doesn't."""
    projects = os.path.dirname(os.path.dirname(transcript_path))
    return projects if os.path.basename(projects) == "projects" else ""
