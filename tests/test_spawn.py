"""Programs started for the server: clean, orphaned, bounded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
import servers

from agentmem import account, locks, spawn
from agentmem.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="fork")


@pytest.fixture
def output(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[int]:
    descriptor = locks.try_lock(os.fspath(tmp_path / "lock"))
    assert descriptor is not None
    yield descriptor
    os.close(descriptor)


def run(script: str, output: int, lock: int, text: bytes = b"", seconds: float = 30) -> int:
    argv = ["/bin/sh", "-c", script]
    return spawn.run(argv, account.same(), output, keep=lock, deadline=time.monotonic() + seconds, text=text)


def is_over(pid: str) -> bool:
    """Gone, or a zombie that nobody has waited for."""
    shown = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True).stdout.strip()
    return shown in ("", "Z", "Zs")


def test_run_gives_stdin_and_takes_output_and_status(tmp_path: Path, output: int, lock: int) -> None:
    assert run("cat; echo to stderr >&2; exit 7", output, lock, b"given\n") == 7
    assert run("kill -9 $$", output, lock) == -9
    assert (tmp_path / "log").read_text() == "given\nto stderr\n"


def test_run_ends_at_the_deadline_with_all_descendants(tmp_path: Path, output: int, lock: int) -> None:
    with pytest.raises(ClusterError) as caught:
        run("sleep 1000 & echo $! $$; wait", output, lock, seconds=0.1)
    assert caught.value.code == "cluster_create_timeout"
    pids = (tmp_path / "log").read_text().split()
    assert len(pids) == 2
    servers.until(lambda: all(is_over(pid) for pid in pids))


def test_a_program_that_can_not_be_started_is_named_in_the_log(tmp_path: Path, output: int, lock: int) -> None:
    missing = os.fspath(tmp_path / "missing")
    spawn.detached([missing], account.same(), output)
    servers.until((tmp_path / "log").read_text)
    assert spawn.run([missing], account.same(), output, keep=lock, deadline=time.monotonic() + 30) == 127
    assert (tmp_path / "log").read_text().count(f"can't start {missing}: [Errno 2]") == 2


def test_the_child_starts_clean(tmp_path: Path, output: int) -> None:
    """Ignored and blocked signals, variables, working folder and open files of the starter are not passed on."""
    program = f"""
import os, signal, sys
sys.path.insert(0, {servers.PACKAGE_PARENT!r})
from agentmem import account, locks, spawn
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
os.chdir({os.fspath(tmp_path)!r})
extra = os.open("extra", os.O_CREAT | os.O_RDWR)
os.set_inheritable(extra, True)
output = os.open("log", os.O_CREAT | os.O_WRONLY)
lock = locks.try_lock("lock")
script = "pwd; umask; env; ls /dev/fd; trap; kill -TERM $$; echo alive"
spawn.run(["/bin/sh", "-c", script], account.same(), output, keep=lock, deadline=1e9)
"""
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "SECRET": "1"})
    lines = (tmp_path / "log").read_text().split("\n")
    assert lines[:2] == ["/", "0077"]
    assert "SECRET=1" not in lines
    assert "alive" not in lines, "SIGTERM was still ignored"
    # stdin, stdout, stderr, the lock, the pipe that tells its end, and what ls itself opens.
    assert sum(line.isdigit() and len(line) < 3 for line in lines) <= 6, lines


def test_closed_standard_files_are_filled(tmp_path: Path) -> None:
    """A client that starts hooks without stdin must not make our lock descriptor 0."""
    program = f"""
import os, sys
sys.path.insert(0, {servers.PACKAGE_PARENT!r})
from agentmem import spawn
spawn.fill_stdio()
os.write(3, b"%d" % os.open("/", os.O_RDONLY))
"""
    log = os.open(tmp_path / "log", os.O_CREAT | os.O_WRONLY)
    child = subprocess.Popen(
        ["/bin/sh", "-c", 'exec "$@" 3>&1 <&- >&- 2>&-', "sh", sys.executable, "-I", "-S", "-c", program], stdout=log
    )
    assert child.wait() == 0
    os.close(log)
    assert int((tmp_path / "log").read_text()) > 3


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux can tie a child to its parent")
def test_a_program_dies_with_a_killed_starter(tmp_path: Path) -> None:
    program = f"""
import os, sys
sys.path.insert(0, {servers.PACKAGE_PARENT!r})
from agentmem import account, locks, spawn
lock = locks.try_lock({os.fspath(tmp_path / "lock")!r})
spawn.run(["/bin/sh", "-c", "echo up; exec sleep 1000"], account.same(), 1, keep=lock, deadline=1e9)
"""
    starter = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert starter.stdout is not None
    assert starter.stdout.readline() == b"up\n"
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    starter.stdout.close()
    servers.wait_until_free(os.fspath(tmp_path / "lock"))
