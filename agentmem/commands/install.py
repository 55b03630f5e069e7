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
    change = claude_settings.install(file, wanted, os.path.join(where.state, "install"), dry_run=dry_run)
    if not dry_run:
        settings.compile_cache(where)
        projects = os.path.join(folder, "projects")
        if sweep.marker_time(where, projects) == 0.0:
            # What is on disk by now is history: `agentmem backfill` takes it in when it is wanted.
            sweep.set_marker(where, projects, time.time())
    for event in change.events:
        click.echo(f"{'would register' if dry_run else 'registered'} {event}")
    click.echo(f"{file}: {len(change.events)} events changed" if change.changed else f"{file}: nothing to change")
    if claude_settings.read_settings(file).get("disableAllHooks") is True:
        click.echo("WARNING: `disableAllHooks` is true in that file: Claude Code will run no hook at all.", err=True)
