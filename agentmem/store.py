"""The hooks' connection to the database in force.

The embedded server is spoken to directly, and started when it is not running; any other through libpq."""

from __future__ import annotations

import sys
import time

from agentmem import cluster, direct
from agentmem.errors import DatabaseError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from agentmem.paths import Paths
    from agentmem.settings import Settings

    class Connection(Protocol):
        """What both ways to Postgres offer."""

        def query(self, sql: str, params: list[str | None], deadline: float) -> list[list[str | None]]: ...
        def close(self) -> None: ...


_CONNECT_SECONDS = 2.0
"""How long a hook waits for a connection to a server that is not ours."""


def connect(paths: Paths, settings: Settings, deadline: float) -> Connection:
    """A connection until `deadline` (time.monotonic()); DatabaseError with its reason otherwise."""
    if settings.database_url:
        # An embedded server that has to be started, perhaps after a crash, may take all the time that there is.
        soon = min(deadline, time.monotonic() + _CONNECT_SECONDS)
        return _by_libpq({"dbname": settings.database_url}, settings, soon)
    server = cluster.cluster_for(paths, cluster.find_bin_dir(settings.pg_bin, settings.site_dirs))

    def restart(until: float) -> bool:
        return cluster.ensure_running(server, until, create=False, idle_minutes=settings.idle_minutes)

    return direct.connect(server.socket_path, "agentmem", restart, deadline)


def _by_libpq(params: dict[str, str], settings: Settings, deadline: float) -> Connection:
    from agentmem import libpq

    try:
        libpq.load(settings.site_dirs)
    except DatabaseError as error:
        if error.code != "libpq_missing":
            raise
        # Ten times slower, and `agentmem doctor` says so.
        sys.path.extend(settings.site_dirs)
        from agentmem.db import Fallback

        return Fallback(params)
    return libpq.connect(params, deadline)
