#!/bin/sh
# The one test command: makes .venv, installs the package with its test dependencies and the real client, then runs
# the linters, the type checker and the tests with coverage. Arguments go to pytest (then without linters and coverage):
#   ./test.sh                              everything
#   ./test.sh tests/test_spool.py -k put   a part
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

if [ ! -x .venv/bin/python ]; then
    python=$(find_python) || fail "no Python >= 3.11 found; install one"
    say "virtual environment with $python"
    "$python" -m venv .venv || fail "python -m venv (on Debian: apt install python3-venv)"
fi
say "dependencies"
.venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test]' || fail "pip install -e .[test]"

# The real client: its native program comes as an optional package for this platform and needs no postinstall.
if [ ! -f "$CLIENTS/claude-$CLAUDE_VERSION/node_modules/$CLAUDE_PACKAGE/package.json" ]; then
    if command -v npm >/dev/null 2>&1; then
        say "the real client, $CLAUDE_PACKAGE $CLAUDE_VERSION"
        mkdir -p "$CLIENTS/claude-$CLAUDE_VERSION" || fail "mkdir $CLIENTS"
        npm install --prefix "$CLIENTS/claude-$CLAUDE_VERSION" --ignore-scripts --include=optional --no-audit --no-fund \
            --no-update-notifier --loglevel=error "$CLAUDE_PACKAGE@$CLAUDE_VERSION" || fail "npm install $CLAUDE_PACKAGE"
    elif [ "${CI:-}" = true ]; then
        fail "npm is not on PATH; the tests with the real client need it"
    else
        say "npm is not on PATH: the tests with the real client are skipped"
    fi
fi
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
