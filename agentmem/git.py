"""What git says of a working tree: two bounded calls that run while the hook does something else.

A hostile repository must not get to run anything (core.fsmonitor is switched off), nothing is locked, nobody is
asked for a password, and a repository that is too slow yields what is known without it.
"""

from __future__ import annotations

import os
import select
import time

from agentmem.project import Project, head_of

_MOST_BYTES = 256 << 10
_MOST_CHANGED = 12
_SIGKILL = 9


class GitFacts:
    """State of a working tree. `partial` says which call did not answer in time, or ""."""

    __slots__ = (
        "ahead",
        "behind",
        "branch",
        "changed",
        "changed_count",
        "commits",
        "head",
        "partial",
        "untracked_count",
    )

    def __init__(self) -> None:
        self.branch: str | None = None
        self.head: str | None = None
        self.ahead = 0
        self.behind = 0
        self.changed: list[str] = []
        """The first changed files, with their two-letter state."""
        self.changed_count = 0
        self.untracked_count = 0
        self.commits: list[str] = []
        """The last commits: abbreviated hash, subject, age."""
        self.partial = ""


class Query:
    """Two git processes that were started; `finish` collects what they said."""

    __slots__ = ("_project", "_running")

    def __init__(self, project: Project, environ: dict[str, str]) -> None:
        self._project = project
        self._running: dict[str, tuple[int, int]] = {}
        if not project.git_dir:
            return
        clean = {name: value for name, value in environ.items() if not name.startswith("GIT_")}
        clean.update({"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"})
        base = ["git", "-C", project.root, "-c", "core.fsmonitor=false", "-c", "core.quotepath=false"]
        for name, arguments in (
            ("status", ["status", "--porcelain=v2", "--branch", "--untracked-files=normal", "--ignore-submodules"]),
            ("log", ["log", "-n", "3", "--format=%h %s (%cr)", "--no-show-signature"]),
        ):
            started = _start(base + arguments, clean)
            if started:
                self._running[name] = started

    def finish(self, deadline: float) -> GitFacts | None:
        """What git said until `deadline` (time.monotonic()); None when this is no repository."""
        if not self._project.git_dir:
            return None
        facts = GitFacts()
        facts.branch, facts.head = head_of(self._project)
        outputs: dict[str, str] = {}
        for name, (pid, descriptor) in self._running.items():
            text = _collect(pid, descriptor, deadline)
            if text is None:
                facts.partial = f"git {name} did not answer in time"
            else:
                outputs[name] = text
        if not self._running:
            facts.partial = "git is not on PATH"
        _read_status(outputs.get("status", ""), facts)
        facts.commits = [line for line in outputs.get("log", "").split("\n") if line]
        return facts


def _start(command: list[str], environ: dict[str, str]) -> tuple[int, int] | None:
    reading, writing = os.pipe()
    try:
        pid = os.posix_spawnp(
            command[0],
            command,
            environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, writing, 1),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
        )
    except FileNotFoundError:
        os.close(reading)
        return None
    finally:
        os.close(writing)
    return pid, reading


def _collect(pid: int, descriptor: int, deadline: float) -> str | None:
    """Output of a process that we started; None when it was not done in time, and was ended."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLHUP)
    chunks: list[bytes] = []
    size = 0
    try:
        while size < _MOST_BYTES:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(int(left * 1000) + 1):
                os.kill(pid, _SIGKILL)
                return None
            chunk = os.read(descriptor, 65536)
            if not chunk:
                break
            chunks.append(chunk)
            size += len(chunk)
        return b"".join(chunks).decode("utf-8", "replace")
    finally:
        # Closing its pipe ends a process that still writes.
        os.close(descriptor)
        os.waitpid(pid, 0)


def _read_status(text: str, facts: GitFacts) -> None:
    for line in text.split("\n"):
        if line.startswith("# branch.ab "):
            ahead, behind = line[len("# branch.ab ") :].split(" ")
            facts.ahead, facts.behind = int(ahead), -int(behind)
        elif line[:2] in ("1 ", "2 ", "u "):
            facts.changed_count += 1
            if len(facts.changed) < _MOST_CHANGED:
                fields = {"1": 8, "2": 9, "u": 10}[line[0]]
                path = line.split(" ", fields)[fields].split("\t")[0]
                facts.changed.append(f"{line[2:4]} {path}")
        elif line.startswith("? "):
            facts.untracked_count += 1
