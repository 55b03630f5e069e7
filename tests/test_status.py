"""`agentmem status`: all is well, or exit code 1 and what is not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import hook_kit
import pytest
import servers
from cli_kit import agentmem
from terminal import on_terminal

from agentmem import SCHEMA, cluster

if TYPE_CHECKING:
    from pathlib import Path

    from hook_kit import Database, Machine

postgres, database, machine = hook_kit.postgres, hook_kit.database, hook_kit.machine
NOWHERE = "postgresql://me:se-cret@/mine?host=/nowhere/at/all"


def report(machine: Machine, code: int) -> dict[str, Any]:
    found = json.loads(agentmem(machine, "status", "--json", code=code).stdout)
    assert found["ok"] == (code == 0)
    assert bool(found["wrong"]) == (code == 1)
    return found


def lines(machine: Machine, code: int) -> dict[str, str]:
    text = agentmem(machine, "status", code=code).stdout
    return dict(line.split("\t", 1) for line in text.split("\n")[:-1] if line[0] != " ")


def test_an_empty_database_is_well(machine: Machine) -> None:
    found = report(machine, 0)
    assert found["schema"] == {"version": SCHEMA, "known": SCHEMA, "needed": 1}
    assert (found["stored"]["sessions"], found["stored"]["bytes_captured"], found["hook_runs"]) == (0, 0, [])
    shown = lines(machine, 0)
    assert shown["status"] == "all is well"
    assert shown["stored"] == "0 projects, 0 sessions and 0 subagents, 0 turns"
    assert shown["captured"] == "0 bytes of 0 transcripts, 0 receipts"
    assert shown["hook runs"].startswith("none yet")
    assert shown["spool"] == "empty"
    assert shown["last sweep"] == f"never (of {machine.projects})"


def test_after_a_session(machine: Machine) -> None:
    session = machine.session()
    session.turn(1)
    assert machine.hook("SessionStart", session).code == 0
    assert machine.hook("Stop", session).code == 0
    found = report(machine, 0)
    stored = found["stored"]
    assert (stored["projects"], stored["sessions"], stored["turns"], stored["transcripts"]) == (1, 1, 2, 1)
    assert stored["bytes_captured"] == session.size()
    assert [(run["event"], run["outcome"]) for run in found["hook_runs"]] == [("SessionStart", "ok"), ("Stop", "ok")]
    assert found["last_sweep"] is not None
    shown = lines(machine, 0)
    assert shown["hook runs"] == "Stop less than a minute ago: ok"
    assert shown["last sweep"].startswith("less than a minute ago")
    assert shown["captured"].startswith(f"{session.size() / 1000:.1f} kB of 1 transcript, ")


def test_a_database_that_is_not_reached(machine: Machine, database: Database) -> None:
    session = machine.session()
    machine.configure(AGENTMEM_DATABASE_URL=NOWHERE)
    assert machine.hook("Stop", session).code == 1
    found = report(machine, 1)
    assert found["wrong"] == ["the database is not reached", "events wait in the spool"]
    assert (found["stored"], found["hook_runs"], found["schema"]) == (None, None, None)
    assert (found["database"]["code"], found["spool"]["waiting"]) == ("db_unreachable", 1)
    assert found["spool"]["oldest_seconds"] >= 0
    shown = agentmem(machine, "status", code=1)
    assert "not known: the database is not reached" in shown.stdout
    assert "1 event waits, the oldest for less than a minute: the database can't be reached" in shown.stdout
    assert "se-cret" not in shown.stdout + shown.stderr
    machine.configure(AGENTMEM_DATABASE_URL=database.url)
    assert report(machine, 1)["wrong"] == ["events wait in the spool"]
    agentmem(machine, "drain")
    assert report(machine, 0)["spool"]["waiting"] == 0


def test_a_hook_that_failed_until_a_good_one_came(machine: Machine) -> None:
    session = machine.session()
    assert machine.run("Stop", b"").code == 1
    found = report(machine, 1)
    assert found["wrong"] == ["hook runs failed"]
    assert found["failures"]["count"] == 1
    shown = agentmem(machine, "status", code=1).stdout
    assert "1 hook run failed in 24 h without a good one since, lastly Stop less than a minute ago: " in shown
    assert "[stdin_empty]\n \tsee: agentmem log --failed" in shown
    assert machine.hook("Stop", session).code == 0
    assert report(machine, 0)["failures"]["count"] == 0


def test_a_damaged_event(machine: Machine) -> None:
    spool = machine.agentmem / "state" / "spool"
    spool.mkdir(parents=True)
    (spool / "01a231e8-0001-7000-8000-00000000000a.json").write_text("{")
    assert report(machine, 1)["wrong"] == ["events in the spool can't be read"]
    assert lines(machine, 1)["spool"] == "1 event can't be read: see agentmem doctor"


@pytest.mark.parametrize(
    ("sql", "wrong"),
    [
        ("drop schema agentmem cascade", "the schema is not there"),
        ("delete from agentmem.migrations where version > 2", "the schema is older than this program"),
        (
            "create or replace function agentmem.needed_schema() returns integer language sql as 'select 1000'",
            "the schema is newer than this program",
        ),
    ],
)
def test_a_schema_that_does_not_fit(machine: Machine, database: Database, sql: str, wrong: str) -> None:
    database.rows(sql)
    assert wrong in report(machine, 1)["wrong"]
    assert lines(machine, 1)["status"].startswith(wrong)


def test_the_embedded_server_is_started_for_it_but_not_made(tmp_path: Path) -> None:
    machine = hook_kit.Machine(tmp_path / "none", AGENTMEM_PG_BIN=servers.bin_dir())
    assert report(machine, 1)["database"]["state"] == "missing"
    assert "agentmem init" in agentmem(machine, "status", code=1).stdout
    with hook_kit.embedded_machine(tmp_path / "some") as (machine, database):
        server = servers.server_for(machine.agentmem)
        assert cluster.stop(server, servers.soon())
        found = report(machine, 0)["database"]
        assert (found["kind"], found["state"]) == ("embedded", "running")
        assert found["database_bytes"] > 5e6
        assert database.one("select 1") == 1


@pytest.mark.parametrize("columns", [15, 40, 80, 120])
def test_on_a_terminal(machine: Machine, columns: int) -> None:
    assert machine.run("Stop", b"").code == 1
    screen = on_terminal(machine, "status", columns=columns)
    assert screen.code == 1
    assert max(map(len, screen.lines)) <= columns
    assert "\x1b[1;31m" in screen.raw
    assert "\x1b[31" not in on_terminal(machine, "status", columns=columns, NO_COLOR="1").raw
