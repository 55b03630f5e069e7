"""agentmem's own settings: one file, `.env` in the config folder, and the cache of it that hooks read.

The file is the only truth: a project's environment can't redirect where its sessions are stored. Reading it
takes python-dotenv, which is too slow for a hook; so the parsed values are kept in a cache, together with the
file's stamp (size and time of change), and are compiled anew when the stamp differs.
"""

from __future__ import annotations

import os
import sys
import time
from _socket import gethostname  # `import socket` costs 8 ms more

from agentmem import jsonio
from agentmem.errors import SettingsError
from agentmem.paths import Paths, make_private, site_packages
from agentmem.replace import replace_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentmem.jsonio import Object

DEFAULTS = {
    "AGENTMEM_DATABASE_URL": "",
    "AGENTMEM_PG_BIN": "",
    "AGENTMEM_DB_IDLE_MINUTES": "30",
    "AGENTMEM_HOOK_SECONDS": "5",
    "AGENTMEM_HOST_NAME": "",
}
"""Every setting there is, with its default."""


class Settings:
    """The settings in force. `site_dirs` are the folders that hold our dependencies."""

    __slots__ = ("database_url", "hook_seconds", "host_id", "host_name", "idle_minutes", "pg_bin", "site_dirs")

    def __init__(self, values: dict[str, str], host_id: str, site_dirs: list[str]) -> None:
        self.database_url = values["AGENTMEM_DATABASE_URL"]
        """A Postgres of the user's own, or "" for the embedded one."""
        self.pg_bin = values["AGENTMEM_PG_BIN"]
        self.idle_minutes = _number(values, "AGENTMEM_DB_IDLE_MINUTES")
        """Minutes without a connection after which the embedded server stops; 0: never."""
        self.hook_seconds = _number(values, "AGENTMEM_HOOK_SECONDS")
        """How long a hook may take at most; what is not done by then waits in the spool."""
        self.host_name = values["AGENTMEM_HOST_NAME"] or gethostname()
        self.host_id = host_id
        self.site_dirs = site_dirs


def _number(values: dict[str, str], name: str) -> float:
    try:
        number = float(values[name])
    except ValueError:
        number = -1.0
    if not 0 <= number < 1e6:
        raise SettingsError("settings_value", f"{name}={values[name]!r} is not a number of at least 0", f"Mend {name}.")
    return number


def load(paths: Paths) -> Settings:
    """The settings, from the cache when it is fresh; SettingsError when the file can't be read or understood."""
    try:
        stamp = _stamp(paths.env_file)
        cached = _read_cache(paths)
        if cached is None or jsonio.text_of(cached, "stamp") != stamp:
            cached = compile_cache(paths)
    except OSError as error:
        raise SettingsError(
            "settings_no_access",
            f"the settings or their cache can't be read or written: {error.filename}: {error.strerror}",
            "Mend the owner and mode of that folder, or make room.",
        ) from error
    values = {name: jsonio.text_of(jsonio.object_of(cached, "values"), name) for name in DEFAULTS}
    site_dirs = [item for item in jsonio.list_of(cached, "site_dirs") if isinstance(item, str)]
    return Settings(values, jsonio.text_of(cached, "host_id"), site_dirs)


def compile_cache(paths: Paths) -> Object:
    """Read the settings file with python-dotenv and write the cache that hooks read."""
    stamp = _stamp(paths.env_file)
    site_dirs = site_packages(sys.executable, sys.version_info[:2], sys.prefix)
    values: dict[str, str] = dict(DEFAULTS)
    if stamp:
        values.update(_parse(paths.env_file, site_dirs))
    unknown = sorted(name for name in values if name.startswith("AGENTMEM_") and name not in DEFAULTS)
    if unknown:
        raise SettingsError(
            "settings_unknown", f"{paths.env_file}: unknown setting {unknown[0]}", "Known: " + ", ".join(DEFAULTS)
        )
    make_private(paths.cache)
    compiled: Object = {
        "stamp": stamp,
        "values": {name: values[name] for name in DEFAULTS},
        "host_id": host_id(paths),
        "site_dirs": list(site_dirs),
    }
    replace_file(os.path.join(paths.cache, "settings.json"), jsonio.dumps_ascii(compiled).encode(), 0o600)
    return compiled


def host_id(paths: Paths) -> str:
    """This installation's id, made at first use and never changed: two machines of one name stay two."""
    file = os.path.join(paths.state, "host_id")
    known = _read(file)
    if known is None:
        make_private(paths.state)
        draft = os.path.join(paths.state, f".host_id.{os.getpid()}")
        replace_file(draft, new_id(time.time()).encode(), 0o600)
        try:
            os.link(draft, file)
        except FileExistsError:
            # Another process was first; its id stands.
            known = _read(file)
        os.unlink(draft)
        known = known or _read(file)
    if not known:
        raise SettingsError("host_id_unreadable", f"{file} can't be read", "Remove it; a new one will be made.")
    return known.decode("ascii").strip()


def new_id(now: float) -> str:
    """A UUID of version 7 (RFC 9562): ids sort by the time (seconds since 1970) at which they were made."""
    millis = int(now * 1000)
    noise = bytearray(os.urandom(10))
    noise[0] = 0x70 | noise[0] & 0x0F
    noise[2] = 0x80 | noise[2] & 0x3F
    digits = millis.to_bytes(6, "big").hex() + noise.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _parse(env_file: str, site_dirs: list[str]) -> dict[str, str]:
    added = [folder for folder in site_dirs if folder not in sys.path]
    sys.path.extend(added)
    try:
        from dotenv import dotenv_values
    except ImportError as error:
        raise SettingsError(
            "settings_no_reader", f"{env_file} can't be read: {error}", "Install agentmem again."
        ) from error
    finally:
        for folder in added:
            sys.path.remove(folder)
    try:
        values = dotenv_values(env_file, interpolate=False, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError("settings_unreadable", f"{env_file} can't be read: {error}", "Mend the file.") from error
    return {name: value for name, value in values.items() if value is not None}


def _stamp(env_file: str) -> str:
    try:
        found = os.stat(env_file)
    except FileNotFoundError:
        return ""
    return f"{found.st_size}-{found.st_mtime_ns}-{found.st_ino}"


def _read(file: str) -> bytes | None:
    try:
        with open(file, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def _read_cache(paths: Paths) -> Object | None:
    raw = _read(os.path.join(paths.cache, "settings.json"))
    if raw is None:
        return None
    try:
        return jsonio.as_object(jsonio.loads(raw.decode("utf-8")))
    except ValueError:
        # A damaged cache is no loss: it is compiled anew from the file.
        return None
