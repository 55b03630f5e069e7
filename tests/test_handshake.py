"""The few bytes of protocol, against the real server and against servers that misbehave."""

from __future__ import annotations

import os
import socket
import sys
import threading
from typing import TYPE_CHECKING

import psycopg
import pytest
import servers
from servers import soon

from agentmem import cluster, handshake
from agentmem.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentmem.cluster import Cluster

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Unix sockets")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with servers.running_server(tmp_path_factory.mktemp("home")) as found:
        yield found


def speak(path: str, answer: bytes | None) -> threading.Thread:
    """A server that takes one connection and says this; None: nothing, until the other side goes."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        with listener, connection:
            connection.recv(1000)
            if answer:
                connection.sendall(answer)
            if answer in (WELCOME, None):
                connection.recv(1000)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def message(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4, "big") + body


WELCOME = message(b"R", b"\0\0\0\0") + message(b"Z", b"I")


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (WELCOME, handshake.READY),
        (message(b"E", b"SFATAL\0C57P03\0Mthe database system is starting up\0\0"), handshake.COMING_OR_GOING),
        (message(b"E", b"SFATAL\0C53300\0Mtoo many clients\0\0"), handshake.READY),
        (message(b"E", b"SFATAL\0C3D000\0Mno such database\0\0"), handshake.READY),
        (b"", handshake.COMING_OR_GOING),
        (WELCOME[:-3], handshake.COMING_OR_GOING),
        (None, handshake.SILENT),
    ],
)
def test_what_an_answer_means(tmp_path: Path, answer: bytes | None, state: str) -> None:
    path = os.fspath(tmp_path / "socket")
    thread = speak(path, answer)
    assert handshake.probe(path, soon(0.05 if answer is None else 30)) == state
    thread.join()


def test_nobody_there(tmp_path: Path) -> None:
    path = os.fspath(tmp_path / "socket")
    assert handshake.probe(path, soon()) == handshake.DOWN
    left_over = socket.socket(socket.AF_UNIX)
    left_over.bind(path)
    left_over.close()
    assert handshake.probe(path, soon()) == handshake.DOWN
    assert handshake.probe(os.path.join(path, "inside"), soon()) == handshake.DOWN


def test_a_full_queue_is_no_dead_server(tmp_path: Path) -> None:
    path = os.fspath(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(0)
        waiting = [socket.socket(socket.AF_UNIX) for _ in range(8)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(path)
        assert handshake.probe(path, soon(0.05)) in (handshake.COMING_OR_GOING, handshake.SILENT)
        for one in waiting:
            one.close()


def test_a_password_is_not_asked_for(tmp_path: Path) -> None:
    path = os.fspath(tmp_path / "socket")
    thread = speak(path, message(b"R", b"\0\0\0\3"))
    with pytest.raises(ClusterError, match="password"):
        handshake.query(path, "postgres", "select 1", soon())
    thread.join()


def test_rows_of_several_statements(server: Cluster) -> None:
    sql = "select 1, null, '한글 🧠'; select repeat('x', 100000), ''"
    assert servers.ask(server, sql) == [["1", "", "한글 🧠"], ["x" * 100000, ""]]
    assert servers.ask(server, "create table empty(a int)") == []


def test_the_servers_refusal(server: Cluster) -> None:
    with pytest.raises(ClusterError, match="nowhere") as caught:
        servers.ask(server, "select * from nowhere")
    assert (caught.value.code, caught.value.sqlstate) == ("cluster_refused", "42P01")


def test_a_server_without_a_free_connection_is_up(server: Cluster) -> None:
    taken: list[psycopg.Connection] = []
    while handshake.probe(server.socket_path, soon()) == handshake.READY:
        try:
            taken.append(psycopg.connect(**cluster.connect_params(server)))  # pyright: ignore[reportArgumentType]
        except psycopg.OperationalError:
            break
    assert len(taken) > 30
    assert handshake.probe(server.socket_path, soon()) == handshake.READY
    assert servers.start(server) is False
    for connection in taken:
        connection.close()
