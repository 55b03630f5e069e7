"""Hooks as a client runs them: an installation and a database of their own, sessions whose transcripts grow.

Fixtures: `postgres` (a server for all tests), `database` (migrated, one a test), `machine` (an installation that uses
it). Nothing in here is a stand-in: the command is the registered one, the database is Postgres.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest
import servers
from psycopg.rows import dict_row

from agentmem import claude_hooks, cluster, db, jsonio, migrations, settings
from agentmem.paths import find_paths, hooks_dir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentmem.cluster import Cluster

SLUG = "-work"
LOGIN = "by_password"
"""A user of the tests' server who has to give a password; the tests give it one."""
HANGS_AFTER = 90.0
"""Seconds after which a hook that is still there is taken to hang; far above its own deadline."""

FIELDS: dict[str, dict[str, Any]] = {
    "SessionStart": {"source": "startup"},
    "UserPromptSubmit": {"prompt": "please", "permission_mode": "default"},
    "Stop": {"stop_hook_active": False, "last_assistant_message": "done", "background_tasks": []},
    "SessionEnd": {"reason": "other"},
}
"""What each event has beside the common fields."""


class Done(NamedTuple):
    """What a hook left."""

    code: int
    out: str
    err: str

    @property
    def answer(self) -> dict[str, Any]:
        """The JSON that it printed, whole."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found

    @property
    def digest(self) -> str:
        """What the model is given."""
        text = self.answer["hookSpecificOutput"]["additionalContext"]
        assert isinstance(text, str)
        return text


class Database:
    """A database that the schema was put into."""

    def __init__(self, cluster_: Cluster, name: str) -> None:
        self.name = name
        self.socket_dir = cluster_.socket_dir
        self.url = f"postgresql://agentmem@/{name}?host={cluster_.socket_dir}"

    def connect(self) -> psycopg.Connection[dict[str, Any]]:
        """A connection of the test's own; in autocommit."""
        return psycopg.connect(self.url, autocommit=True, row_factory=dict_row)

    def rows(self, sql: str, *values: object) -> list[dict[str, Any]]:
        """The rows of one statement."""
        with self.connect() as connection:
            cursor = connection.execute(sql, values or None)
            return cursor.fetchall() if cursor.description else []

    def one(self, sql: str, *values: object) -> Any:
        """The only value of one statement."""
        (row,) = self.rows(sql, *values)
        (value,) = row.values()
        return value

    def runs(self) -> list[dict[str, Any]]:
        """All hook runs, as they were started."""
        return self.rows("select * from agentmem.hook_runs order by started_at, id")

    def assert_sound(self) -> None:
        """What is stored agrees with its receipts, receipts are without a gap, and each line is there once."""
        assert self.rows("select * from agentmem.verify()") == []
        assert self.rows("select 1 from agentmem.turns group by session_id, uuid having count(*) > 1") == []


class Session:
    """A session that a client keeps in a file, and what of it has to be in the database."""

    def __init__(self, machine: Machine, key: str = "", folder: Path | None = None) -> None:
        self.key = key or str(uuid.uuid4())
        self.path = (folder or machine.projects / SLUG) / f"{self.key}.jsonl"
        self.cwd = os.fspath(machine.work)
        self.turns: list[tuple[str, int, str, str]] = []
        """Id, byte offset, kind and text of each line of the conversation."""

    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def line(self, kind: str, text: str, **more: object) -> bytes:
        """A line as the client writes it; it isn't in the file yet."""
        content: Any = text
        message: dict[str, Any] = {"role": kind, "content": content}
        if kind == "assistant":
            message.update(
                id=f"msg_{uuid.uuid4().hex}", model="claude-opus-5-5", content=[{"type": "text", "text": text}]
            )
        record = {
            "parentUuid": None,
            "isSidechain": False,
            "type": kind,
            "message": message,
            "uuid": str(uuid.uuid4()),
            "timestamp": "2026-11-20T10:00:00.000Z",
            "cwd": self.cwd,
            "sessionId": self.key,
            "version": "2.1.332",
            "gitBranch": "",
            **more,
        }
        return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"

    def append(self, raw: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as stream:
            stream.write(raw)

    def say(self, kind: str, text: str, **more: object) -> str:
        """Write a line of the conversation; its id."""
        raw = self.line(kind, text, **more)
        known = json.loads(raw)["uuid"]
        self.turns.append((known, self.size(), "prompt" if kind == "user" else "answer", text))
        self.append(raw)
        return str(known)

    def turn(self, number: int) -> None:
        """A prompt and its answer, with lines between that are no part of the conversation."""
        self.say("user", f"prompt {number} 한국어 🙂")
        self.append(b'{"type":"file-history-snapshot","messageId":"x"}\n')
        self.say("assistant", f"answer {number}\n" + "x" * 300)


class Machine:
    """One installation of agentmem, and a client that has its hooks registered."""

    def __init__(self, root: Path, url: str = "", **values: str) -> None:
        self.home = root / "person"
        self.agentmem = root / "agentmem"
        self.projects = self.home / ".claude" / "projects"
        self.work = root / "work"
        for folder in (self.projects / SLUG, self.work, self.agentmem / "config"):
            folder.mkdir(parents=True, exist_ok=True)
        self.paths = find_paths({}, os.fspath(self.agentmem))
        self.configure(AGENTMEM_DATABASE_URL=url, **values)

    def configure(self, **values: str) -> None:
        """Write the settings, and the cache of them that hooks read: as the installer does."""
        text = "".join(f"{name}='{value}'\n" for name, value in values.items())
        (self.agentmem / "config" / ".env").write_text(text, encoding="utf-8")
        settings.compile_cache(self.paths)

    def session(self, key: str = "") -> Session:
        return Session(self, key)

    def environ(self, **more: str) -> dict[str, str]:
        return {
            "HOME": os.fspath(self.home),
            "AGENTMEM_HOME": os.fspath(self.agentmem),
            "PATH": os.environ["PATH"],
            **more,
        }

    def command(self, event: str, *options: str) -> list[str]:
        """As it is registered: the interpreter and the file by their absolute paths, no shell."""
        registered = claude_hooks.wanted_hooks(sys.executable, hooks_dir(), "")
        # An event that isn't registered yet would be served by the same file as most.
        hook = registered.get(event) or registered["Stop"]
        arguments = [str(item) for item in jsonio.list_of(hook, "args")]
        arguments[arguments.index("claude-code") + 1] = event
        return [str(hook["command"]), *options, *arguments]

    def payload(self, event: str, session: Session, **fields: object) -> dict[str, Any]:
        return {
            "session_id": session.key,
            "transcript_path": os.fspath(session.path),
            "cwd": os.fspath(self.work),
            "hook_event_name": event,
            **FIELDS.get(event, {}),
            **fields,
        }

    def start(self, event: str, **how: Any) -> subprocess.Popen[bytes]:
        """The hook, with its stdin open."""
        given: dict[str, Any] = {"env": self.environ(), "cwd": self.work, **how}
        return subprocess.Popen(
            self.command(event), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **given
        )

    def run(self, event: str, raw: bytes, **how: Any) -> Done:
        """The hook with these bytes on its stdin, to its end."""
        with self.start(event, **how) as process:
            try:
                out, err = process.communicate(raw, timeout=HANGS_AFTER)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return Done(process.returncode, out.decode("utf-8"), err.decode("utf-8"))

    def hook(self, event: str, session: Session, **fields: object) -> Done:
        """The hook with an event of a session."""
        return self.run(event, json.dumps(self.payload(event, session, **fields)).encode() + b"\n")

    def spooled(self) -> list[dict[str, Any]]:
        """The events that wait."""
        spool = self.agentmem / "state" / "spool"
        return [json.loads(file.read_bytes()) for file in sorted(spool.glob("*.json"))]

    def drafts(self) -> list[Path]:
        """Files that were begun and not finished, wherever they are."""
        state = self.agentmem / "state"
        return [file for file in state.rglob(".*") if file.is_file() and not file.name.startswith(".s.PGSQL")]


def all_at_once(machine: Machine, events: list[tuple[str, Session]]) -> list[Done]:
    """All these hooks, let loose together."""
    started = [machine.start(event) for event, _ in events]
    for process, (event, session) in zip(started, events, strict=True):
        assert process.stdin
        process.stdin.write(json.dumps(machine.payload(event, session)).encode())
    for process in started:
        assert process.stdin
        process.stdin.close()
        process.stdin = None
    done: list[Done] = []
    for process in started:
        with process:
            out, err = process.communicate(timeout=HANGS_AFTER)
        done.append(Done(process.returncode, out.decode(), err.decode()))
    return done


@contextlib.contextmanager
def embedded_machine(root: Path) -> Iterator[tuple[Machine, Database]]:
    """An installation with the embedded server, which is what people have who set nothing, and its database."""
    with servers.running_server(root / "agentmem") as found:
        with db.connect(cluster.connect_params(found)) as connection:
            migrations.migrate(connection)
        yield Machine(root), Database(found, "agentmem")


def assert_stored(database: Database, *sessions: Session) -> None:
    """Every line of the conversations is there once, where it stands in the file, and the receipts prove the file."""
    database.assert_sound()
    for session in sessions:
        stored = database.rows(
            "select t.uuid, t.position, t.kind, t.text from agentmem.turns t"
            " join agentmem.sessions s on s.id = t.session_id where s.key = %s order by t.position",
            session.key,
        )
        assert [tuple(row.values()) for row in stored] == session.turns
        raw = session.path.read_bytes()
        receipts = database.rows(
            "select r.start_offset, r.end_offset, r.sha256 from agentmem.receipts r"
            " join agentmem.transcripts f on f.id = r.transcript_id and f.generation = r.generation"
            " where f.path = %s order by r.start_offset",
            os.fspath(session.path),
        )
        end = 0
        for receipt in receipts:
            assert receipt["start_offset"] == end
            end = receipt["end_offset"]
            assert hashlib.sha256(raw[receipt["start_offset"] : end]).hexdigest() == receipt["sha256"]
        assert end == len(raw)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A server for all tests of this process, with a migrated database `pattern` to copy."""
    folder = tempfile.mkdtemp(prefix="agentmem-hooks-")
    with servers.stopped_server(folder) as found:
        rules = os.path.join(found.data_dir, "pg_hba.conf")
        with open(rules, "r+", encoding="utf-8") as stream:
            before = stream.read()
            stream.seek(0)
            stream.write(f"local all {LOGIN} scram-sha-256\n{before}")
        servers.start(found)
        pattern = {**cluster.connect_params(found), "dbname": "pattern"}
        with psycopg.connect(**{**pattern, "dbname": "postgres"}, autocommit=True) as connection:
            connection.execute("create database pattern")
            connection.execute(f"create role {LOGIN} login superuser")
        with db.connect(pattern) as connection:
            migrations.migrate(connection)
        yield found
    shutil.rmtree(folder)


@pytest.fixture
def database(postgres: Cluster) -> Iterator[Database]:
    """A database of the test's own, with the schema in it and nothing else."""
    name = "test_" + uuid.uuid4().hex[:12]
    with psycopg.connect(**{**cluster.connect_params(postgres), "dbname": "postgres"}, autocommit=True) as connection:
        connection.execute(f"create database {name} template pattern")
        yield Database(postgres, name)
        connection.execute(f"drop database {name} with (force)")


@pytest.fixture
def machine(database: Database, tmp_path: Path) -> Machine:
    """An installation that uses the test's database."""
    return Machine(tmp_path, database.url)
