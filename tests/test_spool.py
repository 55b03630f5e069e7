"""The spool: what was put is there, whole, until it is removed; what is damaged is set aside, not lost."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmem import spool
from agentmem.errors import SpoolError
from agentmem.paths import Paths, find_paths
from agentmem.settings import new_id

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return find_paths({}, os.fspath(tmp_path / "한글 x"))


def put(paths: Paths, name: str, record: dict[str, object]) -> None:
    os.close(spool.put(paths, name, record))  # type: ignore[arg-type]


anything = st.dictionaries(st.text(max_size=8), st.text(st.characters(exclude_categories=()), max_size=20), max_size=5)


@given(st.lists(anything, max_size=5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_was_put_comes_back_in_order(paths: Paths, records: list[dict[str, object]]) -> None:
    names = [new_id(1000 + number) for number in range(len(records))]
    for name, record in zip(reversed(names), reversed(records), strict=True):
        put(paths, name, record)
    assert spool.waiting(paths) == names
    assert [spool.get(paths, name) for name in names] == records
    for name in names:
        spool.remove(paths, name)
        spool.remove(paths, name)
    assert spool.waiting(paths) == []
    assert not os.path.exists(paths.spool) or os.listdir(paths.spool) == []


@given(st.binary(max_size=40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_of_any_bytes_is_a_record_or_is_set_aside(paths: Paths, raw: bytes) -> None:
    put(paths, "good", {"a": "b"})
    bad = os.path.join(paths.spool, "bad.json")
    with open(bad, "wb") as stream:
        stream.write(raw)
    error, taken = None, None
    try:
        taken = spool.take(paths, "bad")
    except SpoolError as refused:
        error = refused
    if error:
        assert error.code == "spool_damaged"
        assert spool.damaged(paths) == ["bad.json"]
        with open(os.path.join(paths.spool, "damaged", "bad.json"), "rb") as stream:
            assert stream.read() == raw
        os.unlink(os.path.join(paths.spool, "damaged", "bad.json"))
    else:
        assert taken is not None
        os.close(taken[1])
        spool.remove(paths, "bad")
    assert spool.get(paths, "good") == {"a": "b"}


def test_only_its_owner_may_read_it(paths: Paths) -> None:
    put(paths, "x", {})
    assert os.stat(paths.spool).st_mode & 0o777 == 0o700
    assert os.stat(os.path.join(paths.spool, "x.json")).st_mode & 0o777 == 0o600


def test_a_record_is_its_writers_while_that_lives(paths: Paths) -> None:
    writer = f"""
import sys
from agentmem import spool
from agentmem.paths import find_paths
spool.put(find_paths({{}}, {paths.home!r}), "theirs", {{}})
print("put", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", writer], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"put\n"
        assert spool.take(paths, "theirs") is None
        assert spool.get(paths, "theirs") == {}
        process.kill()
    taken = spool.take(paths, "theirs")
    assert taken is not None
    os.close(taken[1])


def test_a_record_that_is_taken_is_not_taken_twice(paths: Paths) -> None:
    put(paths, "x", {})
    first = spool.take(paths, "x")
    assert first is not None
    assert spool.take(paths, "x") is None
    os.close(first[1])
    again = spool.take(paths, "x")
    assert again is not None
    os.close(again[1])
    assert spool.take(paths, "gone") is None


def test_a_full_disk_is_told_and_leaves_no_draft(paths: Paths) -> None:
    put(paths, "before", {"kept": "yes"})
    limited = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
from agentmem import errors, spool
from agentmem.paths import find_paths
try:
    spool.put(find_paths({{}}, {paths.home!r}), "big", {{"text": "x" * 5000}})
except errors.SpoolError as error:
    print(error.code)
"""
    done = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, check=True)
    assert done.stdout == "spool_unwritable\n"
    assert os.listdir(paths.spool) == ["before.json"]


def test_drafts_of_the_killed_are_removed_when_they_are_old(paths: Paths) -> None:
    put(paths, "x", {})
    draft = os.path.join(paths.spool, ".y.123")
    with open(draft, "w", encoding="utf-8"):
        made = os.stat(draft).st_mtime
    assert spool.remove_old_drafts(paths, made + 10) == 0
    assert spool.remove_old_drafts(paths, made + 4000) == 1
    assert spool.waiting(paths) == ["x"]


def test_ids_sort_by_time_and_are_never_the_same() -> None:
    ids = [new_id(1_700_000_000 + number / 1000) for number in range(200)]
    assert sorted(ids) == ids
    same = {new_id(1_700_000_000) for _ in range(200)}
    assert len(same) == 200
    assert all(name[14] == "7" and name[19] in "89ab" for name in ids)
