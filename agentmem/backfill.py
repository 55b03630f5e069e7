"""Backfill: capture every transcript that is on disk, and read again those whose stored turns or receipts are damaged.

What is to be done is decided first, by looking at everything; then it is done, oldest first and a fork after its
original, so that copied lines are told from the first ones. Done twice, the second time changes nothing.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from agentmem import capture, coverage, sweep, transcript
from agentmem.coverage import Problem
from agentmem.crew import Crew, Job, Outcome, crew_size
from agentmem.errors import AgentmemError, TranscriptError
from agentmem.sources import all_sources

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg.rows import DictRow

    from agentmem.db import Connection
    from agentmem.paths import Paths
    from agentmem.settings import Settings
    from agentmem.sources import Source

    Progress = Callable[[int], None]

_HEAD_BYTES = 256 << 10
_NORMAL = ("never_captured", "tail", "file_rewritten")
"""What a capture mends by itself; any other damage needs reading from the start."""

_OTHER_SESSION = re.compile(rb'"(?:sessionId|requestSessionId)":\s?"([\w-]{8,64})"')


class Wanted(NamedTuple):
    """Which transcripts are looked at; empty values leave none out."""

    projects: str
    session: str = ""
    """The beginning of a session's key."""
    after: float = 0.0
    """Only files that were changed since, seconds since 1970."""
    quick: bool = False
    """Compare sizes only; don't read what is captured again."""

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left out."""
        return not self.session and not self.after


class Plan(NamedTuple):
    """What there is to do, and what can't be done."""

    sources: list[Source]
    size: int
    """Bytes of all these files."""
    jobs: list[Job]
    hopeless: list[str]
    """What is wrong and can't be mended by reading again."""


def find_sources(wanted: Wanted, errors: list[AgentmemError]) -> list[Source]:
    """The files that are looked at; folders that can't be read go into `errors`."""
    found = [
        source
        for source in all_sources(wanted.projects, wanted.after, errors)
        if source.session.startswith(wanted.session) or source.parent.startswith(wanted.session)
    ]
    found.sort(key=lambda source: _changed(source.path))
    return found


def _changed(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0


def size_of(path: str) -> int:
    """Bytes of a file; 0 when it is gone."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def plan(
    connection: Connection, paths: Paths, settings: Settings, wanted: Wanted, progress: Progress | None = None
) -> Plan:
    """Look at every file and at what is stored of it. Nothing is written."""
    errors: list[AgentmemError] = []
    sources = find_sources(wanted, errors)
    known = _committed(connection, settings)
    problems = _check(paths, settings, wanted, sources, known, progress)
    unsound, hopeless = _unsound(connection, settings, sources, complete=wanted.is_everything)
    hopeless += [str(problem) for problem in problems if not problem.mendable] + [str(error) for error in errors]
    jobs = _jobs(sources, known, [problem for problem in problems if problem.mendable] + unsound)
    return Plan(sources, sum(size_of(source.path) for source in sources), jobs, hopeless)


def _committed(connection: Connection, settings: Settings) -> dict[str, int]:
    """How far each file of this machine is captured, in bytes."""
    rows = connection.execute(
        "select path, committed from agentmem.transcripts where host_id = %s", (settings.host_id,)
    )
    return {row["path"]: row["committed"] for row in rows}


def _check(
    paths: Paths,
    settings: Settings,
    wanted: Wanted,
    sources: list[Source],
    known: dict[str, int],
    progress: Progress | None,
) -> list[Problem]:
    """What is wrong with each file; those that are captured are read again, unless it has to be quick."""
    times = coverage.times_of(paths, wanted.projects)
    size = 0 if wanted.quick else sum(known.get(capture.clean_path(source.path), 0) for source in sources)
    with Crew(paths, settings, crew_size(size)) as crew:
        groups = [[source] for source in sources]
        found = crew.check(groups, times, progress or _unseen, deep=not wanted.quick)
        return [problem for problems in found for problem in problems]


def _unseen(_further: int) -> None:
    """Nobody looks at the progress."""


def _unsound(
    connection: Connection, settings: Settings, sources: list[Source], *, complete: bool
) -> tuple[list[Problem], list[str]]:
    """What agentmem.verify finds: problems of these files, and those that no file can mend."""
    rows = connection.execute(
        """
        select v.session_key, v.problem, v.detail, f.path, r.generation < f.generation as is_old
        from agentmem.verify() v
        join agentmem.sessions s on s.id = v.session_id and (s.host_id = %(host)s or s.host_id is null)
        left join agentmem.receipts r on r.id = v.receipt_id
        left join agentmem.transcripts f on f.id = r.transcript_id and f.host_id = %(host)s
        """,
        {"host": settings.host_id},
    )
    by_path = {capture.clean_path(source.path): source for source in sources}
    by_session = {source.session: source for source in sources}
    problems: list[Problem] = []
    hopeless: list[str] = []
    for row in rows:
        source = by_path.get(row["path"] or "") or by_session.get(row["session_key"])
        source = source or by_session.get(row["session_key"].split("/")[0])
        detail = f"{row['detail']} [{row['problem']}]"
        if source is not None:
            problems.append(Problem(source.path, source.session, row["problem"], row["detail"], "fail", mendable=True))
            if row["is_old"]:
                hopeless.append(f"{row['session_key']}: {detail}: it was in an earlier version of the file")
        elif complete:
            hopeless.append(f"{row['session_key']}: {detail}: its file is gone")
    return problems, hopeless


def _jobs(sources: list[Source], known: dict[str, int], problems: list[Problem]) -> list[Job]:
    """The work on each session that has any, in the order of its files' times."""
    codes: dict[str, set[str]] = {}
    for problem in problems:
        codes.setdefault(problem.path, set()).add(problem.code)
    jobs: list[Job] = []
    for session, files in sweep.by_session(sources).items():
        # A session's own file before those of its subagents.
        concerned = sorted((source for source in files if source.path in codes), key=lambda source: source.parent)
        if not concerned:
            continue
        again = [source.path for source in concerned if codes[source.path] - set(_NORMAL)]
        size = sum(_left_to_read(source, known, codes[source.path]) for source in concerned)
        why = ", ".join(sorted(set[str]().union(*(codes[source.path] for source in concerned))))
        jobs.append(Job(session, concerned, size, why, again, min(_changed(source.path) for source in files)))
    return sorted(jobs, key=lambda job: job.changed)


def _left_to_read(source: Source, known: dict[str, int], codes: set[str]) -> int:
    start = known.get(capture.clean_path(source.path), 0) if codes == {"tail"} else 0
    return max(0, size_of(source.path) - start)


def families(jobs: list[Job]) -> list[list[Job]]:
    """The jobs, grouped so that a fork comes after the session that it was copied from; oldest first.

    A file's own time doesn't tell: an original that was gone on with is younger than its fork.
    """
    known = {job.session: job for job in jobs}
    family_of: dict[str, list[Job]] = {}

    def place(job: Job) -> None:
        if job.session in family_of:
            return
        family: list[Job] = []
        family_of[job.session] = family
        for other in sorted(_named_in(job) & set(known)):
            place(known[other])
            older = family_of[other]
            if older is not family:
                older.extend(family)
                family_of.update(dict.fromkeys((member.session for member in family), older))
                family_of[job.session] = family = older
        family.append(job)

    for job in jobs:
        place(job)
    found: dict[int, list[Job]] = {}
    for job in jobs:
        found.setdefault(id(family_of[job.session]), family_of[job.session])
    return list(found.values())


def _named_in(job: Job) -> set[str]:
    """Keys of other sessions in the lines that a session's file begins with: those that it was copied from."""
    named: set[str] = set()
    for source in job.sources:
        if source.parent:
            continue
        try:
            descriptor = transcript.open_transcript(source.path)
        except TranscriptError:
            # The capture reports it.
            continue
        try:
            head = os.pread(descriptor, _HEAD_BYTES, 0)
        finally:
            os.close(descriptor)
        named.update(match.decode() for match in _OTHER_SESSION.findall(head))
    named.discard(job.session)
    return named


def run(
    paths: Paths,
    settings: Settings,
    jobs: list[Job],
    progress: Progress | None = None,
    tell: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Do the jobs; `tell` is called with each outcome. Stops when the database is out of reach."""
    outcomes: list[Outcome] = []
    with Crew(paths, settings, crew_size(sum(job.size for job in jobs))) as crew:
        for some in crew.capture(families(jobs), progress or _unseen):
            outcomes.extend(some)
            for outcome in some:
                if tell:
                    tell(outcome)
            if any(outcome.is_lost for outcome in some):
                break
    return outcomes


class Kept(NamedTuple):
    """What is left to be said of sessions that were read again."""

    turns: list[DictRow]
    """Sessions with turns that no line of their files stands for any more (key, turns); they are kept."""
    unsound: list[str]
    """What is still not right."""


def look_again(connection: Connection, jobs: list[Job]) -> Kept:
    """Whether what was read again is right now, and what it holds beyond the files."""
    keys = [job.session for job in jobs if job.again or "file_rewritten" in job.why]
    turns = connection.execute(
        """
        select s.key, count(*) as turns
        from agentmem.sessions s
        left join agentmem.sessions p on p.id = s.parent_id
        join agentmem.turns t on t.session_id = s.id
        left join agentmem.receipts r on r.id = t.receipt_id
        left join agentmem.transcripts f on f.id = r.transcript_id
        where coalesce(p.key, s.key) = any(%s) and (r.id is null or r.generation < f.generation)
        group by s.key order by s.key
        """,
        (keys,),
    ).fetchall()
    unsound: list[str] = []
    for job in jobs:
        if job.again:
            rows = connection.execute(
                """
                select s.key, v.problem, v.detail from agentmem.sessions s
                left join agentmem.sessions p on p.id = s.parent_id, agentmem.verify(s.id) v
                where coalesce(p.key, s.key) = %s
                """,
                (job.session,),
            )
            unsound += [f"{row['key']}: {row['detail']} [{row['problem']}]" for row in rows]
    return Kept(turns, unsound)
