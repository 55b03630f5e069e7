"""The embedded server under what really happens to it: crowds, kill -9, stale files, odd paths, sandboxes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from glob import glob
from typing import TYPE_CHECKING

import pytest
import servers
from servers import (
    Workers,
    ask,
    log_of,
    running_server,
    server_for,
    soon,
    start,
    stopped_server,
    until,
    wait_until_free,
)

from agentmem import cluster, handshake, locks, placement, postmaster
from agentmem.errors import ClusterError
from agentmem.paths import find_paths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentmem.cluster import Cluster

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the embedded server needs POSIX for now")

LINUX = sys.platform.startswith("linux")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Cluster]:
    with stopped_server(tmp_path) as found:
        yield found


def starts(server: Cluster) -> int:
    return log_of(server).count("LOG:  starting PostgreSQL")


def drafts(server: Cluster) -> list[str]:
    return [name for name in os.listdir(server.root) if "draft" in name]


def kill_9(server: Cluster) -> None:
    os.kill(postmaster.pid_of(server), signal.SIGKILL)


# Crowds


def test_twenty_at_once_create_one_database_and_start_one_server(tmp_path: Path) -> None:
    try:
        outcomes = Workers(20, tmp_path, create=True).outcomes()
        server = server_for(tmp_path)
        assert sorted(outcome.what for outcome in outcomes) == ["running"] * 19 + ["started"]
        assert log_of(server).count("Success. You can now start the database server") == 1
        assert starts(server) == 1
        assert drafts(server) == []
        assert (
            ask(server, "select datcollate, datlocprovider from pg_database where datname = 'agentmem'")[0][1] in "bc"
        )
    finally:
        servers.clear(server_for(tmp_path))


def test_twenty_at_once_start_a_stopped_server_once_and_leave_a_running_one_alone(server: Cluster) -> None:
    home = os.path.dirname(os.path.dirname(server.root))
    assert sorted(outcome.what for outcome in Workers(20, home).outcomes()) == ["running"] * 19 + ["started"]
    assert [outcome.what for outcome in Workers(20, home).outcomes()] == ["running"] * 20
    assert starts(server) == 1


def test_data_outlives_a_killed_server_and_twenty_that_restart_it(server: Cluster, tmp_path: Path) -> None:
    start(server)
    ask(server, "create table kept (at timestamptz default now())")
    for number in range(3):
        ask(server, "insert into kept default values")
        kill_9(server)
        outcomes = Workers(20, tmp_path).outcomes()
        assert sorted(outcome.what for outcome in outcomes) == ["running"] * 19 + ["started"], outcomes
        assert ask(server, "select count(*) from kept") == [[str(number + 1)]]
    assert starts(server) == 4


def test_stop_while_others_start(server: Cluster, tmp_path: Path) -> None:
    start(server)
    for _ in range(4):
        workers = Workers(6, tmp_path)
        workers.go()
        assert cluster.stop(server, soon()) in (True, False)
        for outcome in workers.outcomes():
            # A server may be stopped again between a worker's start and its query; that is no failed start.
            assert outcome.what in ("running", "started", "cluster_refused", "lost"), outcome
    start(server)
    assert ask(server, "select 1") == [["1"]]


# Killed in the middle


@pytest.mark.parametrize("evidence", ["", "PG_VERSION", "base/1", "global/pg_control"])
def test_a_creator_killed_in_the_middle_leaves_nothing_behind(tmp_path: Path, evidence: str) -> None:
    """Killed when this part of the data folder is there already."""
    server = server_for(tmp_path)
    workers = Workers(1, tmp_path, create=True)
    workers.go()
    until(lambda: os.path.isdir(server.data_dir) or glob(os.path.join(server.root, "*.draft.*", evidence)))
    workers.kill()
    assert not os.path.isdir(server.data_dir), "killed too late to show anything"
    try:
        assert Workers(1, tmp_path, create=True).outcomes()[0].what == "started"
        assert drafts(server) == []
        assert ask(server, "select 1") == [["1"]]
    finally:
        servers.clear(server)


@pytest.mark.parametrize("evidence", ["server.log", "pid", "socket"])
def test_a_starter_killed_in_the_middle_does_no_harm(server: Cluster, tmp_path: Path, evidence: str) -> None:
    watched = {"server.log": server.log_file, "pid": server.pid_file, "socket": server.socket_path}[evidence]
    workers = Workers(1, tmp_path)
    workers.go()
    until(lambda: os.path.lexists(watched))
    workers.kill()
    outcomes = Workers(5, tmp_path).outcomes()
    assert {outcome.what for outcome in outcomes} <= {"running", "started"}, outcomes
    assert starts(server) == 1
    assert ask(server, "select 1") == [["1"]]


# What a dead server leaves


def test_a_pid_file_that_names_a_living_stranger_is_stale(server: Cluster) -> None:
    start(server)
    with open(server.pid_file, encoding="utf-8") as stream:
        lines = stream.read().split("\n")
    kill_9(server)
    wait_until_free(server.server_lock)
    # As after a container's restart: the number belongs to somebody else now, here to this test.
    with open(server.pid_file, "w", encoding="utf-8") as stream:
        stream.write("\n".join([str(os.getpid()), *lines[1:]]))
    assert os.path.exists(server.socket_path)
    assert start(server)
    assert postmaster.pid_of(server) != os.getpid()


@pytest.mark.skipif(not LINUX, reason="needs a parent that doesn't reap")
def test_a_zombie_is_no_living_server(server: Cluster, tmp_path: Path) -> None:
    script = """
        import ctypes, os, sys
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # we are the parent of orphans, and never wait for them
        sys.path[:0] = sys.argv[2:]
        import servers
        from agentmem import postmaster
        server = servers.server_for(sys.argv[1])
        servers.start(server)
        pid = postmaster.pid_of(server)
        os.kill(pid, 9)
        state = ""
        while state != "Z":
            with open(f"/proc/{pid}/stat") as stream:
                state = stream.read().rpartition(")")[2].split()[0]
        assert servers.start(server)
        assert postmaster.pid_of(server) != pid
        assert servers.ask(server, "select 1") == [["1"]]
    """
    arguments = [os.fspath(tmp_path), servers.PACKAGE_PARENT, os.path.dirname(servers.__file__)]
    subprocess.run([sys.executable, "-c", textwrap.dedent(script), *arguments], check=True)


def test_a_server_started_by_hand_is_neither_doubled_nor_cleared_away(server: Cluster) -> None:
    """It holds no lock of ours, and while it is stopped (SIGSTOP) it doesn't answer either."""
    start(server)
    pid = postmaster.pid_of(server)
    # Without our lock: as if somebody had used pg_ctl.
    os.rename(server.server_lock, f"{server.server_lock}.away")
    assert not locks.is_locked(server.server_lock)
    os.rename(server.socket_path, f"{server.socket_path}.away")
    if LINUX:
        with pytest.raises(ClusterError, match=f"process {pid}") as caught:
            start(server)
        assert caught.value.code == "cluster_foreign"
    assert os.path.exists(server.pid_file)
    os.rename(f"{server.socket_path}.away", server.socket_path)
    os.rename(f"{server.server_lock}.away", server.server_lock)


def test_a_server_whose_socket_was_removed_is_started_anew(server: Cluster, tmp_path: Path) -> None:
    """By a cleaner of old files, or by somebody who removed the state folder: nobody could ever reach it again."""
    start(server)
    ask(server, "create table kept as select 1")
    shutil.rmtree(os.path.dirname(server.socket_dir))
    outcomes = Workers(5, tmp_path).outcomes()
    assert sorted(outcome.what for outcome in outcomes) == ["running"] * 4 + ["started"], outcomes
    assert ask(server, "select * from kept") == [["1"]]
    assert starts(server) == 2


def test_a_socket_that_only_a_sandbox_does_not_see_is_not_lost(server: Cluster, tmp_path: Path) -> None:
    command = namespace_command("--mount")
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    start(server)
    hide = ("sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', server.socket_dir)
    assert Workers(1, tmp_path, prefix=(*command, *hide), seconds=0.3).outcomes()[0].what == "cluster_start_timeout"
    assert Workers(1, tmp_path).outcomes()[0].what == "running"
    assert starts(server) == 1


# Errors


def test_what_the_system_forbids_is_an_error_of_ours(tmp_path: Path) -> None:
    server = server_for(tmp_path)
    # A file where the folder should be: not even root gets through.
    os.makedirs(os.path.dirname(server.root))
    with open(server.root, "x", encoding="ascii"), pytest.raises(ClusterError) as caught:
        start(server, create=True)
    assert caught.value.code == "cluster_system"


def test_no_database_yet(tmp_path: Path) -> None:
    server = server_for(tmp_path)
    with pytest.raises(ClusterError) as caught:
        start(server)
    assert caught.value.code == "cluster_missing"
    assert cluster.stop(server, soon()) is False
    assert cluster.status(server).state == "missing"
    assert not os.path.exists(server.root), "asking makes nothing"


def test_no_programs(tmp_path: Path) -> None:
    server = cluster.cluster_for(find_paths({}, os.fspath(tmp_path)), "")
    with pytest.raises(ClusterError) as caught:
        start(server, create=True)
    assert caught.value.code == "cluster_no_binaries"


def test_a_broken_database_fails_with_the_logs_words(server: Cluster) -> None:
    os.unlink(os.path.join(server.data_dir, "global", "pg_control"))
    with pytest.raises(ClusterError, match="pg_control") as caught:
        start(server)
    assert caught.value.code == "cluster_start_failed"
    assert not locks.is_locked(server.start_lock)
    assert not locks.is_locked(server.server_lock)


def test_a_failed_creation_leaves_no_draft(tmp_path: Path) -> None:
    programs = tmp_path / "pginstall" / "bin"
    programs.mkdir(parents=True)
    (programs / "postgres").write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 18.6'\n")
    (programs / "initdb").write_text("#!/bin/sh\necho 'initdb: no room on the moon'; exit 3\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    server = server_for(tmp_path, os.fspath(programs))
    with pytest.raises(ClusterError, match="exit status 3\\)\ninitdb: no room on the moon ") as caught:
        start(server, create=True)
    assert caught.value.code == "cluster_create_failed"
    assert drafts(server) == []
    assert not os.path.exists(server.data_dir)


def test_creation_ends_at_the_deadline(tmp_path: Path) -> None:
    server = server_for(tmp_path)
    with pytest.raises(ClusterError) as caught:
        cluster.ensure_running(server, soon(0.05), create=True, idle_minutes=0)
    assert caught.value.code == "cluster_create_timeout"
    assert drafts(server) == []
    assert not locks.is_locked(server.server_lock), "nothing of it is alive"


def test_waiting_for_another_starter_ends_at_the_deadline(server: Cluster) -> None:
    holder = locks.try_lock(server.start_lock)
    assert holder is not None
    try:
        with pytest.raises(ClusterError) as caught:
            cluster.ensure_running(server, soon(0.05), create=False, idle_minutes=0)
        assert caught.value.code == "cluster_start_timeout"
        with pytest.raises(ClusterError) as caught:
            cluster.stop(server, soon(0.05))
        assert caught.value.code == "cluster_stop_timeout"
    finally:
        os.close(holder)


def test_a_server_that_does_not_answer(server: Cluster) -> None:
    start(server)
    pid = postmaster.pid_of(server)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(ClusterError, match="silent") as caught:
            cluster.ensure_running(server, soon(0.1), create=False, idle_minutes=0)
        assert caught.value.code == "cluster_start_timeout"
        assert cluster.status(server, soon(0.1)).state == "unresponsive"
        with pytest.raises(ClusterError) as caught:
            cluster.stop(server, soon(0.1))
        assert caught.value.code == "cluster_stop_timeout"
    finally:
        os.kill(pid, signal.SIGCONT)


def test_data_of_another_major_version_is_not_left_behind_in_silence(tmp_path: Path) -> None:
    server = server_for(tmp_path)
    os.makedirs(os.path.join(server.root, "pg17"))
    with pytest.raises(ClusterError, match="Postgres 17") as caught:
        start(server, create=True)
    assert caught.value.code == "cluster_other_version"
    assert not os.path.exists(server.data_dir)


def test_the_log_does_not_grow_without_limit(server: Cluster) -> None:
    with open(server.log_file, "wb") as stream:
        stream.truncate(5 << 20)
    start(server)
    assert os.stat(server.log_file).st_size < 10_000
    assert os.stat(f"{server.log_file}.old").st_size == 5 << 20


# What it is like


def test_status_and_stop(server: Cluster) -> None:
    assert cluster.status(server).state == "stopped"
    start(server)
    found = cluster.status(server)
    assert (found.state, found.pid, found.connections) == ("running", postmaster.pid_of(server), 0)
    assert found.version.startswith(f"{server.major}.")
    assert found.data_bytes > 20e6
    assert cluster.stop(server, soon()) is True
    assert cluster.status(server).state == "stopped"
    assert cluster.stop(server, soon()) is False
    assert not os.path.exists(server.pid_file)


def test_nobody_else_gets_in(server: Cluster) -> None:
    start(server)
    for folder in (server.root, server.data_dir, server.socket_dir):
        assert os.stat(folder).st_mode & 0o077 == 0, folder
    assert os.stat(server.socket_path).st_mode & 0o777 == 0o700
    assert os.stat(server.log_file).st_mode & 0o077 == 0
    assert ask(server, "show listen_addresses") == [[""]]


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_the_server_is_cut_off_from_its_starter(server: Cluster, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    workers = Workers(
        1,
        tmp_path,
        idle_minutes=30,
        pass_fds=(writer,),
        cwd=tmp_path,
        env={
            "PGPORT": "1",
            "PGDATA": "/nowhere",
            "PGOPTIONS": "-c fsync=off",
            "SECRET": "1",
            "PATH": os.environ["PATH"],
        },
    )
    os.close(writer)
    starter = workers.processes[0].pid
    assert workers.outcomes()[0].what == "started"
    assert os.read(reader, 1) == b"", "a descriptor of the starter would still be open"
    os.close(reader)
    pid = postmaster.pid_of(server)
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stream:
        _, parent, _, session = stream.read().rpartition(")")[2].split()[:4]
    assert int(parent) != starter
    assert int(session) == pid
    with open(f"/proc/{pid}/environ", encoding="utf-8") as stream:
        names = {item.partition("=")[0] for item in stream.read().split("\0")}
    assert not names & {"PGPORT", "PGDATA", "PGOPTIONS", "SECRET"}
    assert ask(server, "show fsync") == [["on"]]


# Where it is


@pytest.mark.parametrize("name", ["with space", "한글 폴더", "🧠", 'it\'s "quoted"', "a, b", "back\\slash"])
def test_odd_paths(tmp_path: Path, name: str) -> None:
    with running_server(tmp_path / name) as server:
        assert ask(server, "select 1") == [["1"]]
        assert libpq_answers(server)
        cluster.stop(server, soon())
        assert Workers(1, tmp_path / name).outcomes()[0].what == "started"


def test_a_home_too_long_for_a_socket(tmp_path: Path) -> None:
    home = tmp_path / ("한" * 40)
    with running_server(home) as server:
        assert server.socket_dir.startswith(f"{placement.SHORT_PARENT}/agentmem-")
        assert os.stat(server.socket_dir).st_mode & 0o777 == 0o700
        assert libpq_answers(server)
        assert Workers(2, home).outcomes()[0].what == "running"


def libpq_answers(server: Cluster) -> bool:
    """What the handshake takes for a path, libpq has to find too."""
    import psycopg

    with psycopg.connect(**cluster.connect_params(server)) as connection:  # pyright: ignore[reportArgumentType]
        return connection.execute("select 1").fetchone() == (1,)


# Sandboxes


def namespace_command(*flags: str) -> tuple[str, ...]:
    unshare = shutil.which("unshare")
    if unshare is None or not LINUX:
        pytest.skip("needs unshare")
    command = (unshare, *flags) if os.geteuid() == 0 else (unshare, "--map-current-user", *flags)
    if subprocess.run([*command, "true"], capture_output=True).returncode != 0:
        pytest.skip("namespaces are not allowed here")
    return command


def test_started_and_used_from_inside_and_outside_of_a_network_namespace(server: Cluster, tmp_path: Path) -> None:
    command = namespace_command("--net")
    assert Workers(1, tmp_path, prefix=command).outcomes()[0].what == "started"
    assert Workers(1, tmp_path).outcomes()[0].what == "running"
    cluster.stop(server, soon())
    assert Workers(1, tmp_path).outcomes()[0].what == "started"
    assert Workers(1, tmp_path, prefix=command).outcomes()[0].what == "running"


def test_a_server_in_another_pid_namespace(server: Cluster, tmp_path: Path) -> None:
    """A sandbox's process ids mean nothing outside; when the sandbox ends, all in it is killed."""
    command = namespace_command("--pid", "--fork", "--kill-child")
    keeper = 'trap "" PIPE; "$@" < /dev/null; echo done; read -r line'
    inside = [sys.executable, "-I", "-S", servers.WORKER, servers.PACKAGE_PARENT, os.fspath(tmp_path)]
    sandbox = subprocess.Popen(
        [*command, "sh", "-c", keeper, "sh", *inside, servers.bin_dir(), "0", "0", "30"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert sandbox.stdout is not None
    assert sandbox.stdin is not None
    lines = [sandbox.stdout.readline() for _ in range(3)]
    assert lines[1].startswith("started "), lines
    ask(server, "create table kept as select 1")
    assert Workers(3, tmp_path).outcomes()[0].what == "running"
    with pytest.raises(ClusterError) as caught:
        cluster.stop(server, soon(0.1))
    assert caught.value.code == "cluster_foreign"
    assert handshake.probe(server.socket_path, soon()) == handshake.READY
    sandbox.kill()
    sandbox.wait()
    sandbox.stdin.close()
    sandbox.stdout.close()
    assert sorted(outcome.what for outcome in Workers(3, tmp_path).outcomes()) == ["running", "running", "started"]
    assert ask(server, "select * from kept") == [["1"]]
    assert placement.existing_majors(server.root) == [server.major]
