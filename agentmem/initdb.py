"""Create the server's data folder, once, whole: made beside its place, renamed into it when it is complete."""

from __future__ import annotations

import os

from agentmem import account, server_log, spawn
from agentmem.errors import ClusterError
from agentmem.hashing import hexdigest
from agentmem.placement import Cluster, elsewhere_file, existing_majors
from agentmem.replace import replace_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentmem.account import Account

ELSEWHERE = "/var/lib/agentmem"
"""For root where user namespaces are forbidden: an unprivileged account can't enter root's folders."""

_LOCALES = (
    (17, ("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C.UTF-8")),
    (17, ("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C")),
    (0, ("--locale=C.UTF-8",)),
    (0, ("--locale=C",)),
)
"""Best first, with the oldest version that has it. Under C, pg_trgm finds nothing in Korean; macOS may lack C.UTF-8."""


def create(cluster: Cluster, lock: int, output: int, deadline: float) -> None:
    """Make the data folder with the database `agentmem` in it.

    Call it with the start lock held. lock: the server lock's descriptor, which initdb inherits, so that nobody
    clears away under an initdb that outlived us. output: descriptor of the log.
    """
    refuse_lost_data(cluster)
    who = _account_for_new(cluster)
    _refuse_other_version(cluster)
    if not os.path.isdir(cluster.data_dir):
        remove_drafts(cluster)
        draft = f"{cluster.data_dir}.draft.{os.getpid()}"
        os.mkdir(draft, 0o700)
        try:
            if who.kind == account.OTHER:
                os.chown(draft, who.uid, who.gid)
            _fill(cluster, draft, who, lock, output, deadline)
            os.rename(draft, cluster.data_dir)
        except (OSError, ClusterError):
            remove_tree(draft)
            raise
        _sync_folder(os.path.dirname(cluster.data_dir))
    if cluster.elsewhere:
        replace_file(elsewhere_file(cluster), os.fsencode(cluster.elsewhere), 0o600)


def refuse_lost_data(cluster: Cluster) -> None:
    """ClusterError `cluster_gone` when the data was in another folder and isn't there any more: never begin anew."""
    if cluster.elsewhere and not existing_majors(cluster.elsewhere):
        raise ClusterError(
            "cluster_gone",
            f"the data was in {cluster.elsewhere}, and is not there any more",
            f"Bring it back, or remove {elsewhere_file(cluster)} to begin with an empty database.",
        )


def place_elsewhere(cluster: Cluster) -> str:
    """This cluster's folder below /var/lib, whether it is used or not."""
    return os.path.join(ELSEWHERE, hexdigest(os.fsencode(cluster.root))[:12])


def remove_drafts(cluster: Cluster) -> None:
    """Remove what killed creators left. With both locks held, nobody is at work on any of it."""
    parent = os.path.dirname(cluster.data_dir)
    for name in os.listdir(parent):
        if name.startswith("pg") and ".draft." in name:
            remove_tree(os.path.join(parent, name))


def remove_tree(folder: str) -> None:
    """Remove a folder with all that is in it; symlinks are not followed."""
    for parent, folders, files in os.walk(folder, topdown=False):
        for name in files:
            os.unlink(os.path.join(parent, name))
        for name in folders:
            path = os.path.join(parent, name)
            if os.path.islink(path):
                os.unlink(path)
            else:
                os.rmdir(path)
    os.rmdir(folder)


def server_programs(cluster: Cluster, who: Account) -> str:
    """The folder of programs that the account may run: the usual one, or a copy that everybody may read."""
    postgres = os.path.join(cluster.bin_dir, "postgres")
    if who.kind != account.OTHER or account.can(who, (postgres, os.X_OK)):
        return cluster.bin_dir
    if not cluster.elsewhere:
        raise ClusterError(
            "cluster_root_refused",
            f"user {who.uid}, who owns {cluster.data_dir}, may not run {postgres}",
            "Run agentmem as that user.",
        )
    found = os.stat(postgres)
    stamp = hexdigest(os.fsencode(f"{postgres} {found.st_size} {found.st_mtime_ns}"))[:12]
    place = os.path.join(cluster.elsewhere, f"server-{stamp}")
    prefix = os.path.dirname(cluster.bin_dir)
    package = os.path.dirname(prefix)
    if not os.path.isdir(place):
        for name in os.listdir(cluster.elsewhere):
            if name.startswith("server-"):
                remove_tree(os.path.join(cluster.elsewhere, name))
        draft = f"{place}.draft"
        _make_readable(draft, os.path.basename(package), os.path.basename(prefix))
        _copy_tree(prefix, os.path.join(draft, os.path.basename(package), os.path.basename(prefix)))
        if os.path.isdir(f"{package}.libs"):
            # The programs look for their libraries beside the package that brought them.
            _make_readable(draft, f"{os.path.basename(package)}.libs")
            _copy_tree(f"{package}.libs", os.path.join(draft, f"{os.path.basename(package)}.libs"))
        os.rename(draft, place)
    return os.path.join(place, os.path.basename(package), os.path.basename(prefix), os.path.basename(cluster.bin_dir))


def _refuse_other_version(cluster: Cluster) -> None:
    others = [major for major in existing_majors(os.path.dirname(cluster.data_dir)) if major != cluster.major]
    if others:
        raise ClusterError(
            "cluster_other_version",
            f"the data in {os.path.dirname(cluster.data_dir)} is of Postgres {others[0]}, this is {cluster.major}",
            f"Install Postgres {others[0]} again (AGENTMEM_PG_BIN), dump the data, and load it into the new one.",
        )


def _account_for_new(cluster: Cluster) -> Account:
    if os.geteuid() != 0:
        return account.same()
    named = account.in_namespace()
    program = (os.path.join(cluster.bin_dir, "postgres"), os.X_OK)
    if not cluster.elsewhere and named and account.can(named, (cluster.root, os.W_OK), program):
        return named
    real = account.other()
    if real is None or not account.can(real, ("/", os.R_OK)):
        raise ClusterError(
            "cluster_root_refused",
            "Postgres refuses to run as root; neither a user namespace nor another account can be used here",
            "Run agentmem as an ordinary user, or set AGENTMEM_DATABASE_URL.",
        )
    place = place_elsewhere(cluster)
    _make_readable(ELSEWHERE, os.path.basename(place))
    cluster.move(place)
    return real


def _fill(cluster: Cluster, draft: str, who: Account, lock: int, output: int, deadline: float) -> None:
    programs = server_programs(cluster, who)
    initdb, postgres = os.path.join(programs, "initdb"), os.path.join(programs, "postgres")

    def run(program: str, *arguments: str, text: bytes = b"") -> int:
        return spawn.run([program, *arguments], who, output, keep=lock, deadline=deadline, text=text)

    # Trusted is who may enter the socket's folder; a server started by hand that listens on TCP lets nobody in.
    basic = ["-D", draft, "-U", "agentmem", "-E", "UTF8", "--auth-local=trust", "--auth-host=reject"]
    basic += ["--no-sync", "--wal-segsize=4"]
    status = -1
    for oldest, locale in _LOCALES:
        if cluster.major >= oldest:
            logged = server_log.size(cluster.log_file)
            status = run(initdb, *basic, *locale)
            if status == 0 or "invalid locale" not in server_log.since(cluster.log_file, logged):
                break
    if status == 0:
        # Unlike SQL over a connection, this needs no server that others could already reach.
        single = ("--single", "-F", "-j", "-D", draft, "-c", "log_checkpoints=off", "postgres")
        status = run(postgres, *single, text=b"CREATE DATABASE agentmem;\n\n")
    if status == 0:
        # Synced once, as a whole, before the rename makes it the real one.
        status = run(initdb, "--sync-only", "-D", draft)
    if status != 0:
        raise ClusterError(
            "cluster_create_failed",
            f"the database could not be created (exit status {status})",
            f"Check free space and rights; see {cluster.log_file}.",
        )


def _make_readable(*parts: str) -> None:
    """Make the folder with its last parents, for everybody to read, whatever the umask is."""
    for count in range(1, len(parts) + 1):
        folder = os.path.join(*parts[:count])
        os.makedirs(folder, exist_ok=True)
        os.chmod(folder, 0o755)  # noqa: S103 - no secret is in it, another account has to get through


def _copy_tree(source: str, target: str) -> None:
    for parent, folders, files in os.walk(source):
        inside = os.path.join(target, os.path.relpath(parent, source))
        folders[:] = [name for name in folders if name != "include"]
        for name in folders:
            if not os.path.islink(os.path.join(parent, name)):
                _make_readable(os.path.join(inside, name))
            else:
                files.append(name)
        for name in files:
            _copy_file(os.path.join(parent, name), os.path.join(inside, name))


def _copy_file(source: str, target: str) -> None:
    if os.path.islink(source):
        os.symlink(os.readlink(source), target)
        return
    with open(source, "rb") as reader, open(target, "xb") as writer:
        while part := reader.read(1 << 20):
            writer.write(part)
        os.fchmod(writer.fileno(), 0o755 if os.fstat(reader.fileno()).st_mode & 0o100 else 0o644)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
