#!/bin/sh
# Sets agentmem up for this user: the command, the database, the hooks of Claude Code, and the proof that they work.
# Prints each step, stops at the first that fails, can be run again (then it upgrades).
set -u

usage() {
    cat <<'EOM'
usage: ./install.sh [--dry-run] [--database-url URL] [--no-hooks]

  --dry-run            print the steps, change nothing
  --database-url URL   use this Postgres (14 or later) instead of an embedded one
  --no-hooks           leave Claude Code's settings alone
  --help               this text

The command is installed with uv or pipx where one of them is there, else into a virtual environment of its own.
AGENTMEM_HOME, when it is set, is the one folder in which agentmem keeps everything.
EOM
}

dry_run=
database_url=
hooks=yes
while [ $# -gt 0 ]; do
    case $1 in
        --dry-run) dry_run=yes ;;
        --no-hooks) hooks= ;;
        --database-url)
            [ $# -ge 2 ] || { usage >&2; exit 2; }
            database_url=$2
            shift
            ;;
        --database-url=*) database_url=${1#*=} ;;
        -h | --help) usage; exit 0 ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done

step=0

say() {
    step=$((step + 1))
    printf '[%s] %s\n' "$step" "$*"
}

note() { printf '    %s\n' "$*"; }

# fail WHY WHAT-TO-DO [EXIT-CODE]
fail() {
    printf 'install.sh: step %s failed: %s\n' "$step" "$1" >&2
    printf '  what to do: %s\n' "$2" >&2
    exit "${3:-1}"
}

# The words as they would have to be typed.
quoted() {
    for word in "$@"; do
        case $word in
            '' | *[!A-Za-z0-9_./:=@%+,-]*) printf " '%s'" "$word" ;;
            *) printf ' %s' "$word" ;;
        esac
    done
}

# run WHAT-TO-DO COMMAND...: the command is only shown in a dry run; its exit code is ours when it fails.
run() {
    todo=$1
    shift
    if [ -n "$dry_run" ]; then
        note "would run:$(quoted "$@")"
        return 0
    fi
    "$@" || fail "${1##*/} ended with exit code $?" "$todo" $?
}

# A password must not be shown, wherever it stands in a URL or in a list of keywords.
masked() {
    printf '%s' "$1" | sed -E -e 's#(://[^:/@]*):.*@#\1:***@#' -e "s#(password *= *)('[^']*'|[^&' ]*)#\1***#g"
}

# A pyenv shim answers to a name but may start nothing, and an active virtual environment may be gone tomorrow:
# each one is asked for the real program behind it.
find_python() {
    for name in python3 python3.13 python3.12 python3.11 python3.14 python; do
        "$name" -c '
import sys
sys.version_info >= (3, 11) or sys.exit(1)
print(getattr(sys, "_base_executable", None) or sys.executable)' 2>/dev/null && return 0
    done
    return 1
}

# Whether there is a Python that has pip, and is new enough.
is_usable() {
    "$1" -c 'import sys, pip; sys.version_info >= (3, 11) or sys.exit(1)' >/dev/null 2>&1
}

# Somebody else's command of the same name is not ours to replace.
check_command_is_free() {
    [ ! -e "$1" ] || grep -q 'agentmem\.cli' "$1" 2>/dev/null ||
        fail "$1 is there already, and is another program" "move or remove it, then run this again"
}

# A program that is only a pyenv shim for another Python's doesn't count.
has() { "$1" --version >/dev/null 2>&1; }

say "looking for Python 3.11 or later"
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || fail "the folder of $0 can't be entered" "run it from a clone"
[ -f "$here/pyproject.toml" ] || fail "there is no agentmem in $here" "run ./install.sh in a clone of the repository"
[ -n "${HOME:-}" ] || fail "HOME is not set" "set it to your home folder"
if python=$(find_python); then
    note "$python"
elif has uv && [ -z "${AGENTMEM_HOME:-}" ]; then
    python='>=3.11'
    note "none is on PATH; uv gets one"
else
    fail "there is none on PATH" "install Python 3.11 or later (your package manager, or python.org), or uv"
fi

data=$HOME/.local/share/agentmem
bin=$HOME/.local/bin
if [ -n "${AGENTMEM_HOME:-}" ]; then
    case $AGENTMEM_HOME in
        /*) ;;
        *) AGENTMEM_HOME=$(pwd)/$AGENTMEM_HOME ;;
    esac
    export AGENTMEM_HOME
    data=$AGENTMEM_HOME/data
    bin=$AGENTMEM_HOME/bin
fi
venv=$data/venv

# What was chosen the first time stays: two installations would fight for one command.
if [ -e "$venv" ] || [ -n "${AGENTMEM_HOME:-}" ]; then
    way=venv
elif has uv; then
    way=uv
elif has pipx; then
    way=pipx
else
    way=venv
fi

case $way in
    uv)
        say "installing the command with uv"
        bin=$(uv tool dir --bin 2>/dev/null) || bin=${UV_TOOL_BIN_DIR:-$bin}
        check_command_is_free "$bin/agentmem"
        run "see uv's message above" \
            uv tool install --quiet --force --reinstall-package agentmem-hooks --python "$python" "$here"
        ;;
    pipx)
        say "installing the command with pipx"
        bin=$(pipx environment --value PIPX_BIN_DIR 2>/dev/null) || bin=${PIPX_BIN_DIR:-$bin}
        check_command_is_free "$bin/agentmem"
        run "see pipx's message above" pipx install --quiet --force --python "$python" "$here"
        ;;
    venv)
        say "making a virtual environment in $venv"
        check_command_is_free "$bin/agentmem"
        if is_usable "$venv/bin/python"; then
            note "it is there already"
        else
            "$python" -c 'import ensurepip, venv' 2>/dev/null || fail "$python can't make virtual environments" \
                "on Debian and Ubuntu: apt install $("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
            run "mend the owner and mode of that folder" mkdir -p "$data"
            run "mend the owner and mode of that folder" chmod 700 "$data"
            run "see its message above" "$python" -m venv --clear "$venv"
        fi
        say "installing the package into it"
        # It would take pip out of the virtual environment.
        export PIP_USER=0
        run "see pip's message above" "$venv/bin/python" -m pip install --quiet \
            --disable-pip-version-check --upgrade "$here"
        run "mend the owner and mode of that folder" mkdir -p "$bin"
        run "mend the owner and mode of that folder" ln -sf "$venv/bin/agentmem" "$bin/agentmem"
        ;;
esac

agentmem=$bin/agentmem
say "trying the command"
run "it was not installed as it should be; see the messages above" "$agentmem" --version
case ":$PATH:" in
    *":$bin:"*) ;;
    *) note "note: $bin is not on your PATH; add it to use the command \`agentmem\`" ;;
esac
[ -z "${AGENTMEM_HOME:-}" ] || note "note: the command needs AGENTMEM_HOME=$AGENTMEM_HOME whenever you use it; the hooks don't"

say "settings, database and schema"
if [ -z "$database_url" ]; then
    run "see its message above" "$agentmem" init
elif [ -n "$dry_run" ]; then
    note "would run:$(quoted "$agentmem" init --database-url "$(masked "$database_url")")"
else
    run "see its message above" "$agentmem" init --database-url "$database_url"
fi

if [ -n "$hooks" ]; then
    say "registering the hooks with Claude Code"
    run "see its message above" "$agentmem" install
    say "proving that it works"
    run "see what failed above; agentmem doctor shows it again" "$agentmem" doctor
else
    say "leaving Claude Code alone (--no-hooks)"
    note "later: agentmem install && agentmem doctor"
fi

if [ -n "$dry_run" ]; then
    printf 'Nothing was changed.\n'
elif [ -n "$hooks" ]; then
    printf 'Done. The next session of Claude Code is captured, the one after it starts with a digest.\n'
else
    printf 'Done.\n'
fi
