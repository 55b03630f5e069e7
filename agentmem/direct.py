"""The fastest way to the embedded server: Postgres' own protocol over its Unix socket, without libpq.

Loading libpq through ctypes costs a hook 8 ms, a third of what it costs in all. The embedded server needs none of what
libpq is for (passwords, TLS, hosts): a session is opened, one parameterised statement at a time is run, that is all.
The session's opening is not waited for before the first statement: the server starts it while the hook reads on.

Source: https://www.postgresql.org/docs/current/protocol-flow.html
"""

from __future__ import annotations

import time

from agentmem import handshake
from agentmem.errors import ClusterError, DatabaseError
from agentmem.refusals import error_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable


class Connection:
    """One session; the same interface as libpq.Connection. Made by `connect`."""

    __slots__ = ("_buffer", "_opened", "_restart", "_socket", "_target")

    def __init__(self, target: tuple[str, str], restart: Callable[[float], object], deadline: float) -> None:
        self._target = target
        self._restart = restart
        self._socket = _begin(*target, deadline)
        self._buffer = bytearray()
        self._opened = False

    def query(self, sql: str, params: list[str | None], deadline: float) -> list[list[str | None]]:
        """Run one statement with text parameters ($1, ...); its rows as text.

        `deadline` is a value of time.monotonic(). DatabaseError: db_timeout when it passes (the statement may still be
        committed), db_lost when the connection breaks, otherwise by SQLSTATE.
        """
        try:
            self._wait_until(deadline)
            if not self._opened:
                self._open(deadline)
            self._socket.sendall(_extended_query(sql, params))
            return self._rows(deadline)
        except TimeoutError:
            raise DatabaseError(
                "db_timeout", "the database did not answer in time", "Is the machine overloaded?"
            ) from None
        except (ConnectionError, EOFError) as error:
            raise DatabaseError(
                "db_lost", f"the database connection broke: {error}", "It is tried again at the next hook."
            ) from None
        except ClusterError as error:
            raise error_for(error.sqlstate, error.message) from None

    def close(self) -> None:
        """End the session; a second call does nothing."""
        self._socket.close()

    def _open(self, deadline: float) -> None:
        """Wait until the session is open; a server that is just stopping is started again, once."""
        try:
            handshake.await_ready(self._socket, self._buffer)
        except (ClusterError, ConnectionError, EOFError) as error:
            if isinstance(error, ClusterError) and error.sqlstate != handshake.CANNOT_CONNECT_NOW:
                raise
            self._socket.close()
            self._restart(deadline)
            self._socket = _begin(*self._target, deadline)
            self._buffer.clear()
            handshake.await_ready(self._socket, self._buffer)
        self._opened = True

    def _rows(self, deadline: float) -> list[list[str | None]]:
        rows: list[list[str | None]] = []
        refused: ClusterError | None = None
        while True:
            self._wait_until(deadline)
            kind, body = handshake.next_message(self._socket, self._buffer)
            if kind == b"D":
                rows.append(_fields(body))
            elif kind == b"E":
                refused = refused or handshake.refusal(body)
            elif kind == b"Z":
                break
        if refused:
            raise refused
        return rows

    def _wait_until(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)


def connect(socket_path: str, database: str, restart: Callable[[float], object], deadline: float) -> Connection:
    """Begin a session with the embedded server; `restart` makes sure that it runs, until a deadline.

    Whether the server lets us in shows at the first statement. DatabaseError: db_unreachable, db_timeout, db_lost.
    """
    target = (socket_path, database)
    try:
        return Connection(target, restart, deadline)
    except DatabaseError as error:
        if error.code != "db_unreachable":
            raise
    restart(deadline)
    return Connection(target, restart, deadline)


def _begin(socket_path: str, database: str, deadline: float) -> _socket.socket:
    """Connect and send the startup packet, without waiting for its answer."""
    try:
        socket = handshake.open_socket(socket_path, deadline)
    except TimeoutError:
        raise DatabaseError(
            "db_timeout", f"{socket_path} did not answer in time", "Is the machine overloaded?"
        ) from None
    except OSError as error:
        raise DatabaseError("db_unreachable", f"{socket_path}: {error.strerror}", "See: agentmem db status") from None
    try:
        socket.sendall(handshake.startup(database))
    except OSError as error:
        socket.close()
        raise DatabaseError(
            "db_lost", f"{socket_path}: {error.strerror}", "It is tried again at the next hook."
        ) from None
    return socket


def _extended_query(sql: str, params: list[str | None]) -> bytes:
    """Parse, bind, execute and sync, in one piece; all parameters and results as text."""
    values = bytearray(len(params).to_bytes(2, "big"))
    for param in params:
        if param is None:
            values += b"\xff\xff\xff\xff"
        else:
            raw = param.encode("utf-8")
            values += len(raw).to_bytes(4, "big") + raw
    return (
        _message(b"P", b"\0" + sql.encode("utf-8") + b"\0\0\0")
        + _message(b"B", b"\0\0\0\0" + bytes(values) + b"\0\0")
        + _message(b"E", b"\0\0\0\0\0")
        + _message(b"S", b"")
    )


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4, "big") + body


def _fields(body: bytes) -> list[str | None]:
    values: list[str | None] = []
    at = 2
    for _ in range(int.from_bytes(body[:2], "big")):
        length = int.from_bytes(body[at : at + 4], "big", signed=True)
        at += 4
        values.append(None if length < 0 else body[at : at + length].decode("utf-8"))
        at += max(length, 0)
    return values
