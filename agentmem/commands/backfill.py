"""`agentmem backfill`: what is on disk and not in the database, or not as it should be."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from agentmem import backfill, claude_settings, db, options, output, paths, settings, sweep
from agentmem.backfill import Wanted
from agentmem.output import Column, Row

if TYPE_CHECKING:
    from datetime import datetime

    from agentmem.backfill import Plan
    from agentmem.crew import Job, Outcome
    from agentmem.paths import Paths
    from agentmem.settings import Settings

_MOST_SHOWN = 20
_COLUMNS = (
    Column("what"),
    Column("session", style="cyan"),
    Column("bytes", right=True),
    Column("why"),
    Column("file", flexible=True, rank=1),
)


@click.command("backfill")
@click.option("--dry-run", is_flag=True, help="List what would be done, write nothing.")
@options.config_dir
@options.since("Only transcripts that were changed since then")
@click.option("--session", default="", metavar="ID", help="Only this session: its id or the beginning of it.")
@click.option("--quick", is_flag=True, help="Compare sizes only; don't read what is captured again.")
def command(dry_run: bool, config_dir: str, after: datetime | None, session: str, quick: bool) -> None:
    """Capture transcripts that are on disk, and mend stored ones.

    What was never captured, or not to its end, is captured; what was captured is read again and compared with its
    receipts and turns, and where they don't agree, they are made anew from the file. Run twice, it does nothing the
    second time. Exit code 1 when anything is left that is not right.
    """
    where = paths.find_paths(dict(os.environ))
    known = settings.load(where)
    projects = os.path.join(config_dir or claude_settings.config_dir(os.environ), "projects")
    wanted = Wanted(projects, session, after.timestamp() if after else 0.0, quick)
    begun = time.time()
    plan = _look(where, known, wanted)
    if dry_run:
        output.table(_COLUMNS, [_row(job) for job in plan.jobs])
    if dry_run or output.on_terminal():
        _sum_up_plan(plan, wanted)
    _list("can't be mended", plan.hopeless)
    if dry_run:
        sys.exit(1 if plan.hopeless else 0)
    outcomes, left = _do(where, known, plan.jobs)
    if len(outcomes) == len(plan.jobs) and not left and not plan.hopeless and wanted.is_everything:
        # The next session start need not look at all these files again.
        sweep.set_marker(where, projects, begun)
    sys.exit(1 if left or plan.hopeless or len(outcomes) < len(plan.jobs) else 0)


def _look(where: Paths, known: Settings, wanted: Wanted) -> Plan:
    total = sum(backfill.size_of(source.path) for source in backfill.find_sources(wanted, []))
    with db.session(where, known) as connection, output.bytes_bar("checking", total) as bar:
        return backfill.plan(connection, where, known, wanted, bar)


def _row(job: Job) -> Row:
    return Row([_what(job), job.session, job.size, job.why, job.sources[0].path])


def _what(job: Job) -> str:
    if job.again or job.why == "file_rewritten":
        return "read again"
    return "go on" if job.why == "tail" else "capture"


def _sum_up_plan(plan: Plan, wanted: Wanted) -> None:
    text = f"{output.count(len(plan.sources), 'transcript')} in {wanted.projects}, {output.size(plan.size)}: "
    size = sum(job.size for job in plan.jobs)
    text += f"{output.count(len(plan.jobs), 'session')} to capture or mend, {output.size(size)}"
    output.complain(text if plan.sources else f"no transcript that fits is in {wanted.projects}")


def _list(word: str, problems: list[str]) -> None:
    for problem in problems[:_MOST_SHOWN]:
        output.complain(f"{word}: {output.line(problem)}")
    if len(problems) > _MOST_SHOWN:
        output.complain(f"and {len(problems) - _MOST_SHOWN} more like that")


def _do(where: Paths, known: Settings, jobs: list[Job]) -> tuple[list[Outcome], list[str]]:
    """Do the jobs; the outcomes, and what is still not right."""
    begun = time.monotonic()
    with output.bytes_bar("capturing", sum(job.size for job in jobs)) as bar:
        outcomes = backfill.run(where, known, jobs, bar, None if output.on_terminal() else _tell)
    seconds = max(time.monotonic() - begun, 1e-6)
    left = [f"{outcome.job.session}: {outcome.error}" for outcome in outcomes if outcome.error]
    done = [outcome for outcome in outcomes if not outcome.error]
    with db.session(where, known) as connection:
        kept = backfill.look_again(connection, [outcome.job for outcome in done])
    left += kept.unsound
    read = sum(outcome.bytes_read for outcome in outcomes)
    text = f"{output.count(len(done), 'session')} captured or mended: {output.size(read)}, "
    text += f"{output.count(sum(outcome.turns for outcome in outcomes), 'turn')}"
    output.say(f"{text} in {seconds:.1f} s ({read / 1e6 / seconds:.1f} MB/s)" if done else "nothing was to be done")
    _say_what_was_odd(outcomes)
    for row in kept.turns:
        turns = output.count(row["turns"], "turn")
        output.say(f"kept: {turns} of session {output.line(row['key'])} that its files don't have any more")
    _list("left", left)
    if len(outcomes) < len(jobs):
        output.complain(f"not tried: {output.count(len(jobs) - len(outcomes), 'session')}; run it again")
    return outcomes, left


def _tell(outcome: Outcome) -> None:
    job = outcome.job
    if not outcome.error:
        click.echo(f"{_what(job)}\t{output.line(job.session)}\t{outcome.bytes_read}\t{outcome.turns}\t{job.why}")


def _say_what_was_odd(outcomes: list[Outcome]) -> None:
    damaged = sum(outcome.damaged for outcome in outcomes)
    if damaged:
        output.say(f"{output.count(damaged, 'line')} held no JSON object, or more than one; what could be read was")
    unknown: dict[str, int] = {}
    for outcome in outcomes:
        for kind, number in outcome.unknown:
            unknown[kind] = unknown.get(kind, 0) + number
    if unknown:
        kinds = ", ".join(f"{output.line(kind, 60)} ({number})" for kind, number in sorted(unknown.items())[:12])
        output.say(f"lines of unknown types, counted only: {kinds}")
