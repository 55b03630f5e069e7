"""Hooks as whole processes, run as they are registered: what they take in, what they store, what they say."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hook_kit
import pytest
from hook_kit import FIELDS, HANGS_AFTER, SLUG, Done, assert_stored

from agentmem import claude_hooks
from agentmem.paths import hooks_dir

if TYPE_CHECKING:
    from hook_kit import Database, Machine

postgres, database, machine = hook_kit.postgres, hook_kit.database, hook_kit.machine

RECORDED = Path(__file__).parent / "data" / "claude"
EVENTS = list(FIELDS)


# What really happens


def test_a_session_from_its_start_to_its_end(database: Database, machine: Machine) -> None:
    session = machine.session()
    start = machine.hook("SessionStart", session)
    assert start.code == 0, start
    assert start.err == ""
    assert machine.hook("UserPromptSubmit", session) == (0, "", "")
    session.turn(1)
    assert machine.hook("Stop", session) == (0, "", "")
    session.turn(2)
    assert machine.hook("Stop", session) == (0, "", "")
    assert machine.hook("SessionEnd", session) == (0, "", "")
    assert_stored(database, session)
    assert [(run["event"], run["outcome"], run["error_code"], run["stage"]) for run in database.runs()] == [
        (event, "ok", None, "done") for event in ("SessionStart", "UserPromptSubmit", "Stop", "Stop", "SessionEnd")
    ]
    assert machine.spooled() == []


def test_every_recorded_payload_with_its_transcript(database: Database, machine: Machine) -> None:
    """What the real client wrote, file by file; only the folders are other ones."""
    folder = machine.projects / "-home-dev-project"
    folder.mkdir()
    for scenario in (RECORDED / "transcripts").iterdir():
        shutil.copytree(scenario, folder, dirs_exist_ok=True)
    payloads = sorted((RECORDED / "payloads").iterdir())
    for file in payloads:
        raw = file.read_bytes().replace(b"/home/dev/.claude", os.fsencode(machine.home / ".claude"))
        event = file.name.split(".")[0]
        done = machine.run(event, raw)
        assert (done.code, done.err) == (0, ""), (file.name, done)
        assert bool(done.out) == (event == "SessionStart"), file.name
    assert [run["event"] for run in database.runs()] == [file.name.split(".")[0] for file in payloads]
    assert {run["outcome"] for run in database.runs()} == {"ok"}
    database.assert_sound()
    # Whatever the hooks didn't announce, the last SessionStart swept in: no file is left out, none is half read.
    known = {row["path"]: row["committed"] for row in database.rows("select path, committed from agentmem.transcripts")}
    assert known == {os.fspath(file): file.stat().st_size for file in folder.rglob("*.jsonl")}


def test_the_same_command_with_its_home_as_an_argument(database: Database, machine: Machine) -> None:
    """An editor that doesn't pass the environment on: `--home` is part of the registered command."""
    session = machine.session()
    session.turn(1)
    raw = json.dumps(machine.payload("Stop", session)).encode()
    command = [*machine.command("Stop"), "--home", os.fspath(machine.agentmem)]
    done = subprocess.run(command, input=raw, env={}, capture_output=True, timeout=HANGS_AFTER)
    assert (done.returncode, done.stderr) == (0, b"")
    assert_stored(database, session)


def test_the_last_answer_waits_for_its_line(database: Database, machine: Machine) -> None:
    """In the terminal, Stop often comes before the answer is in the file."""
    session = machine.session()
    session.say("user", "what is it?")
    assert machine.hook("Stop", session, last_assistant_message="it is this").code == 0
    pending = "select pending_answer from agentmem.sessions"
    assert database.one(pending) == "it is this"
    session.say("assistant", "it is this")
    assert machine.hook("SessionEnd", session).code == 0
    assert database.one(pending) is None
    assert database.one("select last_answer from agentmem.sessions") == "it is this"
    assert_stored(database, session)


# Three historic bugs: control characters, NUL, and a shell in between


ODD = (
    "tab\there\nnew line \x1b[31mred\x1b[0m \x07 \\n \\d \\u001b C:\\Users \"quoted\" 'single'"
    " $(id) `id` ${HOME} %PATH% !! 한 🙂 \u2028"
)


def told(database: Database) -> Any:
    """The last answer as the payload told it."""
    return database.one("select pending_answer from agentmem.sessions")


def test_a_payload_arrives_as_it_was_written(database: Database, machine: Machine) -> None:
    """No shell is in the way that would expand or unescape something."""
    done = machine.hook("Stop", machine.session(), last_assistant_message=ODD)
    assert done == (0, "", "")
    assert told(database) == ODD


def test_no_shell_is_in_the_registered_commands() -> None:
    """A command line would be given to one; an `args` list isn't."""
    for event, hook in claude_hooks.wanted_hooks(sys.executable, hooks_dir(), "/a home/$(id)").items():
        assert hook["command"] == sys.executable
        assert os.path.isabs(sys.executable)
        assert "shell" not in hook
        flags, (shim, *rest) = hook["args"][:2], hook["args"][2:]
        assert flags == ["-I", "-S"]
        assert os.path.isabs(shim)
        assert os.path.isfile(shim)
        assert rest == ["claude-code", event, "--home", "/a home/$(id)"]


def test_raw_control_characters_in_a_payload(database: Database, machine: Machine) -> None:
    """A client, or something between, that doesn't escape them: strict JSON forbids that."""
    text = ODD.replace("\\", "").replace('"', "")
    raw = json.dumps(machine.payload("Stop", machine.session(), last_assistant_message="TEXT"))
    done = machine.run("Stop", raw.replace("TEXT", text).encode())
    assert done == (0, "", "")
    assert told(database) == text
    assert "control_chars" in database.runs()[0]["flags"]


@pytest.mark.parametrize("written", ["\\u0000", "\x00", "\\ud83d", "\\ude42 \\ud83d", "\\uD83D\\u0041"], ids=ascii)
def test_what_postgres_cant_take_in_a_payload(database: Database, machine: Machine, written: str) -> None:
    raw = json.dumps(machine.payload("Stop", machine.session(), last_assistant_message="before TEXT after"))
    done = machine.run("Stop", raw.replace("TEXT", written).encode())
    assert done == (0, "", "")
    stored = told(database)
    assert stored.startswith("before \ufffd")
    assert stored.endswith(" after")
    assert "replaced_chars" in database.runs()[0]["flags"]


@pytest.mark.parametrize(
    "field", ["session_id", "cwd", "transcript_path", "reason", "session_title", "model", "source"]
)
def test_what_postgres_cant_take_in_any_field(database: Database, machine: Machine, field: str) -> None:
    payload = {**machine.payload("SessionEnd", machine.session()), field: "/a\0b\ud83dc"}
    done = machine.run("SessionEnd", json.dumps(payload).encode())
    assert done == (0, "", "")
    assert [run["outcome"] for run in database.runs()] == ["ok"]


@pytest.mark.parametrize("written", ["\\u0000", "\x00", "\\ud83d", "\\ude42 \\ud83d", "\x1b[31m\t\x0c"], ids=ascii)
def test_what_postgres_cant_take_in_a_transcript(database: Database, machine: Machine, written: str) -> None:
    session = machine.session()
    raw = session.line("user", "before TEXT after", gitBranch="TEXT", cwd=f"{machine.work}/TEXT", uuid="one TEXT")
    session.append(raw.replace(b"TEXT", written.encode()))
    session.append(session.line("assistant", "the line after it"))
    assert machine.hook("Stop", session) == (0, "", "")
    database.assert_sound()
    first, second = database.rows("select text from agentmem.turns order by position")
    kept = written if written.startswith("\x1b") else "\ufffd"
    assert first["text"].startswith(f"before {kept}")
    assert first["text"].endswith(" after")
    assert second["text"] == "the line after it"


def test_names_that_are_no_utf8(database: Database, machine: Machine) -> None:
    """Branch, subagent and session file whose names have bytes of an older encoding in them."""
    if sys.platform == "darwin":
        pytest.skip("file names are UTF-8 there")
    git = os.fsencode(machine.work) + b"/.git"
    os.mkdir(git)
    for name, content in (
        (b"HEAD", b"ref: refs/heads/caf\xe9\n"),
        (b"config", b'[remote "origin"]\nurl = /srv/caf\xe9\n'),
    ):
        with open(git + b"/" + name, "wb") as stream:
            stream.write(content)
    session = machine.session()
    session.turn(1)
    agents = os.fsencode(session.path.with_suffix("")) + b"/subagents"
    os.makedirs(agents)
    for name, content in (
        (b"agent-caf\xe9.jsonl", session.line("user", "look", isSidechain=True)),
        (b"agent-caf\xe9.meta.json", b'{"agentType":"a\\ud83d\\u0000"}'),
    ):
        with open(agents + b"/" + name, "wb") as stream:
            stream.write(content)
    with open(os.fsencode(machine.projects / SLUG) + b"/caf\xe9.jsonl", "wb") as stream:
        stream.write(session.line("user", "unannounced", cwd="/aTEXT").replace(b"TEXT", rb"\u0000b\ud83d"))
    assert machine.hook("Stop", session) == (0, "", "")
    assert machine.hook("SessionStart", machine.session())[::2] == (0, "")
    database.assert_sound()
    assert database.rows("select key, agent_type from agentmem.sessions where parent_id is not null") == [
        {"key": f"{session.key}/caf\ufffd", "agent_type": "a\ufffd\ufffd"}
    ]
    assert database.one("select cwd from agentmem.sessions where key = %s", "caf\ufffd") == "/a\ufffdb\ufffd"


# Broken input: one row with a code, a message, exit 1, and nothing else


def broken(database: Database, machine: Machine, done: Done, code: str, stage: str = "parse") -> dict[str, Any]:
    """Whether it was reported as it must be; the row."""
    assert done.code == 1
    assert done.err.startswith("agentmem: Stop: ")
    assert done.err.endswith("\n")
    assert f"[{code}]" in done.err
    assert done.out == ""
    (run,) = database.runs()
    assert (run["outcome"], run["error_code"], run["stage"], run["event"]) == ("failed", code, stage, "Stop")
    assert machine.spooled() == []
    assert machine.drafts() == []
    return run


def nothing_stored(database: Database) -> None:
    assert database.rows("select 1 from agentmem.sessions union all select 1 from agentmem.transcripts") == []
    assert database.rows("select 1 from agentmem.turns union all select 1 from agentmem.projects") == []


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "stdin_empty"),
        (b" \n\n\t", "stdin_empty"),
        (b"[]", "stdin_not_object"),
        (b'[{"session_id":"s"}]', "stdin_not_object"),
        (b"null", "stdin_not_object"),
        (b"12.5", "stdin_not_object"),
        (b'"text"', "stdin_not_object"),
        (b'{"session_id":"s","cwd":', "stdin_malformed"),
        (b"{'session_id': 's'}", "stdin_malformed"),
        (b"hello", "stdin_malformed"),
        (b"\0\0\0\0", "stdin_malformed"),
        (b"{}", "session_id_missing"),
        (b'{"session_id":null}', "session_id_missing"),
        (b'{"session_id":12}', "session_id_missing"),
        (b'{"session_id":["s"]}', "session_id_missing"),
        (b'{"session_id":""}', "session_id_missing"),
        (b'{"session_id":"' + b"s" * 10_000 + b'"}', "session_id_too_long"),
        (b'{"session_id":"s","x":' + b"[" * 5000 + b"]" * 5000 + b"}", "stdin_malformed"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "stdin_malformed"),
        ('{"session_id":"s"}'.encode("utf-16"), "stdin_malformed"),
    ],
    ids=lambda value: ascii(value[:24]) if isinstance(value, bytes) else None,
)
def test_input_that_is_no_event(database: Database, machine: Machine, raw: bytes, code: str) -> None:
    run = broken(database, machine, machine.run("Stop", raw), code)
    assert run["bytes_in"] == len(raw)
    nothing_stored(database)


@pytest.mark.parametrize(
    ("raw", "flags"),
    [
        (b"\xef\xbb\xbf{EVENT}", ["bom"]),
        (b'{EVENT,"prompt":"caf\xe9"}', ["bad_utf8"]),
        (b"{EVENT} \n{EVENT}", ["trailing_data"]),
        (b'{EVENT}\n{"session_id":"other"', ["trailing_data"]),
        (b'{EVENT,"prompt":"C:\\Users\\new \\d \\x1b"}', ["bad_escapes"]),
        (b'{"session_id":"other",EVENT}', ["duplicate_keys"]),
        (b'{EVENT,"prompt":"\\"session_id\\": 1","tool_input":{"session_id":2,"cwd":"cwd"}}', []),
        (b'{EVENT,"hook_event_name":"SessionEnd"}', ["duplicate_keys", "other_event"]),
        (b'{EVENT,"n":NaN,"i":-Infinity,"b":1e999,"d":' + b"9" * 5000 + b"}", ["control_chars"]),
        (b'{EVENT,"effort":"high","background_tasks":7,"agent_id":{"a":[1]}}', []),
        (b'{EVENT,"permission_mode":null,"unknown":{"deep":[[[]]]}}', []),
    ],
    ids=lambda value: ascii(value[:40]) if isinstance(value, bytes) else None,
)
def test_input_that_is_odd_and_taken(database: Database, machine: Machine, raw: bytes, flags: list[str]) -> None:
    session = machine.session()
    session.turn(1)
    event = json.dumps(machine.payload("Stop", session)).encode()
    assert machine.run("Stop", raw.replace(b"EVENT", event[1:-1])) == (0, "", "")
    (run,) = database.runs()
    assert (run["outcome"], run["flags"], run["session_key"]) == ("ok", flags, session.key)
    assert_stored(database, session)


def test_three_megabytes(database: Database, machine: Machine) -> None:
    session = machine.session()
    session.turn(1)
    assert machine.hook("UserPromptSubmit", session, prompt="🙂}" * 500_000) == (0, "", "")
    assert database.runs()[0]["bytes_in"] > 3_000_000
    assert_stored(database, session)


def test_a_payload_that_is_too_big(database: Database, machine: Machine) -> None:
    done = machine.run("Stop", b'{"session_id":"s","prompt":"' + b"x" * (64 << 20))
    broken(database, machine, done, "stdin_too_big", "read")
    nothing_stored(database)


@pytest.mark.parametrize(
    ("written", "code"),
    [(b"", "stdin_empty"), (b'{"session_id":"s",', "stdin_malformed")],
    ids=ascii,
)
def test_a_pipe_that_is_never_closed(database: Database, machine: Machine, written: bytes, code: str) -> None:
    with machine.start("Stop") as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(written)
        process.stdin.flush()
        code_ = process.wait(timeout=HANGS_AFTER)
        run = broken(
            database, machine, Done(code_, process.stdout.read().decode(), process.stderr.read().decode()), code
        )
        assert run["flags"] == ["not_closed"]


def test_a_whole_payload_in_a_pipe_that_is_never_closed(database: Database, machine: Machine) -> None:
    session = machine.session()
    session.turn(1)
    raw = json.dumps(machine.payload("Stop", session, last_assistant_message="x}" * 100_000)).encode()
    with machine.start("Stop") as process:
        assert process.stdin
        process.stdin.write(raw)
        process.stdin.flush()
        assert process.wait(timeout=HANGS_AFTER) == 0
    assert_stored(database, session)


@pytest.mark.parametrize(("closed", "code"), [(0, 1), (1, 0), (2, 0)])
def test_a_closed_descriptor(database: Database, machine: Machine, closed: int, code: int) -> None:
    """Messages must not go into whatever is opened next and gets its number."""
    session = machine.session()
    session.turn(1)
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}>&-', "sh", *machine.command("Stop")],
        input=json.dumps(machine.payload("Stop", session)).encode(),
        env=machine.environ(),
        capture_output=True,
        timeout=HANGS_AFTER,
    )
    assert done.returncode == code
    (run,) = database.runs()
    assert run["error_code"] == ("stdin_empty" if closed == 0 else None)
    assert machine.spooled() == []


def test_a_client_that_is_gone_before_it_reads(database: Database, machine: Machine) -> None:
    session = machine.session()
    with machine.start("SessionStart") as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        process.stdin.write(json.dumps(machine.payload("SessionStart", session)).encode())
        process.stdin.close()
        assert process.wait(timeout=HANGS_AFTER) == 1
        assert b"[stdout_closed]" in process.stderr.read()
    assert machine.hook("Stop", session) == (0, "", "")
    assert [(run["outcome"], run["error_code"]) for run in database.runs()] == [
        ("failed", "stdout_closed"),
        ("ok", None),
    ]


def test_stdin_that_cant_be_read(database: Database, machine: Machine) -> None:
    with open(machine.work / "written", "wb") as stream:
        done = subprocess.run(machine.command("Stop"), stdin=stream, env=machine.environ(), capture_output=True)
    found = Done(done.returncode, done.stdout.decode(), done.stderr.decode())
    broken(database, machine, found, "stdin_unreadable", "read")


# What a payload points to


def test_a_transcript_that_isnt_there(database: Database, machine: Machine) -> None:
    """A session that keeps none; the answer is taken from the payload."""
    session = machine.session()
    assert machine.hook("UserPromptSubmit", session) == (0, "", "")
    assert machine.hook("Stop", session) == (0, "", "")
    assert [run["flags"] for run in database.runs()] == [[], ["no_transcript"]]
    assert told(database) == "done"


def make_loop(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, make_loop])
def test_a_transcript_that_is_something_else(database: Database, machine: Machine, make: Any) -> None:
    session = machine.session()
    make(session.path)
    broken(database, machine, machine.hook("Stop", session), "transcript_unreadable", "capture")
    assert database.rows("select 1 from agentmem.transcripts") == []


ODD_NAMES = ["x" * 5000, "/".join(["y" * 200] * 40), "~", "\\n", "a/../b"]
# What doesn't compress is longer than an index can take.
ODD_NAMES.append("".join(hashlib.sha256(bytes([number])).hexdigest() for number in range(60)))


@pytest.mark.parametrize("name", ODD_NAMES, ids=lambda name: name[:4])
@pytest.mark.parametrize("field", ["transcript_path", "cwd"])
def test_a_path_that_cant_be_one(database: Database, machine: Machine, field: str, name: str) -> None:
    session = machine.session()
    session.turn(1)
    assert machine.hook("Stop", session, **{field: f"{machine.work}/{name}"}) == (0, "", "")
    assert machine.hook("SessionStart", session).code == 0
    assert machine.spooled() == []
    assert_stored(database, session)


def test_folders_in_which_a_sweep_could_get_lost(database: Database, machine: Machine) -> None:
    session = machine.session()
    session.turn(1)
    make_loop(machine.projects / "loop")
    make_loop(machine.projects / SLUG / "loop")
    make_loop(machine.projects / SLUG / "loop.jsonl")
    (machine.projects / "gone").symlink_to("nowhere")
    (machine.projects / SLUG / "gone.jsonl").symlink_to("nowhere")
    (machine.projects / SLUG / "folder.jsonl").mkdir()
    (machine.projects / "a file").touch()
    os.mkfifo(machine.projects / SLUG / "pipe.jsonl")
    start = machine.hook("SessionStart", machine.session())
    assert (start.code, start.err) == (0, "")
    assert_stored(database, session)


def test_a_folder_that_is_gone(database: Database, machine: Machine) -> None:
    session = machine.session()
    session.turn(1)
    gone = machine.work / "gone"
    gone.mkdir()
    with machine.start("Stop", cwd=gone) as process:
        gone.rmdir()
        out, err = process.communicate(json.dumps(machine.payload("Stop", session, cwd=os.fspath(gone))).encode())
    assert (process.returncode, out, err) == (0, b"", b"")
    assert_stored(database, session)
    assert database.one("select identity from agentmem.projects") == f"path:{gone}"


def test_a_session_start_without_a_folder(database: Database, machine: Machine) -> None:
    done = machine.hook("SessionStart", machine.session(), cwd=None)
    assert done.code == 1
    assert "[cwd_missing]" in done.err
    assert "[cwd_missing]" in done.answer["systemMessage"]
    assert "[cwd_missing]" in done.digest
    assert [(run["outcome"], run["error_code"]) for run in database.runs()] == [("failed", "cwd_missing")]


# Who runs it and where


@pytest.mark.parametrize(
    "environ",
    [
        {"LANG": "C", "LC_ALL": "C"},
        {"LANG": "ko_KR.eucKR", "PYTHONIOENCODING": "cp949", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "cp932", "PYTHONPATH": "/nonsense", "PYTHONHOME": "/nonsense", "PYTHONSTARTUP": "/x"},
        {"DATABASE_URL": "postgresql://nobody@nowhere/nothing", "PGHOST": "nowhere", "PGPORT": "1", "PGUSER": "no"},
        {"AGENTMEM_DATABASE_URL": "postgresql://nobody@nowhere/nothing", "PGOPTIONS": "-c search_path=nowhere"},
        {"TZ": "Asia/Kolkata"},
    ],
    ids=lambda environ: next(iter(environ)),
)
@pytest.mark.parametrize("event", EVENTS)
def test_the_environment_changes_nothing(
    database: Database, machine: Machine, environ: dict[str, str], event: str
) -> None:
    session = machine.session()
    session.turn(1)
    raw = json.dumps(machine.payload(event, session, last_assistant_message=ODD), ensure_ascii=False).encode()
    done = machine.run(event, raw, env=machine.environ(**environ))
    assert (done.code, done.err) == (0, "")
    assert done.out.isascii()
    assert_stored(database, session)
    (run,) = database.runs()
    assert (run["event"], run["outcome"], run["flags"]) == (event, "ok", run["flags"])


def test_without_home(database: Database, machine: Machine) -> None:
    session = machine.session()
    session.turn(1)
    raw = json.dumps(machine.payload("Stop", session)).encode()
    environ = machine.environ()
    del environ["HOME"]
    assert machine.run("Stop", raw, env=environ) == (0, "", "")
    assert_stored(database, session)


def test_a_home_that_is_no_path(machine: Machine) -> None:
    raw = json.dumps(machine.payload("Stop", machine.session())).encode()
    done = machine.run("Stop", raw, env={"HOME": "not/absolute"})
    assert done.code == 1
    assert "[home_unknown] - Set HOME or AGENTMEM_HOME." in done.err
    assert list(machine.work.iterdir()) == []


def test_settings_that_cant_be_understood(database: Database, machine: Machine) -> None:
    """The event waits; SessionStart, whose stderr nobody may see, says it in its JSON."""
    session = machine.session()
    session.turn(1)
    good = (machine.agentmem / "config" / ".env").read_text()
    (machine.agentmem / "config" / ".env").write_text("AGENTMEM_NO_SUCH=1\n")
    stop, start = machine.hook("Stop", session), machine.hook("SessionStart", session)
    assert (stop.code, start.code) == (1, 1)
    for said in (stop.err, start.err, start.answer["systemMessage"], start.digest):
        assert "[settings_unknown]" in said
    (machine.agentmem / "config" / ".env").write_text(good)
    assert machine.hook("Stop", session) == (0, "", "")
    assert [(run["outcome"], run["error_code"]) for run in database.runs()] == [
        ("deferred", "settings_unknown"),
        ("deferred", "settings_unknown"),
        ("ok", None),
    ]
    assert_stored(database, session)


def test_a_state_folder_that_is_a_file(machine: Machine) -> None:
    shutil.rmtree(machine.agentmem / "state")
    (machine.agentmem / "state").write_bytes(b"mine")
    for event in EVENTS:
        done = machine.hook(event, machine.session())
        assert done.code == 1
        assert "[spool_unwritable] - Make room, or mend the folder's owner and mode." in done.err
        assert os.fspath(machine.agentmem / "state") in done.err
        if event == "SessionStart":
            assert "[spool_unwritable]" in done.answer["systemMessage"]
    assert (machine.agentmem / "state").read_bytes() == b"mine"


def test_a_state_folder_that_may_not_be_written(database: Database, machine: Machine) -> None:
    """The database takes the event all the same, and the person is told what to mend."""
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    session = machine.session()
    session.turn(1)
    state = machine.agentmem / "state"
    state.chmod(0o500)
    done = machine.hook("Stop", session)
    state.chmod(0o700)
    broken(database, machine, done, "spool_unwritable", "spool")
    assert os.fspath(state) in done.err
    assert_stored(database, session)


def test_files_that_may_not_be_read(database: Database, machine: Machine) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    session = machine.session()
    session.turn(1)
    session.path.chmod(0)
    broken(database, machine, machine.hook("Stop", session), "transcript_unreadable", "capture")
    session.path.chmod(0o600)
    locked = session.path.with_suffix("") / "subagents"
    locked.mkdir(parents=True)
    locked.chmod(0)
    (machine.projects / "locked").mkdir(mode=0)
    stop, start = machine.hook("Stop", session), machine.hook("SessionStart", session)
    locked.chmod(0o700)
    (machine.projects / "locked").chmod(0o700)
    assert "[transcript_unreadable]" in stop.err
    assert "[transcript_unreadable]" in start.answer["systemMessage"]
    assert_stored(database, session)
