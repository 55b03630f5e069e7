"""Where Codex keeps its threads on disk, and which of its files hold a session or a subagent's part of one.

CODEX_HOME/sessions/YYYY/MM/DD/rollout-TIME-THREAD.jsonl, one file a thread, dated by the machine's own clock;
subagents are threads of their own beside it. An archived thread's file lies in CODEX_HOME/archived_sessions. Old
files may be compressed (.jsonl.zst): they are found by name, not read.
"""

from __future__ import annotations

import os

from agentmem import jsonio
from agentmem.codex import parentage
from agentmem.errors import TranscriptError
from agentmem.sources import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentmem.errors import AgentmemError
    from agentmem.jsonio import Object

COMPRESSED = ".jsonl.zst"
_SUFFIX = ".jsonl"
_PREFIX = "rollout-"
_SESSIONS = "sessions"
_ARCHIVE = "archived_sessions"
_DASHES = (8, 13, 18, 23)
_ID_LENGTH = 36
_HEAD_BYTES = 4 << 20
_DAY_SECONDS = 86_400.0


def thread_of(path: str) -> str:
    """The thread whose rollout this file is, by its name; "" when it has not the name of one."""
    name = os.path.basename(path.replace("\\", "/"))
    stem = name.removesuffix(COMPRESSED).removesuffix(_SUFFIX)
    if stem == name or not stem.startswith(_PREFIX):
        return ""
    thread = stem[-_ID_LENGTH:]
    return thread if _is_id(thread) else ""


def _is_id(text: str) -> bool:
    if len(text) != _ID_LENGTH or any(text[place] != "-" for place in _DASHES):
        return False
    digits = text.replace("-", "")
    return len(digits) == _ID_LENGTH - len(_DASHES) and digits.strip("0123456789abcdefABCDEF") == ""


def codex_home_of(transcript_path: str) -> str:
    """The CODEX_HOME that a rollout lies in, as its path tells; "" when it doesn't."""
    folder = os.path.dirname(transcript_path)
    if os.path.basename(folder) == _ARCHIVE:
        return os.path.dirname(folder)
    sessions = os.path.dirname(os.path.dirname(os.path.dirname(folder)))
    return os.path.dirname(sessions) if os.path.basename(sessions) == _SESSIONS else ""


def find_rollout(codex_home: str, thread: str) -> str:
    """The file of a thread, archived or not; "" when there is none. A compressed one only when there is no other."""
    if not _is_id(thread):
        return ""
    compressed = ""
    for folder in _likely_folders(codex_home, thread):
        for name in _names(folder, []):
            if thread not in name or thread_of(name) != thread:
                continue
            path = os.path.join(folder, name)
            if not name.endswith(COMPRESSED):
                return path
            compressed = compressed or path
    return compressed


def _likely_folders(codex_home: str, thread: str) -> Iterator[str]:
    """Every folder that may hold the thread, the likeliest first: its id begins with the time that it was made."""
    sessions = os.path.join(codex_home, _SESSIONS)
    likely: list[str] = []
    if thread[14] == "7":
        made = int(thread[:8] + thread[9:13], 16) / 1000
        likely = [os.path.join(sessions, *_date(made + days * _DAY_SECONDS)) for days in (0, 1, -1)]
    yield from likely
    yield os.path.join(codex_home, _ARCHIVE)
    for folder in _days(sessions, []):
        if folder not in likely:
            yield folder


def _date(seconds: float) -> tuple[str, str, str]:
    """Year, month and day in UTC, without the `time` of the zone: days around it are looked at, too."""
    days = int(seconds // _DAY_SECONDS) + 719_468
    era = days // 146_097
    of_era = days - era * 146_097
    years = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * years + years // 4 - years // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month += 3 if month < 10 else -9
    year = years + era * 400 + (month <= 2)
    return f"{year:04}", f"{month:02}", f"{day:02}"


def _days(sessions: str, errors: list[AgentmemError] | None) -> Iterator[str]:
    """The folders of all days, the newest first."""
    for year in reversed(_names(sessions, errors)):
        for month in reversed(_names(os.path.join(sessions, year), errors)):
            for day in reversed(_names(os.path.join(sessions, year, month), errors)):
                yield os.path.join(sessions, year, month, day)


def _names(folder: str, errors: list[AgentmemError] | None) -> list[str]:
    """What is in a folder, nothing when there is no such folder; one that may not be read goes into `errors`."""
    try:
        return sorted(os.listdir(folder))
    except PermissionError:
        error = TranscriptError(
            "transcript_unreadable", f"the folder {folder} can't be read: permission denied", "Mend its owner or mode."
        )
    except OSError:
        # Not there, or no folder: nothing is in it.
        return []
    if errors is None:
        raise error
    errors.append(error)
    return []


def all_sources(
    codex_home: str, changed_since: float = 0.0, errors: list[AgentmemError] | None = None
) -> Iterator[Source]:
    """Every rollout changed at or after a time (seconds since 1970), the newest days first; the archive last.

    A subagent's file tells its parent. A folder that may not be read is left out and noted in `errors`; without
    that it is a TranscriptError.
    """
    for folder in (*_days(os.path.join(codex_home, _SESSIONS), errors), os.path.join(codex_home, _ARCHIVE)):
        for name in _names(folder, errors):
            path = os.path.join(folder, name)
            if name.endswith(_SUFFIX) and thread_of(name) and _changed(path) >= changed_since:
                yield source_of(path)


def compressed_rollouts(codex_home: str) -> list[str]:
    """The rollouts that are there only in compressed form, which no capture reads."""
    found: list[str] = []
    for folder in (*_days(os.path.join(codex_home, _SESSIONS), []), os.path.join(codex_home, _ARCHIVE)):
        names = set(_names(folder, []))
        found.extend(
            os.path.join(folder, name)
            for name in sorted(names)
            if name.endswith(COMPRESSED) and thread_of(name) and name.removesuffix(".zst") not in names
        )
    return found


def sources_of(session: str, transcript_path: str) -> list[Source]:
    """The file of one thread, as the client names it or, when it was moved, where it is now; none when it is gone."""
    path = transcript_path
    if not os.path.isfile(path):
        path = find_rollout(codex_home_of(transcript_path), session) or path
    return [source_of(path, session)] if path and os.path.lexists(path) else []


def source_of(path: str, session: str = "") -> Source:
    """A rollout with the thread that it holds and, of a subagent, who started it: its first line says so."""
    meta = head_of(path)
    thread = session or thread_of(path) or jsonio.text_of(meta, "id")
    parent, agent_type = parentage(meta)
    if parent == thread:
        parent, agent_type = "", ""
    return Source(path, thread, parent, agent_type)


def head_of(path: str) -> Object:
    """What the first line of a rollout says of its thread (session_meta); empty when it can't be read."""
    try:
        with open(path, "rb") as stream:
            line = stream.readline(_HEAD_BYTES)
        value = jsonio.loads(line.decode("utf-8-sig", "replace"))
    except (OSError, ValueError):
        # The capture reports a file that can't be read, and counts a line that can't be parsed.
        return {}
    if not isinstance(value, dict):
        return {}
    meta = value.get("payload")
    return meta if isinstance(meta, dict) else value


def _changed(path: str) -> float:
    """When a file changed last; before all times when it isn't there (any more), or is no file."""
    try:
        found = os.stat(path)
    except OSError:
        # The client archives, compresses and deletes.
        return -1.0
    return found.st_mtime if found.st_mode & 0o170000 == 0o100000 else -1.0
