"""`agentmem status`: how things are, on one screen."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from agentmem import claude_settings, options, output, paths, settings, status
from agentmem.clock import span

if TYPE_CHECKING:
    from agentmem.status import Report

    Rows = list[tuple[str, object, str]]

_BAD = "red"


@click.command("status")
@options.as_json
@options.config_dir
def command(as_json: bool, config_dir: str) -> None:
    """Show the database, what is stored, the last hook runs and what waits.

    Exit code 1 when something is wrong: the database is not reached, events wait, or hook runs failed.
    """
    where = paths.find_paths(dict(os.environ))
    folder = config_dir or claude_settings.config_dir(os.environ)
    report = status.examine(where, settings.load(where), os.path.join(folder, "projects"))
    if as_json:
        output.as_json({"ok": not report["wrong"], **report})
    else:
        output.fields(_rows(report))
    sys.exit(1 if report["wrong"] else 0)


def _rows(report: Report) -> Rows:
    wrong: list[str] = report["wrong"]
    rows: Rows = [
        ("status", "; ".join(wrong) if wrong else "all is well", f"bold {_BAD}" if wrong else "bold green"),
        *_database(report),
        *_stored(report["stored"]),
        *_runs(report["hook_runs"]),
        *_failures(report["failures"]),
        ("spool", *_spool(report["spool"])),
        ("last sweep", f"{output.ago(report['last_sweep'])} (of {report['transcripts']})", ""),
        ("settings", report["settings"], ""),
    ]
    return rows


def _database(report: Report) -> Rows:
    database: dict[str, Any] = report["database"]
    reached = database["state"] == "running"
    size = database.get("database_bytes") or database.get("bytes")
    parts = [
        database["kind"],
        f"Postgres {database['version']}" if database["version"] else "",
        database["state"],
        output.size(size) if size else "",
        database["place"],
    ]
    rows: Rows = [("database", ", ".join(part for part in parts if part), "" if reached else _BAD)]
    if not reached:
        rows.append(("cause", f"{database['error']} [{database['code']}]", _BAD))
        rows.append(("what to do", database["hint"], ""))
        rows.append(("stored", "not known: the database is not reached", _BAD))
    elif report["schema"]["version"] < report["schema"]["known"]:
        schema = report["schema"]
        rows.append(("schema", f"version {schema['version']} of {schema['known']}: run agentmem db migrate", _BAD))
    elif (report["schema"]["needed"] or 0) > report["schema"]["known"]:
        schema = report["schema"]
        rows.append(("schema", f"version {schema['version']} needs a newer agentmem: upgrade it", _BAD))
    else:
        rows.append(("schema", f"version {report['schema']['version']}", ""))
    return rows


def _stored(stored: dict[str, Any] | None) -> Rows:
    if stored is None:
        return []
    text = f"{output.count(stored['projects'], 'project')}, {output.count(stored['sessions'], 'session')}"
    text += f" and {output.count(stored['subagents'], 'subagent')}, {output.count(stored['turns'], 'turn')}"
    if stored["hosts"] > 1:
        text += f", of {stored['hosts']} machines"
    proof = f"{output.size(stored['bytes_captured'])} of {output.count(stored['transcripts'], 'transcript')}"
    proof += f", {output.count(stored['receipts'], 'receipt')}"
    if stored["last_captured"]:
        proof += f", the last one {output.ago(stored['last_captured'])}"
    return [("stored", text, ""), ("captured", proof, "")]


def _runs(runs: list[dict[str, Any]] | None) -> Rows:
    if runs is None:
        return []
    if not runs:
        return [("hook runs", "none yet: are the hooks installed? See: agentmem doctor", "yellow")]
    rows: Rows = []
    for run in sorted(runs, key=lambda run: run["started_at"], reverse=True):
        bad = run["outcome"] == "failed"
        outcome = f"{run['outcome']} [{run['error_code']}]" if run["error_code"] else run["outcome"]
        text = f"{run['event']} {output.ago(run['started_at'])}: {outcome}"
        rows.append(("hook runs" if not rows else " ", text, _BAD if bad else ""))
    return rows


def _failures(failures: dict[str, Any] | None) -> Rows:
    if not failures or not failures["count"]:
        return []
    last = failures["last"]
    text = f"{output.count(failures['count'], 'hook run')} failed in 24 h without a good one since, lastly "
    text += f"{last['event']} {output.ago(datetime.fromisoformat(last['at']))}: {last['error']} [{last['code']}]"
    return [("failures", text, _BAD), (" ", "see: agentmem log --failed", "")]


def _spool(spool: dict[str, Any]) -> tuple[str, str]:
    parts: list[str] = []
    if spool["waiting"]:
        verb = "waits" if spool["waiting"] == 1 else "wait"
        text = f"{output.count(spool['waiting'], 'event')} {verb}, the oldest for {span(spool['oldest_seconds'])}"
        parts.append(f"{text}: {spool['cause']}" if spool["cause"] else text)
    if spool["in_work"]:
        parts.append(f"{output.count(spool['in_work'], 'event')} in work")
    if spool["damaged"]:
        parts.append(f"{output.count(spool['damaged'], 'event')} can't be read: see agentmem doctor")
    return ("; ".join(parts) or "empty", _BAD if spool["waiting"] or spool["damaged"] else "")
