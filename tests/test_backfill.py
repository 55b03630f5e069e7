"""`agentmem backfill`: what is on disk comes into the database once, and what is damaged there is made anew."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hook_kit
import pytest
from cli_kit import agentmem, checks
from hook_kit import assert_stored
from terminal import on_terminal

from agentmem import backfill, settings
from agentmem.crew import Crew, Job
from agentmem.errors import AgentmemError
from agentmem.sources import Source

if TYPE_CHECKING:
    from hook_kit import Database, Machine, Session

postgres, database, machine = hook_kit.postgres, hook_kit.database, hook_kit.machine
RECORDED = Path(__file__).parent / "data" / "claude" / "transcripts"
STORED = """
    select s.key, t.uuid, t.position, t.role, t.kind, t.text, t.tools, t.origin, t.at, t.parent, t.message, t.model
    from agentmem.turns t join agentmem.sessions s on s.id = t.session_id order by s.key, t.position, t.uuid
"""


def written(machine: Machine, turns: int = 3, key: str = "") -> Session:
    """A session that is on disk, and that no hook told of."""
    made = machine.session(key)
    for number in range(turns):
        made.turn(number)
    return made


def done(machine: Machine, *arguments: str, code: int = 0) -> list[list[str]]:
    """What the backfill did: what, session, bytes, turns, why."""
    text = agentmem(machine, "backfill", *arguments, code=code).stdout
    return [line.split("\t") for line in text.split("\n") if "\t" in line]


def dated(session: Session, day: int) -> Session:
    """The session's file as if it had been changed last on that day."""
    os.utime(session.path, (day * 86400, day * 86400))
    return session


# What is on disk


def test_nothing_is_there(machine: Machine) -> None:
    assert agentmem(machine, "backfill").stdout == "nothing was to be done\n"
    dry = agentmem(machine, "backfill", "--dry-run")
    assert (dry.stdout, dry.stderr) == ("", f"no transcript that fits is in {machine.projects}\n")


def test_all_that_is_on_disk_once(machine: Machine, database: Database) -> None:
    sessions = [dated(written(machine, number), 20000 - number) for number in range(1, 6)]
    assert [row[:4] for row in done(machine)] == [
        ["capture", one.key, str(one.size()), str(2 * number)] for number, one in reversed(list(enumerate(sessions, 1)))
    ]
    assert_stored(database, *sessions)
    before = database.rows("select * from agentmem.receipts"), database.rows("select * from agentmem.transcripts")
    assert done(machine) == []
    assert agentmem(machine, "backfill", "--quick").stdout == "nothing was to be done\n"
    after = database.rows("select * from agentmem.receipts"), database.rows("select * from agentmem.transcripts")
    assert after == before
    found = checks(machine, "--no-canary", code=None)
    assert [check["verdict"] for name in ("coverage", "receipts") for check in found[name]] == ["pass", "pass"]


def test_a_dry_run_lists_and_writes_nothing(machine: Machine, database: Database) -> None:
    new, grown, changed = (written(machine) for _ in range(3))
    done(machine)
    grown.turn(9)
    shutil.copy(changed.path, changed.path.with_suffix(".bak"))
    database.rows(
        "delete from agentmem.turns where session_id = (select id from agentmem.sessions where key = %s)", new.key
    )
    changed.path.write_bytes(changed.path.read_bytes().replace(b"answer 2", b"ANSWER 2"))
    other = written(machine, 2)
    tables = ("sessions", "turns", "receipts", "transcripts", "hook_runs", "projects", "hosts")
    before = [database.rows(f"select * from agentmem.{name} order by 1") for name in tables]  # noqa: S608
    files = sorted(path for path in machine.agentmem.rglob("*") if path.is_file())
    listed = {row[1]: (row[0], row[3]) for row in done(machine, "--dry-run")}
    assert listed == {
        new.key: ("read again", "turn_missing, turns_missing"),
        grown.key: ("go on", "tail"),
        changed.key: ("read again", "file_rewritten"),
        other.key: ("capture", "never_captured"),
    }
    assert [database.rows(f"select * from agentmem.{name} order by 1") for name in tables] == before  # noqa: S608
    assert sorted(path for path in machine.agentmem.rglob("*") if path.is_file()) == files
    assert {row[1]: (row[0], row[4]) for row in done(machine)} == listed
    database.assert_sound()
    assert done(machine) == []


def test_recordings_become_what_hooks_make_of_them(machine: Machine, database: Database, tmp_path: Path) -> None:
    folder = machine.projects / "-home-dev-project"
    for scenario in RECORDED.iterdir():
        shutil.copytree(scenario, folder, dirs_exist_ok=True)
    agentmem(machine, "backfill")
    database.assert_sound()
    stored = database.rows(STORED)
    assert len(stored) > 200
    # The same again, but the other way round: a hook sweeps all of it in.
    database.rows("truncate agentmem.sessions, agentmem.transcripts cascade")
    shutil.rmtree(machine.agentmem / "state" / "cache")
    assert machine.hook("SessionStart", machine.session()).code == 0
    swept = database.rows(STORED)
    without = [{**row, "origin": None} for row in stored]
    assert [{**row, "origin": None} for row in swept] == without


def test_a_fork_comes_after_its_original_whatever_the_times_of_their_files(
    machine: Machine, database: Database
) -> None:
    """An original that was gone on with is younger than its fork."""
    folder = machine.projects / "-home-dev-project"
    fork, original = "18a2e346-69b0-4369-b0d3-14f1f4e1ebbf", "5317f091-323a-436c-a9e5-ef69a9e55c60"
    shutil.copytree(RECORDED / "fork", folder)
    os.utime(folder / f"{fork}.jsonl", (1000, 1000))
    os.utime(folder / f"{original}.jsonl", (2000, 2000))
    assert [row[1] for row in done(machine)] == [original, fork]
    origins = database.rows(
        "select distinct s.key, t.origin from agentmem.turns t join agentmem.sessions s on s.id = t.session_id"
        " where t.kind in ('prompt', 'answer') order by 1, 2 nulls first"
    )
    assert [(row["key"], row["origin"]) for row in origins] == [(fork, None), (fork, original), (original, None)]
    prompts = database.rows("select first_prompt from agentmem.sessions where key = %s", fork)
    assert "second" in prompts[0]["first_prompt"]


def test_only_what_is_wanted(machine: Machine) -> None:
    old, new = dated(written(machine), 100), written(machine)
    assert [row[1] for row in done(machine, "--session", new.key[:9])] == [new.key]
    assert done(machine, "--since", "1d") == []
    assert [row[1] for row in done(machine, "--since", "1970-01-02")] == [old.key]


def test_another_folder_of_the_client(machine: Machine, tmp_path: Path) -> None:
    session = written(machine)
    (machine.home / ".claude").rename(tmp_path / "elsewhere")
    assert done(machine) == []
    for option in ("--config-dir", "--client-dir"):
        assert [row[1] for row in done(machine, option, os.fspath(tmp_path / "elsewhere"), "--dry-run")] == [
            session.key
        ]


def test_afterwards_a_session_start_has_nothing_to_sweep(machine: Machine, database: Database) -> None:
    dated(written(machine), 100)
    done(machine, "--since", "2020-01-01")
    assert database.one("select count(*) from agentmem.turns") == 0
    done(machine)
    database.rows("truncate agentmem.sessions, agentmem.transcripts cascade")
    assert machine.hook("SessionStart", machine.session()).code == 0
    assert database.one("select count(*) from agentmem.turns") == 0


def test_a_file_that_is_none_and_lines_that_are_none(machine: Machine, database: Database) -> None:
    session = written(machine)
    session.append(b'half a line that is no JSON\n{"type":"of-a-new-kind"}\n{"type":"user"')
    odd = machine.projects / hook_kit.SLUG / "odd.jsonl"
    odd.mkdir()
    (machine.projects / hook_kit.SLUG / "empty.jsonl").touch()
    shown = agentmem(machine, "backfill").stdout
    assert "1 line held no JSON object, or more than one; what could be read was\n" in shown
    assert "lines of unknown types, counted only: of-a-new-kind (1)\n" in shown
    assert database.one("select committed from agentmem.transcripts") == session.size() - len(b'{"type":"user"')
    assert done(machine) == []


def test_without_the_database(machine: Machine) -> None:
    written(machine)
    machine.configure(AGENTMEM_DATABASE_URL="postgresql://me@/mine?host=/nowhere/at/all")
    assert "db_unreachable" in agentmem(machine, "backfill", code=1).stderr


# What is damaged

DAMAGES = {
    "a turn is gone": "delete from agentmem.turns where text = 'prompt 1 한국어 🙂'",
    "all turns are gone": "delete from agentmem.turns",
    "a turn was changed": "update agentmem.turns set text = 'a lie' where text = 'prompt 1 한국어 🙂'",
    "a turn was changed, with its hash": "update agentmem.turns set text = 'a lie',"
    " sha256 = agentmem.turn_hash(kind, 'a lie', tools) where text = 'prompt 1 한국어 🙂'",
    "a kind was changed": "update agentmem.turns set kind = 'notice',"
    " sha256 = agentmem.turn_hash('notice', text, tools) where text = 'prompt 1 한국어 🙂'",
    "a turn was moved": "update agentmem.turns set position = 1 where text like 'answer 2%'",
    "a receipt is gone": "delete from agentmem.receipts where start_offset > 0",
    "all receipts are gone": "delete from agentmem.receipts",
    "a receipt has another hash": "update agentmem.receipts set sha256 = repeat('0', 64) where start_offset = 0",
    "a receipt counts other lines": "update agentmem.receipts set lines = lines + 1 where start_offset = 0",
    "a receipt counts other turns": "update agentmem.receipts set turns = turns + 1 where start_offset = 0",
    "the end was forgotten": "update agentmem.transcripts set committed = committed - 100",
    "the position is too far": "update agentmem.transcripts set committed = committed + 100",
    "the session is gone": "delete from agentmem.sessions",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_mended_and_nothing_else_changes(machine: Machine, database: Database, damage: str) -> None:
    session, other = written(machine), written(machine)
    for one in (session, other):
        assert machine.hook("Stop", one).code == 0
        one.turn(3)
        assert machine.hook("SessionEnd", one).code == 0
    before = database.rows(STORED)
    untouched = database.rows("select * from agentmem.receipts order by id")
    # Of one session only, as `where` allows: the statements above say nothing of sessions.
    with database.connect() as connection, connection.transaction():
        for table in ("turns", "receipts", "transcripts", "sessions"):
            _only_of(connection, table, session.key)
        connection.execute(
            DAMAGES[damage]
            .replace("agentmem.turns", "pg_temp.turns")
            .replace("agentmem.receipts", "pg_temp.receipts")
            .replace("agentmem.transcripts", "pg_temp.transcripts")
            .replace("agentmem.sessions", "pg_temp.sessions")
        )
    assert [row[1] for row in done(machine)] == [session.key]
    assert database.rows(STORED) == before
    assert_stored(database, session, other)
    assert done(machine) == []
    found = checks(machine, "--no-canary", code=None)
    assert [check["verdict"] for name in ("coverage", "receipts") for check in found[name]] == ["pass", "pass"]
    left = {row["id"] for row in database.rows("select id from agentmem.receipts")}
    assert {row["id"] for row in untouched if row["transcript_id"] != untouched[0]["transcript_id"]} <= left


def _only_of(connection: Any, table: str, key: str) -> None:
    """A view of one session's rows under the table's own name, which writes go through."""
    conditions = {
        "sessions": "key = '{key}'",
        "turns": "session_id = (select id from agentmem.sessions where key = '{key}')",
        "transcripts": "session_id = (select id from agentmem.sessions where key = '{key}')",
        "receipts": "transcript_id in (select f.id from agentmem.transcripts f join agentmem.sessions s"
        " on s.id = f.session_id where s.key = '{key}')",
    }
    condition = conditions[table].format(key=key)
    connection.execute(f"create temporary view {table} as select * from agentmem.{table} where {condition}")  # noqa: S608


def test_a_turn_that_the_file_does_not_have_any_more_is_kept_and_reported(machine: Machine, database: Database) -> None:
    session = written(machine)
    done(machine)
    lines = session.path.read_bytes().split(b"\n")
    gone = session.turns.pop(2)
    session.path.write_bytes(b"\n".join(line for line in lines if gone[0].encode() not in line))
    shown = agentmem(machine, "backfill").stdout
    assert f"kept: 1 turn of session {session.key} that its files don't have any more\n" in shown
    assert database.one("select text from agentmem.turns where uuid = %s", gone[0]) == gone[3]
    database.assert_sound()
    assert done(machine) == []


def test_a_kept_turn_that_is_lost_is_said_once(machine: Machine, database: Database) -> None:
    session = written(machine)
    done(machine)
    gone = session.turns[2]
    lines = session.path.read_bytes().split(b"\n")
    session.path.write_bytes(b"\n".join(line for line in lines if gone[0].encode() not in line))
    done(machine)
    database.rows("delete from agentmem.turns where uuid = %s", gone[0])
    first = agentmem(machine, "backfill", code=1)
    assert "[turns_missing]: it was in an earlier version of the file" in first.stderr
    database.assert_sound()
    assert agentmem(machine, "backfill").stdout == "nothing was to be done\n"


def test_damage_to_a_session_whose_file_is_gone_is_said(machine: Machine, database: Database) -> None:
    session = written(machine)
    done(machine)
    session.path.unlink()
    database.rows("update agentmem.turns set text = 'x' where kind = 'prompt'")
    found = agentmem(machine, "backfill", code=1)
    assert found.stdout == "nothing was to be done\n"
    assert f"can't be mended: {session.key}: turn " in found.stderr
    assert "[turn_changed]: its file is gone" in found.stderr


def test_what_another_machine_captured_is_left_to_it(machine: Machine, database: Database, tmp_path: Path) -> None:
    other = hook_kit.Machine(tmp_path / "other", database.url)
    session = written(other)
    done(other)
    database.rows("update agentmem.turns set text = 'x' where kind = 'prompt'")
    assert agentmem(machine, "backfill").stdout == "nothing was to be done\n"
    assert [row[:2] for row in done(other)] == [["read again", session.key]]


# Many at once


def much(machine: Machine, sessions: int, size: int) -> list[Session]:
    """Sessions of so many bytes each."""
    found: list[Session] = []
    for _ in range(sessions):
        made = machine.session()
        made.path.parent.mkdir(parents=True, exist_ok=True)
        with made.path.open("ab") as stream:
            while stream.tell() < size:
                key = str(uuid.uuid4())
                made.turns.append((key, stream.tell(), "prompt", "한" * 500))
                stream.write(made.line("user", "한" * 500, uuid=key))
        found.append(made)
    return found


def jobs_for(sessions: list[Session]) -> list[Job]:
    return [
        Job(one.key, [Source(os.fspath(one.path), one.key)], one.size(), "never_captured", [], place)
        for place, one in enumerate(sessions)
    ]


def test_processes_do_what_one_does(machine: Machine, database: Database) -> None:
    sessions = much(machine, 12, 200_000)
    known = settings.load(machine.paths)
    seen: list[int] = []
    with Crew(machine.paths, known, 3) as crew:
        outcomes = [
            outcome for some in crew.capture(backfill.families(jobs_for(sessions)), seen.append) for outcome in some
        ]
    assert {outcome.error for outcome in outcomes} == {""}
    assert sum(seen) == sum(outcome.bytes_read for outcome in outcomes) == sum(one.size() for one in sessions)
    assert_stored(database, *sessions)


def test_a_process_that_is_killed_is_reported(machine: Machine, database: Database) -> None:
    sessions = much(machine, 6, 200_000)
    known = settings.load(machine.paths)
    with Crew(machine.paths, known, 1) as crew:
        outcomes = crew.capture([[job] for job in jobs_for(sessions)], lambda _size: None)
        next(outcomes)
        assert crew._pool is not None
        for pid in crew._pool._processes:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(AgentmemError, match="a process of the backfill was ended"):
            list(outcomes)
    assert 0 < database.one("select count(*) from agentmem.transcripts") < len(sessions)
    database.assert_sound()
    done(machine)
    assert_stored(database, *sessions)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs Linux to see the processes")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_it_can_be_stopped_at_any_time(machine: Machine, database: Database, number: int) -> None:
    sessions = much(machine, 8, 5 << 20)
    command = [os.path.join(os.path.dirname(sys.executable), "agentmem"), "backfill"]
    with subprocess.Popen(
        command,
        env=machine.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        while not database.one("select count(*) from agentmem.receipts"):
            assert process.poll() is None
        workers = [f"/proc/{pid}" for pid in children_of(process.pid)]
        if len(os.sched_getaffinity(0)) > 1:
            assert len(workers) >= 2
        os.kill(process.pid, number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == (1 if number == signal.SIGINT else -signal.SIGKILL)
    assert "Traceback" not in err
    while any(os.path.exists(worker) and "Z" not in Path(worker, "stat").read_text().split()[2] for worker in workers):
        pass
    database.assert_sound()
    done(machine)
    assert_stored(database, *sessions)


# The order of the work


def named(machine: Machine, key: str, *others: str) -> Job:
    """A session whose first lines name others."""
    made = machine.session(key)
    for other in others:
        made.say("user", "copied", sessionId=other)
    made.say("user", f'not a name: "sessionId":"{key[::-1]}"')
    return Job(key, [Source(os.fspath(made.path), key)], made.size(), "never_captured", [], 0.0)


def test_families(machine: Machine) -> None:
    jobs = [
        named(machine, "fork-of-a-fork", "the-first-fork"),
        named(machine, "alone-in-the-world"),
        named(machine, "the-first-fork", "the-original", "not-among-them"),
        named(machine, "one-of-a-circle", "two-of-a-circle"),
        named(machine, "the-original"),
        named(machine, "two-of-a-circle", "one-of-a-circle"),
        named(machine, "of-two-families", "alone-in-the-world", "the-original"),
    ]
    found = [[job.session for job in family] for family in backfill.families(jobs)]
    assert sorted(key for family in found for key in family) == sorted(job.session for job in jobs)
    (big,) = [family for family in found if "the-original" in family]
    assert set(big) == {
        "the-original", "the-first-fork", "fork-of-a-fork", "of-two-families", "alone-in-the-world",
    }  # fmt: skip
    order = {key: place for place, key in enumerate(big)}
    assert order["the-original"] < order["the-first-fork"] < order["fork-of-a-fork"]
    assert order["of-two-families"] > max(order["alone-in-the-world"], order["the-original"])
    assert ["two-of-a-circle", "one-of-a-circle"] in found


# On a terminal


def test_on_a_terminal_there_is_a_bar_and_a_summary(machine: Machine) -> None:
    sessions = much(machine, 2, 300_000)
    screen = on_terminal(machine, "backfill", columns=300)
    assert screen.code == 0
    size = sum(one.size() for one in sessions)
    text = " ".join(screen.lines)
    assert f"2 transcripts in {machine.projects}, {size / 1000:.1f} kB: 2 sessions to capture or mend" in text
    assert "capturing" in text
    assert "MB/s" in text
    assert f"2 sessions captured or mended: {size / 1000:.1f} kB" in text
    dry = on_terminal(machine, "backfill", "--dry-run", columns=60)
    assert "0 sessions to capture" in " ".join(dry.lines)
