"""A file replaced whole: its content, its mode, its owner, and what is left when it can't be done."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING

import pytest

from agentmem.replace import publish, replace_file, write_draft

if TYPE_CHECKING:
    from pathlib import Path

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def test_a_new_file_is_for_its_owner_only(tmp_path: Path) -> None:
    replace_file(os.fspath(tmp_path / "new"), b"x" * 1_000_000)
    assert (tmp_path / "new").read_bytes() == b"x" * 1_000_000
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["new"]


@pytest.mark.parametrize(("mode", "expected"), [(None, 0o664), (0o600, 0o600), (0o644, 0o644)])
def test_the_mode_is_kept_or_given(tmp_path: Path, mode: int | None, expected: int) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    file.chmod(0o664)
    replace_file(os.fspath(file), b"new", mode)
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == expected


def test_who_reads_meanwhile_sees_the_old_file_whole(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    with file.open() as reader:
        draft = write_draft(os.fspath(file), b"new")
        assert os.path.dirname(draft) == os.fspath(tmp_path)
        assert file.read_text() == "old"
        publish(draft, os.fspath(file))
        assert reader.read() == "old"
    assert file.read_text() == "new"
    assert os.listdir(tmp_path) == ["file"]


def test_two_drafts_of_one_process_are_two(tmp_path: Path) -> None:
    file = os.fspath(tmp_path / "file")
    first, second = write_draft(file, b"1"), write_draft(file, b"2")
    publish(first, file)
    assert (tmp_path / "file").read_bytes() == b"1"
    publish(second, file)
    assert (tmp_path / "file").read_bytes() == b"2"


def test_a_symlink_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "file")
    replace_file(os.fspath(tmp_path / "link"), b"1")
    replace_file(os.fspath(tmp_path / "link"), b"2")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "file").read_bytes() == b"2"


def test_no_draft_is_left_when_it_cannot_be_done(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inside").touch()
    with pytest.raises(OSError, match=r"folder"):
        replace_file(os.fspath(tmp_path / "folder"), b"x")
    assert os.listdir(tmp_path) == ["folder"]
    with pytest.raises(FileNotFoundError):
        replace_file(os.fspath(tmp_path / "missing" / "file"), b"x")


def test_no_draft_is_left_when_there_is_no_room(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"too large"):
            replace_file(os.fspath(file), b"x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


@as_root
def test_what_root_writes_for_somebody_stays_theirs(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12346)
    replace_file(os.fspath(tmp_path / "new"), b"x")
    (tmp_path / "old").touch()
    os.chown(tmp_path / "old", 12347, 12348)
    replace_file(os.fspath(tmp_path / "old"), b"x")
    owners = {name: ((tmp_path / name).stat().st_uid, (tmp_path / name).stat().st_gid) for name in ("new", "old")}
    assert owners == {"new": (12345, 12346), "old": (12347, 12348)}
