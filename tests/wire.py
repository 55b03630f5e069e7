"""A wire between a hook and its database that can be cut, at the very moment that matters."""

from __future__ import annotations

import os
import select
import shutil
import socket
import tempfile
import threading

STATEMENT = b"agentmem.capture("


class Wire:
    """A Unix socket (in `folder`, named as Postgres names its own) whose connections are passed on to `server`.

    `mode` is what becomes of connections made from then on: `pass`; `hang`: nothing is ever answered; and, once the
    statement that captures is on its way, `cut_before` it is passed on, `cut_after` it was answered (so it is
    committed), or `mute`: it is not passed on and the connection stays.
    """

    def __init__(self, server: str, folder: str = "") -> None:
        self.folder = folder or tempfile.mkdtemp(prefix="agentmem-wire-")
        self.path = os.path.join(self.folder, ".s.PGSQL.5432")
        self.mode = "pass"
        self.met = threading.Event()
        """Set when the mode's moment has come."""
        self._server = server
        self._threads: list[threading.Thread] = []
        self._ends: list[socket.socket] = []
        self._listener: socket.socket | None = None
        self.up()

    def up(self) -> None:
        """Listen."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.path)
        listener.listen(64)
        self._listener = listener
        self._run(self._accept, listener)

    def down(self) -> None:
        """Take the socket away, as a server does when it ends."""
        assert self._listener
        os.unlink(self.path)
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._listener = None

    def close(self) -> None:
        """End everything."""
        if self._listener:
            self.down()
        for end in self._ends:
            _shut(end)
        for thread in self._threads:
            thread.join()
        for end in self._ends:
            end.close()
        shutil.rmtree(self.folder)

    def _run(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments)  # pyright: ignore[reportArgumentType]
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self._ends.append(client)
            if self.mode == "hang":
                self.met.set()
                continue
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            self._ends.append(server)
            self._run(self._pass_on, client, server, self.mode)

    def _pass_on(self, client: socket.socket, server: socket.socket, mode: str) -> None:
        tail, seen = b"", False
        while True:
            readable, _, _ = select.select([client, server], [], [])
            source = readable[0]
            try:
                data = source.recv(65536)
                if not data:
                    break
                if source is client:
                    tail = (tail + data)[-len(data) - len(STATEMENT) :]
                    seen = seen or STATEMENT in tail
                if seen and mode != "pass":
                    if mode == "mute":
                        self.met.set()
                        continue
                    if mode == "cut_before" or source is server:
                        self.met.set()
                        break
                (server if source is client else client).sendall(data)
            except OSError:
                # The other end is gone.
                break
        _shut(client)
        _shut(server)


def _shut(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        # It is shut already.
        return
