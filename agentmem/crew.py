"""Reading many transcripts at once: some processes, each with connections of its own, that check or capture sessions.

Reading a transcript keeps one processor busy, so one process alone would take twice as long as two. What is asked of
a process comes back as plain values; when it is little, no process is started and the same is done here.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from agentmem import capture, coverage, db, store, sweep
from agentmem.errors import LOST, AgentmemError, DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.sharedctypes import Synchronized

    from agentmem.coverage import Problem, Times
    from agentmem.paths import Paths
    from agentmem.settings import Settings
    from agentmem.sources import Source

_T = TypeVar("_T")

CLIENT = "claude-code"
_LITTLE = 24 << 20
"""Bytes for which starting processes doesn't pay."""
_MOST_PROCESSES = 4
_CONNECT_SECONDS = 15.0
_SESSION_SECONDS = 900.0
_TRIES = 5
_POLL_SECONDS = 0.15


class Job(NamedTuple):
    """One session's files that need work."""

    session: str
    sources: list[Source]
    size: int
    """Bytes to read, about."""
    why: str
    """Codes of what is wrong: see agentmem.coverage."""
    again: list[str]
    """Those of its files that are read again from their start."""
    changed: float
    """When the first of its files was changed last, seconds since 1970."""


class Outcome(NamedTuple):
    """What was done for one job. error: "" when it was done, else message, code and hint in one."""

    job: Job
    bytes_read: int = 0
    turns: int = 0
    damaged: int = 0
    unknown: tuple[tuple[str, int], ...] = ()
    error: str = ""
    is_lost: bool = False
    """Whether the database is out of reach: then there is no sense in going on."""


class Worker:
    """What one process does; `note` is called with each further count of bytes."""

    def __init__(self, paths: Paths, settings: Settings, note: Callable[[int], None]) -> None:
        self._paths = paths
        self._settings = settings
        self._note = note
        self._fast: store.Connection | None = None
        self._slow: db.Connection | None = None

    def close(self) -> None:
        """Close the connections."""
        for connection in (self._fast, self._slow):
            if connection:
                connection.close()
        self._fast = self._slow = None

    def check(self, sources: list[Source], times: Times, deep: bool) -> list[Problem]:
        """What is wrong with these files: see agentmem.coverage."""
        if self._slow is None:
            self._slow = db.connect(db.params_for(self._paths, self._settings))
        with db.errors_as_ours():
            return coverage.check_all(
                self._slow, self._settings, sources, times, deep=deep, progress=self._note
            ).problems

    def capture(self, jobs: list[Job]) -> list[Outcome]:
        """Do these jobs in this order; one that can't be done does not hold up the next."""
        outcomes: list[Outcome] = []
        for job in jobs:
            try:
                outcomes.append(self._capture(job))
            except AgentmemError as error:
                text = f"{error} - {error.hint}" if error.hint else str(error)
                outcomes.append(Outcome(job, error=text, is_lost=error.code in LOST))
                if error.code in LOST:
                    self.close()
                    break
        return outcomes

    def _capture(self, job: Job) -> Outcome:
        if self._fast is None:
            self._fast = store.connect(self._paths, self._settings, time.monotonic() + _CONNECT_SECONDS)
        deadline = time.monotonic() + _SESSION_SECONDS
        about = capture.envelope(self._settings, CLIENT)
        for path in job.again:
            place: list[str | None] = [self._settings.host_id, capture.clean_path(path)]
            self._fast.query("select agentmem.reread($1::uuid, $2)", place, deadline)
        session = sweep.session_from_files(job.session, job.sources)
        tries = 1
        while True:
            try:
                stored = capture.capture(self._fast, about, session, job.sources, None, deadline, progress=self._note)
                break
            except DatabaseError as error:
                # A hook, or another process of this crew, has what this one needs. It does not keep it for long.
                if error.code != "db_locked" or tries == _TRIES:
                    raise
                tries += 1
        error = "; ".join(str(one) for one in stored.errors)
        unknown = tuple(sorted(stored.unknown.items()))
        return Outcome(job, stored.bytes_read, stored.turns, stored.damaged, unknown, error)


class Crew:
    """The processes, as a context manager. With `size` 0 there are none, and the work is done here."""

    def __init__(self, paths: Paths, settings: Settings, size: int) -> None:
        self._progress: Callable[[int], None] = _ignore
        self._here = Worker(paths, settings, self._note)
        self._pool: ProcessPoolExecutor | None = None
        if size:
            context = multiprocessing.get_context("spawn")
            self._done = context.Value("q", 0)
            self._stop = context.Value("b", 0)
            self._pool = ProcessPoolExecutor(size, context, _start, (paths, settings, self._done, self._stop))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._here.close()
        if self._pool:
            if kind is not None:
                self._stop.value = 1
            self._pool.shutdown(cancel_futures=True)

    def _note(self, further: int) -> None:
        self._progress(further)

    def check(
        self, groups: list[list[Source]], times: Times, progress: Callable[[int], None], *, deep: bool
    ) -> Iterator[list[Problem]]:
        """The problems of each group of files, as they are found; `progress` is called with counts of bytes."""
        self._progress = progress
        if self._pool is None:
            return (self._here.check(group, times, deep) for group in groups)
        return self._collect(self._pool, [self._pool.submit(_check, group, times, deep) for group in groups])

    def capture(self, families: list[list[Job]], progress: Callable[[int], None]) -> Iterator[list[Outcome]]:
        """The outcomes of each family of jobs, as they are done; a family's are done one after the other."""
        self._progress = progress
        if self._pool is None:
            return (self._here.capture(family) for family in families)
        return self._collect(self._pool, [self._pool.submit(_capture, family) for family in families])

    def _collect(self, pool: ProcessPoolExecutor, futures: list[Future[_T]]) -> Iterator[_T]:
        before = self._done.value
        left = set(futures)
        try:
            while left:
                ready, left = wait(left, _POLL_SECONDS, FIRST_COMPLETED)
                now = self._done.value
                self._progress(now - before)
                before = now
                for future in ready:
                    yield future.result()
        except BrokenProcessPool as error:
            raise AgentmemError(
                "backfill_broken",
                f"a process of the backfill was ended from outside: {error}",
                "Is there enough memory? What was captured is stored: run agentmem backfill again.",
            ) from error
        finally:
            if left:
                self._stop.value = 1
                pool.shutdown(cancel_futures=True)


def crew_size(size: int) -> int:
    """How many processes pay for so many bytes."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(processors, _MOST_PROCESSES) if size > _LITTLE and processors > 1 else 0


def _ignore(_further: int) -> None:
    """Nobody looks."""


# In the processes of a crew

_workers: list[Worker] = []
"""The one of this process."""


def _start(paths: Paths, settings: Settings, done: Synchronized[int], stop: Synchronized[int]) -> None:
    def note(further: int) -> None:
        with done.get_lock():
            done.value += further
        if stop.value:
            # Between two commits: nothing is lost, and nobody waits for what this one would still have done.
            sys.exit(1)

    # The person's interrupt reaches every process of the terminal; the first one tells the others to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _workers.append(Worker(paths, settings, note))


def _end_with_parent() -> None:
    """Whatever ends the first process ends this one: its connection would keep the database from going to sleep."""
    parent = multiprocessing.parent_process()
    if parent:
        parent.join()
        os._exit(1)


def _check(sources: list[Source], times: Times, deep: bool) -> list[Problem]:
    return _workers[0].check(sources, times, deep)


def _capture(jobs: list[Job]) -> list[Outcome]:
    return _workers[0].capture(jobs)
