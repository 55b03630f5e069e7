"""Which account the server's processes run as. Postgres refuses to run as root, so root needs another one.

For root, in this order: a user namespace in which root goes by the name of an unprivileged account (files stay
root's, nothing is copied); where that is forbidden (Docker's default), a real change to an unprivileged account.
"""

from __future__ import annotations

import os
import sys

from agentmem.errors import ClusterError

SAME = "same"
NAMESPACE = "namespace"
OTHER = "other"

_CLONE_NEWUSER = 0x10000000


class Account:
    """`kind` is SAME (whoever we are), NAMESPACE (root under another name) or OTHER (really another account)."""

    __slots__ = ("gid", "kind", "uid")

    def __init__(self, kind: str, uid: int, gid: int) -> None:
        self.kind = kind
        self.uid = uid
        self.gid = gid


def same() -> Account:
    """The account of this process."""
    return Account(SAME, os.geteuid(), os.getegid())


def become(account: Account) -> None:
    """Turn this process, a child about to exec, into the account. OSError when the system forbids it."""
    if account.kind == NAMESPACE:
        _enter_namespace(account)
    elif account.kind == OTHER:
        os.setgroups([])
        os.setgid(account.gid)
        os.setuid(account.uid)


def can(account: Account, *needed: tuple[str, int]) -> bool:
    """Whether a process of that account may use every (path, os.R_OK | ...): tried out in a child."""
    # Answered through a pipe: where SIGCHLD is ignored, there is no exit status.
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            become(account)
            if all(os.access(path, mode) for path, mode in needed):
                os.write(writer, b"y")
        finally:
            os._exit(0)
    os.close(writer)
    answer = os.read(reader, 1)
    os.close(reader)
    reap(child)
    return answer == b"y"


def reap(child: int) -> int:
    """Wait for a child's end; its exit status, -signal, or 255 when whoever started us ignores SIGCHLD."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except ChildProcessError:
        return 255


def in_namespace() -> Account | None:
    """Root under an unprivileged account's name; None when there is no such account here."""
    named = _unprivileged(("nobody", "daemon", "bin"))
    return Account(NAMESPACE, named.uid, named.gid) if named else None


def other() -> Account | None:
    """The account that serves root where namespaces are forbidden: `agentmem` when the administrator made it."""
    return _unprivileged(("agentmem", "nobody"))


def of_existing(data_dir: str, bin_dir: str) -> Account:
    """The account for a data folder that is there: its owner."""
    if os.geteuid() != 0:
        return same()
    owner = os.stat(data_dir)
    if owner.st_uid != 0:
        return Account(OTHER, owner.st_uid, owner.st_gid)
    named = in_namespace()
    if named and can(named, (data_dir, os.W_OK), (os.path.join(bin_dir, "postgres"), os.X_OK)):
        return named
    raise ClusterError(
        "cluster_root_refused",
        f"{data_dir} belongs to root, Postgres refuses to run as root, and user namespaces are not allowed here",
        "Allow user namespaces, run agentmem as an ordinary user, or set AGENTMEM_DATABASE_URL.",
    )


def _unprivileged(names: tuple[str, ...]) -> Account | None:
    import pwd

    for name in names:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(OTHER, entry.pw_uid, entry.pw_gid)
    return None


def _enter_namespace(account: Account) -> None:
    uid, gid = os.geteuid(), os.getegid()
    _unshare()
    # The kernel takes a group map from a process without privileges only when it gave up setgroups first.
    for file, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{account.uid} {uid} 1"),
        ("gid_map", f"{account.gid} {gid} 1"),
    ):
        descriptor = os.open(f"/proc/self/{file}", os.O_WRONLY)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def _unshare() -> None:
    if not sys.platform.startswith("linux"):
        raise OSError("user namespaces exist on Linux only")
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
