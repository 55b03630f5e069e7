"""Capture: bring what is new in a session's files into the database, with the row of the hook run.

One transaction a batch: rows, offset, receipt and hook run are committed together or not at all. When another
process was faster, the database answers `stale` and reading starts again from where that one ended.
"""

from __future__ import annotations

import os
import sys
import time

from agentmem import SCHEMA, VERSION, jsonio, transcript
from agentmem.claude_code import read_record
from agentmem.errors import AgentmemError, DatabaseError, TranscriptError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from agentmem.hints import Hints
    from agentmem.jsonio import Json, Object
    from agentmem.reading import Reading
    from agentmem.settings import Settings
    from agentmem.sources import Source
    from agentmem.store import Connection

_MOST_TRIES = 8


class Stored:
    """What a capture did."""

    __slots__ = ("bytes_read", "damaged", "errors", "lines", "turns", "unknown")

    def __init__(self) -> None:
        self.bytes_read = 0
        self.lines = 0
        self.turns = 0
        self.damaged = 0
        """Lines that hold no JSON object, or not only one."""
        self.unknown: dict[str, int] = {}
        """Lines of a type that the parser doesn't know."""
        self.errors: list[AgentmemError] = []
        """What could not be read or, in a sweep, stored."""


def envelope(settings: Settings, client: str) -> Object:
    """What every call of agentmem.capture says of its sender."""
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "client": client,
        "host": {
            "id": settings.host_id,
            "name": jsonio.clean_text(settings.host_name)[0],
            "platform": sys.platform,
        },
    }


def capture(
    connection: Connection,
    about: Object,
    session: Object,
    sources: list[Source],
    run: Object | None,
    deadline: float,
    hints: Hints | None = None,
    progress: Callable[[int], None] | None = None,
) -> Stored:
    """Store what is new in these files, and the run; returns once it is committed.

    `about` is an `envelope`; `session` is as agentmem.note_session takes it (project and key at least). A file
    that can't be read is reported in the result. With `hints` the database is asked for positions only where
    there is no hint, or where one was wrong. `progress` is called with each further count of bytes that are committed.
    DatabaseError: what the database says, capture_unfinished when
    the deadline (time.monotonic()) passed with committed parts, capture_contended.
    """
    host = jsonio.text_of(jsonio.object_of(about, "host"), "id")
    for attempt in range(_MOST_TRIES):
        batch = _Batch(connection, {**about, "session": session}, run, deadline, hints, progress)
        known = _hinted(hints, sources) if hints and attempt == 0 else None
        if known is None:
            known = positions(connection, host, sources, deadline)
        try:
            for source in sources:
                batch.read(source, transcript.Position(known.get(clean_path(source.path))))
            batch.send(final=True)
        except _StaleError:
            continue
        except DatabaseError as error:
            # A deadlock: this transaction was chosen to give way, and nothing of it is stored.
            if error.code != "db_conflict" or time.monotonic() > deadline:
                raise
            continue
        return batch.stored
    raise DatabaseError(
        "capture_contended",
        f"other hooks were faster {_MOST_TRIES} times in a row",
        "It is tried again at the next hook.",
    )


def clean_path(path: str) -> str:
    """A path as the database can take it: names that are not UTF-8 have U+FFFD in them."""
    return jsonio.clean_text(path)[0]


def _hinted(hints: Hints, sources: list[Source]) -> dict[str, Object] | None:
    """The hints for these files; None when one has none."""
    found: dict[str, Object] = {}
    for source in sources:
        hint = hints.get(clean_path(source.path))
        if hint is None:
            return None
        found[clean_path(source.path)] = hint
    return found


def positions(connection: Connection, host: str, sources: list[Source], deadline: float) -> dict[str, Object]:
    """How far each of these files is committed; files that are new are left out."""
    if not sources:
        return {}
    paths: list[Json] = [clean_path(source.path) for source in sources]
    rows = connection.query("select agentmem.positions($1::uuid, $2::jsonb)", [host, jsonio.dumps(paths)], deadline)
    found = jsonio.loads(rows[0][0] or "{}")
    if not isinstance(found, dict):
        return {}
    return {path: position for path, position in found.items() if isinstance(position, dict)}


class _StaleError(Exception):
    """Another process stored the same stretch first."""


class _Batch:
    """Slices on their way to the database."""

    def __init__(
        self,
        connection: Connection,
        event: Object,
        run: Object | None,
        deadline: float,
        hints: Hints | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.stored = Stored()
        self._progress = progress
        self._hints = hints
        self._reached: dict[str, Object] = {}
        self._connection = connection
        self._event = event
        self._run = run
        self._deadline = deadline
        self._slices: list[Json] = []
        self._size = 0

    def read(self, source: Source, position: transcript.Position) -> None:
        """Take everything that is new in one file; what gets too much is sent at once."""
        try:
            descriptor = transcript.open_transcript(source.path)
        except TranscriptError as error:
            self.stored.errors.append(error)
            return
        try:
            restart = transcript.is_rewritten(descriptor, position)
            generation, start = position.generation, 0 if restart else position.committed
            agent_file = bool(source.parent)

            def read(record: Object, place: int, reading: Reading) -> None:
                read_record(record, place, source.session, reading, agent_file=agent_file)

            while piece := transcript.read_slice(descriptor, start, read):
                self._add(source, piece, generation, restart)
                if restart:
                    generation, restart = generation + 1, False
                start = piece.end
                self._reached[clean_path(source.path)] = {
                    "committed": piece.end,
                    "generation": generation,
                    "mark_length": piece.mark_length,
                    "mark_sha256": piece.mark_sha256,
                }
                if self._size >= transcript.SLICE_BYTES:
                    self.send(final=False)
                    self._check_time()
        finally:
            os.close(descriptor)

    def _add(self, source: Source, piece: transcript.Slice, generation: int, restart: bool) -> None:
        reading = piece.reading
        turns, agents = _by_writer(reading.turns)
        self._size += piece.end - piece.start
        self._slices.append(
            {
                "path": clean_path(source.path),
                "session": source.session,
                "parent": source.parent or None,
                "agent_type": source.agent_type or None,
                "start": piece.start,
                "end": piece.end,
                "lines": piece.lines,
                "sha256": piece.sha256,
                "kinds": {**reading.kinds},
                "facts": reading.facts,
                "turns": turns,
                "agents": agents,
                "restart": restart,
                "generation": generation,
                "mark_length": piece.mark_length,
                "mark_sha256": piece.mark_sha256,
            }
        )
        stored = self.stored
        stored.bytes_read += piece.end - piece.start
        stored.lines += piece.lines
        stored.turns += len(reading.turns)
        for kind, count in reading.unknown.items():
            if kind in ("damaged", "glued", "not_object", "too_long"):
                stored.damaged += count
            else:
                stored.unknown[kind] = stored.unknown.get(kind, 0) + count

    def send(self, *, final: bool) -> None:
        """Commit what was gathered; the last time with the hook run."""
        event: Object = {**self._event, "slices": self._slices, "run": self._final_run() if final else None}
        rows = self._connection.query("select agentmem.capture($1::jsonb)", [jsonio.dumps_clean(event)], self._deadline)
        self._slices = []
        size, self._size = self._size, 0
        answer = jsonio.loads(rows[0][0] or "{}")
        if isinstance(answer, dict) and answer.get("stale"):
            raise _StaleError
        if self._hints:
            for path, position in self._reached.items():
                self._hints.put(path, position)
        if self._progress:
            self._progress(size)

    def _final_run(self) -> Object | None:
        """The run with what was read for it and what was odd about that."""
        if self._run is None:
            return None
        stored = self.stored
        run: Object = {**self._run}
        flags: list[Json] = [*jsonio.list_of(run, "flags")]
        if stored.damaged:
            flags.append(f"damaged_lines={stored.damaged}")
        flags.extend(f"unknown_type={kind}" for kind in sorted(stored.unknown)[:8])
        run["flags"] = flags
        run["bytes_read"] = stored.bytes_read
        run["turns"] = stored.turns
        if stored.errors and run.get("outcome") == "ok":
            error = stored.errors[0]
            run.update({"outcome": "failed", "stage": "capture", "error_code": error.code, "error": error.message})
        return run

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise DatabaseError(
                "capture_unfinished",
                f"time was up after {self.stored.bytes_read} bytes; those are stored",
                "The rest is stored at the next hook, or now by: agentmem drain",
            )


def _by_writer(turns: list[Object]) -> tuple[list[Json], Object]:
    """The session's own turns, and those of subagents in its file by name; each id once.

    Of a line that was written twice the first place and the last content count.
    """
    writers: dict[str, dict[str, Object]] = {}
    for turn in turns:
        known = writers.setdefault(jsonio.text_of(turn, "agent"), {})
        uuid = jsonio.text_of(turn, "uuid")
        if uuid in known:
            turn["position"] = known[uuid]["position"]
        known[uuid] = turn
    own: list[Json] = [*writers.pop("", {}).values()]
    return own, {agent: [*theirs.values()] for agent, theirs in writers.items()}
