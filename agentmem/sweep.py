"""The sweep at session start: transcripts that no hook announced (killed clients, hooks switched off).

Only files that changed since the last whole sweep are looked at; its time is the time of a marker file, which
the installer makes first. What is older than that is history, for `agentmem backfill`.
"""

from __future__ import annotations

import os
import time

from agentmem import capture, project, transcript
from agentmem.errors import LOST, DatabaseError, TranscriptError, cache_unwritable
from agentmem.hashing import hexdigest
from agentmem.paths import Paths, make_private
from agentmem.sources import Source, all_sources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentmem.jsonio import Object
    from agentmem.settings import Settings
    from agentmem.store import Connection

# Clocks of files and of this machine may differ a little, and a file may grow while it is swept.
_MARGIN_SECONDS = 120.0


def marker_time(paths: Paths, projects: str) -> float:
    """When the last whole sweep of this folder began, seconds since 1970; 0 when there was none."""
    try:
        return os.stat(marker_file(paths, projects)).st_mtime
    except FileNotFoundError:
        return 0.0


def set_marker(paths: Paths, projects: str, now: float) -> None:
    """Note that everything in this folder changed before `now` has been swept (or is left to the backfill)."""
    make_private(paths.cache)
    file = marker_file(paths, projects)
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))
    os.utime(file, (now, now))


def marker_file(paths: Paths, projects: str) -> str:
    """The file whose time is the time of the last whole sweep of a folder of projects."""
    return os.path.join(paths.cache, "swept-" + hexdigest(os.fsencode(os.path.realpath(projects)))[:12])


def sweep(
    connection: Connection,
    paths: Paths,
    settings: Settings,
    client: str,
    projects: str,
    now: float,
    deadline: float,
) -> capture.Stored:
    """Capture what the client's folder `projects` has beyond what is committed; all or the marker stays.

    `now` is in seconds since 1970, `deadline` a value of time.monotonic(). A file that can't be read is reported
    in the result and does not hold up the marker for ever: it is tried again as soon as it changes.
    """
    since = marker_time(paths, projects)
    total = capture.Stored()
    if not projects:
        return total
    changed = list(all_sources(projects, max(0.0, since - _MARGIN_SECONDS), total.errors))
    pending = behind(connection, settings, changed, deadline)
    about = capture.envelope(settings, client)
    # What is in a folder that can't be read now must not be taken for old once it can.
    whole = not total.errors
    for session, sources in by_session(pending).items():
        try:
            stored = capture.capture(connection, about, session_from_files(session, sources), sources, None, deadline)
        except DatabaseError as error:
            if error.code in LOST:
                raise
            # One session that can't be stored must not keep the others out; it is tried again at the next start.
            total.errors.append(error)
            whole = False
            continue
        total.bytes_read += stored.bytes_read
        total.turns += stored.turns
        total.damaged += stored.damaged
        total.errors.extend(stored.errors)
        if time.monotonic() > deadline:
            return total
    if not whole:
        return total
    try:
        set_marker(paths, projects, now)
    except OSError as error:
        total.errors.append(cache_unwritable(marker_file(paths, projects), error))
    return total


def behind(connection: Connection, settings: Settings, sources: list[Source], deadline: float) -> list[Source]:
    """Those of the files that are longer than what is committed of them, or shorter."""
    known = capture.positions(connection, settings.host_id, sources, deadline)
    found: list[Source] = []
    for source in sources:
        position = transcript.Position(known.get(capture.clean_path(source.path)))
        try:
            size = os.stat(source.path).st_size
        except FileNotFoundError:
            continue
        if size != position.committed:
            found.append(source)
    return found


def by_session(sources: list[Source]) -> dict[str, list[Source]]:
    """The files by the session that they belong to; a subagent's to its parent's."""
    sessions: dict[str, list[Source]] = {}
    for source in sources:
        sessions.setdefault(source.parent or source.session, []).append(source)
    return sessions


def session_from_files(session: str, sources: list[Source]) -> Object:
    """What agentmem.ensure_session needs, for a session that no hook told of: its first folder says its project."""
    for source in sources:
        try:
            descriptor = transcript.open_transcript(source.path)
        except TranscriptError:
            # The capture reports it.
            continue
        try:
            cwd = transcript.first_cwd(descriptor)
        finally:
            os.close(descriptor)
        if cwd:
            return {"key": session, "cwd": cwd, "project": project.find_project(cwd).as_object()}
    return {"key": session}
