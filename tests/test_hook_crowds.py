"""Many hooks at once, and transcripts that change under their eyes: no deadlock, no loss, no line twice."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hook_kit
import pytest
import servers
from hook_kit import FIELDS, HANGS_AFTER, SLUG, Done, Machine, Session, all_at_once, assert_stored

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from hook_kit import Database

postgres, database = hook_kit.postgres, hook_kit.database

RECORDED = Path(__file__).parent / "data" / "claude" / "transcripts"
CROWD = 20
PATIENT = {"AGENTMEM_HOOK_SECONDS": "60"}
"""A crowd on two busy cores may take longer than a person should have to wait."""


@pytest.fixture
def machine(database: Database, tmp_path: Path) -> Machine:
    return Machine(tmp_path, database.url, **PATIENT)


@pytest.fixture(params=["embedded", "by URL"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Machine, Database]]:
    """An installation with the embedded server, and one with a database of the user's own: two ways to Postgres."""
    if request.param == "embedded":
        with hook_kit.embedded_machine(tmp_path) as (machine, database):
            machine.configure(**PATIENT)
            yield machine, database
    else:
        yield request.getfixturevalue("machine"), request.getfixturevalue("database")


def assert_all_well(database: Database, machine: Machine, done: list[Done]) -> None:
    assert [(one.code, one.err) for one in done] == [(0, "")] * len(done)
    assert [run["outcome"] for run in database.runs()] == ["ok"] * len(done)
    assert machine.spooled() == []
    assert machine.drafts() == []


# Crowds


def test_a_crowd_on_one_session(either: tuple[Machine, Database]) -> None:
    machine, database = either
    session = machine.session()
    for number in range(50):
        session.turn(number)
    done = all_at_once(machine, [([*FIELDS, "Stop"][number % 5], session) for number in range(CROWD)])
    assert_all_well(database, machine, done)
    assert_stored(database, session)


def test_a_crowd_on_as_many_sessions(either: tuple[Machine, Database]) -> None:
    """The first hooks of a new machine, in a new project: its rows are made by all of them at once."""
    machine, database = either
    shutil.rmtree(machine.agentmem / "state" / "cache")
    (machine.agentmem / "state" / "host_id").unlink()
    sessions = [machine.session() for _ in range(CROWD)]
    for session in sessions:
        session.turn(1)
    done = all_at_once(machine, [([*FIELDS][number % 4], session) for number, session in enumerate(sessions)])
    assert_all_well(database, machine, done)
    assert_stored(database, *sessions)
    assert database.one("select count(*) from agentmem.hosts") == 1
    assert database.one("select count(*) from agentmem.projects") == 1
    assert database.one("select count(*) from agentmem.sessions") == CROWD
    assert len({run["host_id"] for run in database.runs()}) == 1


def test_a_crowd_over_what_waits(machine: Machine, database: Database) -> None:
    """Hooks that drain the same spool at once: each event is taken by one of them."""
    sessions = [machine.session() for _ in range(CROWD)]
    machine.configure(AGENTMEM_DATABASE_URL="postgresql://me@/mine?host=/nowhere", **PATIENT)
    for session in sessions:
        session.turn(1)
    assert {done.code for done in all_at_once(machine, [("Stop", session) for session in sessions])} == {1}
    assert len(machine.spooled()) == CROWD
    machine.configure(AGENTMEM_DATABASE_URL=database.url, **PATIENT)
    done = all_at_once(machine, [("Stop", session) for session in sessions[:10]])
    assert [(one.code, one.err) for one in done] == [(0, "")] * 10
    assert machine.spooled() == []
    assert_stored(database, *sessions)
    outcomes = [run["outcome"] for run in database.runs()]
    assert (outcomes.count("deferred"), outcomes.count("ok")) == (CROWD, 10)


def waiting_captures(database: Database, count: int) -> None:
    """Wait until so many captures wait for a lock."""
    servers.until(
        lambda: database.one(
            "select count(*) = %s from pg_stat_activity where datname = %s and wait_event_type = 'Lock'"
            " and query like '%%agentmem.capture%%'",
            count,
            database.name,
        )
    )


def test_captures_lock_rows_in_one_order(machine: Machine, database: Database) -> None:
    """A Stop with a new subagent and a SessionStart of the same session: each wanted what the other held."""
    session = machine.session()
    session.turn(1)
    assert machine.hook("SessionStart", session).code == 0
    session.turn(2)
    agent = Session(machine, "agent-x", session.path.with_suffix("") / "subagents")
    agent.append(agent.line("user", "look", isSidechain=True, agentId="x", sessionId=session.key))
    started: list[subprocess.Popen[bytes]] = []
    with database.connect() as holder:
        with holder.transaction():
            holder.execute("select 1 from agentmem.sessions for update")
            # The start doesn't sweep, where it would wait before it has locked anything.
            for count, (event, fields) in enumerate((("Stop", {}), ("SessionStart", {"transcript_path": ""})), 1):
                process = machine.start(event)
                started.append(process)
                assert process.stdin
                process.stdin.write(json.dumps(machine.payload(event, session, **fields)).encode())
                process.stdin.close()
                process.stdin = None
                waiting_captures(database, count)
        for process in started:
            with process:
                _, err = process.communicate(timeout=HANGS_AFTER)
            assert (process.returncode, err) == (0, b"")
        # Servers count them when they end.
        others = "select count(*) = 1 as alone from pg_stat_activity where datname = current_database()"
        servers.until(lambda: holder.execute(others).fetchone() == {"alone": True})
        deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
        assert holder.execute(deadlocks).fetchone() == {"deadlocks": 0}
    assert_stored(database, session)
    assert database.one("select count(*) from agentmem.sessions where parent_id is not null") == 1


def test_a_capture_that_lost_a_deadlock_is_made_again(machine: Machine, database: Database) -> None:
    """Whatever else is at work in the database: the one that Postgres chooses tries again, and succeeds."""
    session = machine.session()
    session.turn(1)
    assert machine.hook("Stop", session).code == 0
    session.turn(2)
    with database.connect() as other, machine.start("Stop") as process:
        other.execute("set deadlock_timeout = '1min'")
        with other.transaction():
            # The hook locks its session first and its transcript then; this one goes the other way.
            other.execute("select 1 from agentmem.transcripts for update")
            assert process.stdin
            process.stdin.write(json.dumps(machine.payload("Stop", session)).encode())
            process.stdin.close()
            process.stdin = None
            waiting_captures(database, 1)
            other.execute("select 1 from agentmem.sessions for update")
        out, err = process.communicate(timeout=HANGS_AFTER)
    assert (process.returncode, out, err) == (0, b"", b"")
    assert_stored(database, session)
    assert [run["outcome"] for run in database.runs()] == ["ok", "ok"]


# A file that changes


@contextlib.contextmanager
def writer(session: Session, turns: int) -> Iterator[tuple[threading.Thread, threading.Event]]:
    """A client at work: lines come in pieces of any length; the last ones once the event is set."""
    go_on = threading.Event()
    lines = [
        (kind, session.line(kind, f"{kind} {number} " + "é🙂" * (number % 700)))
        for number in range(turns)
        for kind in ("user", "assistant")
    ]
    place = session.size()
    for kind, raw in lines:
        record = json.loads(raw)
        content = record["message"]["content"]
        text = content if kind == "user" else content[0]["text"]
        session.turns.append((record["uuid"], place, "prompt" if kind == "user" else "answer", text))
        place += len(raw)

    def write() -> None:
        whole = b"".join(raw for _, raw in lines)
        with session.path.open("ab", buffering=0) as stream:
            for start in range(0, len(whole), 997):
                if start > len(whole) * 0.8:
                    go_on.wait()
                stream.write(whole[start : start + 997])
                os.fsync(stream.fileno())

    thread = threading.Thread(target=write)
    thread.start()
    yield thread, go_on
    go_on.set()
    thread.join()


def test_a_file_that_grows_while_it_is_read(machine: Machine, database: Database) -> None:
    session = machine.session()
    session.turn(1)
    hooks = 0
    with writer(session, 600) as (thread, go_on):
        while thread.is_alive():
            done = all_at_once(machine, [("Stop", session), ("UserPromptSubmit", session)])
            assert [(one.code, one.err) for one in done] == [(0, "")] * 2
            hooks += 1
            if hooks == 3:
                go_on.set()
    assert machine.hook("Stop", session) == (0, "", "")
    assert_stored(database, session)
    assert database.one("select count(*) from agentmem.receipts") > 2


def test_two_clients_in_one_file(machine: Machine, database: Database) -> None:
    """One session resumed twice: both append, both announce."""
    session = machine.session()
    for number in range(10):
        session.turn(number)
        session.say("user", f"of the other one {number}", promptSource="other")
        done = all_at_once(machine, [("Stop", session), ("Stop", session)])
        assert [(one.code, one.err) for one in done] == [(0, "")] * 2
    assert_stored(database, session)
    assert_all_well(database, machine, [Done(0, "", "")] * 20)


def test_half_a_last_line(machine: Machine, database: Database) -> None:
    session = machine.session()
    session.turn(1)
    whole = session.line("user", "half 한국어 🙂 and half")
    place = session.size()
    for cut in (1, 10, whole.index("국".encode()) + 1, len(whole) - 2):
        session.append(whole[session.size() - place : cut])
        assert machine.hook("Stop", session) == (0, "", "")
        assert database.one("select committed from agentmem.transcripts") == place
    # Whole, but without its line end: no JSON object is the beginning of another.
    session.append(whole[session.size() - place : -1])
    session.turns.append((json.loads(whole)["uuid"], place, "prompt", "half 한국어 🙂 and half"))
    assert machine.hook("Stop", session) == (0, "", "")
    assert_stored(database, session)
    session.append(b"\n")
    session.turn(2)
    assert machine.hook("Stop", session) == (0, "", "")
    assert_stored(database, session)


def truncate(session: Session) -> None:
    """To its first line."""
    os.truncate(session.path, session.turns[1][1])
    del session.turns[1:]


def rewrite(session: Session) -> None:
    """In place, the same number of bytes, other lines."""
    size, inode = session.size(), session.path.stat().st_ino
    os.truncate(session.path, 0)
    session.turns.clear()
    session.say("user", "rewritten")
    rest = size - session.size() - len(session.line("assistant", ""))
    session.say("assistant", "y" * rest)
    assert (session.size(), session.path.stat().st_ino) == (size, inode)


def replace(session: Session) -> None:
    """By a longer file of the same name."""
    other = session.path.with_suffix(".new")
    path, session.path = session.path, other
    session.turns.clear()
    for number in range(10):
        session.turn(100 + number)
    other.rename(path)
    session.path = path


@pytest.mark.parametrize(
    ("change", "event"),
    # Not a rewritten one at a start: a sweep goes by sizes. It is seen when the session is announced.
    [(truncate, "Stop"), (rewrite, "Stop"), (replace, "Stop"), (truncate, "SessionStart"), (replace, "SessionStart")],
)
def test_a_file_that_is_not_what_it_was(machine: Machine, database: Database, change: Any, event: str) -> None:
    """It is read again from its start; what stood in it before stays, with its proof."""
    session = machine.session()
    for number in range(3):
        session.turn(number)
    assert machine.hook("Stop", session) == (0, "", "")
    before = {turn[0]: turn for turn in session.turns}
    change(session)
    assert machine.hook(event, session).code == 0
    after = {turn[0]: turn for turn in session.turns}
    database.assert_sound()
    rows = database.rows("select uuid, position, kind, text from agentmem.turns")
    stored = {row["uuid"]: tuple(row.values()) for row in rows}
    assert stored == {**before, **after}
    assert database.one("select generation from agentmem.transcripts") == 2
    session.turn(50)
    assert machine.hook("Stop", session) == (0, "", "")
    assert database.one("select committed from agentmem.transcripts") == session.size()
    database.assert_sound()


def test_a_crowd_finds_another_file(machine: Machine, database: Database) -> None:
    session = machine.session()
    session.turn(1)
    assert machine.hook("Stop", session) == (0, "", "")
    known = session.turns.copy()
    replace(session)
    done = all_at_once(machine, [("Stop", session)] * 10)
    assert [(one.code, one.err) for one in done] == [(0, "")] * 10
    database.assert_sound()
    assert database.one("select generation from agentmem.transcripts") == 2
    assert database.one("select count(*) from agentmem.turns") == len(known) + len(session.turns)


# What no hook announces


def agent_file(machine: Machine, session: Session, name: str) -> Session:
    agent = Session(machine, f"agent-{name}", session.path.with_suffix("") / "subagents")
    agent.path.parent.mkdir(parents=True, exist_ok=True)
    agent.path.with_suffix(".meta.json").write_text('{"agentType":"general-purpose","finished":true}')
    return agent


def test_subagents_appear(machine: Machine, database: Database) -> None:
    session = machine.session()
    session.turn(1)
    assert machine.hook("Stop", session) == (0, "", "")
    agents = [agent_file(machine, session, name) for name in ("a1", "b2")]
    for number, agent in enumerate(agents):
        uuid = agent.say("user", f"look {number}", isSidechain=True, agentId=agent.key[6:], sessionId=session.key)
        assert uuid
        assert machine.hook("Stop", session) == (0, "", "")
        agent.say("assistant", "found", isSidechain=True, agentId=agent.key[6:], sessionId=session.key)
    assert machine.hook("SessionEnd", session) == (0, "", "")
    for agent in agents:
        agent.key = f"{session.key}/{agent.key[6:]}"
    assert_stored(database, session, *agents)
    children = database.rows(
        "select s.key, s.agent_type, count(t.origin) as copied from agentmem.sessions s"
        " join agentmem.turns t on t.session_id = s.id where s.parent_id is not null group by s.id order by s.key"
    )
    assert children == [{"key": agent.key, "agent_type": "general-purpose", "copied": 0} for agent in agents]


def test_a_start_sweeps_what_no_hook_announced(machine: Machine, database: Database) -> None:
    """Clients that were killed, or that had their hooks switched off."""
    sessions = [Session(machine, folder=machine.projects / f"-folder-{number}") for number in range(5)]
    for number, session in enumerate(sessions):
        session.turn(number)
    agent = agent_file(machine, sessions[0], "a1")
    agent.say("user", "look", isSidechain=True, agentId="a1", sessionId=sessions[0].key)
    agent.key = f"{sessions[0].key}/a1"
    new = machine.session()
    start = machine.hook("SessionStart", new)
    assert (start.code, start.err) == (0, "")
    assert_stored(database, *sessions, agent)
    for session in sessions:
        assert session.key[:8] in start.digest
    sessions[2].turn(20)
    assert machine.hook("SessionStart", new).code == 0
    assert_stored(database, *sessions, agent)


def test_forks_know_where_they_come_from(machine: Machine, database: Database) -> None:
    """Copied lines are stored with the fork, and named as copies: by the client's own mark or by their ids."""
    original = machine.session()
    for number in range(3):
        original.turn(number)
    assert machine.hook("Stop", original) == (0, "", "")
    # --fork-session: the new id in each line, no mark. /branch: a mark in each line.
    forks = [machine.session() for _ in range(2)]
    for fork, marked in zip(forks, (False, True), strict=True):
        for line in original.path.read_bytes().splitlines(keepends=True):
            record = json.loads(line)
            if "sessionId" in record:
                record["sessionId"] = fork.key
                if marked:
                    record["forkedFrom"] = {"sessionId": original.key, "messageUuid": record["uuid"]}
                fork.turns.append((record["uuid"], fork.size(), *original.turns[len(fork.turns)][2:]))
            fork.append(json.dumps(record, ensure_ascii=False).encode() + b"\n")
        fork.turn(9)
        assert machine.hook("Stop", fork) == (0, "", "")
    assert_stored(database, original, *forks)
    for fork in forks:
        rows = database.rows(
            "select t.origin, s.forked_from, s.first_prompt from agentmem.turns t"
            " join agentmem.sessions s on s.id = t.session_id where s.key = %s order by position",
            fork.key,
        )
        assert [row["origin"] for row in rows] == [original.key] * 6 + [None] * 2
        assert {row["forked_from"] for row in rows} == {original.key}
        assert {row["first_prompt"] for row in rows} == {fork.turns[6][3]}
    copied = (
        "select count(origin) from agentmem.turns t join agentmem.sessions s on s.id = t.session_id where s.key = %s"
    )
    assert database.one(copied, original.key) == 0


def test_a_recorded_fork(machine: Machine, database: Database) -> None:
    shutil.copytree(RECORDED / "fork", machine.projects / SLUG, dirs_exist_ok=True)
    for name in ("5317f091-323a-436c-a9e5-ef69a9e55c60", "18a2e346-69b0-4369-b0d3-14f1f4e1ebbf"):
        assert machine.hook("Stop", machine.session(name)) == (0, "", "")
    fork = database.rows("select key, forked_from from agentmem.sessions where forked_from is not null")
    assert fork == [
        {"key": "18a2e346-69b0-4369-b0d3-14f1f4e1ebbf", "forked_from": "5317f091-323a-436c-a9e5-ef69a9e55c60"}
    ]
    database.assert_sound()
