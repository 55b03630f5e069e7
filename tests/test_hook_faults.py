"""Hooks while the database is broken, in each way that it can be: nothing is lost, and the person is told."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import hook_kit
import psycopg
import pytest
import servers
from hook_kit import HANGS_AFTER, Database, Machine, assert_stored
from psycopg.rows import dict_row
from wire import Wire

from agentmem import SCHEMA, cluster, db, migrations, postmaster
from agentmem.migrations import Migration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from hook_kit import Done, Session

    from agentmem.cluster import Cluster

postgres, database = hook_kit.postgres, hook_kit.database

PASSWORD = "p@ss/w#rd:x %C3"


@pytest.fixture
def wire(postgres: Cluster) -> Iterator[Wire]:
    found = Wire(postgres.socket_path)
    yield found
    found.close()


def url_of(database: Database, wire: Wire) -> str:
    return f"postgresql://{hook_kit.LOGIN}:{quote(PASSWORD, safe='')}@/{database.name}?host={wire.folder}"


class Patient:
    """A database with a way to it that can be broken, and a connection of the test's own that is always there."""

    def __init__(self, database: Database, wire: Wire, admin: psycopg.Connection[dict[str, Any]]) -> None:
        self.database = database
        self.wire = wire
        self.admin = admin

    def do(self, sql: str, *values: object) -> list[dict[str, Any]]:
        cursor = self.admin.execute(sql.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def patient(postgres: Cluster, database: Database, wire: Wire) -> Iterator[Patient]:
    params = {**cluster.connect_params(postgres), "dbname": "postgres"}
    with psycopg.connect(**params, autocommit=True, row_factory=dict_row) as admin:
        patient = Patient(database, wire, admin)
        patient.do(f"alter role {hook_kit.LOGIN} password '{PASSWORD}'")
        yield patient


# The ways to break it; each yields nothing and mends it at its end


@contextlib.contextmanager
def down(patient: Patient) -> Iterator[None]:
    patient.wire.down()
    yield
    patient.wire.up()


@contextlib.contextmanager
def wrong_password(patient: Patient) -> Iterator[None]:
    patient.do(f"alter role {hook_kit.LOGIN} password 'another'")
    yield
    patient.do(f"alter role {hook_kit.LOGIN} password '{PASSWORD}'")


@contextlib.contextmanager
def read_only(patient: Patient) -> Iterator[None]:
    patient.do(f"alter database {patient.database.name} set default_transaction_read_only = on")
    yield
    patient.do(f"alter database {patient.database.name} reset default_transaction_read_only")


@contextlib.contextmanager
def too_many(patient: Patient) -> Iterator[None]:
    with contextlib.ExitStack() as held:
        with contextlib.suppress(psycopg.OperationalError):
            while True:
                held.enter_context(psycopg.connect(patient.database.url))
        yield


@contextlib.contextmanager
def too_many_for_one_user(patient: Patient) -> Iterator[None]:
    patient.do(f"alter role {hook_kit.LOGIN} connection limit 0")
    patient.do(f"alter role {hook_kit.LOGIN} nosuperuser")
    yield
    patient.do(f"alter role {hook_kit.LOGIN} superuser connection limit -1")


@contextlib.contextmanager
def no_schema(patient: Patient) -> Iterator[None]:
    patient.database.rows("alter schema agentmem rename to away")
    yield
    patient.database.rows("alter schema away rename to agentmem")


@contextlib.contextmanager
def newer_schema(patient: Patient) -> Iterator[None]:
    """Another machine has upgraded; mended by upgrading this one, which the test can't, so it goes back."""
    newer = Migration(SCHEMA + 1, "newer", "-- breaking\nselect 1", "0" * 64, breaking=True)
    with db.connect({"dbname": patient.database.url}) as connection:
        assert migrations.migrate(connection, [newer]) == [newer]
    yield
    patient.database.rows(
        "create or replace function agentmem.needed_schema() returns integer language sql immutable as 'select 1'"
    )


def on_the_wire(mode: str) -> Callable[[Patient], AbstractContextManager[None]]:
    @contextlib.contextmanager
    def broken(patient: Patient) -> Iterator[None]:
        patient.wire.mode = mode
        yield
        patient.wire.mode = "pass"
        assert patient.wire.met.is_set()

    return broken


@contextlib.contextmanager
def terminated(patient: Patient) -> Iterator[None]:
    """The server ends the connection while the statement is under way (it waits for a lock then)."""
    with patient.database.connect() as holder, contextlib.ExitStack() as stack:
        holder.autocommit = False
        holder.execute("select 1 from agentmem.sessions for update")
        killer = stack.enter_context(in_thread(kill_waiting, patient))
        yield
        killer.join()
        holder.rollback()


@contextlib.contextmanager
def in_thread(target: Callable[..., None], *arguments: object) -> Iterator[Any]:
    import threading

    thread = threading.Thread(target=target, args=arguments)
    thread.start()
    yield thread
    thread.join()


def kill_waiting(patient: Patient) -> None:
    servers.until(
        lambda: patient.do(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = %s and wait_event_type = 'Lock' and query like '%%agentmem.capture%%'",
            patient.database.name,
        )
    )


cut_after = on_the_wire("cut_after")

BREAKAGES: dict[str, tuple[Callable[[Patient], AbstractContextManager[None]], str, str]] = {
    "down": (down, "db_unreachable", "1"),
    "wrong password": (wrong_password, "db_auth", "1"),
    "hanging listener": (on_the_wire("hang"), "db_timeout", "1"),
    "read only": (read_only, "db_read_only", "5"),
    "too many connections": (too_many, "db_too_many", "5"),
    "too many of one user": (too_many_for_one_user, "db_too_many", "5"),
    "no schema": (no_schema, "schema_missing", "5"),
    "newer schema": (newer_schema, "schema_newer", "5"),
    "cut before the capture": (on_the_wire("cut_before"), "db_lost", "5"),
    "cut after the capture": (cut_after, "db_lost", "5"),
    "no answer to the capture": (on_the_wire("mute"), "db_timeout", "1"),
    "terminated": (terminated, "db_lost", "20"),
}
"""How to break it, the code that a hook has for that, and how many seconds a hook is given."""


def assert_told(event: str, done: Done, code: str, session: Session) -> None:
    """In the form that the client shows."""
    assert done.code == 1
    assert f"agentmem: {event}: " in done.err
    assert f"[{code}]" in done.err
    assert "1 event waits in the spool, nothing is lost" in done.err
    if event != "SessionStart":
        assert done.out == ""
        return
    assert f"[{code}]" in done.answer["systemMessage"]
    assert "1 event waits in the spool" in done.answer["systemMessage"]
    assert f"[{code}]" in done.digest
    assert "earlier prompt" in done.digest
    if code != "db_read_only":
        assert "COULD NOT LOAD" in done.digest
        assert "ago, from the cache" in done.digest


@pytest.mark.parametrize("event", hook_kit.FIELDS)
@pytest.mark.parametrize("name", BREAKAGES)
def test_a_broken_database(patient: Patient, tmp_path: Path, name: str, event: str) -> None:
    break_it, code, seconds = BREAKAGES[name]
    machine = Machine(tmp_path, url_of(patient.database, patient.wire), AGENTMEM_HOOK_SECONDS=seconds)
    break_and_mend(patient, machine, break_it, code, event)


@pytest.mark.parametrize("event", hook_kit.FIELDS)
@pytest.mark.parametrize("name", [name for name in BREAKAGES if name not in ("wrong password", "too many of one user")])
def test_a_broken_embedded_database(postgres: Cluster, tmp_path: Path, name: str, event: str) -> None:
    """The embedded server is spoken to without libpq; here its socket is the wire."""
    break_it, code, seconds = BREAKAGES[name]
    machine = Machine(tmp_path, AGENTMEM_HOOK_SECONDS=seconds)
    socket_dir = servers.server_for(machine.agentmem).socket_dir
    os.makedirs(socket_dir, mode=0o700, exist_ok=True)
    with contextlib.ExitStack() as stack:
        params = {**cluster.connect_params(postgres), "dbname": "postgres"}
        admin = stack.enter_context(psycopg.connect(**params, autocommit=True, row_factory=dict_row))
        admin.execute("drop database agentmem with (force)")
        admin.execute("create database agentmem template pattern")
        wire = Wire(postgres.socket_path, socket_dir)
        stack.callback(wire.close)
        patient = Patient(Database(postgres, "agentmem"), wire, admin)
        # Where nothing listens, the server would be started; there is none to start.
        break_and_mend(patient, machine, break_it, "cluster_missing" if name == "down" else code, event)


def break_and_mend(
    patient: Patient,
    machine: Machine,
    break_it: Callable[[Patient], AbstractContextManager[None]],
    code: str,
    event: str,
) -> None:
    database = patient.database
    earlier, session = machine.session(), machine.session()
    earlier.say("user", "earlier prompt")
    session.turn(1)
    assert machine.hook("Stop", earlier) == (0, "", "")
    assert machine.hook("SessionStart", session).code == 0
    session.turn(2)

    with break_it(patient):
        done = machine.hook(event, session)
    assert_told(event, done, code, session)
    (waiting,) = machine.spooled()
    assert waiting["run"]["outcome"] == "deferred"
    assert waiting["run"]["error_code"] == code
    assert PASSWORD not in done.err + done.out + json.dumps(waiting)
    assert quote(PASSWORD, safe="") not in done.err + done.out + json.dumps(waiting)

    # Mended: one more hook stores everything.
    assert machine.hook("Stop", session) == (0, "", "")
    committed = break_it is cut_after and event != "SessionStart"
    assert [(run["event"], run["outcome"], run["error_code"]) for run in database.runs()] == [
        ("Stop", "ok", None),
        ("SessionStart", "ok", None),
        (event, "ok", None) if committed else (event, "deferred", code),
        ("Stop", "ok", None),
    ]
    assert_stored(database, earlier, session)
    assert machine.spooled() == []
    assert machine.drafts() == []
    assert PASSWORD not in json.dumps(database.runs(), default=str)


# More ways to wait in vain


@pytest.mark.parametrize(
    "lock",
    [
        b"select 1 from agentmem.sessions for update",
        # As a migration has it.
        b"lock table agentmem.hook_runs in access exclusive mode",
    ],
)
def test_a_lock_that_is_not_free(patient: Patient, tmp_path: Path, lock: bytes) -> None:
    machine = Machine(tmp_path, patient.database.url)
    session = machine.session()
    session.turn(1)
    assert machine.hook("Stop", session) == (0, "", "")
    with patient.database.connect() as holder, holder.transaction():
        holder.execute(lock)
        assert_told("Stop", machine.hook("Stop", session), "db_locked", session)
    assert machine.hook("Stop", session) == (0, "", "")
    assert [run["error_code"] for run in patient.database.runs()] == [None, "db_locked", None]


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("53100", "db_full"),
        ("40001", "capture_contended"),
        ("57014", "db_timeout"),
        ("42501", "db_no_right"),
        ("54000", "db_error"),
        ("XX000", "db_error"),
    ],
)
def test_whatever_the_database_says(patient: Patient, tmp_path: Path, state: str, code: str) -> None:
    """Disk full, serialisation, cancelled, forbidden, too big, broken: the event waits until that is over."""
    machine = Machine(tmp_path, patient.database.url)
    session = machine.session()
    session.turn(1)
    patient.database.rows(
        "create function public.refuse() returns trigger language plpgsql as"
        f" $$ begin raise exception 'not now' using errcode = '{state}', detail = 'said: ' || new.text; end $$;"
        " create trigger refuse before insert on agentmem.turns for each row execute function public.refuse()"
    )
    done = machine.hook("Stop", session)
    assert_told("Stop", done, code, session)
    assert "prompt 1" not in done.err
    assert "prompt 1" not in json.dumps(machine.spooled())
    patient.database.rows("drop trigger refuse on agentmem.turns")
    assert machine.hook("Stop", session) == (0, "", "")
    assert_stored(patient.database, session)
    assert [(run["outcome"], run["error_code"]) for run in patient.database.runs()] == [
        ("deferred", code),
        ("ok", None),
    ]


def test_a_host_that_does_not_answer(tmp_path: Path) -> None:
    """No refusal, just nothing: what a firewall does that drops packets."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        place = listener.getsockname()
        for _ in range(4):
            # Connections that are never accepted fill the queue; what comes after them gets no answer.
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(place)
        machine = Machine(tmp_path, f"postgresql://me:secret@127.0.0.1:{place[1]}/mine", AGENTMEM_HOOK_SECONDS="1")
        assert_told("Stop", machine.hook("Stop", machine.session()), "db_timeout", machine.session())
        assert len(machine.spooled()) == 1


def test_a_name_server_that_does_not_answer(tmp_path: Path) -> None:
    """libpq looks up the host's name in one call that nothing ends but the watchdog."""
    namespaces = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*namespaces, "true"], capture_output=True).returncode:
        pytest.skip("needs namespaces of its own")
    machine = Machine(tmp_path, "postgresql://me:secret@db.example.com/mine", AGENTMEM_HOOK_SECONDS="1")
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:20 attempts:2\n")
    (tmp_path / "nsswitch.conf").write_text("hosts: dns\n")
    raw = json.dumps(machine.payload("Stop", machine.session())).encode()
    # A name server that takes each question and says nothing.
    silent = textwrap.dedent(f"""
        import fcntl, os, socket, struct, subprocess, sys
        here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        fcntl.ioctl(here, 0x8914, struct.pack("16sH14x", b"lo", 1 | 64))  # SIOCSIFFLAGS: up, running
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind(("127.0.0.1", 53))
        server.set_inheritable(True)
        for name in ("resolv.conf", "nsswitch.conf"):
            subprocess.run(["mount", "--bind", {os.fspath(tmp_path)!r} + "/" + name, "/etc/" + name], check=True)
        os.execv(sys.argv[1], sys.argv[1:])
    """)
    command = [*namespaces, sys.executable, "-c", silent, *machine.command("Stop")]
    done = subprocess.run(command, input=raw, env=machine.environ(), capture_output=True, timeout=HANGS_AFTER)
    assert done.returncode == 1, done
    assert (
        b"the hook hung in stage connect and was ended (1 event waits in the spool, nothing is lost) [hook_hung]"
        in done.stderr
    )
    (waiting,) = machine.spooled()
    assert (waiting["run"]["outcome"], waiting["run"]["error_code"]) == ("deferred", "hook_hung")


def test_a_url_with_a_raw_password(tmp_path: Path) -> None:
    """libpq takes a part of it for the host, and would print it."""
    machine = Machine(tmp_path, "postgresql://me:open@sesame/sec#ret@127.0.0.1:1/mine")
    for event in hook_kit.FIELDS:
        done = machine.hook(event, machine.session())
        assert done.code == 1
        assert "nothing is lost" in done.err
        assert "sesame" not in str(done)
        assert "sec#ret" not in str(done)
    assert "sesame" not in json.dumps(machine.spooled())


# What waits


def refuse(database: Database, key: str) -> None:
    """From now on the database takes nothing of this session."""
    database.rows(
        f"create function public.refuse() returns trigger language plpgsql as "
        f"$$ begin raise exception 'no room for %', new.key; end $$;"
        f"create trigger refuse before insert on agentmem.sessions for each row when (new.key = '{key}')"
        f" execute function public.refuse()"
    )


def test_an_event_that_cant_be_stored_holds_up_no_other(patient: Patient, tmp_path: Path) -> None:
    database = patient.database
    machine = Machine(tmp_path, url_of(database, patient.wire))
    poison, *others = [machine.session() for _ in range(4)]
    refuse(database, poison.key)
    with down(patient):
        for session in (poison, *others):
            session.turn(1)
            assert machine.hook("Stop", session).code == 1
    later = machine.session()
    later.turn(1)
    assert machine.hook("Stop", later) == (0, "", "")
    assert_stored(database, later, *others)
    (waiting,) = machine.spooled()
    assert waiting["session"]["key"] == poison.key
    assert waiting["tries"] == 1
    assert waiting["last_error"].startswith("db_error: ")
    # Whoever starts a session is told, time and again, until it is mended.
    for _ in range(2):
        start = machine.hook("SessionStart", later)
        assert start.code == 1
        assert f"no room for {poison.key}" in start.answer["systemMessage"]
        assert "wait in the spool: 1" in start.digest
    database.rows("drop trigger refuse on agentmem.sessions")
    assert machine.hook("SessionStart", later).code == 0
    assert_stored(database, poison, later, *others)
    assert machine.spooled() == []
    # One row a run: 4 that waited, Stop, 3 starts.
    assert len(database.runs()) == 8


def test_a_damaged_record_is_set_aside_and_told(patient: Patient, tmp_path: Path) -> None:
    machine = Machine(tmp_path, url_of(patient.database, patient.wire))
    session = machine.session()
    session.turn(1)
    with down(patient):
        assert machine.hook("Stop", session).code == 1
    (record,) = (machine.agentmem / "state" / "spool").glob("*.json")
    raw = record.read_bytes()
    record.write_bytes(raw[: len(raw) // 2])
    start = machine.hook("SessionStart", session)
    assert start.code == 1
    assert "[spool_damaged]" in start.answer["systemMessage"]
    again = machine.hook("SessionStart", session)
    assert "events in the spool that can't be read: 1" in again.answer["systemMessage"]
    (aside,) = (machine.agentmem / "state" / "spool" / "damaged").iterdir()
    assert aside.read_bytes() == raw[: len(raw) // 2]
    # The transcript is its own log: nothing of the session is lost.
    assert_stored(patient.database, session)


def test_what_waits_is_stored_by_whatever_hook_comes_next(patient: Patient, tmp_path: Path) -> None:
    machine = Machine(tmp_path, url_of(patient.database, patient.wire))
    sessions = [machine.session() for _ in range(5)]
    with down(patient):
        for number, event in enumerate([*hook_kit.FIELDS] * 5):
            sessions[number % 5].turn(number)
            assert machine.hook(event, sessions[number % 5]).code == 1
        done = machine.hook("Stop", sessions[0])
        assert "21 events wait in the spool" in done.err
    assert machine.hook("UserPromptSubmit", machine.session()) == (0, "", "")
    assert machine.spooled() == []
    assert_stored(patient.database, *sessions)
    assert [run["outcome"] for run in patient.database.runs()] == ["deferred"] * 21 + ["ok"]
    # The newest event of a session counts, whatever order they were stored in: only one had its end last.
    ended = patient.database.rows("select key from agentmem.sessions where ended_at is not null")
    assert ended == [{"key": sessions[4].key}]


# The machine's own troubles


def test_a_cache_that_cant_be_written(patient: Patient, tmp_path: Path) -> None:
    """As on a full disk: the digest is given all the same, and what is wrong is told."""
    machine = Machine(tmp_path, patient.database.url)
    cache = machine.agentmem / "state" / "cache"
    (cache / "digests").write_text("no folder")
    (cache / "positions").write_text("no folder")
    session = machine.session()
    session.turn(1)
    assert machine.hook("Stop", session) == (0, "", "")
    start = machine.hook("SessionStart", machine.session())
    assert start.code == 1
    assert "prompt 1" in start.digest
    assert "[cache_unwritable]" in start.answer["systemMessage"]
    assert os.fspath(cache / "digests") in start.err
    assert [run["error_code"] for run in patient.database.runs()] == [None, "cache_unwritable"]
    assert_stored(patient.database, session)


def test_a_sweep_that_cant_be_noted(patient: Patient, tmp_path: Path) -> None:
    machine = Machine(tmp_path, patient.database.url)
    session = machine.session()
    session.turn(1)
    assert machine.hook("SessionStart", session).code == 0
    (marker,) = (machine.agentmem / "state" / "cache").glob("swept*")
    marker.unlink()
    marker.mkdir()
    start = machine.hook("SessionStart", session)
    assert start.code == 1
    assert "[cache_unwritable]" in start.answer["systemMessage"]
    assert_stored(patient.database, session)


def test_a_record_that_cant_be_read_is_told_and_holds_up_no_other(patient: Patient, tmp_path: Path) -> None:
    """Of another user, say, who ran the client with this home."""
    machine = Machine(tmp_path, url_of(patient.database, patient.wire))
    session = machine.session()
    session.turn(1)
    with down(patient):
        assert machine.hook("Stop", session).code == 1
    unreadable = machine.agentmem / "state" / "spool" / "00000000-0000-7000-8000-000000000000.json"
    unreadable.mkdir()
    assert machine.hook("Stop", session) == (0, "", "")
    assert list(unreadable.parent.glob("*.json")) == [unreadable]
    start = machine.hook("SessionStart", session)
    assert "[spool_unreadable]" in start.answer["systemMessage"]
    assert "wait in the spool: 1" in start.digest
    assert_stored(patient.database, session)


def test_more_than_a_hook_has_time_for(patient: Patient, tmp_path: Path) -> None:
    """Each hook stores a part, says so, and the next goes on where it ended."""
    machine = Machine(tmp_path, patient.database.url, AGENTMEM_HOOK_SECONDS="0.4")
    session = machine.session()
    begun, number, parts = 0, 0, 0
    while parts == 0:
        # Twice as much each time, until it takes a hook more than it has.
        begun, number = session.size(), max(20, number * 2)
        for _ in range(number):
            session.say("user", "long story " * 50_000)
        while (done := machine.hook("Stop", session)).code:
            # On a machine that is very busy, the last one is possible, too.
            assert re.search(r"\[(capture_unfinished|db_timeout|hook_hung)\]", done.err)
            parts += (
                begun
                < patient.database.one("select coalesce(max(committed), 0) from agentmem.transcripts")
                < session.size()
            )
    assert_stored(patient.database, session)
    # The last one may have had no time left for the events of those before it.
    machine.configure(AGENTMEM_DATABASE_URL=patient.database.url)
    while machine.spooled():
        assert machine.hook("Stop", session) == (0, "", "")
    assert_stored(patient.database, session)


def test_hooks_start_the_embedded_server(tmp_path: Path) -> None:
    """Stopped, or killed: whichever of them comes first starts it, and all are served."""
    with hook_kit.embedded_machine(tmp_path) as (machine, database):
        machine.configure(AGENTMEM_HOOK_SECONDS="20")
        server = servers.server_for(machine.agentmem)
        sessions = [machine.session() for _ in range(6)]
        for number, session in enumerate(sessions):
            session.turn(number)
        assert cluster.stop(server, servers.soon())
        assert machine.hook("Stop", sessions[0]) == (0, "", "")
        os.kill(postmaster.pid_of(server), signal.SIGKILL)
        done = hook_kit.all_at_once(machine, [("Stop", session) for session in sessions])
        assert [(one.code, one.err) for one in done] == [(0, "")] * len(sessions)
        assert_stored(database, *sessions)
