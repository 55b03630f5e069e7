"""The doctor: each thing that is broken on purpose gives its own failing check, and nothing else does."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import hook_kit
import pytest
from cli_kit import agentmem, checks

if TYPE_CHECKING:
    from collections.abc import Callable

    from hook_kit import Database, Machine, Session

postgres, database = hook_kit.postgres, hook_kit.database


@pytest.fixture
def machine(database: Database, tmp_path: object) -> Machine:
    """An installation with its hooks registered."""
    made = hook_kit.Machine(tmp_path, database.url)  # type: ignore[arg-type]
    os.chmod(made.paths.env_file, 0o600)
    agentmem(made, "install")
    return made


@pytest.fixture
def session(machine: Machine) -> Session:
    """A session of three turns that was captured."""
    made = machine.session()
    for number in range(3):
        made.turn(number)
    assert machine.hook("SessionEnd", made).code == 0
    return made


def failing(machine: Machine, *arguments: str) -> dict[str, list[str]]:
    """Name -> reasons of the checks that fail; the doctor has to exit with 1."""
    found = checks(machine, *arguments, code=1)
    return {
        name: [check["why"] for check in of_name if check["verdict"] == "fail"]
        for name, of_name in found.items()
        if any(check["verdict"] == "fail" for check in of_name)
    }


def test_all_is_well_after_an_installation_and_after_a_session(machine: Machine, database: Database) -> None:
    assert {check["verdict"] for of_name in checks(machine, code=0).values() for check in of_name} == {"pass"}
    made = machine.session()
    made.turn(1)
    assert machine.hook("Stop", made).code == 0
    found = checks(machine, code=0)
    assert {check["verdict"] for of_name in found.values() for check in of_name} == {"pass"}
    assert "1 transcripts" in found["coverage"][0]["why"]
    # The canary leaves no trace.
    assert database.one("select count(*) from agentmem.sessions") == 1
    assert database.one("select count(*) from agentmem.hook_runs") == 1
    assert not machine.spooled()
    assert not (machine.agentmem / "state" / "canary").exists()


def test_every_finding_says_what_to_do(machine: Machine, session: Session, database: Database) -> None:
    database.rows("delete from agentmem.receipts")
    for of_name in checks(machine, code=1).values():
        for check in of_name:
            assert check["why"]
            assert check["verdict"] == "pass" or check["todo"]


DAMAGES = {
    "a row deleted": ("delete from agentmem.turns where uuid = %s", "not stored"),
    "a row shortened": ("update agentmem.turns set text = left(text, 3) where uuid = %s", "differs"),
    "one character changed": (
        "update agentmem.turns set text = overlay(text placing 'q' from 2) where uuid = %s",
        "differs",
    ),
    "the kind changed": ("update agentmem.turns set kind = 'notice' where uuid = %s", "differs"),
    "a receipt deleted": (
        "delete from agentmem.receipts where id = (select receipt_id from agentmem.turns where uuid = %s)",
        "no receipt",
    ),
    "a receipt's hash changed": (
        "update agentmem.receipts set sha256 = '' where id = (select receipt_id from agentmem.turns where uuid = %s)",
        "the receipt says",
    ),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_in_the_database_is_named_and_mended_by_the_backfill(
    machine: Machine, session: Session, database: Database, what: str
) -> None:
    statement, reason = DAMAGES[what]
    database.rows(statement, session.turns[2][0])
    found = failing(machine)
    assert any(session.key in why and reason in why for why in found["coverage"]), found
    agentmem(machine, "backfill")
    checks(machine, code=0)
    hook_kit.assert_stored(database, session)


@pytest.mark.parametrize("what", ["a row deleted", "one character changed", "a receipt deleted"])
def test_the_database_alone_shows_it_too(machine: Machine, session: Session, database: Database, what: str) -> None:
    database.rows(DAMAGES[what][0], session.turns[2][0])
    assert database.rows("select problem from agentmem.verify()")


def test_a_dry_run_of_the_backfill_writes_nothing(machine: Machine, session: Session, database: Database) -> None:
    database.rows(DAMAGES["a row deleted"][0], session.turns[2][0])
    said = agentmem(machine, "backfill", "--dry-run").stdout
    assert session.key in said
    assert database.one("select count(*) from agentmem.turns") == len(session.turns) - 1


def test_a_transcript_that_is_gone_is_named_until_it_is_accepted(machine: Machine, session: Session) -> None:
    os.unlink(session.path)
    (why,) = failing(machine)["coverage"]
    assert session.key in why
    assert os.fspath(session.path) in why
    agentmem(machine, "doctor", "--accept-missing")
    checks(machine, code=0)


def test_one_byte_flipped_in_the_transcript_is_named(machine: Machine, session: Session) -> None:
    raw = bytearray(session.path.read_bytes())
    raw[raw.index(b"answer 1")] ^= 1
    session.path.write_bytes(raw)
    assert any(session.key in why for why in failing(machine)["coverage"])


def test_lines_that_no_sweep_has_had_a_chance_at_are_no_failure(machine: Machine, session: Session) -> None:
    session.turn(9)
    found = checks(machine, code=0)
    assert "for the next session start" in found["coverage"][0]["why"]


def test_lines_that_a_sweep_has_passed_by_are_a_failure(machine: Machine, session: Session) -> None:
    session.turn(9)
    marker = next((machine.agentmem / "state" / "cache").glob("swept-*"))
    later = session.path.stat().st_mtime + 100
    os.utime(marker, (later, later))
    assert any("not captured" in why for why in failing(machine)["coverage"])
    agentmem(machine, "backfill")
    checks(machine, code=0)


def test_history_from_before_the_installation_is_a_warning(machine: Machine, database: Database) -> None:
    old = machine.session()
    old.turn(1)
    os.utime(old.path, (1_700_000_000, 1_700_000_000))
    found = checks(machine, code=0)
    assert [check["verdict"] for check in found["coverage"]] == ["warn", "pass"]
    agentmem(machine, "backfill")
    hook_kit.assert_stored(database, old)


def _edit(machine: Machine, change: Callable[[dict[str, object]], None]) -> None:
    file = machine.home / ".claude" / "settings.json"
    known = json.loads(file.read_text())
    change(known)
    file.write_text(json.dumps(known))


def _hook(known: dict[str, object], event: str) -> dict[str, object]:
    return known["hooks"][event][0]["hooks"][0]  # type: ignore[index]


BREAKS: dict[str, tuple[Callable[[dict[str, object]], object], str]] = {
    "an event taken out": (lambda known: known["hooks"].pop("Stop"), "Stop is registered 0 times"),  # type: ignore[attr-defined]
    "an event twice": (
        lambda known: known["hooks"]["Stop"].append(known["hooks"]["Stop"][0]),  # type: ignore[index]
        "Stop is registered 2 times",
    ),
    "no such interpreter": (lambda known: _hook(known, "Stop").update(command="/nowhere/python"), "can't be run"),
    "no such file": (
        lambda known: _hook(known, "Stop").update(
            args=["-I", "-S", "/nowhere/hooks/capture.py", "claude-code", "Stop"]
        ),
        "is not there",
    ),
    "a hook under a matcher": (lambda known: known["hooks"]["SessionStart"][0].update(matcher="compact"), "matcher"),
    "hooks switched off": (lambda known: known.update(disableAllHooks=True), "disableAllHooks"),
}


@pytest.mark.parametrize("what", BREAKS)
def test_a_broken_registration_is_named(machine: Machine, what: str) -> None:
    change, reason = BREAKS[what]
    _edit(machine, change)  # type: ignore[arg-type]
    assert any(reason in why for why in failing(machine)["hooks"])


def test_a_program_that_fails_is_found_by_the_canary(machine: Machine) -> None:
    broken = machine.home / "python"
    broken.write_text("#!/bin/sh\necho no such luck >&2\nexit 3\n")
    broken.chmod(0o700)
    _edit(machine, lambda known: _hook(known, "Stop").update(command=os.fspath(broken)))
    (why,) = failing(machine)["canary captured"]
    assert "no such luck" in why


def test_settings_that_are_not_json_are_named(machine: Machine) -> None:
    (machine.home / ".claude" / "settings.json").write_text("{ // a comment\n}")
    assert "is not JSON" in failing(machine)["hooks"][0]


def test_a_database_that_is_down_is_named_and_the_rest_is_not_called_well(machine: Machine) -> None:
    machine.configure(AGENTMEM_DATABASE_URL="postgresql://u:se-cret@127.0.0.1:1/x")
    done = agentmem(machine, "doctor", code=1)
    assert "se-cret" not in done.stdout + done.stderr
    found = failing(machine)
    assert "can't be reached" in found["database"][0]
    assert "not checked" in found["the rest"][0]


def test_a_schema_that_is_missing_or_newer_is_named(machine: Machine, database: Database) -> None:
    database.rows("create or replace function agentmem.needed_schema() returns integer language sql as 'select 999'")
    assert "999" in failing(machine)["schema"][0]
    database.rows("drop schema agentmem cascade")
    assert "not there" in failing(machine)["schema"][0]


def test_events_that_wait_for_long_are_named(machine: Machine, session: Session) -> None:
    url = f"postgresql://agentmem@/nowhere?host={machine.paths.state}"
    good = (machine.agentmem / "config" / ".env").read_text()
    machine.configure(AGENTMEM_DATABASE_URL=url)
    assert machine.hook("Stop", session).code == 1
    (machine.agentmem / "config" / ".env").write_text(good)
    (waiting,) = (machine.agentmem / "state" / "spool").glob("*.json")
    os.utime(waiting, (1_700_000_000, 1_700_000_000))
    assert "1 events wait" in failing(machine, "--no-canary")["spool"][0]
    agentmem(machine, "drain")
    checks(machine, code=0)


def test_a_record_that_cannot_be_read_is_named(machine: Machine, session: Session) -> None:
    spool = machine.agentmem / "state" / "spool"
    (spool / "01900000-0000-7000-8000-000000000000.json").write_bytes(b"{ half")
    agentmem(machine, "drain", code=1)
    assert "can't be read" in failing(machine)["spool"][0]
    shutil.rmtree(spool / "damaged")
    checks(machine, code=0)


def test_a_failed_hook_run_is_named_until_one_succeeds(machine: Machine, session: Session) -> None:
    assert machine.run("Stop", b"no json").code == 1
    assert "stdin_malformed" in failing(machine, "--no-canary")["hook runs"][0]
    assert machine.hook("Stop", session).code == 0
    checks(machine, "--no-canary", code=0)
