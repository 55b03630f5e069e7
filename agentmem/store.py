"""The hooks' connection to the database in force.

The embedded server is spoken to directly, and started when it is not running; any other through libpq."""

from __future__ import annotations

import sys

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


def connect(paths: Paths, settings: Settings, deadline: float) -> Connection:
    """A connection until `deadline` (time.monotonic()); DatabaseError with its reason otherwise."""
    if settings.database_url:
        return _by_libpq({"dbname": settings.database_url}, settings, deadline)
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
