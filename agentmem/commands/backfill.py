"""`agentmem backfill`: what is on disk and not in the database, or not as it should be."""

from __future__ import annotations

import os
import sys
import time

import click

from agentmem import backfill, claude_settings, coverage, db, output, paths, settings
from agentmem.sources import all_sources


@click.command("backfill")
@click.option("--dry-run", is_flag=True, help="List what would be done, write nothing.")
@click.option("--config-dir", default="", help="Claude Code's folder. Default: $CLAUDE_CONFIG_DIR or ~/.claude.")
def command(dry_run: bool, config_dir: str) -> None:
    """Capture transcripts that are on disk, and mend stored ones. Run twice, it does nothing the second time."""
    where = paths.find_paths(dict(os.environ))
    known = settings.load(where)
    projects = os.path.join(config_dir or claude_settings.config_dir(os.environ), "projects")
    sources = list(all_sources(projects))
    total = sum(os.stat(source.path).st_size for source in sources)
    with db.session(where, known) as connection, output.bytes_bar("looking", total) as bar:
        jobs = backfill.plan(connection, known, sources, coverage.times_of(where, projects), bar)
    click.echo(f"{len(sources)} transcripts, {total:,} bytes; {len(jobs)} sessions to capture or mend")
    if dry_run:
        for job in jobs:
            click.echo(
                f"would {'read again' if job.damaged else 'capture'} {job.session}: {job.why}, {job.size:,} bytes"
            )
        return
    begun = time.monotonic()
    with output.bytes_bar("capturing", sum(job.size for job in jobs)) as bar:
        outcomes = backfill.run(where, known, jobs, lambda outcome: bar(outcome.job.size))
    seconds = max(time.monotonic() - begun, 1e-6)
    failed = [outcome for outcome in outcomes if outcome.error]
    for outcome in failed:
        click.echo(f"failed: {outcome.job.session}: {output.plain(outcome.error)}", err=True)
    read = sum(outcome.stored.bytes_read for outcome in outcomes if outcome.stored)
    turns = sum(outcome.stored.turns for outcome in outcomes if outcome.stored)
    click.echo(f"captured {read:,} bytes, {turns:,} turns in {seconds:.1f} s ({read / 1e6 / seconds:.1f} MB/s)")
    sys.exit(1 if failed else 0)
