"""`agentmem doctor`: the proof, or exit code 1."""

from __future__ import annotations

import json
import os
import sys
from typing import Self

import click

from agentmem import claude_settings, coverage, db, doctor, paths, settings


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON document.")
@click.option("--quick", is_flag=True, help="Compare sizes only; don't read the transcripts again.")
@click.option("--no-canary", is_flag=True, help="Leave out the run of the registered hooks.")
@click.option("--accept-missing", is_flag=True, help="Accept that transcripts which are gone from disk are gone.")
@click.option("--config-dir", default="", help="Claude Code's folder. Default: $CLAUDE_CONFIG_DIR or ~/.claude.")
def command(as_json: bool, quick: bool, no_canary: bool, accept_missing: bool, config_dir: str) -> None:
    """Prove that sessions are captured and come back, or exit with 1."""
    where = paths.find_paths(dict(os.environ))
    if accept_missing:
        known = settings.load(where)
        with db.session(where, known) as connection:
            click.echo(f"accepted as gone: {coverage.accept_gone(connection, known)} transcripts", err=True)
    folder = config_dir or claude_settings.config_dir(os.environ)
    with _Bar(shown=sys.stderr.isatty() and not as_json) as bar:
        patient = doctor.Patient(where, dict(os.environ), folder, quick, not no_canary, bar.update)
        found = doctor.examine(patient)
    if as_json:
        click.echo(json.dumps([check._asdict() for check in found], indent=2, ensure_ascii=False))
    else:
        _show(found)
    sys.exit(1 if any(check.verdict == doctor.FAIL for check in found) else 0)


class _Bar:
    """A progress bar on a terminal; nothing elsewhere."""

    def __init__(self, *, shown: bool) -> None:
        self._progress = None
        if shown:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

            columns = (TextColumn("reading transcripts"), BarColumn(), DownloadColumn())
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._progress.add_task("", total=None)

    def __enter__(self) -> Self:
        if self._progress:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress:
            self._progress.stop()

    def update(self, done: int, total: int) -> None:
        """So many bytes of so many were checked."""
        if self._progress:
            self._progress.update(self._task, completed=done, total=total)


def _show(found: list[doctor.Check]) -> None:
    colours = {doctor.PASS: "green", doctor.WARN: "yellow", doctor.FAIL: "red"}
    for check in found:
        verdict = click.style(f"{check.verdict:4}", fg=colours[check.verdict], bold=check.verdict == doctor.FAIL)
        # Findings quote files and hooks: nothing in them may steer the terminal.
        click.echo(f"{verdict}  {check.name}: {_plain(check.why)}")
        if check.todo and check.verdict != doctor.PASS:
            click.echo(f"      -> {_plain(check.todo)}")
    count = {verdict: sum(check.verdict == verdict for check in found) for verdict in colours}
    click.echo(f"{count['pass']} passed, {count['warn']} warnings, {count['fail']} failed")


def _plain(text: str) -> str:
    return "".join(c if c == "\n" or c.isprintable() else "\ufffd" for c in text)
