"""Migrations: the numbered SQL files, each applied once, in one transaction, and never changed afterwards.

All of them run under one advisory lock, so two machines that upgrade at once don't meet. A file whose text is
not the one that was applied is an error: what is released is never edited. A file that breaks older programs
says so in a line `-- breaking`; those programs then refuse to write (agentmem.require_schema).
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import TYPE_CHECKING, NamedTuple, cast

from agentmem import db, paths
from agentmem.errors import DatabaseError

if TYPE_CHECKING:
    from typing import LiteralString

    from agentmem.db import Connection
    from agentmem.paths import Paths
    from agentmem.settings import Settings

# "agentmem" as a number; released with the transaction, so it works through a transaction pooler.
_LOCK = "select pg_advisory_xact_lock(7020094128331224429)"

_BOOKS = """
create schema if not exists agentmem;
comment on schema agentmem is 'The memory of coding agents: sessions, turns, receipts, hook runs.';
create table if not exists agentmem.migrations (
    version    integer primary key,
    name       text not null,
    sha256     text not null,
    breaking   boolean not null default false,
    applied_at timestamptz not null default now()
);
comment on table agentmem.migrations is 'Which files of sql/ were applied, with the SHA-256 of their text.';
comment on column agentmem.migrations.breaking is 'Programs that don''t know this version refuse to write.';
"""


class Migration(NamedTuple):
    """One file of `sql/`: NNNN_name.sql."""

    version: int
    name: str
    text: str
    sha256: str
    breaking: bool


def read_migrations(folder: str = "") -> list[Migration]:
    """The migrations that this version ships, in order; DatabaseError when their numbers have a gap."""
    folder = folder or paths.sql_dir()
    found: list[Migration] = []
    for file in sorted(os.listdir(folder)):
        match = re.fullmatch(r"(\d{4})_(\w+)\.sql", file)
        if not match:
            continue
        with open(os.path.join(folder, file), encoding="utf-8") as stream:
            text = stream.read()
        digest = hashlib.sha256(text.encode()).hexdigest()
        breaking = re.search(r"^-- breaking\b", text, re.MULTILINE) is not None
        found.append(Migration(int(match[1]), match[2], text, digest, breaking))
    if [one.version for one in found] != list(range(1, len(found) + 1)):
        raise DatabaseError(
            "schema_gap", f"{folder}: the numbers of the SQL files have a gap", "Install agentmem again."
        )
    return found


def schema_version(connection: Connection) -> int:
    """The newest migration that was applied; 0 when the schema is not there."""
    row = connection.execute("select to_regclass('agentmem.migrations') is not null as there").fetchone()
    if not row or not row["there"]:
        return 0
    row = connection.execute("select coalesce(max(version), 0) as version from agentmem.migrations").fetchone()
    return int(row["version"]) if row else 0


def migrate(connection: Connection, wanted: list[Migration] | None = None) -> list[Migration]:
    """Apply what is missing; what was applied now. Nothing is applied when anything is wrong.

    DatabaseError: schema_changed (a released file was edited), or what the database says.
    """
    wanted = read_migrations() if wanted is None else wanted
    with connection.transaction():
        connection.execute(_LOCK)
        if schema_version(connection) == 0:
            connection.execute(_BOOKS)
    applied: list[Migration] = []
    for one in wanted:
        with connection.transaction():
            connection.execute(_LOCK)
            if _is_applied(connection, one):
                continue
            # A file of the package, not input.
            connection.execute(cast("LiteralString", one.text))
            connection.execute(
                "insert into agentmem.migrations (version, name, sha256, breaking) values (%s, %s, %s, %s)",
                (one.version, one.name, one.sha256, one.breaking),
            )
            if one.breaking:
                _raise_needed(connection, one.version)
        applied.append(one)
    return applied


def _raise_needed(connection: Connection, version: int) -> None:
    """Make programs that don't know this version refuse to write; a constant, so that asking costs a hook nothing."""
    body = f"select {version:d}"
    statement = (
        f"create or replace function agentmem.needed_schema() returns integer language sql immutable as '{body}'"
    )
    # A number of our own, not input.
    connection.execute(cast("LiteralString", statement))


def migrate_database(where: Paths, settings: Settings) -> list[Migration]:
    """Apply what is missing to the database in force; the embedded one is created when it is not there."""
    db.start_if_embedded(where, settings, create=True)
    with db.connect(db.params_for(where, settings)) as connection, db.errors_as_ours():
        return migrate(connection)


def _is_applied(connection: Connection, one: Migration) -> bool:
    row = connection.execute("select sha256 from agentmem.migrations where version = %s", (one.version,)).fetchone()
    if row is None:
        return False
    if row["sha256"] != one.sha256:
        raise DatabaseError(
            "schema_changed",
            f"migration {one.version} ({one.name}) is not the one that this database was built with",
            "Install a released version of agentmem.",
        )
    return True
