"""The idle stop: it happens, never under a connection, and it never goes on for ever when something is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psycopg
import pytest
import servers
from servers import ask, log_of, soon, start, stays_locked, stopped_server, until, wait_until_free

from agentmem import cluster, handshake, idle, locks, postmaster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentmem.cluster import Cluster

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the embedded server needs POSIX for now")

SHORT = 0.3 / 60
"""Minutes; the watch then looks every 50 ms."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Cluster]:
    with stopped_server(tmp_path) as found:
        yield found


def connect(server: Cluster) -> psycopg.Connection:
    return psycopg.connect(**cluster.connect_params(server), autocommit=True)  # pyright: ignore[reportArgumentType]


def test_an_unused_server_stops_and_its_watch_ends(server: Cluster) -> None:
    start(server, idle_minutes=SHORT)
    wait_until_free(server.server_lock)
    wait_until_free(server.idle_lock)
    assert "received smart shutdown request" in log_of(server)
    assert "the server was idle and is stopped" in log_of(server)
    assert start(server), "it was stopped"


def test_never_under_a_connection(server: Cluster) -> None:
    start(server, idle_minutes=SHORT)
    looks = "select sessions from pg_stat_database where datname = 'postgres'"
    with connect(server) as connection:
        # The watch's sessions are the only ones in that database. Twice the idle time, in which this connection stays.
        until(lambda: connection.execute(looks).fetchone() >= (12,))
        assert "shutdown" not in log_of(server)
    wait_until_free(server.server_lock)
    assert "received smart shutdown request" in log_of(server)


def test_short_visits_between_two_looks_count_as_use(server: Cluster) -> None:
    start(server, idle_minutes=1 / 60)
    for _ in range(12):
        assert stays_locked(server.server_lock, 0.2)
        ask(server, "select 1")
    assert "shutdown" not in log_of(server)


def test_somebody_who_comes_while_it_stops_is_served(server: Cluster) -> None:
    """A connection that was opened is never cut; who is refused finds a server again after `ensure_running`."""
    stopped = 0
    for number in range(8):
        start(server, idle_minutes=0.12 / 60)
        # Around the moment at which the watch decides.
        stays_locked(server.server_lock, 0.12 + number * 0.03)
        try:
            connection = connect(server)
        except psycopg.OperationalError:
            stopped += 1
            start(server, idle_minutes=0.12 / 60)
            connection = connect(server)
        with connection:
            assert not locks.wait_for_lock(server.server_lock, soon(0.02))
            assert connection.execute("select 1").fetchone() == (1,)
    assert stopped, "the moment was never met: choose other times"


def test_zero_minutes_mean_never(server: Cluster) -> None:
    start(server, idle_minutes=0)
    assert cluster.status(server).watched is False
    assert not locks.is_locked(server.idle_lock)


def test_it_ends_with_the_server(server: Cluster) -> None:
    start(server, idle_minutes=30)
    until(lambda: cluster.status(server).watched)
    cluster.stop(server, soon())
    wait_until_free(server.idle_lock)
    assert "idle watch" not in log_of(server)


def test_it_gives_up_aloud_when_it_can_not_ask(server: Cluster) -> None:
    start(server, idle_minutes=SHORT)
    os.rename(server.socket_path, f"{server.socket_path}.away")
    until(lambda: locks.is_locked(server.idle_lock))
    wait_until_free(server.idle_lock)
    assert "can't tell whether the server is idle (5 of 5)" in log_of(server)
    assert "given up: the server will not stop by itself" in log_of(server)
    os.rename(f"{server.socket_path}.away", server.socket_path)
    assert handshake.probe(server.socket_path, soon()) == handshake.READY, "the server was left alone"


def test_it_leaves_a_server_alone_that_somebody_is_changing(server: Cluster) -> None:
    start(server)
    holder = locks.try_lock(server.start_lock)
    assert holder is not None
    try:
        # As the launcher starts it, with the same arguments.
        postmaster._start_idle_watch(server, SHORT)
        assert stays_locked(server.server_lock, 1), "three times the idle time"
    finally:
        os.close(holder)
    wait_until_free(server.server_lock)


def test_it_imports_nothing_heavy() -> None:
    heavy = {"agentmem.libpq", "ctypes", "json", "re", "subprocess", "socket", "threading", "typing", "dataclasses"}
    program = f"import sys; sys.path.insert(0, {servers.PACKAGE_PARENT!r}); import agentmem.idle, agentmem.cluster; "
    program += "print(*sys.modules, sep='\\n')"
    listed = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert not heavy & set(listed.stdout.split())


def test_another_watch_does_not_join_in(server: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    os.makedirs(server.root, exist_ok=True)
    holder = locks.try_lock(server.idle_lock)
    assert holder is not None
    monkeypatch.setattr(idle, "TAKE_OVER_SECONDS", 0.01)
    try:
        assert idle.watch(server, 1) == 0
    finally:
        os.close(holder)


def test_it_says_when_the_server_is_out_of_reach(server: Cluster) -> None:
    """With the pid file gone it can't be signalled; that is logged, not ignored."""
    start(server, idle_minutes=SHORT)
    os.rename(server.pid_file, f"{server.pid_file}.away")
    until(lambda: "not a process that can be seen here" in log_of(server))
    os.rename(f"{server.pid_file}.away", server.pid_file)
    wait_until_free(server.server_lock)
