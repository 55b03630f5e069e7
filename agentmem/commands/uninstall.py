"""`agentmem uninstall`: take the hooks out of Claude Code."""

from __future__ import annotations

import os

import click

from agentmem import claude_settings, paths
from agentmem.commands.install import show


@click.command("uninstall")
@click.option("--dry-run", is_flag=True, help="Show what would change, change nothing.")
@click.option("--config-dir", default="", help="Claude Code's folder. Default: $CLAUDE_CONFIG_DIR or ~/.claude.")
def command(dry_run: bool, config_dir: str) -> None:
    """Take the hooks out of Claude Code. What was captured stays in the database."""
    where = paths.find_paths(dict(os.environ))
    file = claude_settings.settings_file(config_dir or claude_settings.config_dir(os.environ))
    change = claude_settings.uninstall(file, os.path.join(where.state, "install"), dry_run=dry_run)
    show(change, dry_run=dry_run)
