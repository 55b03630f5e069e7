"""What a hook costs a turn: medians in milliseconds, and ratios to `python -I -S -c pass` measured in the same run.

Every figure is a whole process, started as the client starts it, and taken in turn with the others, so that a noisy
machine disturbs all of them alike. The embedded server runs in a folder of its own, which is removed afterwards.

    python bench/hooks.py [--rounds 40] [--sessions 10000] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from typing import TYPE_CHECKING

from agentmem import cluster, db, migrations, paths, settings

if TYPE_CHECKING:
    from collections.abc import Callable

TARGETS = {"Stop, one new turn": 4.0, "SessionStart, digest": 6.0, "imports of a hook": 2.0}
BIG_MEGABYTES = 50


class Bench:
    """An installation with a project, a small and a big transcript, and many sessions in the database."""

    def __init__(self, root: str, sessions: int) -> None:
        self.home = os.path.join(root, "home")
        self.work = os.path.join(root, "work")
        self.projects = os.path.join(self.home, ".claude", "projects", "-work")
        for folder in (self.projects, self.work):
            os.makedirs(folder)
        self.env = {"HOME": self.home, "AGENTMEM_HOME": os.path.join(root, "am"), "PATH": os.environ["PATH"]}
        self.paths = paths.find_paths(self.env)
        self.settings = settings.load(self.paths)
        migrations.migrate_database(self.paths, self.settings)
        self._repository()
        self.small = self._transcript("small", 0)
        self.big = self._transcript("big", BIG_MEGABYTES << 20)
        self.hook("SessionStart", self.small)
        self._fill(sessions)

    def _repository(self) -> None:
        for number in range(300):
            folder = os.path.join(self.work, f"d{number % 20}")
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, f"f{number}.py"), "w", encoding="utf-8") as stream:
                stream.write(f"x = {number}\n")
        who = ["-c", "user.name=b", "-c", "user.email=b@example.invalid"]
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all of it"]):
            subprocess.run(["git", *who, *command], cwd=self.work, env=self.env, check=True)

    def _transcript(self, name: str, size: int) -> str:
        file = os.path.join(self.projects, name + ".jsonl")
        with open(file, "w", encoding="utf-8") as stream:
            filler = json.dumps({"type": "attachment", "attachment": {"type": "file", "content": "x" * 3000}}) + "\n"
            stream.writelines(filler for _ in range(size // len(filler)))
        self.turn(file)
        self.hook("Stop", file)
        return file

    def _fill(self, sessions: int) -> None:
        """Sessions of this project and of 99 others, as if they had been captured."""
        with db.connect(db.params_for(self.paths, self.settings)) as connection:
            connection.execute(
                "insert into agentmem.projects (identity, name)"
                " select 'bench:' || n, 'p' || n from generate_series(1, 99) n"
            )
            connection.execute(
                "insert into agentmem.sessions (client, key, project_id, host_id, started_at, last_at, first_prompt,"
                " last_prompt, last_answer, last_kind, files)"
                " select 'claude-code', 'bench-' || n, p.id, h.id, now() - n * interval '1 hour',"
                " now() - n * interval '1 hour', 'please do number ' || n || repeat(' words', 40), 'and then ' || n,"
                " 'done with ' || n || repeat(' text', 80), 'answer', array['a.py', 'b.py']"
                " from generate_series(1, %s) n, agentmem.hosts h,"
                " lateral (select id from agentmem.projects order by id offset n %% 100 limit 1) p",
                (sessions,),
            )
            connection.execute("analyze")

    def turn(self, file: str) -> None:
        """One more question and answer in a transcript."""
        session = os.path.basename(file).removesuffix(".jsonl")
        with open(file, "a", encoding="utf-8") as stream:
            for kind, content in (
                ("user", "a question " * 10),
                ("assistant", [{"type": "text", "text": "an answer " * 60}]),
            ):
                record = {
                    "type": kind,
                    "uuid": str(uuid.uuid4()),
                    "sessionId": session,
                    "cwd": self.work,
                    "timestamp": "2026-11-20T10:00:00.000Z",
                    "message": {"role": kind, "content": content},
                }
                stream.write(json.dumps(record) + "\n")

    def hook(self, event: str, file: str, raw: bytes | None = None) -> None:
        """One run of a hook."""
        shim = "session_start.py" if event == "SessionStart" else "capture.py"
        session = os.path.basename(file).removesuffix(".jsonl")
        payload = {"session_id": session, "transcript_path": file, "cwd": self.work, "hook_event_name": event}
        payload.update({"source": "startup"} if event == "SessionStart" else {"last_assistant_message": "an answer"})
        done = subprocess.run(
            [sys.executable, "-I", "-S", os.path.join(paths.hooks_dir(), shim), "claude-code", event],
            input=json.dumps(payload).encode() if raw is None else raw,
            env=self.env,
            capture_output=True,
            check=False,
        )
        if (done.returncode != 0) == (raw is None):
            raise SystemExit(f"{event}: exit code {done.returncode}: {done.stderr.decode()}")


def measure(bench: Bench, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each run, by what was run."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(paths.__file__)))
    bare = [sys.executable, "-I", "-S", "-c", "pass"]
    imports = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({package!r}); import agentmem.hook"]
    runs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "bare python": (lambda: None, lambda: subprocess.run(bare, check=True)),
        "imports of a hook": (lambda: None, lambda: subprocess.run(imports, check=True)),
        "Stop, one new turn": (lambda: bench.turn(bench.small), lambda: bench.hook("Stop", bench.small)),
        "Stop, nothing new": (lambda: None, lambda: bench.hook("Stop", bench.small)),
        f"Stop, one new turn after {BIG_MEGABYTES} MB": (
            lambda: bench.turn(bench.big),
            lambda: bench.hook("Stop", bench.big),
        ),
        "UserPromptSubmit": (lambda: None, lambda: bench.hook("UserPromptSubmit", bench.small)),
        "SessionStart, digest": (lambda: None, lambda: bench.hook("SessionStart", bench.small)),
    }
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, (prepare, run) in runs.items():
            prepare()
            begun = time.perf_counter()
            run()
            found[name].append((time.perf_counter() - begun) * 1000)
    return found


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    root = tempfile.mkdtemp(prefix="am-bench-")
    bench = None
    try:
        bench = Bench(root, options.sessions)
        found = measure(bench, options.rounds)
    finally:
        if bench:
            cluster.stop(db.embedded(bench.paths, bench.settings), time.monotonic() + 10)
        shutil.rmtree(root)
    base = statistics.median(found["bare python"])
    table = {
        name: {"median": statistics.median(values), "min": min(values), "ratio": statistics.median(values) / base}
        for name, values in found.items()
    }
    if options.json:
        print(json.dumps(table, indent=2))
        return
    print(f"{options.rounds} rounds, {options.sessions} sessions in the database\n")
    print(f"{'':36} {'median ms':>9} {'min ms':>8} {'ratio':>6} {'target':>7}")
    for name, row in table.items():
        target = f"<= {TARGETS[name]:.0f}" if name in TARGETS else ""
        print(f"{name:36} {row['median']:9.1f} {row['min']:8.1f} {row['ratio']:6.2f} {target:>7}")


if __name__ == "__main__":
    main()
