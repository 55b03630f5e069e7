"""Coverage: every transcript on disk held against its receipts and against the turns that are stored.

Nothing is taken on trust: the bytes of each receipt's range are read and hashed again, and what they say is compared
with what the database has, turn by turn.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from agentmem import capture, sweep, transcript
from agentmem.claude_code import read_record
from agentmem.clock import span
from agentmem.errors import TranscriptError
from agentmem.jsonio import text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg.rows import DictRow

    from agentmem.db import Connection
    from agentmem.jsonio import Object
    from agentmem.paths import Paths
    from agentmem.reading import Reading
    from agentmem.settings import Settings
    from agentmem.sources import Source

CLEANUP_DAYS = 30
"""After so many days without a change Claude Code deletes a transcript, unless its settings say otherwise."""
_CHUNK = 1 << 20
# Files' times and this machine's clock may differ a little.
_MARGIN_SECONDS = 5.0


class Problem(NamedTuple):
    """One thing that is not as it should be. `level`: waits (normal), history, or fail."""

    path: str
    session: str
    code: str
    detail: str
    level: str
    mendable: bool

    def __str__(self) -> str:
        return f"{self.session}: {self.detail} ({self.path}) [{self.code}]"


class Coverage:
    """What a look at all transcripts found."""

    def __init__(self) -> None:
        self.files = 0
        self.bytes_on_disk = 0
        self.bytes_captured = 0
        self.cleaned_up = 0
        self.problems: list[Problem] = []

    def failures(self) -> list[Problem]:
        """The problems that mean that something is lost or wrong."""
        return [problem for problem in self.problems if problem.level == "fail"]


class Times(NamedTuple):
    """What decides whether something uncaptured is normal: seconds since 1970."""

    installed: float
    swept: float


def times_of(paths: Paths, projects: str) -> Times:
    """When agentmem was set up here, and when this folder was swept last."""
    try:
        installed = os.stat(os.path.join(paths.state, "host_id")).st_mtime
    except FileNotFoundError:
        installed = time.time()
    return Times(installed, sweep.marker_time(paths, projects))


def check_all(
    connection: Connection,
    settings: Settings,
    sources: list[Source],
    times: Times,
    *,
    deep: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Coverage:
    """Check these files; `deep` reads them again, else only sizes are compared. `progress` gets bytes."""
    found = Coverage()
    for source in sources:
        try:
            size = os.stat(source.path).st_size
        except FileNotFoundError:
            continue
        found.files += 1
        found.bytes_on_disk += size
        row = _transcript(connection, settings, source)
        if row is not None:
            found.bytes_captured += min(int(row["committed"]), size)
        found.problems.extend(check_file(connection, source, row, times, deep=deep))
        if progress:
            progress(size)
    return found


def check_file(
    connection: Connection, source: Source, row: DictRow | None, times: Times, *, deep: bool
) -> list[Problem]:
    """What is wrong with one file, given its row of agentmem.transcripts."""
    try:
        descriptor = transcript.open_transcript(source.path)
    except TranscriptError as error:
        return [Problem(source.path, source.session, error.code, error.message, "fail", mendable=False)]
    try:
        if row is None:
            return _never_captured(source, descriptor, times)
        position = transcript.Position(
            {key: row[key] for key in ("committed", "generation", "mark_length", "mark_sha256")}
        )
        if transcript.is_rewritten(descriptor, position):
            detail = f"the file is not what was captured up to byte {position.committed}"
            return [Problem(source.path, source.session, "file_rewritten", detail, "fail", mendable=True)]
        problems = _tail(source, descriptor, position.committed, times)
        if deep:
            problems += _ranges(connection, source, descriptor, row)
            problems += _turns(connection, source, descriptor, position.committed, row)
        return problems
    finally:
        os.close(descriptor)


def _transcript(connection: Connection, settings: Settings, source: Source) -> DictRow | None:
    return connection.execute(
        "select * from agentmem.transcripts where host_id = %s and path = %s",
        (settings.host_id, capture.clean_path(source.path)),
    ).fetchone()


def _has_line(descriptor: int, start: int) -> bool:
    """Whether a complete line begins at this byte."""
    at = start
    while raw := os.pread(descriptor, _CHUNK, at):
        if b"\n" in raw:
            return True
        at += len(raw)
    # Without its line end, the last line counts when it is whole.
    return at > start and transcript.read_slice(descriptor, start, _ignore) is not None


def _ignore(record: Object, position: int, reading: Reading) -> None:
    del record, position, reading


def _never_captured(source: Source, descriptor: int, times: Times) -> list[Problem]:
    if not _has_line(descriptor, 0):
        return []
    changed = os.fstat(descriptor).st_mtime
    if changed < times.installed - _MARGIN_SECONDS:
        detail = "from before agentmem was set up, and never captured"
        return [Problem(source.path, source.session, "never_captured", detail, "history", mendable=True)]
    return [_waits_or_lost(source, changed, times, "never_captured", "never captured")]


def _tail(source: Source, descriptor: int, committed: int, times: Times) -> list[Problem]:
    if not _has_line(descriptor, committed):
        return []
    found = os.fstat(descriptor)
    detail = f"{found.st_size - committed} bytes from byte {committed} on are not captured"
    return [_waits_or_lost(source, found.st_mtime, times, "tail", detail)]


def _waits_or_lost(source: Source, changed: float, times: Times, code: str, detail: str) -> Problem:
    """Normal until the next session start, which sweeps; a failure when a sweep has passed it by."""
    if changed >= times.swept - _MARGIN_SECONDS:
        return Problem(source.path, source.session, code, detail + " yet", "waits", mendable=True)
    ago = span(time.time() - changed)
    return Problem(source.path, source.session, code, f"{detail}, though it is {ago} old", "fail", mendable=True)


def _ranges(connection: Connection, source: Source, descriptor: int, row: DictRow) -> list[Problem]:
    """Bytes, lines and hash of each receipt, read from the file again."""
    problems: list[Problem] = []
    expected = 0
    receipts = connection.execute(
        "select start_offset, end_offset, lines, sha256 from agentmem.receipts"
        " where transcript_id = %s and generation = %s order by start_offset",
        (row["id"], row["generation"]),
    )
    for receipt in receipts:
        start, end = int(receipt["start_offset"]), int(receipt["end_offset"])
        if start != expected:
            problems.append(_gap(source, expected, start))
        expected = end
        lines, digest = _read_range(descriptor, start, end)
        if digest != receipt["sha256"] or lines != receipt["lines"]:
            detail = f"bytes {start} to {end} have {lines} lines and SHA-256 {digest[:12]}, the receipt says "
            detail += f"{receipt['lines']} and {receipt['sha256'][:12]}"
            problems.append(Problem(source.path, source.session, "receipt_mismatch", detail, "fail", mendable=True))
    if expected != row["committed"]:
        problems.append(_gap(source, expected, int(row["committed"])))
    return problems


def _gap(source: Source, start: int, end: int) -> Problem:
    detail = f"bytes {start} to {end} have no receipt"
    return Problem(source.path, source.session, "receipt_missing", detail, "fail", mendable=True)


def _read_range(descriptor: int, start: int, end: int) -> tuple[int, str]:
    """Lines that are not blank, and SHA-256."""
    digest = hashlib.sha256()
    lines = 0
    filled = False
    while start < end:
        raw = os.pread(descriptor, min(_CHUNK, end - start), start)
        if not raw:
            break
        digest.update(raw)
        start += len(raw)
        *whole, rest = raw.split(b"\n")
        for line in whole:
            lines += filled or bool(line.strip())
            filled = False
        filled = filled or bool(rest.strip())
    return lines + filled, digest.hexdigest()


def _turns(connection: Connection, source: Source, descriptor: int, committed: int, row: DictRow) -> list[Problem]:
    """What the file says, against the turns that are stored, one by one."""
    expected = _expected_turns(source, descriptor, committed)
    problems: list[Problem] = []
    for session, turns in expected.items():
        stored = {
            str(found["uuid"]): found
            for found in connection.execute(
                "select t.uuid, t.position, t.role, t.kind, t.text, t.tools from agentmem.turns t"
                " join agentmem.sessions s on s.id = t.session_id"
                " where s.client = 'claude-code' and s.key = %s",
                (session,),
            )
        }
        for uuid, turn in turns.items():
            found = stored.get(uuid)
            if found is None:
                detail = f"turn {uuid} at byte {turn['position']} is not stored"
                problems.append(Problem(source.path, session, "turn_missing", detail, "fail", mendable=True))
            elif any(found[key] != turn[key] for key in ("role", "kind", "text", "tools")):
                detail = f"turn {uuid} at byte {turn['position']} differs from the file"
                problems.append(Problem(source.path, session, "turn_changed", detail, "fail", mendable=True))
    del row
    return problems


def _expected_turns(source: Source, descriptor: int, committed: int) -> dict[str, dict[str, Object]]:
    """Session -> id -> turn, as the committed part of the file says; of a repeated id the last content counts."""
    agent_file = bool(source.parent)

    def read(record: Object, place: int, reading: Reading) -> None:
        read_record(record, place, source.session, reading, agent_file=agent_file)

    found: dict[str, dict[str, Object]] = {}
    start = 0
    while start < committed and (piece := transcript.read_slice(descriptor, start, read)):
        for turn in piece.reading.turns:
            if int(str(turn["position"])) >= committed:
                continue
            agent = text_of(turn, "agent")
            session = f"{source.session}/{agent}" if agent else source.session
            found.setdefault(session, {})[text_of(turn, "uuid")] = turn
        start = piece.end
    return found


def check_gone(connection: Connection, settings: Settings, cleanup_days: float, found: Coverage) -> None:
    """Transcripts of this machine that are no longer on disk. Old ones were cleaned up by the client itself."""
    rows = connection.execute(
        "select t.path, s.key, extract(epoch from now() - t.last_read)::float8 as age, t.accepted_gone_at"
        " from agentmem.transcripts t join agentmem.sessions s on s.id = t.session_id where t.host_id = %s",
        (settings.host_id,),
    )
    for row in rows:
        if os.path.lexists(row["path"]) or "\ufffd" in row["path"]:
            continue
        if row["accepted_gone_at"] is not None or row["age"] > cleanup_days * 86400:
            found.cleaned_up += 1
            continue
        detail = f"the transcript is gone, last read {span(row['age'])} ago; what was captured is still stored"
        found.problems.append(Problem(row["path"], row["key"], "file_gone", detail, "fail", mendable=False))


def accept_gone(connection: Connection, settings: Settings) -> int:
    """Accept that the transcripts that are missing now are gone; how many."""
    rows = connection.execute(
        "select id, path from agentmem.transcripts where host_id = %s and accepted_gone_at is null", (settings.host_id,)
    ).fetchall()
    gone = [row["id"] for row in rows if not os.path.lexists(row["path"])]
    connection.execute("update agentmem.transcripts set accepted_gone_at = now() where id = any(%s)", (gone,))
    return len(gone)
