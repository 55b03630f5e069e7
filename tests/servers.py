"""Real embedded servers for tests: a home of its own for each, made once and copied, stopped at the end."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from agentmem import cluster, handshake, initdb, locks, placement
from agentmem.paths import find_paths, site_packages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentmem.cluster import Cluster

PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.abspath(cluster.__file__)))
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "start_worker.py")


class Outcome(NamedTuple):
    """What one worker reported: started, running or an error code; milliseconds; the error's message."""

    what: str
    ms: float
    message: str


@functools.cache
def bin_dir() -> str:
    """The server that tests use: the one that hooks would find, or that of TEST_PG_BIN."""
    found = cluster.find_bin_dir(
        os.environ.get("TEST_PG_BIN", ""), [*site_packages(sys.executable, sys.version_info[:2], sys.prefix), *sys.path]
    )
    assert found, "no Postgres server is installed"
    return found


def server_for(home: str | os.PathLike[str], programs: str = "") -> Cluster:
    """The server of a home folder, running or not."""
    return cluster.cluster_for(find_paths({}, os.fspath(home)), programs or bin_dir())


def soon(seconds: float = 30) -> float:
    """A deadline."""
    return time.monotonic() + seconds


def start(server: Cluster, *, create: bool = False, idle_minutes: float = 0) -> bool:
    """Start it, without an idle stop unless asked for."""
    return cluster.ensure_running(server, soon(), create=create, idle_minutes=idle_minutes)


def ask(server: Cluster, sql: str, database: str = "agentmem") -> list[list[str]]:
    """The rows of a statement, as text."""
    return handshake.query(server.socket_path, database, sql, soon())


def until(condition: Callable[[], object]) -> None:
    """Wait for something that has no event to wait for; the test's own timeout bounds it."""
    while not condition():
        time.sleep(0.001)


def stays_locked(path: str, seconds: float) -> bool:
    """Whether the lock is held all that time; returns at once when it is not."""
    lock = locks.wait_for_lock(path, soon(seconds))
    if lock is not None:
        os.close(lock)
    return lock is None


def wait_until_free(path: str) -> None:
    """Wait for the end of whatever holds the lock."""
    assert not stays_locked(path, 30), path


def log_of(server: Cluster) -> str:
    """All that the server, initdb and the idle watch have written."""
    with open(server.log_file, encoding="utf-8") as stream:
        return stream.read()


@contextmanager
def stopped_server(home: str | os.PathLike[str]) -> Iterator[Cluster]:
    """A server with an empty database, not running; stopped and, when it had to be elsewhere, removed at the end."""
    server = server_for(home)
    if not os.path.isdir(server.data_dir):
        os.makedirs(server.root, mode=0o700, exist_ok=True)
        shutil.copytree(_made_once(), server.data_dir, symlinks=True)
    try:
        yield server
    finally:
        clear(server)


@contextmanager
def running_server(home: str | os.PathLike[str]) -> Iterator[Cluster]:
    """The same, running."""
    with stopped_server(home) as server:
        start(server)
        yield server


def clear(server: Cluster) -> None:
    """Stop it and remove what is not in its home."""
    # Whoever created it may have had to put it elsewhere.
    cluster.look_elsewhere(server)
    cluster.stop(server, soon())
    place = initdb.place_elsewhere(server)
    if os.path.isdir(place):
        shutil.rmtree(place)
    if os.path.dirname(server.socket_dir) == placement.SHORT_PARENT:
        shutil.rmtree(server.socket_dir)


@functools.cache
def _made_once() -> str:
    home = tempfile.mkdtemp(prefix="agentmem-made-")
    server = server_for(home)
    try:
        start(server, create=True)
    finally:
        cluster.stop(server, soon())
    import atexit

    atexit.register(shutil.rmtree, home)
    return server.data_dir


class Workers:
    """Processes that all want the server when `go` is called."""

    def __init__(
        self,
        count: int,
        home: str | os.PathLike[str],
        *,
        create: bool = False,
        idle_minutes: float = 0,
        prefix: tuple[str, ...] = (),
        python: str = sys.executable,
        package_parent: str = PACKAGE_PARENT,
        worker: str = WORKER,
        programs: str = "",
        seconds: float = 30,
        **how: object,
    ) -> None:
        arguments = [package_parent, os.fspath(home), programs or bin_dir(), "1" if create else "0"]
        arguments += [str(idle_minutes), str(seconds)]
        self.processes = [
            subprocess.Popen(
                [*prefix, python, "-I", "-S", worker, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                **how,  # pyright: ignore[reportArgumentType]
            )
            for _ in range(count)
        ]
        for process in self.processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"

    def go(self) -> None:
        """Let them loose."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()

    def outcomes(self) -> list[Outcome]:
        """Let them loose and wait for all."""
        self.go()
        found: list[Outcome] = []
        for process in self.processes:
            assert process.stdout is not None
            # To the end: this would hang if the server had inherited the pipe.
            line = process.stdout.read()
            process.stdout.close()
            assert process.wait() == 0
            what, ms, message = line.split(" ", 2)
            found.append(Outcome(what, float(ms), message.strip()))
        return found

    def kill(self) -> None:
        """kill -9 all of them."""
        for process in self.processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
