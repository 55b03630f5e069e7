"""The embedded Postgres: found, created, started, stopped and asked how it is.

One server a person and home folder, shared by all processes, reached over a Unix socket only. Whoever needs it
and can't connect calls `ensure_running` and connects again. It stops by itself when nobody used it for a while.
"""

from __future__ import annotations

import os
import sys
import time

from agentmem import handshake
from agentmem.errors import ClusterError
from agentmem.placement import PORT, Cluster, cluster_for, find_bin_dir, look_elsewhere

__all__ = [
    "Cluster",
    "Status",
    "cluster_for",
    "connect_params",
    "ensure_running",
    "find_bin_dir",
    "status",
    "stop",
]

_SIGINT = 2
_HOW_IT_IS = """select current_setting('server_version'), count(*)
    from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"""


class Status:
    """What `agentmem db status` shows. state: missing, stopped, running, or unresponsive."""

    __slots__ = ("connections", "data_bytes", "data_dir", "pid", "socket_dir", "state", "version", "watched")

    def __init__(self, cluster: Cluster, state: str) -> None:
        self.state = state
        self.data_dir = cluster.data_dir
        self.socket_dir = cluster.socket_dir
        self.version = ""
        """The server's version; that of the data when it doesn't run."""
        self.pid = 0
        self.connections = 0
        """Other clients that are connected now."""
        self.data_bytes = 0
        self.watched = False
        """Whether there is a process that will stop it when it is idle."""


def connect_params(cluster: Cluster) -> dict[str, str]:
    """libpq's keywords. Ask again after `ensure_running`: a cluster that root creates may have to move."""
    return {"host": cluster.socket_dir, "port": PORT, "user": "agentmem", "dbname": "agentmem"}


def ensure_running(cluster: Cluster, deadline: float, *, create: bool, idle_minutes: float) -> bool:
    """Make sure that the server answers; True when this call had to start it.

    deadline: a time.monotonic() value, never passed by more than a few milliseconds. create: make the database
    when there is none, which takes a second; else ClusterError `cluster_missing`. idle_minutes: stop the server
    after that long without a connection, 0: never; it counts for the server that this call starts.
    ClusterError: cluster_missing, cluster_no_binaries, cluster_create_failed, cluster_create_timeout,
    cluster_start_failed (with the log's end), cluster_start_timeout, cluster_root_refused, cluster_foreign,
    cluster_gone, cluster_other_version, cluster_socket_denied, cluster_system (the system's refusal),
    cluster_unsupported.
    """
    try:
        if sys.platform != "win32" and handshake.probe(cluster.socket_path, deadline) == handshake.READY:
            return False
        from agentmem import postmaster

        return postmaster.bring_up(cluster, deadline, create=create, idle_minutes=idle_minutes)
    except OSError as error:
        raise _forbidden(cluster, error) from error


def stop(cluster: Cluster, deadline: float) -> bool:
    """Stop the server, at once but cleanly (open transactions are rolled back), and wait until it is gone.

    False when it was not running. ClusterError `cluster_stop_timeout` when it isn't gone by `deadline`,
    `cluster_foreign` when it is out of our reach.
    """
    if not os.path.isdir(cluster.root):
        return False
    try:
        return _stop(cluster, deadline)
    except OSError as error:
        raise _forbidden(cluster, error) from error


def _stop(cluster: Cluster, deadline: float) -> bool:
    from agentmem import locks, postmaster

    lock = locks.wait_for_lock(cluster.start_lock, deadline)
    if lock is None:
        raise ClusterError(
            "cluster_stop_timeout",
            "another process has been starting or stopping the server all the time",
            "Try again.",
        )
    try:
        look_elsewhere(cluster)
        asked = 0
        while postmaster.is_alive(cluster):
            # One that is just coming up has no pid file yet; it is asked as soon as there is one.
            asked = asked or postmaster.send_signal(cluster, _SIGINT)
            if time.monotonic() > deadline:
                raise _not_stopped(cluster, asked)
            time.sleep(0.002)
        return asked != 0
    finally:
        os.close(lock)


def _forbidden(cluster: Cluster, error: OSError) -> ClusterError:
    return ClusterError(
        "cluster_system",
        f"the embedded server in {cluster.root} can't be handled: {error}",
        "Check who owns that folder, free space, and what the sandbox allows.",
    )


def _not_stopped(cluster: Cluster, asked: int) -> ClusterError:
    if asked:
        return ClusterError("cluster_stop_timeout", f"the server (process {asked}) has not ended in time", "Try again.")
    return ClusterError(
        "cluster_foreign",
        f"{cluster.data_dir} is in use, but its server is not a process that can be seen here",
        "It runs in another container or sandbox: stop it there.",
    )


def status(cluster: Cluster, deadline: float | None = None) -> Status:
    """How the server is, without starting it. deadline: a time.monotonic() value, by default in two seconds."""
    if not os.path.isdir(cluster.data_dir):
        return Status(cluster, "missing")
    try:
        return _status(cluster, time.monotonic() + 2 if deadline is None else deadline)
    except OSError as error:
        raise _forbidden(cluster, error) from error


def _status(cluster: Cluster, deadline: float) -> Status:
    from agentmem import locks, postmaster

    found = Status(cluster, "stopped")
    found.data_bytes = _size(cluster.data_dir)
    with open(os.path.join(cluster.data_dir, "PG_VERSION"), encoding="ascii") as stream:
        found.version = stream.read().strip()
    if postmaster.is_alive(cluster):
        found.state = "unresponsive"
        found.pid = postmaster.pid_of(cluster)
        found.watched = locks.is_locked(cluster.idle_lock)
        try:
            rows = handshake.query(cluster.socket_path, "postgres", _HOW_IT_IS, deadline)
        except (OSError, EOFError, ClusterError):
            # That it doesn't answer is what the state says.
            return found
        found.state = "running"
        found.version, found.connections = rows[0][0], int(rows[0][1])
    return found


def _size(folder: str) -> int:
    total = 0
    for parent, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except FileNotFoundError:
                # The server removed it in the meantime.
                continue
    return total
