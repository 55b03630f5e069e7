"""Which project a folder belongs to, and where its HEAD is: read from git's files, without starting git.

All clones, worktrees and subfolders of a repository are one project: its origin, without credentials, is its
identity. A repository without an origin, or a folder without git, is known by its path.
"""

from __future__ import annotations

import os

from agentmem import jsonio
from agentmem.hashing import hexdigest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentmem.jsonio import Object

_MOST_LEVELS = 64
_LONGEST_IDENTITY = 600
"""In characters; Postgres' limit for what is in an index is 2,700 bytes."""


class Project:
    """A project as seen from one folder."""

    __slots__ = ("common_dir", "git_dir", "identity", "name", "root")

    def __init__(self, identity: str, name: str, root: str, git_dir: str, common_dir: str) -> None:
        self.identity = identity
        """origin:HOST/PATH or path:FOLDER."""
        self.name = name
        self.root = root
        """Top of the working tree, or the folder itself."""
        self.git_dir = git_dir
        """This working tree's own git folder, or ""."""
        self.common_dir = common_dir
        """The git folder that all working trees share, or ""."""

    def as_object(self) -> Object:
        """As `agentmem.ensure_project` takes it."""
        return {
            "identity": _bounded(jsonio.clean_text(self.identity)[0]),
            "name": jsonio.clean_text(self.name)[0],
            "root": jsonio.clean_text(self.root)[0],
        }


def _bounded(identity: str) -> str:
    """The identity, short enough for an index: whoever calls a hook may name a folder that is none."""
    if len(identity) <= _LONGEST_IDENTITY:
        return identity
    digest = hexdigest(identity.encode("utf-8"))
    return f"{identity[: _LONGEST_IDENTITY - len(digest) - 1]}…{digest}"


def find_project(cwd: str) -> Project:
    """The project of a folder, which need not exist any more."""
    folder = os.path.realpath(cwd)
    top = folder
    for _ in range(_MOST_LEVELS):
        git_dir = _git_dir(top)
        if git_dir:
            return _of_repository(top, git_dir)
        parent = os.path.dirname(top)
        if parent == top:
            break
        top = parent
    return Project("path:" + folder, os.path.basename(folder) or folder, folder, "", "")


def _of_repository(top: str, git_dir: str) -> Project:
    common = _first_line(os.path.join(git_dir, "commondir"))
    common_dir = os.path.normpath(os.path.join(git_dir, common)) if common else git_dir
    origin = _origin(os.path.join(common_dir, "config"))
    if origin:
        return Project("origin:" + origin, origin.rsplit("/", 1)[-1], top, git_dir, common_dir)
    main = os.path.dirname(common_dir) if os.path.basename(common_dir) == ".git" else common_dir
    return Project("path:" + main, os.path.basename(main) or main, top, git_dir, common_dir)


def _git_dir(folder: str) -> str:
    dot_git = os.path.join(folder, ".git")
    if os.path.isdir(dot_git):
        return dot_git if os.path.exists(os.path.join(dot_git, "HEAD")) else ""
    line = _first_line(dot_git)
    if line.startswith("gitdir:"):
        return os.path.normpath(os.path.join(folder, line[len("gitdir:") :].strip()))
    return ""


def _origin(config: str) -> str:
    """The normalised URL of the remote `origin`; "" when there is none."""
    inside = False
    for line in _lines(config):
        if line.startswith("["):
            inside = line.replace(" ", "").startswith('[remote"origin"]')
        elif inside:
            name, equals, value = line.partition("=")
            if equals and name.strip() == "url":
                return normalise_origin(value.strip().strip('"'))
    return ""


def normalise_origin(url: str) -> str:
    """HOST/PATH of a git URL, the same for https, ssh and git@ spellings; without credentials, port and `.git`."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        rest = url
        host, colon, path = rest.partition(":")
        if colon and "/" not in host and len(host) > 1:
            rest = host + "/" + path.lstrip("/")
        else:
            return _without_git(os.path.normpath(rest))
    elif scheme == "file":
        return _without_git(os.path.normpath("/" + rest.lstrip("/")))
    host, _, path = rest.partition("/")
    host = host.rsplit("@", 1)[-1].partition(":")[0].lower()
    return _without_git(host + "/" + path.strip("/"))


def _without_git(path: str) -> str:
    return path.removesuffix(".git")


def head_of(project: Project) -> tuple[str | None, str | None]:
    """Branch and commit of the working tree; (None, commit) when detached, (branch, None) before the first commit."""
    head = _first_line(os.path.join(project.git_dir, "HEAD")) if project.git_dir else ""
    if not head.startswith("ref:"):
        return None, head or None
    ref = head[len("ref:") :].strip()
    branch = jsonio.clean_text(ref.removeprefix("refs/heads/"))[0]
    commit = _first_line(os.path.join(project.common_dir, ref))
    if not commit:
        for line in _lines(os.path.join(project.common_dir, "packed-refs")):
            if line.endswith(" " + ref):
                commit = line.split(" ", 1)[0]
                break
    return branch, commit or None


def _first_line(file: str) -> str:
    for line in _lines(file):
        return line
    return ""


def _lines(file: str) -> list[str]:
    """Lines of one of git's small files, stripped; none when it is not there or not readable."""
    try:
        with open(file, "rb") as stream:
            raw = stream.read(1 << 20)
    except OSError:
        # Not a repository that we can read: the folder's path is its identity then.
        return []
    return [line.strip() for line in raw.decode("utf-8", "surrogateescape").split("\n")]
