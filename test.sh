#!/bin/sh
# The one test command: makes .venv, installs the package with its test dependencies and the real client, then runs
# the linters, the type checker and the tests with coverage. Arguments go to pytest (then without linters and coverage):
#   ./test.sh                              everything
#   ./test.sh tests/test_hook.py -k stop   a part
set -u
cd "$(dirname "$0")" || exit 1

CLAUDE_PACKAGE=@anthropic-ai/claude-code
CLAUDE_VERSION=2.1.332
CLIENTS=${AGENTMEM_TEST_CLIENTS:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/agentmem-test}

say() { printf '== %s\n' "$*"; }
fail() {
    printf '== FAILED: %s\n' "$*" >&2
    exit 1
}

# A pyenv shim answers to a name but may start nothing: ask each one for its real program.
find_python() {
    for name in python3 python3.13 python3.12 python3.11 python3.14 python; do
        "$name" -c 'import sys; sys.version_info >= (3, 11) or sys.exit(1); print(sys.executable)' 2>/dev/null && return 0
    done
    return 1
}

# Without pip it is one whose making was interrupted.
if ! .venv/bin/python -c 'import pip' 2>/dev/null; then
    python=$(find_python) || fail "no Python >= 3.11 found; install one"
    say "virtual environment with $python"
    "$python" -m venv .venv || fail "python -m venv (on Debian: apt install python3-venv)"
fi
say "dependencies"
.venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test]' || fail "pip install -e .[test]"

# The real client: its native program comes as an optional package for this platform and needs no postinstall. npm does
# not mind when an optional package can't be had, so look for the program; and put it in its place when it is whole.
client_dir=$CLIENTS/claude-$CLAUDE_VERSION
client_is_there() {
    for program in "$client_dir/node_modules/$CLAUDE_PACKAGE"-*/claude; do
        [ -x "$program" ] && return 0
    done
    return 1
}
install_client() {
    rm -rf "$client_dir" "$client_dir.new" && mkdir -p "$client_dir.new" || return 1
    npm install --prefix "$client_dir.new" --ignore-scripts --include=optional --no-audit --no-fund \
        --no-update-notifier --loglevel=error "$CLAUDE_PACKAGE@$CLAUDE_VERSION" || return 1
    mv "$client_dir.new" "$client_dir"
}
no_client() {
    [ "${CI:-}" = true ] && fail "$1; the tests with the real client need it"
    say "WARNING: $1: the tests with the real client are skipped"
}
if ! client_is_there && command -v npm >/dev/null 2>&1; then
    say "the real client, $CLAUDE_PACKAGE $CLAUDE_VERSION"
    install_client || fail "npm install $CLAUDE_PACKAGE@$CLAUDE_VERSION into $client_dir"
fi
client_is_there || no_client "no npm on PATH, or $CLAUDE_PACKAGE has no program for this platform"
command -v unshare >/dev/null 2>&1 || no_client "unshare (util-linux) is not on PATH"
export AGENTMEM_TEST_CLIENTS="$CLIENTS"

if [ $# -gt 0 ]; then
    exec .venv/bin/python -m pytest "$@"
fi
say "ruff" && .venv/bin/ruff check . && .venv/bin/ruff format --check . || fail "ruff"
say "basedpyright" && .venv/bin/basedpyright --pythonpath .venv/bin/python || fail "basedpyright"
say "pytest"
rm -f .coverage .coverage.*
.venv/bin/coverage run -m pytest || fail "pytest"
.venv/bin/coverage combine --quiet && .venv/bin/coverage report || fail "coverage"
