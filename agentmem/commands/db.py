"""`agentmem db`: start, stop, ask or migrate the database."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

import click

from agentmem import cluster, db, jsonio, paths, settings
from agentmem.errors import ClusterError

if TYPE_CHECKING:
    from agentmem.jsonio import Object
    from agentmem.paths import Paths
    from agentmem.settings import Settings

_START_SECONDS = 60.0
_STOP_SECONDS = 30.0


@click.group("db")
def command() -> None:
    """Start, stop, ask or migrate the database."""


@command.command()
def start() -> None:
    """Start the embedded server; create it when there is none yet."""
    places, current = _embedded("start")
    begun = time.monotonic()
    server = db.embedded(places, current)
    started = cluster.ensure_running(server, begun + _START_SECONDS, create=True, idle_minutes=current.idle_minutes)
    if started:
        click.echo(f"started in {(time.monotonic() - begun) * 1000:.0f} ms; socket in {server.socket_dir}")
    else:
        click.echo(f"already running; socket in {server.socket_dir}")


@command.command()
def stop() -> None:
    """Stop the embedded server. The next hook starts it again."""
    places, current = _embedded("stop")
    stopped = cluster.stop(db.embedded(places, current), time.monotonic() + _STOP_SECONDS)
    click.echo("stopped" if stopped else "it was not running")


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show_status(*, as_json: bool) -> None:
    """Where the database is and whether it runs; exit code 1 when it doesn't answer."""
    places = paths.find_paths(dict(os.environ))
    current = settings.load(places)
    if current.database_url:
        _show(_external_fields(places, current), as_json=as_json)
        return
    found = cluster.status(db.embedded(places, current))
    _show(_embedded_fields(found), as_json=as_json)
    if found.state == "unresponsive":
        raise click.exceptions.Exit(1)


@command.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def psql(arguments: tuple[str, ...]) -> None:
    """Open psql on the database; ARGUMENTS go to psql as they are."""
    places = paths.find_paths(dict(os.environ))
    current = settings.load(places)
    bin_dir = cluster.find_bin_dir(current.pg_bin, current.site_dirs)
    program = _find_psql(bin_dir, external=bool(current.database_url))
    db.start_if_embedded(places, current)
    conninfo, password = db.for_psql(db.params_for(places, current))
    environ = {**os.environ, "PGPASSWORD": password} if password else dict(os.environ)
    os.execve(program, [program, conninfo, *arguments], environ)  # noqa: S606 - psql takes our place


@command.command()
def migrate() -> None:
    """Bring the database's schema up to date; create the embedded database when there is none."""
    from agentmem.migrations import migrate_database

    places = paths.find_paths(dict(os.environ))
    applied = migrate_database(places, settings.load(places))
    for one in applied:
        click.echo(f"applied {one.name}")
    if not applied:
        click.echo("the schema is up to date")


def _embedded(verb: str) -> tuple[Paths, Settings]:
    """Where we are; ClusterError when the database is the user's own."""
    places = paths.find_paths(dict(os.environ))
    current = settings.load(places)
    if current.database_url:
        raise ClusterError(
            "cluster_external",
            f"AGENTMEM_DATABASE_URL names a server that is not ours to {verb}",
            "Use that server's own tools, or remove the setting to use the embedded one.",
        )
    return places, current


def _show(fields: Object, *, as_json: bool) -> None:
    if as_json:
        click.echo(jsonio.dumps_ascii(fields))
        return
    for name, value in fields.items():
        shown = f"{value / 1e6:.1f} MB" if name == "bytes" and isinstance(value, int) else value
        if shown not in ("", None):
            click.echo(
                f"{name.replace('_', ' '):<16} {jsonio.dumps_ascii(shown) if isinstance(shown, bool) else shown}"
            )


def _embedded_fields(found: cluster.Status) -> Object:
    return {
        "database": "embedded",
        "state": found.state,
        "version": found.version,
        "data": found.data_dir,
        "bytes": found.data_bytes,
        "socket": found.socket_dir,
        "process": found.pid or None,
        "connections": found.connections,
        "stops_when_idle": found.watched,
    }


def _external_fields(places: Paths, current: Settings) -> Object:
    with db.session(places, current) as connection:
        row = connection.execute(
            """
            select current_setting('server_version') as version, pg_database_size(current_database()) as bytes,
                   (select count(*) from pg_stat_activity
                    where datname = current_database() and pid <> pg_backend_pid()) as connections
            """
        ).fetchone()
        if row is None:
            raise ClusterError("cluster_status", "the database gave no answer to a question about itself")
        return {
            "database": "AGENTMEM_DATABASE_URL",
            "state": "running",
            "version": str(row["version"]),
            "host": connection.info.host,
            "name": connection.info.dbname,
            "bytes": int(row["bytes"]),
            "connections": int(row["connections"]),
        }


def _find_psql(bin_dir: str, *, external: bool) -> str:
    """The system's psql for a server elsewhere: the shipped one knows no TLS."""
    shipped = os.path.join(bin_dir, "psql") if bin_dir else ""
    system = shutil.which("psql") or ""
    for candidate in (system, shipped) if external else (shipped, system):
        if candidate and os.path.isfile(candidate):
            return candidate
    raise ClusterError("cluster_no_psql", "there is no psql here", "Install the Postgres client (psql).")
