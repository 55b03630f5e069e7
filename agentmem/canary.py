"""The canary: a made-up session through the very command that the client was told to run.

Written as a transcript like the client's, announced on the hook's stdin, waited for in the database, looked for in the
digest of a second session, and then deleted without a trace. What it proves is what a person wants to know: that the
next session will be captured and will come back.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

from agentmem import digest, spool, sweep
from agentmem.jsonio import list_of, object_of, text_of
from agentmem.paths import make_private
from agentmem.project import find_project

if TYPE_CHECKING:
    from agentmem.db import Connection
    from agentmem.jsonio import Json, Object
    from agentmem.paths import Paths

PREFIX = "agentmem-canary-"
_SECONDS = 30


class Step(NamedTuple):
    """One step of the canary: whether it held, what was seen, and what to do when it did not."""

    name: str
    held: bool
    seen: str
    hint: str = ""


class _Canary:
    """The canary's files and names. Its projects folder is its own, so that nothing else is swept."""

    def __init__(self, paths: Paths) -> None:
        word = secrets.token_hex(6)
        self.session = PREFIX + word
        self.folder = os.path.join(paths.state, "canary", word)
        self.projects = os.path.join(self.folder, "projects")
        self.work = os.path.join(self.folder, "work")
        self.transcript = os.path.join(self.projects, "work", self.session + ".jsonl")
        self.prompt = f"canary {word}: is anybody there?"
        self.answer = f"canary {word}: yes, 기억합니다."
        self.paths = paths

    def write(self) -> None:
        """The transcript of one question and one answer, as the client writes it."""
        make_private(self.work)
        make_private(os.path.dirname(self.transcript))
        common = {"isSidechain": False, "sessionId": self.session, "cwd": self.work, "version": "canary"}
        moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
        answer: list[Json] = [{"type": "text", "text": self.answer}]
        lines = [
            {
                **common,
                "type": kind,
                "uuid": f"{self.session}-{place}",
                "parentUuid": None,
                "timestamp": moment,
                "message": message,
            }
            for place, (kind, message) in enumerate(
                [
                    ("user", {"role": "user", "content": self.prompt}),
                    ("assistant", {"role": "assistant", "id": self.session + "-m", "content": answer}),
                ]
            )
        ]
        with open(self.transcript, "w", encoding="utf-8") as stream:
            stream.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)

    def payload(self, event: str, session: str) -> bytes:
        """What the client would write to the hook."""
        path = os.path.join(os.path.dirname(self.transcript), session + ".jsonl")
        payload = {"session_id": session, "transcript_path": path, "cwd": self.work, "hook_event_name": event}
        extra = {"source": "startup"} if event == "SessionStart" else {"stop_hook_active": False}
        return json.dumps({**payload, **extra}).encode() + b"\n"


def fly(connection: Connection, paths: Paths, hooks: dict[str, list[Object]], environ: dict[str, str]) -> list[Step]:
    """Run the canary through the registered hooks of Stop and SessionStart; the steps up to the first that failed."""
    canary = _Canary(paths)
    try:
        canary.write()
        steps = [_stop(canary, hooks, environ)]
        if steps[-1].held:
            steps.append(_read_back(connection, canary))
        if steps[-1].held:
            steps.append(_digest(canary, hooks, environ))
    finally:
        left = _clean(connection, canary)
    steps.append(Step("deleted", not left, "no trace is left" if not left else f"left behind: {left}", "Run it again."))
    return steps


def run_hook(hook: Object, payload: bytes, environ: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    """Run a registered hook as the client does: its own program and arguments, no shell, a small environment."""
    arguments = [item for item in list_of(hook, "args") if isinstance(item, str)]
    kept = {name: environ[name] for name in ("HOME", "AGENTMEM_HOME", "SYSTEMROOT") if name in environ}
    kept["PATH"] = "/usr/local/bin:/usr/bin:/bin"
    return subprocess.run(
        [text_of(hook, "command"), *arguments],
        input=payload,
        capture_output=True,
        env=kept,
        timeout=_SECONDS,
        check=False,
    )


def _ran(
    name: str, hooks: dict[str, list[Object]], event: str, payload: bytes, environ: dict[str, str]
) -> Step | bytes:
    """What the event's hook printed, or the step that failed."""
    if not hooks.get(event):
        return Step(name, held=False, seen=f"no hook of ours is registered for {event}", hint="Run: agentmem install")
    try:
        done = run_hook(hooks[event][0], payload, environ)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Step(
            name, held=False, seen=f"the registered command can't be run: {error}", hint="Run: agentmem install"
        )
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip() or "nothing on stderr"
        return Step(name, held=False, seen=f"exit code {done.returncode}: {said}", hint="Mend what it says.")
    return done.stdout


def _stop(canary: _Canary, hooks: dict[str, list[Object]], environ: dict[str, str]) -> Step:
    begun = time.monotonic()
    ran = _ran("captured", hooks, "Stop", canary.payload("Stop", canary.session), environ)
    if isinstance(ran, Step):
        return ran
    return Step("captured", held=True, seen=f"the Stop hook took {(time.monotonic() - begun) * 1000:.0f} ms")


def _read_back(connection: Connection, canary: _Canary) -> Step:
    rows = connection.execute(
        "select t.text from agentmem.turns t join agentmem.sessions s on s.id = t.session_id"
        " where s.key = %s order by t.position",
        (canary.session,),
    ).fetchall()
    texts = [row["text"] for row in rows]
    if texts != [canary.prompt, canary.answer]:
        return Step("committed", False, f"{len(texts)} turns of 2 were read back", "See: agentmem log --failed")
    return Step("committed", held=True, seen="both turns were read back as written")


def _digest(canary: _Canary, hooks: dict[str, list[Object]], environ: dict[str, str]) -> Step:
    begun = time.monotonic()
    ran = _ran("digest", hooks, "SessionStart", canary.payload("SessionStart", canary.session + "-next"), environ)
    if isinstance(ran, Step):
        return ran
    try:
        printed = json.loads(ran)
    except ValueError:
        return Step("digest", False, "the SessionStart hook printed no JSON", "Run: agentmem install")
    text = text_of(object_of(printed, "hookSpecificOutput"), "additionalContext")
    if canary.prompt not in text or canary.answer not in text:
        return Step("digest", False, "the canary's question and answer are not in the digest", "See: agentmem log")
    return Step(
        "digest", held=True, seen=f"the SessionStart hook gave it back in {(time.monotonic() - begun) * 1000:.0f} ms"
    )


def _clean(connection: Connection, canary: _Canary) -> str:
    """Delete every trace; what is left, in words, or ""."""
    pattern = canary.session + "%"
    project = find_project(canary.work).identity
    with connection.transaction():
        connection.execute("delete from agentmem.sessions where key like %s", (pattern,))
        connection.execute("delete from agentmem.hook_runs where session_key like %s", (pattern,))
        connection.execute("delete from agentmem.projects where identity = %s", (project,))
    for name in spool.waiting(canary.paths):
        record = spool.get(canary.paths, name)
        if record and text_of(object_of(record, "session"), "key").startswith(canary.session):
            spool.remove(canary.paths, name)
    for file in (digest.cache_file(canary.paths, project), sweep.marker_file(canary.paths, canary.projects)):
        if os.path.exists(file):
            os.unlink(file)
    shutil.rmtree(os.path.dirname(canary.folder))
    row = connection.execute("select count(*) as n from agentmem.sessions where key like %s", (pattern,)).fetchone()
    return f"{row['n']} sessions" if row and row["n"] else ""
