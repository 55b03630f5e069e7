"""`agentmem init`: settings, database, schema."""

from __future__ import annotations

import os

import click

from agentmem import db, env_file, libpq, paths, settings
from agentmem.migrations import migrate_database


@click.command("init")
@click.option("--database-url", default="", metavar="URL", help="A Postgres of your own instead of the embedded one.")
def command(database_url: str) -> None:
    """Write the settings, create the database and its schema. Can be run again."""
    where = paths.find_paths(dict(os.environ))
    paths.make_private(where.config)
    if database_url:
        # Refuse what can't be used before it is written down.
        db.connect({"dbname": database_url}).close()
        env_file.set_value(where.env_file, "AGENTMEM_DATABASE_URL", database_url)
    else:
        env_file.make(where.env_file)
    click.echo(f"settings: {where.env_file}")
    known = settings.load(where)
    applied = migrate_database(where, known)
    params = db.params_for(where, known)
    place = libpq.hide(known.database_url, libpq.secrets_in(params)) or f"embedded, {params['host']}"
    click.echo(f"database: {place}")
    click.echo(f"schema: {len(applied)} migrations applied" if applied else "schema: up to date")
