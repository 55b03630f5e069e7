"""The command line on a terminal: what a person sees there, line by line."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hook_kit import Machine

_COMMANDS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen(NamedTuple):
    """What was written to the terminal."""

    code: int
    raw: str

    @property
    def lines(self) -> list[str]:
        """Without colours and other commands to the terminal."""
        return _COMMANDS.sub("", self.raw).replace("\r\n", "\n").rstrip("\n").split("\n")


def on_terminal(machine: Machine, *arguments: str, columns: int = 80, **environ: str) -> Screen:
    """Run `agentmem ARGUMENTS` with a terminal of so many columns for all of its streams."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    with subprocess.Popen(
        [os.path.join(os.path.dirname(sys.executable), "agentmem"), *arguments],
        env=machine.environ(TERM="xterm-256color", TZ="UTC", **environ),
        cwd=machine.work,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        chunks: list[bytes] = []
        while chunk := _read(ours):
            chunks.append(chunk)
        os.close(ours)
        return Screen(process.wait(timeout=60), b"".join(chunks).decode("utf-8", "replace"))


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:
        # How Linux says that nobody has the other end any more.
        return b""
