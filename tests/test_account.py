"""Root, root in a container, and an ordinary user: who the server runs as, and whose its files are."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest
import servers
from servers import Workers, ask, server_for, soon, start

from agentmem import account, cluster, initdb, placement, postmaster
from agentmem.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentmem.cluster import Cluster

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="namespaces and /proc")
ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
only_root = pytest.mark.skipif(not ROOT, reason="needs root")

NO_NAMESPACES = os.path.join(os.path.dirname(os.path.abspath(servers.__file__)), "no_namespaces.py")
ALL_IDS, ONE_ID = "65536", "1"


def in_container(ids: str) -> tuple[str, ...]:
    return (sys.executable, NO_NAMESPACES, ids)


def maps_of(server: Cluster) -> str:
    with open(f"/proc/{postmaster.pid_of(server)}/uid_map", encoding="ascii") as stream:
        return " ".join(stream.read().split())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Cluster]:
    found = server_for(tmp_path)
    yield found
    servers.clear(found)


@pytest.fixture
def hidden_programs(tmp_path: Path) -> str:
    """The server's programs where only root may go, as in root's own virtual environment."""
    site = tmp_path / "site"
    site.mkdir(mode=0o700)
    package = os.path.dirname(os.path.dirname(servers.bin_dir()))
    for folder in (package, f"{package}.libs"):
        if os.path.isdir(folder):
            shutil.copytree(folder, site / os.path.basename(folder), symlinks=True)
    return os.path.join(site, os.path.relpath(servers.bin_dir(), os.path.dirname(package)))


@only_root
def test_root_uses_a_namespace_and_its_files_stay_its_own(server: Cluster) -> None:
    start(server, create=True)
    assert server.elsewhere == ""
    assert os.stat(server.data_dir).st_uid == 0
    assert os.stat(server.socket_path).st_uid == 0
    assert maps_of(server) == f"{pwd.getpwnam('nobody').pw_uid} 0 1"
    assert ask(server, "select 1") == [["1"]]


@only_root
def test_root_without_namespaces_uses_another_account_and_remembers_where(server: Cluster, tmp_path: Path) -> None:
    """Twenty at once as root in a container; then the server is stopped and found again, also from outside."""
    outcomes = Workers(20, tmp_path, create=True, prefix=in_container(ALL_IDS)).outcomes()
    assert sorted(outcome.what for outcome in outcomes) == ["running"] * 19 + ["started"], outcomes
    assert not os.path.exists(server.data_dir)
    server = server_for(tmp_path)
    nobody = pwd.getpwnam("nobody").pw_uid
    assert server.elsewhere.startswith(f"{initdb.ELSEWHERE}/")
    for folder in (server.data_dir, server.socket_dir):
        found = os.stat(folder)
        assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (nobody, 0o700), folder
    assert os.stat(f"/proc/{postmaster.pid_of(server)}").st_uid == nobody
    ask(server, "create table kept as select 1")
    assert cluster.stop(server, soon())
    assert Workers(1, tmp_path, prefix=in_container(ALL_IDS)).outcomes()[0].what == "started"
    assert ask(server, "select * from kept") == [["1"]]
    assert cluster.stop(server, soon())
    assert start(server_for(tmp_path))
    assert ask(server, "select * from kept") == [["1"]]


@only_root
def test_programs_that_the_account_can_not_reach_are_copied_once(
    server: Cluster, tmp_path: Path, hidden_programs: str
) -> None:
    container = in_container(ALL_IDS)
    for _ in range(2):
        workers = Workers(1, tmp_path, create=True, prefix=container, programs=hidden_programs)
        assert workers.outcomes()[0].what == "started"
        placement.look_elsewhere(server)
        copies = [name for name in os.listdir(server.elsewhere) if name.startswith("server-")]
        assert len(copies) == 1
        assert os.readlink(f"/proc/{postmaster.pid_of(server)}/exe").startswith(f"{server.elsewhere}/{copies[0]}/")
        assert cluster.stop(server, soon())
    # Another version of the programs takes the place of the old one.
    os.utime(os.path.join(hidden_programs, "postgres"), ns=(1, 1))
    assert Workers(1, tmp_path, prefix=container, programs=hidden_programs).outcomes()[0].what == "started"
    assert copies != [name for name in os.listdir(server.elsewhere) if name.startswith("server-")]


@only_root
def test_root_with_neither_is_refused_with_a_way_out(server: Cluster, tmp_path: Path) -> None:
    outcome = Workers(1, tmp_path, create=True, prefix=in_container(ONE_ID)).outcomes()[0]
    assert outcome.what == "cluster_root_refused"
    assert not os.path.exists(server.data_dir)


@only_root
def test_data_made_in_a_namespace_is_not_left_behind_where_namespaces_are_forbidden(
    server: Cluster, tmp_path: Path
) -> None:
    start(server, create=True)
    cluster.stop(server, soon())
    outcome = Workers(1, tmp_path, create=True, prefix=in_container(ALL_IDS)).outcomes()[0]
    assert outcome.what == "cluster_root_refused"
    assert not os.path.exists(placement.elsewhere_file(server))


@only_root
def test_data_elsewhere_that_is_gone_is_not_replaced_by_an_empty_database(server: Cluster, tmp_path: Path) -> None:
    os.makedirs(server.root)
    with open(placement.elsewhere_file(server), "w", encoding="utf-8") as stream:
        stream.write(os.fspath(tmp_path / "away"))
    for create in (True, False):
        with pytest.raises(ClusterError, match="away") as caught:
            start(server_for(tmp_path), create=create)
        assert caught.value.code == "cluster_gone"
    os.unlink(placement.elsewhere_file(server))


@only_root
def test_an_ordinary_users_server_stays_that_users_when_root_starts_it() -> None:
    """As with sudo: who has to open the files later is the user."""
    nobody = pwd.getpwnam("nobody")
    home = tempfile.mkdtemp(prefix="agentmem-user-")
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    package, worker = copy_for_everybody(home)
    workers = {"python": python_for_everybody(), "package_parent": package, "worker": worker}
    server = server_for(home)
    try:
        outcomes = Workers(20, home, create=True, idle_minutes=30, cwd=home, **workers, **user).outcomes()
        assert sorted(outcome.what for outcome in outcomes) == ["running"] * 19 + ["started"], outcomes
        for path in (server.data_dir, server.root, server.log_file, server.socket_path):
            assert os.stat(path).st_uid == nobody.pw_uid, path
        assert cluster.stop(server, soon())
        for file in (server.log_file, server.start_lock, server.server_lock, server.idle_lock):
            os.unlink(file)
        assert start(server)
        assert os.stat(f"/proc/{postmaster.pid_of(server)}").st_uid == nobody.pw_uid
        assert Workers(1, home, cwd=home, **workers, **user).outcomes()[0].what == "running"
        assert cluster.stop(server, soon())
        assert Workers(1, home, cwd=home, **workers, **user).outcomes()[0].what == "started"
    finally:
        servers.clear(server)
        shutil.rmtree(home)


def copy_for_everybody(home: str) -> tuple[str, str]:
    """The package and the worker where an ordinary user can read them."""
    code = os.path.join(home, "code")
    shutil.copytree(os.path.dirname(cluster.__file__), os.path.join(code, "agentmem"))
    shutil.copy(servers.WORKER, code)
    return code, os.path.join(code, os.path.basename(servers.WORKER))


def python_for_everybody() -> str:
    nobody = pwd.getpwnam("nobody")
    for candidate in (sys.executable, "/usr/bin/python3"):
        try:
            version = [candidate, "-I", "-S", "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
            subprocess.run(version, user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[], check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return candidate
    pytest.skip("no interpreter here can be run by another user")


def test_can_tells_what_another_account_may_do(tmp_path: Path) -> None:
    assert account.can(account.same(), (os.fspath(tmp_path), os.W_OK))
    assert not account.can(account.same(), (os.fspath(tmp_path / "missing"), os.F_OK))
    if ROOT:
        real = account.other()
        assert real is not None
        assert account.can(real, ("/", os.R_OK))
        assert not account.can(real, ("/", os.W_OK))


def test_reaping_when_sigchld_is_ignored() -> None:
    program = (
        "import os, signal, sys; sys.path.insert(0, sys.argv[1]); from agentmem import account\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "assert account.can(account.same(), ('/', os.R_OK))\n"
        "assert not account.can(account.same(), ('/missing', os.R_OK))\n"
    )
    subprocess.run([sys.executable, "-c", program, servers.PACKAGE_PARENT], check=True)
