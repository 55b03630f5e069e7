"""Locks with a deadline, between real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
import servers

from agentmem import locks

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="flock")

HOLDER = """
import sys
sys.path.insert(0, sys.argv[1])
from agentmem import locks
held = locks.try_lock(sys.argv[2], shared=sys.argv[3] == "shared")
print("held" if held is not None else "taken", flush=True)
sys.stdin.read()
"""


class Holder:
    """A process that holds a lock until it is told to end."""

    def __init__(self, path: str, how: str = "alone") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, servers.PACKAGE_PARENT, path, how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline().strip()

    def end(self, *, kill: bool = False) -> None:
        if kill:
            self.process.kill()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return os.fspath(tmp_path / "a lock")


def test_one_holder_or_many_sharers(path: str) -> None:
    first, second = Holder(path, "shared"), Holder(path, "shared")
    third = Holder(path)
    assert (first.said, second.said, third.said) == ("held", "held", "taken")
    assert locks.is_locked(path)
    for holder in (first, second, third):
        holder.end()
    assert not locks.is_locked(path)
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_the_wait_ends_when_the_holder_is_killed(path: str) -> None:
    holder = Holder(path)
    timer = threading.Timer(0.05, lambda: holder.end(kill=True))
    timer.start()
    descriptor = locks.wait_for_lock(path, time.monotonic() + 30)
    timer.join()
    assert descriptor is not None
    other = Holder(path)
    assert other.said == "taken", "it is ours now"
    other.end()
    os.close(descriptor)


def test_the_wait_ends_at_the_deadline_and_takes_nothing_later(path: str) -> None:
    holder = Holder(path)
    assert locks.wait_for_lock(path, time.monotonic() + 0.02) is None
    assert locks.wait_for_lock(path, time.monotonic() - 1) is None
    holder.end()
    # The thread that was left in flock gets the lock now, and has to let go of it.
    descriptor = locks.wait_for_lock(path, time.monotonic() + 30)
    assert descriptor is not None
    os.close(descriptor)
    servers.until(lambda: not locks.is_locked(path))


def test_when_free_calls_back_once(path: str) -> None:
    holder = Holder(path)
    called = threading.Semaphore(0)
    locks.when_free(path, called.release)
    assert not called.acquire(timeout=0.02)
    holder.end(kill=True)
    assert called.acquire(timeout=30)
    servers.until(lambda: not locks.is_locked(path))


def test_a_child_that_inherits_the_descriptor_keeps_the_lock(path: str) -> None:
    """That is how the server holds its own lock after its starter has closed it."""
    descriptor = locks.try_lock(path)
    assert descriptor is not None
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(descriptor,))
    os.close(descriptor)
    assert locks.is_locked(path)
    child.kill()
    # A zombie holds nothing.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not locks.is_locked(path)
    child.communicate()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        locks.try_lock(os.fspath(tmp_path / "missing" / "lock"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
def test_a_lock_that_root_makes_belongs_to_the_folders_owner(path: str) -> None:
    os.chown(os.path.dirname(path), 12345, 12345)
    assert not locks.is_locked(path)
    assert (os.stat(path).st_uid, os.stat(path).st_gid) == (12345, 12345)
