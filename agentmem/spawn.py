"""Start the server's programs: cut off from whoever starts them, so that they neither hold nor inherit anything.

Standard library's subprocess is too slow to import in a hook, and it can't orphan a process.
"""

from __future__ import annotations

import os
import select
import sys
import time

from agentmem.account import Account, become, reap
from agentmem.errors import ClusterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
else:
    import _signal

_ENVIRONMENT = {"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
"""Everything that a child gets: a project's PGDATA, PGOPTIONS or LD_PRELOAD has no business here."""

_PR_SET_PDEATHSIG = 1


def fill_stdio() -> None:
    """Open what is closed of 0, 1 and 2: else a lock or a log would get that number, and be lost in a child."""
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor > 2:
            os.close(descriptor)
            return


def detached(argv: list[str], account: Account, output: int, keep: int | None = None) -> None:
    """Start a process that is nobody's child and lives on: clients kill the descendants of a hook.

    output: descriptor for its stdout and stderr; keep: one more descriptor that it inherits. A failure to start
    it is written to `output`.
    """
    child = os.fork()
    if child == 0:
        try:
            if os.fork() == 0:
                _exec(argv, account, output, keep=(keep,) if keep is not None else ())
        except BaseException as error:  # noqa: BLE001 - the end of a process, which has to say why
            _complain(output, argv, error)
        finally:
            os._exit(0)
    reap(child)


def run(
    argv: list[str],
    account: Account,
    output: int,
    *,
    keep: int,
    deadline: float,
    text: bytes = b"",
) -> int:
    """Run a program to its end; its exit status (-signal when one killed it). `text` (short) is its stdin.

    It dies with us, where the system can do that, and at the deadline: then ClusterError `cluster_create_timeout`.
    """
    stdin, feed = os.pipe()
    alive, held = os.pipe()
    os.write(feed, text)
    os.close(feed)
    death_wish = _death_wish(os.getpid())
    child = os.fork()
    if child == 0:
        _exec(argv, account, output, keep=(keep, held), stdin=stdin, last=death_wish)
    os.close(stdin)
    os.close(held)
    try:
        # The pipe's end comes when the program and all its children are gone.
        poll = select.poll()
        poll.register(alive, select.POLLIN)
        if not poll.poll(min(max(deadline - time.monotonic(), 0), 1e6) * 1000):
            _kill_group(child)
            raise ClusterError(
                "cluster_create_timeout",
                f"{os.path.basename(argv[0])} was not done in time",
                "Run `agentmem init`, which gives it more time.",
            )
    finally:
        os.close(alive)
        status = reap(child)
    return status


def _exec(
    argv: list[str],
    account: Account,
    output: int,
    *,
    keep: tuple[int, ...],
    stdin: int = -1,
    last: Callable[[], None] | None = None,
) -> None:
    """In a child: become the program. Never returns."""
    try:
        os.setsid()
        if stdin < 0:
            stdin = os.open(os.devnull, os.O_RDONLY)
        for descriptor, standard in ((stdin, 0), (output, 1), (output, 2)):
            os.dup2(descriptor, standard)
        output = 2
        _close_all_but(keep)
        os.umask(0o077)
        os.chdir("/")
        _reset_signals()
        become(account)
        if last is not None:
            last()
        os.execve(argv[0], argv, _ENVIRONMENT)  # noqa: S606 - a shell is what we don't want
    except BaseException as error:  # noqa: BLE001 - the end of a process, which has to say why
        _complain(output, argv, error)
    finally:
        os._exit(127)


def _complain(output: int, argv: list[str], error: BaseException) -> None:
    os.write(output, f"agentmem: can't start {argv[0]}: {error}\n".encode("utf-8", "backslashreplace"))


def _close_all_but(keep: tuple[int, ...]) -> None:
    try:
        open_ones = [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        open_ones = list(range(3, 4096))
    for descriptor in open_ones:
        if descriptor in keep:
            os.set_inheritable(descriptor, True)
        elif descriptor > 2:
            # Unlike close, this is silent about one that is closed already.
            os.closerange(descriptor, descriptor + 1)


def _reset_signals() -> None:
    """A client may ignore or block signals, and both are inherited through exec."""
    for number in (_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGTERM, _signal.SIGPIPE, _signal.SIGCHLD):
        _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, [])


def _death_wish(parent: int) -> Callable[[], None] | None:
    """What a child calls to die with us; made before it becomes an account that may not read Python's own files."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl

    def die_with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, 9)
        if os.getppid() != parent:
            os._exit(127)

    return die_with_parent


def _kill_group(leader: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(leader, 9)
        except (ProcessLookupError, PermissionError):
            # No group yet, or already gone: the other of the two reaches it.
            continue
