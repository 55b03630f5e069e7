"""`agentmem log` and `agentmem drain`: hook runs and what waits, with the database and without it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import hook_kit
from cli_kit import agentmem
from hook_kit import assert_stored
from terminal import on_terminal

if TYPE_CHECKING:
    from hook_kit import Database, Machine

postgres, database, machine = hook_kit.postgres, hook_kit.database, hook_kit.machine
NOWHERE = "postgresql://me:se-cret@/mine?host=/nowhere/at/all"


def runs(machine: Machine, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    found = json.loads(agentmem(machine, "log", "--json", *arguments, code=code).stdout)
    assert isinstance(found, list)
    return found


def rows(machine: Machine, *arguments: str, code: int = 0) -> list[list[str]]:
    return [line.split("\t") for line in agentmem(machine, "log", *arguments, code=code).stdout.split("\n")[:-1]]


def break_database(machine: Machine) -> None:
    machine.configure(AGENTMEM_DATABASE_URL=NOWHERE)


def test_no_hook_run_yet(machine: Machine) -> None:
    done = agentmem(machine, "log")
    assert (done.stdout, done.stderr) == ("", "No hook run is known yet.\n")
    assert runs(machine) == []
    assert agentmem(machine, "log", "--failed").stderr == "No hook run fits.\n"


def test_runs_newest_first_with_their_cause(machine: Machine) -> None:
    session = machine.session()
    session.turn(1)
    assert machine.hook("Stop", session).code == 0
    assert machine.run("Stop", b"{").code == 1
    failed, good = rows(machine)
    assert [good[1], good[2], good[3], good[5], good[6]] == ["Stop", "ok", "done", session.key[:8], "claude-code"]
    assert float(good[4]) > 0
    assert failed[1:4] == ["Stop", "failed", "parse"]
    assert failed[-1].endswith("[stdin_malformed]")
    assert [row[2] for row in rows(machine, "--failed")] == ["failed"]
    assert [row[2] for row in rows(machine, "--session", session.key[:5])] == ["ok"]
    assert [row[2] for row in rows(machine, "--event", "stop", "-n", "1")] == ["failed"]
    assert rows(machine, "--event", "SessionEnd") == rows(machine, "--since", "2100-01-01") == []
    assert [run["error_code"] for run in runs(machine)] == ["stdin_malformed", None]


def test_without_the_database_the_spool_is_listed(machine: Machine) -> None:
    session = machine.session()
    session.turn(1)
    assert machine.hook("SessionStart", session).code == 0
    break_database(machine)
    assert machine.hook("Stop", session).code == 1
    assert machine.hook("SessionEnd", session).code == 1
    done = agentmem(machine, "log", code=1)
    assert [line.split("\t")[1:3] for line in done.stdout.split("\n")[:-1]] == [
        ["SessionEnd", "waiting"], ["Stop", "waiting"],
    ]  # fmt: skip
    assert "[db_unreachable]" in done.stdout
    assert "only what waits in the spool is listed: the database can't be reached" in done.stderr
    assert "se-cret" not in done.stdout + done.stderr
    assert [run["event"] for run in runs(machine, "--event", "stop", code=1)] == ["Stop"]
    assert runs(machine, "--session", "x", code=1) == runs(machine, "--since", "2100-01-01", code=1) == []
    screen = on_terminal(machine, "log", columns=50)
    assert screen.code == 1
    assert max(map(len, screen.lines[:3])) <= 50
    assert "db_unreachable" in "".join(screen.lines)


def test_drain_stores_what_waits_and_the_log_says_that_it_was_late(machine: Machine, database: Database) -> None:
    assert agentmem(machine, "drain").stdout == "nothing waits\n"
    session = machine.session()
    session.turn(1)
    break_database(machine)
    assert machine.hook("Stop", session).code == 1
    session.turn(2)
    assert machine.hook("SessionEnd", session).code == 1
    done = agentmem(machine, "drain", code=1)
    assert "db_unreachable" in done.stderr
    assert len(machine.spooled()) == 2
    machine.configure(AGENTMEM_DATABASE_URL=database.url)
    assert [run["outcome"] for run in runs(machine)] == ["waiting", "waiting"]
    lines = agentmem(machine, "drain").stdout.split("\n")
    assert [line.rsplit(", ", 1)[0] for line in lines[:2]] == [
        f"stored: {event} of session {session.key[:8]}" for event in ("Stop", "SessionEnd")
    ]
    assert lines[2:] == ["2 events stored, 0 left", ""]
    assert machine.spooled() == []
    assert_stored(database, session)
    assert [run["outcome"] for run in runs(machine, "--failed")] == ["deferred", "deferred"]
    assert all("; stored " in row[-1] and row[-1].endswith(" later") for row in rows(machine))


def test_one_event_that_cannot_be_stored_does_not_keep_the_others(machine: Machine, database: Database) -> None:
    session = machine.session()
    session.turn(1)
    break_database(machine)
    for event in ("UserPromptSubmit", "Stop", "SessionEnd"):
        assert machine.hook(event, session).code == 1
    spool = machine.agentmem / "state" / "spool"
    first, second, _ = sorted(spool.glob("*.json"))
    record = json.loads(first.read_text())
    record["run"]["started_at"] = "not a time"
    first.write_text(json.dumps(record))
    second.write_text("not JSON")
    machine.configure(AGENTMEM_DATABASE_URL=database.url)
    done = agentmem(machine, "drain", code=1)
    assert done.stdout.endswith("1 event stored, 1 left; 1 event can't be read: see agentmem doctor\n")
    assert f"left: UserPromptSubmit of session {session.key[:8]}" in done.stderr
    assert [run["event"] for run in database.runs()] == ["SessionEnd"]
    left = [run for run in runs(machine) if run["outcome"] == "waiting"]
    assert [(run["event"], run["tries"]) for run in left] == [("UserPromptSubmit", 1)]
    assert "tried again 1 time" in agentmem(machine, "log").stdout
    assert "1 event can't be read" in agentmem(machine, "log").stderr


def test_an_event_that_a_hook_is_at_work_with_is_not_left(machine: Machine, database: Database) -> None:
    session = machine.session()
    with machine.start("Stop") as process:
        # It is stopped with its event in the spool: `drain` must leave it alone, and say that it is in work.
        assert process.stdin is not None
        with database.connect() as other, other.transaction():
            other.execute("lock table agentmem.sessions")
            process.stdin.write(json.dumps(machine.payload("Stop", session)).encode())
            process.stdin.close()
            while not list((machine.agentmem / "state" / "spool").glob("*.json")):
                assert process.poll() is None
            assert agentmem(machine, "drain").stdout == "nothing waits\n"
            assert [run["outcome"] for run in runs(machine)] == ["in work"]
        assert process.wait() == 0
    assert machine.spooled() == []


def test_an_event_that_may_not_be_read_is_listed(machine: Machine) -> None:
    spool = machine.agentmem / "state" / "spool"
    # Whoever runs this: what is no file can't be read as one.
    (spool / "01a231e8-0001-7000-8000-00000000000a.json").mkdir(parents=True)
    (found,) = runs(machine)
    assert (found["outcome"], found["error_code"]) == ("waiting", "spool_unreadable")
    assert "can't be read: Is a directory" in agentmem(machine, "log").stdout
    assert agentmem(machine, "status", code=1).stdout.startswith("status\tevents wait in the spool\n")
    assert "1 left" in agentmem(machine, "drain", code=1).stdout
