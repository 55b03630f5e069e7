"""Backfill: capture every transcript that is on disk, and read again those whose stored turns or receipts are damaged.

What is to be done is decided first, by looking at everything; then it is done session by session, oldest first, so that
a fork comes after its original. Done twice, the second time does nothing.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from agentmem import capture, coverage, store, sweep

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentmem.db import Connection
    from agentmem.paths import Paths
    from agentmem.settings import Settings
    from agentmem.sources import Source

CLIENT = "claude-code"
_SECONDS_PER_SESSION = 600.0


class Job(NamedTuple):
    """One session's files that need work."""

    session: str
    sources: list[Source]
    size: int
    """Bytes to read, about."""
    why: str
    damaged: list[str]
    """Those of its files that are read again from their start."""


class Outcome(NamedTuple):
    """What was done for one job; `error` is "" when it was done."""

    job: Job
    stored: capture.Stored | None
    error: str


def plan(
    connection: Connection,
    settings: Settings,
    sources: list[Source],
    times: coverage.Times,
    progress: Callable[[int], None] | None = None,
) -> list[Job]:
    """What there is to do, oldest session first. Nothing is written."""
    found = coverage.check_all(connection, settings, sources, times, progress=progress)
    problems: dict[str, list[coverage.Problem]] = {}
    for problem in found.problems:
        if problem.mendable:
            problems.setdefault(problem.path, []).append(problem)
    rows = connection.execute(
        "select f.path from agentmem.verify() v join agentmem.receipts r on r.id = v.receipt_id"
        " join agentmem.transcripts f on f.id = r.transcript_id where f.host_id = %s",
        (settings.host_id,),
    )
    unsound = {row["path"] for row in rows}
    jobs: list[tuple[float, Job]] = []
    for session, files in sweep.by_session(sources).items():
        concerned = [
            source for source in files if source.path in problems or capture.clean_path(source.path) in unsound
        ]
        if not concerned:
            continue
        codes = {problem.code for source in concerned for problem in problems.get(source.path, [])}
        damaged = [source.path for source in concerned if _is_damaged(source, problems, unsound)]
        size = sum(os.stat(source.path).st_size for source in concerned)
        changed = min(os.stat(source.path).st_mtime for source in files)
        why = ", ".join(sorted(codes)) or "turns_missing"
        jobs.append((changed, Job(session, concerned, size, why, damaged)))
    return [job for _, job in sorted(jobs, key=lambda item: item[0])]


def _is_damaged(source: Source, problems: dict[str, list[coverage.Problem]], unsound: set[str]) -> bool:
    normal = ("never_captured", "tail", "file_rewritten")
    return capture.clean_path(source.path) in unsound or any(
        problem.code not in normal for problem in problems.get(source.path, [])
    )


def run(
    paths: Paths, settings: Settings, jobs: list[Job], progress: Callable[[Outcome], None] | None = None
) -> list[Outcome]:
    """Do the jobs one after the other; one that can't be done does not hold up the next."""
    outcomes: list[Outcome] = []
    connection = store.connect(paths, settings, time.monotonic() + 10)
    about = capture.envelope(settings, CLIENT)
    try:
        for job in jobs:
            deadline = time.monotonic() + _SECONDS_PER_SESSION
            for path in job.damaged:
                connection.query(
                    "select agentmem.reread($1::uuid, $2)", [settings.host_id, capture.clean_path(path)], deadline
                )
            session = sweep.session_from_files(job.session, job.sources)
            stored = capture.capture(connection, about, session, job.sources, None, deadline)
            error = str(stored.errors[0]) if stored.errors else ""
            outcomes.append(Outcome(job, stored, error))
            if progress:
                progress(outcomes[-1])
    finally:
        connection.close()
    return outcomes
