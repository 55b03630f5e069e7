"""The doctor: a list of checks, each with a verdict, why, and what to do.

A check that can't be made is not a pass. One that breaks is a failure with its reason, and the others still run.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from agentmem import SCHEMA, canary, claude_settings, cluster, coverage, db, libpq, migrations, settings, spool
from agentmem.clock import span
from agentmem.errors import AgentmemError, DatabaseError
from agentmem.jsonio import list_of, text_of
from agentmem.sources import all_sources

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentmem.db import Connection
    from agentmem.jsonio import Object
    from agentmem.paths import Paths
    from agentmem.settings import Settings

PASS, WARN, FAIL = "pass", "warn", "fail"
_MOST_SHOWN = 20


class Check(NamedTuple):
    """One finding. name: what was checked; verdict: pass, warn or fail; why and what to do: one line each."""

    name: str
    verdict: str
    why: str
    todo: str = ""


class Patient(NamedTuple):
    """What is examined."""

    paths: Paths
    environ: dict[str, str]
    config_dir: str
    quick: bool
    with_canary: bool
    progress: Callable[[int, int], None] | None
    """Called with bytes checked and bytes in all."""


def examine(patient: Patient) -> list[Check]:
    """Make every check; never raises for what it finds."""
    found = _safely("settings", lambda: _settings(patient))
    if any(check.verdict == FAIL for check in found):
        return found
    known = settings.load(patient.paths)
    found += _safely("fast path", lambda: _fast_path(known))
    found += _safely("spool", lambda: _spool(patient.paths))
    hooks, in_hooks = _hooks(patient)
    found += in_hooks
    try:
        db.start_if_embedded(patient.paths, known)
        with db.connect(db.params_for(patient.paths, known)) as connection, db.errors_as_ours():
            found += _with_database(patient, known, connection, hooks)
    except AgentmemError as error:
        found.append(Check("database", FAIL, str(error), error.hint))
        found.append(Check("the rest", FAIL, "not checked: it needs the database", "Mend the database first."))
    return found


def _with_database(
    patient: Patient, known: Settings, connection: Connection, hooks: dict[str, list[Object]]
) -> list[Check]:
    found = _safely("database", lambda: _database(patient, known, connection))
    in_schema = _safely("schema", lambda: _schema(connection))
    found += in_schema
    if any(check.verdict == FAIL for check in in_schema):
        return [*found, Check("the rest", FAIL, "not checked: it needs the schema", "Mend the schema first.")]
    if patient.with_canary:
        found += _safely("canary", lambda: _canary(patient, connection, hooks))
    found += _safely("coverage", lambda: _coverage(patient, known, connection))
    found += _safely("receipts", lambda: _verify(connection))
    found += _safely("hook runs", lambda: _runs(known, connection))
    return found


def _safely(name: str, check: Callable[[], list[Check]]) -> list[Check]:
    try:
        return check()
    except AgentmemError as error:
        return [Check(name, FAIL, str(error), error.hint)]
    except (OSError, ValueError, LookupError) as error:
        return [Check(name, FAIL, f"the check broke: {type(error).__name__}: {error}", "Please report it.")]


def _settings(patient: Patient) -> list[Check]:
    paths = patient.paths
    settings.load(paths)
    loose = [
        place
        for place, most in ((paths.env_file, 0o600), (paths.state, 0o700), (paths.spool, 0o700), (paths.data, 0o700))
        if os.path.exists(place) and os.stat(place).st_mode & 0o777 & ~most
    ]
    if loose:
        return [Check("settings", WARN, f"others may enter {loose[0]}", f"chmod go-rwx {loose[0]}")]
    if not os.path.exists(paths.env_file):
        return [Check("settings", WARN, f"{paths.env_file} is not there: defaults are in force", "agentmem init")]
    return [Check("settings", PASS, paths.env_file)]


def _fast_path(known: Settings) -> list[Check]:
    if not known.database_url:
        return [Check("fast path", PASS, "the embedded server, without libpq")]
    library = libpq.find_library(known.site_dirs)
    if not library:
        todo = "Install agentmem again, with psycopg[binary]."
        return [Check("fast path", WARN, "libpq was not found: hooks use psycopg, ten times slower", todo)]
    try:
        ctypes.CDLL(library)
    except OSError as error:
        return [
            Check("fast path", WARN, f"libpq can't be loaded, hooks use psycopg: {error}", "Install agentmem again.")
        ]
    return [Check("fast path", PASS, f"libpq: {os.path.basename(library)}")]


def _database(patient: Patient, known: Settings, connection: Connection) -> list[Check]:
    version = connection.info.server_version
    if known.database_url:
        place = libpq.hide(known.database_url, libpq.secrets_in({"dbname": known.database_url}))
    else:
        place = f"embedded, {cluster.connect_params(db.embedded(patient.paths, known))['host']}"
    if version < 140000:
        return [Check("database", FAIL, f"Postgres {version // 10000} at {place}", "Use Postgres 14 or later.")]
    # A real write, taken back.
    with connection.transaction(force_rollback=True):
        connection.execute("create temporary table agentmem_doctor (n integer) on commit drop")
        connection.execute("insert into agentmem_doctor values (1)")
        row = connection.execute("select current_setting('transaction_read_only') as read_only").fetchone()
    if row and row["read_only"] == "on":
        return [Check("database", FAIL, f"{place} takes no writes", "Is it a standby, or is its disk full?")]
    return [Check("database", PASS, f"Postgres {version // 10000}.{version % 10000} ({place})")]


def _schema(connection: Connection) -> list[Check]:
    version = migrations.schema_version(connection)
    if version == 0:
        return [Check("schema", FAIL, "the schema agentmem is not there", "agentmem db migrate")]
    if version < SCHEMA:
        return [Check("schema", FAIL, f"version {version}, this agentmem needs {SCHEMA}", "agentmem db migrate")]
    applied = {
        row["version"]: row["sha256"] for row in connection.execute("select version, sha256 from agentmem.migrations")
    }
    for one in migrations.read_migrations():
        if applied.get(one.version) != one.sha256:
            return [
                Check("schema", FAIL, f"migration {one.version} is not the one shipped", "Install a released version.")
            ]
    row = connection.execute("select agentmem.needed_schema() as needed").fetchone()
    if row and row["needed"] > SCHEMA:
        return [Check("schema", FAIL, f"needs {row['needed']}, this agentmem knows {SCHEMA}", "Upgrade agentmem here.")]
    if version > SCHEMA:
        return [Check("schema", WARN, f"version {version} is newer than this agentmem", "Upgrade agentmem here.")]
    return [Check("schema", PASS, f"version {version}")]


def _hooks(patient: Patient) -> tuple[dict[str, list[Object]], list[Check]]:
    """Our registered hooks, and what is wrong with them."""
    file = claude_settings.settings_file(patient.config_dir)
    try:
        configured = claude_settings.read_settings(file)
        hooks = claude_settings.registered(configured)
        off = claude_settings.switched_off(file, claude_settings.managed_dir())
    except AgentmemError as error:
        return {}, [Check("hooks", FAIL, str(error), error.hint)]
    found: list[Check] = []
    if off:
        found.append(Check("hooks", FAIL, off, "Change that file, or have it changed."))
    for event in claude_settings.narrowed(configured):
        why = f"{event} stands under a matcher in {file}, so it may not run every time"
        found.append(Check("hooks", FAIL, why, "agentmem install"))
    for event in claude_settings.EVENTS:
        entries = hooks.get(event, [])
        if len(entries) != 1:
            why = f"{event} is registered {len(entries)} times in {file}"
            found.append(Check("hooks", FAIL, why, "agentmem install"))
            continue
        found.extend(_one_hook(event, entries[0]))
    return hooks, found or [Check("hooks", PASS, f"{len(claude_settings.EVENTS)} events in {file}")]


def _one_hook(event: str, hook: Object) -> list[Check]:
    program = text_of(hook, "command")
    arguments = [item for item in list_of(hook, "args") if isinstance(item, str)]
    if not arguments or not os.path.isabs(program):
        return [Check("hooks", FAIL, f"{event} is registered through a shell", "agentmem install")]
    if not os.access(program, os.X_OK):
        return [Check("hooks", FAIL, f"{event}: {program} can't be run", "agentmem install")]
    shim = next((item for item in arguments if item.endswith(".py")), "")
    if not os.path.isfile(shim):
        return [Check("hooks", FAIL, f"{event}: {shim} is not there", "agentmem install")]
    return []


def _canary(patient: Patient, connection: Connection, hooks: dict[str, list[Object]]) -> list[Check]:
    steps = canary.fly(connection, patient.paths, hooks, patient.environ)
    return [Check(f"canary {step.name}", PASS if step.held else FAIL, step.seen, step.hint) for step in steps]


def _coverage(patient: Patient, known: Settings, connection: Connection) -> list[Check]:
    projects = os.path.join(patient.config_dir, "projects")
    sources = list(all_sources(projects))
    total = sum(os.stat(source.path).st_size for source in sources if os.path.exists(source.path))
    done = 0

    def progress(size: int) -> None:
        nonlocal done
        done += size
        if patient.progress:
            patient.progress(done, total)

    times = coverage.times_of(patient.paths, projects)
    found = coverage.check_all(connection, known, sources, times, deep=not patient.quick, progress=progress)
    days = claude_settings.read_settings(claude_settings.settings_file(patient.config_dir)).get("cleanupPeriodDays")
    coverage.check_gone(connection, known, float(days) if isinstance(days, (int, float)) else 30.0, found)
    return _coverage_checks(found)


def _coverage_checks(found: coverage.Coverage) -> list[Check]:
    failures = found.failures()
    checks = [
        Check("coverage", FAIL, str(problem), "agentmem backfill" if problem.mendable else _todo(problem))
        for problem in failures[:_MOST_SHOWN]
    ]
    if len(failures) > _MOST_SHOWN:
        checks.append(Check("coverage", FAIL, f"and {len(failures) - _MOST_SHOWN} more", "agentmem doctor --json"))
    history = [problem for problem in found.problems if problem.level == "history"]
    if history:
        why = f"{len(history)} transcripts from before agentmem was set up are not captured"
        checks.append(Check("coverage", WARN, why, "agentmem backfill"))
    waits = sum(problem.level == "waits" for problem in found.problems)
    share = 100.0 if not found.bytes_on_disk else 100.0 * found.bytes_captured / found.bytes_on_disk
    why = (
        f"{found.files} transcripts, {found.bytes_captured:,} of {found.bytes_on_disk:,} bytes captured ({share:.1f} %)"
    )
    if waits:
        why += f"; {waits} with lines for the next session start"
    if found.cleaned_up:
        why += f"; {found.cleaned_up} gone from disk, still stored"
    if not failures:
        checks.append(Check("coverage", PASS, why))
    return checks


def _todo(problem: coverage.Problem) -> str:
    if problem.code == "file_gone":
        return "Restore it, or accept that it is gone: agentmem doctor --accept-missing"
    return "Mend the file's owner and mode."


def _verify(connection: Connection) -> list[Check]:
    rows = connection.execute("select * from agentmem.verify()").fetchall()
    checks = [
        Check("receipts", FAIL, f"{row['session_key']}: {row['detail']} [{row['problem']}]", "agentmem backfill")
        for row in rows[:_MOST_SHOWN]
    ]
    if len(rows) > _MOST_SHOWN:
        checks.append(Check("receipts", FAIL, f"and {len(rows) - _MOST_SHOWN} more", "select * from agentmem.verify()"))
    if checks:
        return checks
    row = connection.execute("select count(*) as n from agentmem.receipts").fetchone()
    return [Check("receipts", PASS, f"{row['n'] if row else 0} receipts agree with the stored turns")]


def _spool(paths: Paths) -> list[Check]:
    checks: list[Check] = []
    if damaged := spool.damaged(paths):
        where = os.path.join(paths.spool, "damaged")
        checks.append(Check("spool", FAIL, f"{len(damaged)} records can't be read", f"Look into {where}"))
    names = spool.waiting(paths)
    ages = [time.time() - os.stat(os.path.join(paths.spool, name + ".json")).st_mtime for name in names]
    if ages and max(ages) > 60:
        verdict = FAIL if max(ages) > 3600 else WARN
        checks.append(
            Check("spool", verdict, f"{len(ages)} events wait, the oldest for {span(max(ages))}", "agentmem drain")
        )
    return checks or [Check("spool", PASS, f"{len(ages)} events wait" if ages else "empty")]


def _runs(known: Settings, connection: Connection) -> list[Check]:
    row = connection.execute(
        "select count(*) filter (where outcome = 'ok') as ok, count(*) filter (where outcome = 'deferred') as deferred,"
        " count(*) as runs from agentmem.hook_runs where host_id = %s and started_at > now() - interval '24 hours'",
        (known.host_id,),
    ).fetchone()
    open_row = connection.execute("select agentmem.failures(%s) as failures", (known.host_id,)).fetchone()
    if row is None or open_row is None:
        raise DatabaseError("db_error", "the database gave no answer about hook runs", "Try again.")
    failures = open_row["failures"]
    if failures["count"]:
        last = failures["last"]
        why = f"{failures['count']} failed in 24 h without a good one since, lastly {last['event']}: {last['error']}"
        return [Check("hook runs", FAIL, f"{why} [{last['code']}]", "agentmem log --failed")]
    why = f"{row['runs']} in 24 h, {row['ok']} ok"
    if row["deferred"]:
        why += f", {row['deferred']} stored later"
    return [Check("hook runs", PASS, why)]
