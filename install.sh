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

here=$(cd "$(dirname "$0")" && pwd) || exit 1
step=0

say() {
    step=$((step + 1))
    printf '[%s] %s\n' "$step" "$*"
}

fail() {
    printf 'install.sh: step %s failed: %s\n' "$step" "$1" >&2
    [ -z "${2:-}" ] || printf '  what to do: %s\n' "$2" >&2
    exit "${3:-1}"
}

# run WHAT-TO-DO COMMAND...: the command is shown in a dry run; its exit code is ours when it fails.
run() {
    todo=$1
    shift
    if [ -n "$dry_run" ]; then
        printf '    would run: %s\n' "$*"
        return 0
    fi
    "$@" || fail "$1 ended with exit code $?" "$todo" 1
}

# A password must not be shown, nor stand in the list of processes longer than needed.
masked() {
    printf '%s' "$1" | sed 's#\(://[^:/@]*\):.*@#\1:***@#'
}

# A pyenv shim answers to a name but may start nothing: ask each one for its real program.
find_python() {
    for name in python3 python3.13 python3.12 python3.11 python3.14 python; do
        "$name" -c 'import sys; sys.version_info >= (3, 11) or sys.exit(1); print(sys.executable)' 2>/dev/null && return 0
    done
    return 1
}

say "looking for Python 3.11 or later"
python=$(find_python) || fail "there is none on PATH" "install Python 3.11 or later (python.org, your package manager, or uv)"
printf '    %s\n' "$python"

if [ -n "${AGENTMEM_HOME:-}" ]; then
    data=$AGENTMEM_HOME/data
    bin=$AGENTMEM_HOME/bin
else
    data=$HOME/.local/share/agentmem
    bin=$HOME/.local/bin
fi

if [ -z "${AGENTMEM_HOME:-}" ] && command -v uv >/dev/null 2>&1; then
    say "installing the command with uv tool"
    run "see uv's message above" uv tool install --quiet --python "$python" --reinstall-package agentmem-hooks --force "$here"
    bin=$(uv tool dir --bin 2>/dev/null) || bin=$HOME/.local/bin
elif [ -z "${AGENTMEM_HOME:-}" ] && command -v pipx >/dev/null 2>&1; then
    say "installing the command with pipx"
    run "see pipx's message above" pipx install --quiet --python "$python" --force "$here"
    bin=$(pipx environment --value PIPX_BIN_DIR 2>/dev/null) || bin=$HOME/.local/bin
else
    say "making a virtual environment in $data/venv"
    if [ -z "$dry_run" ]; then
        mkdir -p "$data" "$bin" && chmod 700 "$data" || fail "can't make $data" "mend its owner and mode"
    fi
    [ -x "$data/venv/bin/python" ] || run "on Debian and Ubuntu: apt install python3-venv" "$python" -m venv "$data/venv"
    say "installing the package"
    run "see pip's message above" "$data/venv/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade \
        --force-reinstall --no-deps "$here"
    run "see pip's message above" "$data/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$here"
    run "mend the folder's owner and mode" ln -sf "$data/venv/bin/agentmem" "$bin/agentmem"
fi
agentmem=$bin/agentmem
case ":$PATH:" in
    *":$bin:"*) ;;
    *) printf '    note: %s is not on your PATH; add it to use the command `agentmem`\n' "$bin" ;;
esac

say "settings, database and schema"
if [ -n "$database_url" ]; then
    if [ -n "$dry_run" ]; then
        printf '    would run: %s init --database-url %s\n' "$agentmem" "$(masked "$database_url")"
    else
        "$agentmem" init --database-url "$database_url" || fail "agentmem init ended with exit code $?" "see its message above"
    fi
else
    run "see its message above" "$agentmem" init
fi

if [ -n "$hooks" ]; then
    say "registering the hooks with Claude Code"
    run "see its message above" "$agentmem" install
    say "proving that it works"
    run "see what failed above; agentmem doctor shows it again" "$agentmem" doctor
else
    say "hooks are left alone (--no-hooks); later: agentmem install"
fi

if [ -n "$dry_run" ]; then
    printf 'Nothing was changed.\n'
else
    printf 'Done. The next session of Claude Code is captured, the one after it starts with a digest.\n'
fi
