"""`agentmem db`, run as a person runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import servers
from servers import ask, soon

from agentmem import cluster, db

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentmem.cluster import Cluster

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the embedded server needs POSIX for now")

COMMAND = [sys.executable, "-c", "from agentmem.cli import main; main()", "db"]


def run(home: Path, *arguments: str, code: int = 0) -> str:
    environ = {**os.environ, "AGENTMEM_HOME": os.fspath(home), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([*COMMAND, *arguments], env=environ, capture_output=True, text=True)
    assert done.returncode == code, done
    return done.stdout + done.stderr


def set_up(home: Path, **settings: str) -> None:
    (home / "config").mkdir(exist_ok=True)
    (home / "config" / ".env").write_text("".join(f"{name}={value!r}\n" for name, value in settings.items()))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Cluster]:
    set_up(tmp_path, AGENTMEM_PG_BIN=servers.bin_dir())
    with servers.stopped_server(tmp_path) as found:
        yield found


def test_a_life(server: Cluster, tmp_path: Path) -> None:
    assert json.loads(run(tmp_path, "status", "--json"))["state"] == "stopped"
    assert "started in" in run(tmp_path, "start")
    assert "already running" in run(tmp_path, "start")
    servers.until(lambda: cluster.status(server).watched)
    shown = json.loads(run(tmp_path, "status", "--json"))
    assert shown["database"] == "embedded"
    assert shown["state"] == "running"
    assert shown["process"] == cluster.status(server).pid
    assert shown["stops_when_idle"] is True
    assert shown["bytes"] > 20e6
    lines = run(tmp_path, "status").splitlines()
    assert lines[:2] == ["database         embedded", "state            running"]
    assert run(tmp_path, "stop") == "stopped\n"
    assert run(tmp_path, "stop") == "it was not running\n"


def test_before_anything_is_there(tmp_path: Path) -> None:
    assert json.loads(run(tmp_path, "status", "--json"))["state"] == "missing"
    assert run(tmp_path, "stop") == "it was not running\n"
    assert "cluster_missing" in run(tmp_path, "psql", code=1)


def test_psql_starts_the_server_and_takes_arguments(server: Cluster, tmp_path: Path) -> None:
    assert run(tmp_path, "psql", "-XAt", "-c", "select current_database(), current_user") == "agentmem|agentmem\n"
    assert cluster.status(server).state == "running"


def test_migrate_twice(server: Cluster, tmp_path: Path) -> None:
    assert "applied " in run(tmp_path, "migrate")
    assert run(tmp_path, "migrate") == "the schema is up to date\n"
    assert ask(server, "select count(*) > 0 from agentmem.migrations") == [["t"]]


def test_a_server_that_does_not_answer_is_exit_1(server: Cluster, tmp_path: Path) -> None:
    servers.start(server)
    os.rename(server.socket_path, f"{server.socket_path}.away")
    assert '"state":"unresponsive"' in run(tmp_path, "status", "--json", code=1)
    os.rename(f"{server.socket_path}.away", server.socket_path)


def test_a_database_of_the_users_own_is_not_ours_to_start_or_stop(server: Cluster, tmp_path: Path) -> None:
    servers.start(server)
    home = tmp_path / "other"
    home.mkdir()
    set_up(home, AGENTMEM_DATABASE_URL=f"postgresql://agentmem@/agentmem?host={server.socket_dir}")
    for verb in ("start", "stop"):
        assert "cluster_external" in run(home, verb, code=1)
    shown = json.loads(run(home, "status", "--json"))
    assert (shown["database"], shown["state"], shown["name"]) == ("AGENTMEM_DATABASE_URL", "running", "agentmem")
    assert run(home, "psql", "-XAt", "-c", "select 1") == "1\n"
    assert cluster.stop(server, soon())
    assert "db_unreachable" in run(home, "status", code=1)


def test_a_password_is_not_on_psqls_command_line() -> None:
    for given in (
        {"dbname": "postgresql://me:se%40cret@somewhere:6543/mine?sslmode=require"},
        {"dbname": "host=somewhere port=6543 user=me password='se@cret' dbname=mine sslmode=require"},
    ):
        conninfo, password = db.for_psql(given)
        assert password == "se@cret"
        assert "cret" not in conninfo
        for part in ("host=somewhere", "port=6543", "user=me", "dbname=mine", "sslmode=require"):
            assert part in conninfo
