"""The settings file: one setting set, the others as they were."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from dotenv import dotenv_values
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem import env_file
from agentmem.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

NAME = "AGENTMEM_DATABASE_URL"


def test_a_new_file_is_for_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    assert env_file.make(os.fspath(file))
    assert file.stat().st_mode & 0o777 == 0o600
    assert dotenv_values(file) == {}
    assert not env_file.make(os.fspath(file))
    env_file.set_value(os.fspath(file), NAME, "x")
    assert dotenv_values(file) == {NAME: "x"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"{NAME}='v'\n"),
        ("# c\nA=1", f"# c\nA=1\n{NAME}='v'\n"),
        (f"# c\n\n{NAME}=old # why\nB='two\nlines'\n", f"# c\n\n{NAME}='v'\nB='two\nlines'\n"),
        (f'export {NAME} = "old"\nB=1\n{NAME}=older\n', f"{NAME}='v'\nB=1\n"),
        (f"B='\n{NAME}=inside'\n", f"B='\n{NAME}=inside'\n{NAME}='v'\n"),
        (f"# {NAME}=commented\r\nB=1\r\n", f"# {NAME}=commented\r\nB=1\r\n{NAME}='v'\n"),
        (f"{NAME}_2=x\n", f"{NAME}_2=x\n{NAME}='v'\n"),
    ],
)
def test_it_is_set_in_its_place(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / ".env"
    file.write_bytes(before.encode())
    file.chmod(0o644)
    env_file.set_value(os.fspath(file), NAME, "v")
    assert file.read_bytes().decode() == after
    assert file.stat().st_mode & 0o777 == 0o600
    env_file.set_value(os.fspath(file), NAME, "v")
    assert file.read_bytes().decode() == after


@settings(max_examples=50)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0\r")))
def test_every_value_comes_back(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    file = os.fspath(tmp_path_factory.mktemp("env") / ".env")
    env_file.set_value(file, "A", "1")
    env_file.set_value(file, NAME, value)
    env_file.set_value(file, "B", "2")
    assert dotenv_values(file, interpolate=False, encoding="utf-8") == {"A": "1", NAME: value, "B": "2"}


def test_what_cannot_be_read_stays(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_bytes(b"A=\xff\n")
    for change in (lambda: env_file.make(os.fspath(file)), lambda: env_file.set_value(os.fspath(file), NAME, "v")):
        with pytest.raises(SettingsError) as caught:
            change()
        assert caught.value.code == "settings_unreadable"
    assert file.read_bytes() == b"A=\xff\n"
