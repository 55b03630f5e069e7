"""`agentmem init`: settings, database, schema."""

from __future__ import annotations

import os

import click

from agentmem import db, libpq, paths, settings
from agentmem.migrations import migrate_database
from agentmem.replace import replace_file


@click.command("init")
@click.option("--database-url", default="", metavar="URL", help="A Postgres of your own instead of the embedded one.")
def command(database_url: str) -> None:
    """Write the settings, create the database and its schema. Can be run again."""
    where = paths.find_paths(dict(os.environ))
    paths.make_private(where.config)
    if database_url:
        # Refuse what can't be used before it is written down.
        db.connect({"dbname": database_url}).close()
    write_setting(where, "AGENTMEM_DATABASE_URL", database_url)
    known = settings.load(where)
    click.echo(f"settings: {where.env_file}")
    applied = migrate_database(where, known)
    params = db.params_for(where, known)
    place = libpq.hide(known.database_url, libpq.secrets_in(params)) or f"embedded, {params['host']}"
    click.echo(f"database: {place}")
    click.echo(f"schema: {len(applied)} migrations applied" if applied else "schema: up to date")


def write_setting(where: paths.Paths, name: str, value: str) -> None:
    """Set one line of the settings file and keep all others; an empty value changes nothing but makes the file."""
    try:
        with open(where.env_file, encoding="utf-8") as stream:
            lines = stream.read().split("\n")
    except FileNotFoundError:
        lines = ["# Settings of agentmem; the README lists them.", ""]
    if value:
        quoted = value.replace("\\", "\\\\").replace("'", "\\'")
        lines = [line for line in lines if not line.startswith(f"{name}=")]
        lines.insert(max(0, len(lines) - 1), f"{name}='{quoted}'")
    replace_file(where.env_file, "\n".join(lines).encode(), 0o600)
