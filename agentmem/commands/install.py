"""`agentmem install`: register the hooks with Claude Code."""

from __future__ import annotations

import os
import sys
import time

import click

from agentmem import claude_settings, paths, settings, sweep


@click.command("install")
@click.option("--dry-run", is_flag=True, help="Show what would change, change nothing.")
@click.option("--config-dir", default="", help="Claude Code's folder. Default: $CLAUDE_CONFIG_DIR or ~/.claude.")
def command(dry_run: bool, config_dir: str) -> None:
    """Register the hooks with Claude Code. Run twice, it changes nothing."""
    where = paths.find_paths(dict(os.environ))
    folder = config_dir or claude_settings.config_dir(os.environ)
    file = claude_settings.settings_file(folder)
    wanted = claude_settings.wanted_hooks(sys.executable, paths.hooks_dir(), where.home)
    if not dry_run:
        # Before there is a hook that needs it.
        settings.compile_cache(where)
    change = claude_settings.install(file, wanted, os.path.join(where.state, "install"), dry_run=dry_run)
    show(change, dry_run=dry_run)
    if not dry_run:
        projects = os.path.join(folder, "projects")
        if sweep.marker_time(where, projects) == 0.0:
            # What is on disk by now is history: `agentmem backfill` takes it in when it is wanted.
            sweep.set_marker(where, projects, time.time())
    off = claude_settings.switched_off(file, claude_settings.managed_dir())
    if off:
        click.echo(f"WARNING: {off}.", err=True)


def show(change: claude_settings.Change, *, dry_run: bool) -> None:
    """Print what became of each event, and of the file."""
    for event, what in change.events.items():
        click.echo(f"{'would be ' if dry_run else ''}{what}: {event}")
    if not change.changed:
        click.echo(f"{change.path}: nothing to change")
    elif dry_run:
        click.echo(f"{change.path}: would change")
    elif os.path.exists(change.path):
        click.echo(f"{change.path}: written")
    else:
        click.echo(f"{change.path}: removed, as there was none before agentmem")
