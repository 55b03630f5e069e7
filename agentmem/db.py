"""The main tower's way to Postgres: psycopg, set up so that it works through a transaction pooler too.

No prepared statements, no session state, no `options`: see https://www.psycopg.org/psycopg3/docs/advanced/prepare.html
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row, tuple_row

from agentmem import cluster, libpq
from agentmem.errors import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import LiteralString

    from agentmem.paths import Paths
    from agentmem.settings import Settings

CONNECT_SECONDS = 10.0

Connection = psycopg.Connection[DictRow]


def params_for(paths: Paths, settings: Settings) -> dict[str, str]:
    """libpq's parameters for the database in force: {"dbname": URL} for the user's own one."""
    if settings.database_url:
        return {"dbname": settings.database_url}
    return cluster.connect_params(embedded(paths, settings))


def embedded(paths: Paths, settings: Settings) -> cluster.Cluster:
    """The embedded server of this installation, running or not."""
    return cluster.cluster_for(paths, cluster.find_bin_dir(settings.pg_bin, settings.site_dirs))


def start_if_embedded(paths: Paths, settings: Settings, *, create: bool = False) -> None:
    """Make sure that the embedded server runs; nothing to do for a database of the user's own."""
    if not settings.database_url:
        cluster.ensure_running(
            embedded(paths, settings),
            time.monotonic() + (60 if create else CONNECT_SECONDS),
            create=create,
            idle_minutes=settings.idle_minutes,
        )


def connect(params: dict[str, str]) -> Connection:
    """Connect with libpq's parameters; autocommit, rows as dicts. DatabaseError with the code that hooks use too."""
    secrets = libpq.secrets_in(params)
    libpq.forget_environment(os.environ)
    try:
        return psycopg.Connection[DictRow].connect(
            _spelled_out(params),
            autocommit=True,
            prepare_threshold=None,
            row_factory=dict_row,
        )
    except psycopg.Error as error:
        raise libpq.not_connected(libpq.hide(str(error), secrets)) from None


def _spelled_out(params: dict[str, str]) -> str:
    defaults = {"connect_timeout": str(int(CONNECT_SECONDS)), "application_name": "agentmem"}
    try:
        # A whole URL travels as `dbname`, as libpq allows.
        url = params["dbname"] if len(params) == 1 else ""
        parsed = conninfo_to_dict(url) if url else conninfo_to_dict(**params)
        given = {name: str(value) for name, value in parsed.items() if value is not None}
    except psycopg.Error as error:
        raise DatabaseError(
            "db_url",
            f"AGENTMEM_DATABASE_URL can't be read: {libpq.hide(str(error), libpq.secrets_in(params))}",
            "Write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with special characters as %XX.",
        ) from None
    return make_conninfo(**{**defaults, **given})


def for_psql(params: dict[str, str]) -> tuple[str, str]:
    """A connection string for psql's command line, which everybody can read, and the password, which isn't in it."""
    given = conninfo_to_dict(_spelled_out(params))
    password = str(given.pop("password", None) or "")
    return make_conninfo("", **given), password


@contextmanager
def session(paths: Paths, settings: Settings) -> Generator[Connection]:
    """A connection to the database in force, the embedded server started when it is not running."""
    start_if_embedded(paths, settings)
    with connect(params_for(paths, settings)) as connection, errors_as_ours():
        yield connection


@contextmanager
def errors_as_ours() -> Generator[None]:
    """Turns psycopg's errors into DatabaseError with our codes."""
    try:
        yield
    except psycopg.Error as error:
        raise libpq.error_for(error.sqlstate or "", str(error)) from error


class Fallback:
    """The interface of `libpq.Connection` over psycopg, for a machine on which libpq can't be loaded alone."""

    def __init__(self, params: dict[str, str]) -> None:
        self._connection = connect(params)

    def query(self, sql: str, params: list[str | None], deadline: float) -> list[list[str | None]]:
        """Run one statement with text parameters ($1, ...). The deadline is the hook's own watchdog's."""
        del deadline
        with errors_as_ours(), psycopg.RawCursor(self._connection, row_factory=tuple_row) as cursor:
            # A literal of this package.
            cursor.execute(cast("LiteralString", sql), params)
            return [[None if value is None else str(value) for value in row] for row in cursor.fetchall()]

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
