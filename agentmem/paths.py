"""Where everything lives: settings, the embedded server, spool and cache; hooks and SQL in wheel and clone.

By default `~/.config/agentmem` (settings), `~/.local/share/agentmem` (data) and `~/.local/state/agentmem` (state);
AGENTMEM_HOME, or a hook's `--home`, moves all three into one folder.
"""

from __future__ import annotations

import os

from agentmem.errors import SettingsError


class Paths:
    """The folders and files of one agentmem installation. Absolute strings; nothing is created here."""

    __slots__ = ("cache", "config", "data", "env_file", "home", "spool", "state")

    def __init__(self, home: str, config: str, data: str, state: str) -> None:
        self.home = home
        """The folder given by AGENTMEM_HOME, or "" for the default places."""
        self.config = config
        self.data = data
        self.state = state
        self.env_file = os.path.join(config, ".env")
        self.spool = os.path.join(state, "spool")
        self.cache = os.path.join(state, "cache")


def user_home(environ: dict[str, str]) -> str:
    """The person's home folder, absolute; SettingsError `home_unknown` when there is none."""
    home = environ.get("HOME") or os.path.expanduser("~")
    if not os.path.isabs(home):
        raise SettingsError("home_unknown", "the home folder is not known", "Set HOME or AGENTMEM_HOME.")
    return home


def find_paths(environ: dict[str, str], home: str = "") -> Paths:
    """The paths for this environment; `home` (from a hook's arguments) wins over AGENTMEM_HOME."""
    moved = home or environ.get("AGENTMEM_HOME", "")
    if moved:
        moved = os.path.abspath(moved)
        return Paths(moved, os.path.join(moved, "config"), os.path.join(moved, "data"), os.path.join(moved, "state"))
    base = user_home(environ)
    return Paths(
        "",
        os.path.join(base, ".config", "agentmem"),
        os.path.join(base, ".local", "share", "agentmem"),
        os.path.join(base, ".local", "state", "agentmem"),
    )


def make_private(folder: str) -> None:
    """Create a folder, and those above it that are missing, for its owner only: mode 0700."""
    if os.path.isdir(folder):
        return
    make_private(os.path.dirname(folder))
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        # Another process was faster. Anything else in this place is an error for who wants to use it.
        return


def _beside_package(inside: str, outside: str) -> str:
    package = os.path.dirname(os.path.abspath(__file__))
    shipped = os.path.join(package, inside)
    if os.path.isdir(shipped):
        return shipped
    return os.path.join(os.path.dirname(package), outside)


def hooks_dir() -> str:
    """The folder of the hook shims: in the wheel `agentmem/_hooks`, in a clone `hooks`."""
    return _beside_package("_hooks", "hooks")


def sql_dir() -> str:
    """The folder of the SQL files: in the wheel `agentmem/_sql`, in a clone `sql`."""
    return _beside_package("_sql", "sql")


def site_packages(executable: str, version: tuple[int, int], prefix: str) -> list[str]:
    """Folders that may hold our dependencies, for a process started with `-S` (which knows none).

    `executable` is sys.executable, not resolved: a virtual environment's interpreter is a symlink.
    """
    root = os.path.dirname(os.path.dirname(executable))
    library = f"python{version[0]}.{version[1]}"
    package_parent = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    candidates = [package_parent]
    for base in (root, prefix):
        candidates.append(os.path.join(base, "lib", library, "site-packages"))
        candidates.append(os.path.join(base, "lib", library, "dist-packages"))
        candidates.append(os.path.join(base, "Lib", "site-packages"))
    found: list[str] = []
    for candidate in candidates:
        if candidate not in found and os.path.isdir(candidate):
            found.append(candidate)
    return found
