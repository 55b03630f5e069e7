"""install.sh and the commands that it calls, run as a person runs them, each in a home of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentmem import claude_hooks
from agentmem.paths import hooks_dir

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a shell script")

REPOSITORY = Path(__file__).parent.parent
COMMAND = [sys.executable, "-c", "from agentmem.cli import main; main()"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder whose name needs quoting."""
    made = tmp_path / "my 집"
    made.mkdir()
    return made


def run(command: list[str], home: Path, code: int, **environ: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command,
        env={"HOME": os.fspath(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"} | environ,
        cwd=home,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def agentmem(home: Path, *arguments: str, code: int = 0, **environ: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([os.fspath(REPOSITORY), *sys.path])
    done = run([*COMMAND, *arguments], home, code, PYTHONPATH=path, **environ)
    assert "\x1b" not in done.stdout + done.stderr
    return done


def settings_in(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "settings.json").read_text())
    assert isinstance(found, dict)
    return found


def everything_in(folder: Path) -> list[str]:
    return sorted(os.fspath(path.relative_to(folder)) for path in folder.rglob("*"))


# agentmem install, agentmem uninstall


def test_hooks_are_registered_and_taken_out_again(home: Path) -> None:
    before = b'{"env":{"A":"1"},"hooks":{"PreToolUse":[{"hooks":[{"type":"command","command":"x"}]}]}}'
    (home / ".claude").mkdir()
    (home / ".claude" / "settings.json").write_bytes(before)
    said = agentmem(home, "install").stdout
    known = settings_in(home / ".claude")
    wanted = claude_hooks.wanted_hooks(sys.executable, hooks_dir(), "")
    for event, hook in wanted.items():
        assert known["hooks"][event] == [{"hooks": [hook]}]
        assert f"added: {event}\n" in said
    assert known["hooks"]["PreToolUse"] == json.loads(before)["hooks"]["PreToolUse"]
    assert "nothing to change" in agentmem(home, "install").stdout
    assert settings_in(home / ".claude") == known
    assert "removed: Stop\n" in agentmem(home, "uninstall").stdout
    assert (home / ".claude" / "settings.json").read_bytes() == before
    assert "nothing to change" in agentmem(home, "uninstall").stdout


def test_a_dry_run_makes_no_file(home: Path) -> None:
    assert "would be added: Stop\n" in agentmem(home, "install", "--dry-run").stdout
    assert "nothing to change" in agentmem(home, "uninstall", "--dry-run").stdout
    assert everything_in(home) == []


def test_hooks_know_the_folder_that_agentmem_was_moved_to(home: Path) -> None:
    agentmem(home, "install", AGENTMEM_HOME="moved")
    hook = settings_in(home / ".claude")["hooks"]["Stop"][0]["hooks"][0]
    assert hook["args"][-2:] == ["--home", os.fspath(home / "moved")]
    assert not (home / ".local").exists()
    # Without it there is one hook again, and it is another one.
    assert "updated: Stop\n" in agentmem(home, "install").stdout
    assert "--home" not in (home / ".claude" / "settings.json").read_text()


def test_the_folder_of_the_client_may_be_elsewhere(home: Path) -> None:
    agentmem(home, "install", CLAUDE_CONFIG_DIR=os.fspath(home / "a" / "b"))
    agentmem(home, "install", "--config-dir", "c")
    assert settings_in(home / "a" / "b") == settings_in(home / "c")
    assert not (home / ".claude").exists()
    agentmem(home, "uninstall", "--config-dir", os.fspath(home / "c"))
    assert not (home / "c" / "settings.json").exists()
    assert (home / "a" / "b" / "settings.json").exists()


def test_what_is_not_json_stays_and_what_to_add_is_printed(home: Path) -> None:
    (home / ".claude").mkdir()
    file = home / ".claude" / "settings.json"
    file.write_text('{ "a": 1, // mine\n}')
    done = agentmem(home, "install", code=1)
    assert "settings_not_json" in done.stderr
    assert file.read_text() == '{ "a": 1, // mine\n}'
    addition = json.loads(done.stderr[done.stderr.index("\n{") :])
    file.write_text(json.dumps(addition))
    assert "nothing to change" in agentmem(home, "install").stdout


def test_hooks_that_are_switched_off_are_told_of_loudly(home: Path) -> None:
    (home / ".claude").mkdir()
    (home / ".claude" / "settings.json").write_text('{"disableAllHooks": true}')
    assert "WARNING: disableAllHooks is true" in agentmem(home, "install").stderr
    assert settings_in(home / ".claude").keys() == {"disableAllHooks", "hooks"}


def test_many_at_once_register_one_hook_each(home: Path) -> None:
    environ = {"HOME": os.fspath(home), "PYTHONPATH": os.pathsep.join(sys.path)}
    together = [subprocess.Popen([*COMMAND, "install"], env=environ, stdout=subprocess.DEVNULL) for _ in range(6)]
    assert [one.wait() for one in together] == [0] * 6
    hooks = settings_in(home / ".claude")["hooks"]
    assert {event: len(groups) for event, groups in hooks.items()} == dict.fromkeys(claude_hooks.EVENTS, 1)
    agentmem(home, "uninstall")
    assert everything_in(home / ".claude") == []


# install.sh


def programs(folder: Path, **scripts: str) -> str:
    """A PATH with this Python, what every system has, and the given scripts, but no uv and no pipx of this machine."""
    folder.mkdir()
    for name in ("sh", "env", "dirname", "sed", "cat", "grep", "mkdir", "chmod", "ln"):
        (folder / name).symlink_to(str(shutil.which(name)))
    (folder / "python3").symlink_to(sys.executable)
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return os.fspath(folder)


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A PATH without uv and pipx."""
    return programs(tmp_path / "bin")


def install_sh(home: Path, *arguments: str, code: int = 0, **environ: str) -> subprocess.CompletedProcess[str]:
    return run(["/bin/sh", os.fspath(REPOSITORY / "install.sh"), *arguments], home, code, **environ)


def steps(said: str) -> list[int]:
    return [int(line[1 : line.index("]")]) for line in said.split("\n") if line.startswith("[")]


def test_a_dry_run_prints_every_step_and_changes_nothing(home: Path, bare: str) -> None:
    done = install_sh(home, "--dry-run", PATH=bare)
    assert steps(done.stdout) == [1, 2, 3, 4, 5, 6, 7]
    assert done.stderr == ""
    for command in ("-m venv", "-m pip install", "agentmem' init", "agentmem' install", "agentmem' doctor"):
        assert command in done.stdout
    assert os.path.realpath(done.stdout.split("\n")[1].strip()) == os.path.realpath(sys.executable)
    assert f"{home}/.local/share/agentmem/venv" in done.stdout
    assert f"{home}/.local/bin is not on your PATH" in done.stdout
    assert everything_in(home) == []


def test_without_hooks_the_client_is_left_alone(home: Path, bare: str) -> None:
    said = install_sh(home, "--dry-run", "--no-hooks", PATH=bare).stdout
    assert "agentmem' init" in said
    assert "agentmem' install" not in said


def test_everything_goes_into_the_folder_that_is_named(home: Path, bare: str) -> None:
    said = install_sh(home, "--dry-run", PATH=bare, AGENTMEM_HOME="moved").stdout
    assert f"{home}/moved/data/venv" in said
    assert f"{home}/moved/bin/agentmem" in said
    assert ".local" not in said


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@host/db",
        "postgresql://me:a:hunter2@b/hunter2@host/db",
        "postgresql://host/db?user=me&password=hunter2&connect_timeout=3",
        "host=x password=hunter2 dbname=y",
        "host=x password = 'is hunter2' dbname=y",
    ],
)
def test_a_password_is_not_shown(home: Path, bare: str, url: str) -> None:
    for arguments in (["--database-url", url], [f"--database-url={url}"]):
        done = install_sh(home, "--dry-run", *arguments, PATH=bare)
        assert "--database-url" in done.stdout
        assert "***" in done.stdout
        assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [["--wrong"], ["--database-url"], ["what"]])
def test_wrong_usage(home: Path, bare: str, arguments: list[str]) -> None:
    assert "usage:" in install_sh(home, *arguments, code=2, PATH=bare).stderr
    assert "usage:" in install_sh(home, "--help", PATH=bare).stdout


def test_without_python_it_says_what_to_do(home: Path, tmp_path: Path) -> None:
    path = Path(programs(tmp_path / "bin", python="exit 127", **{"python3.12": "echo 3.12; exit 1"}))
    (path / "python3").unlink()
    done = install_sh(home, "--dry-run", code=1, PATH=os.fspath(path))
    assert "install Python 3.11" in done.stderr


def test_a_python_that_cannot_make_environments_is_named_before_anything_is_made(home: Path, tmp_path: Path) -> None:
    # As on Debian without python3-venv: the program is there, ensurepip is not.
    path = Path(programs(tmp_path / "bin"))
    (path / "python3").unlink()
    (path / "python3").write_text(f"""#!/bin/sh
case "$*" in
    *ensurepip*) exit 1 ;;
    *executable*) echo "$0" ;;
    *) exec "{sys.executable}" "$@" ;;
esac
""")
    (path / "python3").chmod(0o755)
    done = install_sh(home, code=1, PATH=os.fspath(path))
    assert f"apt install python{sys.version_info[0]}.{sys.version_info[1]}-venv" in done.stderr
    assert everything_in(home) == []


def test_another_program_of_this_name_is_not_replaced(home: Path, bare: str) -> None:
    command = home / ".local" / "bin" / "agentmem"
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\necho something else\n")
    done = install_sh(home, code=1, PATH=bare)
    assert "is another program" in done.stderr
    assert everything_in(home) == [".local", ".local/bin", ".local/bin/agentmem"]


UV = 'case "$*" in --version) ;; "tool dir --bin") echo "$HOME/of uv" ;; *) exit 7 ;; esac'
PIPX = 'case "$*" in --version) ;; "environment --value PIPX_BIN_DIR") echo "$HOME/of pipx" ;; *) exit 8 ;; esac'


@pytest.mark.parametrize(
    ("scripts", "way", "folder", "code"),
    [
        ({"uv": UV, "pipx": PIPX}, "uv tool install", "of uv", 7),
        ({"pipx": PIPX}, "pipx install", "of pipx", 8),
        # A pyenv shim for another Python's program.
        ({"uv": "exit 127", "pipx": PIPX}, "pipx install", "of pipx", 8),
    ],
)
def test_uv_and_pipx_are_used_when_they_are_there(
    home: Path, tmp_path: Path, scripts: dict[str, str], way: str, folder: str, code: int
) -> None:
    path = programs(tmp_path / "bin", **scripts)
    said = install_sh(home, "--dry-run", PATH=path).stdout
    assert f"would run: {way}" in said
    assert f"'{home}/{folder}/agentmem' init" in said
    # It ends with the code of the step that failed, and goes no further.
    done = install_sh(home, code=code, PATH=path)
    assert f"ended with exit code {code}" in done.stderr
    assert steps(done.stdout)[-1] == 2
    assert everything_in(home) == []


def test_what_was_chosen_the_first_time_stays(home: Path, tmp_path: Path) -> None:
    venv = home / ".local" / "share" / "agentmem" / "venv"
    path = programs(tmp_path / "bin", uv=UV)
    # Half of one, without pip: that is what Debian leaves, or a run that was broken off. It is made anew.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", os.fspath(venv)], check=True)
    said = install_sh(home, "--dry-run", PATH=path).stdout
    assert "would run: uv" not in said
    assert "-m venv --clear" in said
    # What pip is, is of no matter here; a whole one takes long to make.
    (venv / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages" / "pip.py").touch()
    said = install_sh(home, "--dry-run", PATH=path).stdout
    assert "it is there already" in said
    assert "-m venv" not in said


def test_it_has_to_stand_in_a_clone(home: Path, bare: str) -> None:
    shutil.copy(REPOSITORY / "install.sh", home)
    done = run(["/bin/sh", "install.sh", "--dry-run"], home, 1, PATH=bare)
    assert "there is no agentmem" in done.stderr
