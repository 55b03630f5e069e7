"""Ask the embedded server directly, in a few bytes of Postgres' protocol over its socket: does it answer?

A process id, a pid file or a socket file prove nothing (a dead server leaves all of them behind); an answered
startup packet does. Needs neither libpq nor psycopg. Only for the embedded server: no passwords, no TLS.

Source: https://www.postgresql.org/docs/current/protocol-message-formats.html
"""

from __future__ import annotations

import time

from agentmem.errors import ClusterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket

READY = "ready"
COMING_OR_GOING = "coming or going"
"""It answers that it is starting up, shutting down or recovering, or is too busy to take the connection."""
DOWN = "down"
SILENT = "silent"
"""It took the connection and didn't answer before the deadline."""

CANNOT_CONNECT_NOW = "57P03"
"""SQLSTATE of a server that is starting, stopping or recovering."""
_PROTOCOL = (3 << 16).to_bytes(4, "big")


def probe(socket_path: str, deadline: float) -> str:
    """READY, COMING_OR_GOING, DOWN or SILENT; never later than `deadline` (a time.monotonic() value)."""
    try:
        connection = open_socket(socket_path, deadline)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        return DOWN
    except BlockingIOError:
        return COMING_OR_GOING
    except TimeoutError:
        return SILENT
    except PermissionError as error:
        raise ClusterError(
            "cluster_socket_denied",
            f"{socket_path} may not be opened: {error.strerror}",
            "The sandbox or the folder's rights forbid it; allow this path.",
        ) from error
    try:
        send_startup(connection, "agentmem")
        connection.sendall(b"X\x00\x00\x00\x04")
    except ClusterError as error:
        # Any other refusal (too many connections, no such database) comes from a server that is up.
        return COMING_OR_GOING if error.sqlstate == CANNOT_CONNECT_NOW else READY
    except TimeoutError:
        return SILENT
    except (ConnectionError, EOFError):
        return COMING_OR_GOING
    finally:
        connection.close()
    return READY


def query(socket_path: str, database: str, sql: str, deadline: float) -> list[list[str]]:
    """The rows of all statements in `sql`, NULL as ""; ClusterError with the server's words, OSError, EOFError."""
    connection = open_socket(socket_path, deadline)
    try:
        buffer = send_startup(connection, database)
        text = sql.encode() + b"\x00"
        connection.sendall(b"Q" + (len(text) + 4).to_bytes(4, "big") + text)
        rows: list[list[str]] = []
        while True:
            kind, body = next_message(connection, buffer)
            if kind == b"D":
                rows.append(_fields(body))
            elif kind == b"E":
                raise refusal(body)
            elif kind == b"Z":
                connection.sendall(b"X\x00\x00\x00\x04")
                return rows
    finally:
        connection.close()


def open_socket(socket_path: str, deadline: float) -> _socket.socket:
    """A connected socket that waits until `deadline` at most; OSError."""
    import _socket

    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        connection.connect(socket_path)
    except OSError:
        connection.close()
        raise
    return connection


def startup(database: str) -> bytes:
    """The packet that opens a session."""
    names = f"user\0agentmem\0database\0{database}\0application_name\0agentmem\0\0".encode()
    return (len(names) + 8).to_bytes(4, "big") + _PROTOCOL + names


def send_startup(connection: _socket.socket, database: str) -> bytearray:
    """Open a session and wait until it is ready; what was read beyond that."""
    connection.sendall(startup(database))
    buffer = bytearray()
    await_ready(connection, buffer)
    return buffer


def await_ready(connection: _socket.socket, buffer: bytearray) -> None:
    """Wait for the answer to a startup packet; ClusterError with the server's words and SQLSTATE when it refuses."""
    while True:
        kind, body = next_message(connection, buffer)
        if kind == b"E":
            raise refusal(body)
        if kind == b"R" and body != b"\0\0\0\0":
            raise ClusterError("cluster_wants_password", "the embedded server asks for a password")
        if kind == b"Z":
            return


def next_message(connection: _socket.socket, buffer: bytearray) -> tuple[bytes, bytes]:
    """The next message's kind and body; what was read beyond it stays in `buffer`."""
    while len(buffer) < 5 or len(buffer) < 1 + int.from_bytes(buffer[1:5], "big"):
        part = connection.recv(8192)
        if not part:
            raise EOFError("the server closed the connection")
        buffer += part
    end = 1 + int.from_bytes(buffer[1:5], "big")
    kind, body = bytes(buffer[:1]), bytes(buffer[5:end])
    del buffer[:end]
    return kind, body


def _fields(body: bytes) -> list[str]:
    values: list[str] = []
    at = 2
    for _ in range(int.from_bytes(body[:2], "big")):
        length = int.from_bytes(body[at : at + 4], "big", signed=True)
        at += 4
        values.append(body[at : at + max(length, 0)].decode("utf-8", "replace"))
        at += max(length, 0)
    return values


def refusal(body: bytes) -> ClusterError:
    """An error message of the server as an error, with its SQLSTATE."""
    fields = {part[:1]: part[1:].decode("utf-8", "replace") for part in body.split(b"\0") if part}
    return ClusterError("cluster_refused", fields.get(b"M", ""), sqlstate=fields.get(b"C", ""))
