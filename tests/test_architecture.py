"""The shape of the package, held by tests: who imports whom, what a hook loads, where errors may be caught."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import hook_kit
import pytest

import agentmem
from agentmem import migrations
from agentmem.paths import hooks_dir, sql_dir

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hook_kit import Database, Machine

postgres, database, machine = hook_kit.postgres, hook_kit.database, hook_kit.machine

PACKAGE = Path(agentmem.__file__).parent
FILES = sorted(file for file in PACKAGE.rglob("*.py") if "_hooks" not in file.parts)
NAMES = {
    ".".join(("agentmem", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): file
    for file in FILES
}

BOUNDARIES = {
    ("agentmem.hook", "main"),
    ("agentmem.drain", "_drain_one"),
    ("agentmem.cli", "main"),
    ("agentmem.mcp", "serve"),
    # In a forked child, whose end is os._exit: an error must not climb into what was the parent's code.
    ("agentmem.spawn", "detached"),
    ("agentmem.spawn", "_exec"),
}
"""Where anything at all may be caught; each reports what it caught."""

CHEAP = {
    "__future__",
    "_ctypes",
    "_json",
    "_sha2",
    "_sha256",
    "_socket",
    "_struct",
    "ctypes",
    "ctypes._endian",
    "errno",
    "fcntl",
    "select",
    "struct",
    "types",
}
"""All that a hook loads of the standard library, beyond what the interpreter itself does."""


def tree_of(name: str) -> ast.Module:
    return ast.parse(NAMES[name].read_text(encoding="utf-8"), os.fspath(NAMES[name]))


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def walk_at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but those that only the type checker sees."""
    yield node
    for child in ast.iter_child_nodes(node):
        if is_type_checking(child):
            for other in child.orelse if isinstance(child, ast.If) else []:
                yield from walk_at_run_time(other)
        else:
            yield from walk_at_run_time(child)


def imports_of(name: str) -> set[str]:
    """The modules that a module imports at run time, in functions too; of our own ones, the modules themselves."""
    found: set[str] = set()
    for node in walk_at_run_time(tree_of(name)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            base = node.module or ""
            inner = {f"{base}.{alias.name}" for alias in node.names} & set(NAMES)
            found.update(inner)
            if not inner or len(inner) < len(node.names):
                found.add(base)
    return found - {name}


def own_imports(name: str) -> set[str]:
    return imports_of(name) & set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_module_says_what_it_is(name: str) -> None:
    assert ast.get_docstring(tree_of(name)), f"{name} has no docstring"


def test_imports_go_down() -> None:
    """Each module imports only from floors below its own, so there is no circle."""
    floors: dict[str, int] = {}
    left = {name: own_imports(name) for name in NAMES}
    while left:
        ready = [name for name, wanted in left.items() if wanted <= set(floors)]
        assert ready, f"these import each other in a circle: {sorted(left)}"
        for name in ready:
            floors[name] = 1 + max((floors[wanted] for wanted in left.pop(name)), default=-1)
    assert floors["agentmem.errors"] == 0
    assert (
        floors["agentmem.hook"] > floors["agentmem.drain"] > floors["agentmem.capture"] > floors["agentmem.transcript"]
    )


def test_only_db_imports_psycopg() -> None:
    assert [name for name in NAMES if any(one.split(".")[0] == "psycopg" for one in imports_of(name))] == [
        "agentmem.db"
    ]


def test_only_libpq_loads_libpq() -> None:
    callers = [
        name
        for name in NAMES
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.Attribute) and node.attr.startswith("PQ")
    ]
    assert set(callers) == {"agentmem.libpq"}


def third_party(name: str) -> set[str]:
    return {one for one in imports_of(name) if one.split(".")[0] not in {*sys.stdlib_module_names, *CHEAP, "agentmem"}}


def test_what_a_hook_can_reach_needs_no_other_library() -> None:
    """But for two ways round: python-dotenv for settings that changed, psycopg where libpq is missing."""
    reached: set[str] = set()
    new = {"agentmem.hook"}
    while new:
        reached |= new
        new = {wanted for name in new for wanted in own_imports(name)} - reached - {"agentmem.db"}
    assert {name: third_party(name) for name in reached if third_party(name)} == {"agentmem.settings": {"dotenv"}}


def test_shims_have_no_logic() -> None:
    for shim in Path(hooks_dir()).glob("*.py"):
        text = shim.read_text(encoding="utf-8")
        tree = ast.parse(text)
        assert ast.get_docstring(tree)
        assert len(text.split("\n")) <= 16
        assert not [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.If, ast.Try, ast.For))]


def caught(name: str) -> Iterator[tuple[str, ast.ExceptHandler]]:
    """Each except clause with the name of the function that it stands in."""
    tree = tree_of(name)
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            around = [one for one in functions if node in ast.walk(one)]
            yield (around[-1].name if around else ""), node


@pytest.mark.parametrize("name", NAMES)
def test_errors_are_caught_where_they_are_reported(name: str) -> None:
    for function, handler in caught(name):
        kinds = [node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)] if handler.type else [""]
        if {"", "Exception", "BaseException"} & set(kinds):
            assert (name, function) in BOUNDARIES, f"{name}.{function} catches everything"
        assert not isinstance(handler.body[0], ast.Pass), f"{name}.{function} swallows {kinds}"


@pytest.mark.parametrize("name", NAMES)
def test_lines_end_at_line_feeds_only(name: str) -> None:
    """str.splitlines also splits at U+2028, form feeds and more, which stand inside JSON strings."""
    for node in ast.walk(tree_of(name)):
        assert not (isinstance(node, ast.Attribute) and node.attr == "splitlines"), f"{name}:{node.lineno}"


def test_the_schema_number_is_that_of_the_newest_file() -> None:
    assert [one.version for one in migrations.read_migrations()][-1] == agentmem.SCHEMA
    assert len(list(Path(sql_dir()).glob("*.sql"))) == agentmem.SCHEMA


# What a hook loads


def loaded(command: list[str], environ: dict[str, str], raw: bytes = b"") -> list[str]:
    done = subprocess.run(command, env=environ, input=raw, capture_output=True, timeout=hook_kit.HANGS_AFTER)
    return re.findall(r"^import time: .*\| +([\w.]+)$", done.stderr.decode(), re.MULTILINE)


def loaded_by(machine: Machine, event: str, raw: bytes) -> set[str]:
    """The modules that this hook loads beyond the interpreter's own; those that it was born with among them."""
    bare = loaded([sys.executable, "-I", "-S", "-X", "importtime", "-c", "import os, sys, time"], machine.environ())
    hook = loaded(machine.command(event, "-X", "importtime"), machine.environ(), raw)
    assert "agentmem.hook" in hook
    return {name for name in hook if name.split(".")[0] != "agentmem"} - set(bare)


@pytest.mark.parametrize("event", ["Stop", "UserPromptSubmit", "SessionEnd", "SessionStart"])
def test_a_hook_loads_nothing_that_is_slow(database: Database, machine: Machine, event: str) -> None:
    session = machine.session()
    session.turn(1)
    subprocess.run(["git", "init", "-q", os.fspath(machine.work)], check=True)
    raw = json.dumps(machine.payload(event, session)).encode()
    assert loaded_by(machine, event, raw) - CHEAP == set()
    assert [(run["event"], run["outcome"]) for run in database.runs()] == [(event, "ok")]


def test_a_hook_without_its_database_loads_nothing_that_is_slow(machine: Machine) -> None:
    machine.configure(AGENTMEM_DATABASE_URL="postgresql://me@/mine?host=/nowhere/at/all")
    raw = b'{"session_id":"s","cwd":"/","hook_event_name":"Stop"}'
    assert loaded_by(machine, "Stop", raw) - CHEAP == set()
    assert len(machine.spooled()) == 1


# What the database says of itself


def test_everything_in_the_schema_is_explained(database: Database) -> None:
    silent = database.rows(
        """
        select c.relname::text as name from pg_class c
        where c.relnamespace = 'agentmem'::regnamespace and c.relkind in ('r', 'v', 'm', 'p')
          and obj_description(c.oid, 'pg_class') is null
        union all
        select p.oid::regprocedure::text from pg_proc p
        where p.pronamespace = 'agentmem'::regnamespace and obj_description(p.oid, 'pg_proc') is null
        union all
        -- Columns whose name and type don't say what is in them.
        select c.relname || '.' || a.attname
        from pg_attribute a join pg_class c on c.oid = a.attrelid
        where c.relnamespace = 'agentmem'::regnamespace and c.relkind = 'r' and a.attnum > 0 and not a.attisdropped
          and (a.atttypid in ('jsonb'::regtype, 'bytea'::regtype) or a.attndims > 0 or a.attname in ('kind', 'key'))
          and col_description(c.oid, a.attnum) is null
        """
    )
    assert silent == []
