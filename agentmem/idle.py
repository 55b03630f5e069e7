"""Stops the embedded server when nobody used it for a while. A script: `python -I -S idle.py MINUTES PLACES...`.

Started with the server, ends with it, one at a time. It asks rarely and in a few bytes, and holds nothing. The
server is stopped by a smart shutdown, which waits for every connection, so none is ever cut.
"""

from __future__ import annotations

import os
import sys
import time

if __name__ == "__main__":
    # -I and -S leave neither our folder nor site-packages on the path.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from agentmem import handshake, locks, postmaster
from agentmem.errors import ClusterError
from agentmem.placement import Cluster

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _thread

TAKE_OVER_SECONDS = 5.0
"""The watch of a server that was just stopped needs a moment to end."""

_SIGTERM = 15
_MOST_FAILURES = 5
_ANSWER_SECONDS = 10.0
_SHUTDOWN_SECONDS = 30.0
_OTHERS = "select count(*) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
_SESSIONS = "select sessions from pg_stat_database where datname = 'agentmem'"


def watch(cluster: Cluster, idle_seconds: float) -> int:
    """Watch until the server is gone; exit code: 0 it is gone, or another process watches, 1 given up (logged)."""
    import _thread

    lock = locks.wait_for_lock(cluster.idle_lock, time.monotonic() + TAKE_OVER_SECONDS)
    if lock is None:
        return 0
    gone = _thread.allocate_lock()
    gone.acquire()
    locks.when_free(cluster.server_lock, gone.release)
    failures = 0
    used, last = time.monotonic(), ""
    while not gone.acquire(timeout=min(max(idle_seconds / 6, 0.05), 300)):
        try:
            others, sessions = look(cluster)
            failures = 0
            if others or sessions != last:
                used, last = time.monotonic(), sessions
            elif time.monotonic() - used >= idle_seconds and _stop_if_unused(cluster, sessions, gone):
                return 0
        except (OSError, EOFError, ClusterError) as error:
            failures += 1
            log(f"can't tell whether the server is idle ({failures} of {_MOST_FAILURES}): {error}")
            if failures == _MOST_FAILURES:
                log("given up: the server will not stop by itself")
                return 1
    return 0


def look(cluster: Cluster) -> tuple[int, str]:
    """How many clients are connected, and how many sessions there were ever.

    In this order: a client that leaves is counted among the sessions before it leaves the list of the connected.
    We ask from another database, so that our own sessions don't count.
    """
    deadline = time.monotonic() + _ANSWER_SECONDS
    rows = handshake.query(cluster.socket_path, "postgres", f"{_OTHERS}; {_SESSIONS}", deadline)
    return int(rows[0][0]), rows[1][0]


def log(message: str) -> None:
    """Our stderr is the server's log."""
    now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    os.write(2, f"{now} UTC [{os.getpid()}] agentmem idle watch: {message}\n".encode("utf-8", "backslashreplace"))


def _stop_if_unused(cluster: Cluster, sessions: str, gone: _thread.LockType) -> bool:
    """With the start lock held: look once more, then shut down. False when somebody came, or is at the lock."""
    lock = locks.try_lock(cluster.start_lock)
    if lock is None:
        return False
    try:
        if look(cluster) != (0, sessions):
            return False
        if not postmaster.send_signal(cluster, _SIGTERM):
            raise ClusterError("cluster_foreign", "the server is not a process that can be seen here")
        if not gone.acquire(timeout=_SHUTDOWN_SECONDS):
            raise ClusterError("cluster_stop_timeout", "somebody connected at the last moment; it ends after them")
        log("the server was idle and is stopped")
        return True
    finally:
        os.close(lock)


def main(argv: list[str]) -> int:
    """MINUTES ROOT MAJOR SOCKET_DIR BIN_DIR ELSEWHERE, as the launcher gives them."""
    minutes, root, major, socket_dir, bin_dir, elsewhere = argv
    cluster = Cluster(root, int(major), socket_dir, bin_dir)
    if elsewhere:
        cluster.move(elsewhere)
    return watch(cluster, float(minutes) * 60)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # A thread may still wait for the server's lock.
    os._exit(code)
