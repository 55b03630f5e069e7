"""Which files on disk hold a session, and where all of a client's sessions lie.

Claude Code keeps a session in `PROJECTS/SLUG/SESSION.jsonl` and its subagents in
`PROJECTS/SLUG/SESSION/subagents/agent-AGENT.jsonl`.
"""

from __future__ import annotations

import os

from agentmem import jsonio

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

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
    for folder in _folders(projects):
        candidate = os.path.join(folder, session + _SUFFIX)
        if os.path.isfile(candidate):
            return candidate
    return ""


def _subagents(session: str, folder: str) -> list[Source]:
    subagents = os.path.join(folder, "subagents")
    try:
        names = sorted(os.listdir(subagents))
    except (FileNotFoundError, NotADirectoryError):
        return []
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


def _folders(projects: str) -> list[str]:
    try:
        with os.scandir(projects) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def all_sources(projects: str, changed_since: float = 0.0) -> Iterator[Source]:
    """Every session's files under a client's folder of projects, changed at or after a time (seconds since 1970).

    A subagent's file is taken together with its session's.
    """
    for folder in _folders(projects):
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.name.endswith(_SUFFIX):
                    if changed_since == 0.0 and entry.is_dir():
                        yield from _orphans(entry.path, folder)
                    continue
                if entry.is_file() and entry.stat().st_mtime >= changed_since:
                    yield from sources_of(entry.name[: -len(_SUFFIX)], entry.path)


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
