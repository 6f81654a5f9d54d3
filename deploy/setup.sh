#!/bin/sh
# Creates .venv with the locked packages, and installs Java and the jars. `make setup` runs it when one of them changes.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "setup: $*" >&2; }
fail() { say "$*"; exit 2; }

find_python() {
    for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
}

make_venv() {
    "$python" -m venv --clear .venv >/dev/null 2>&1 && return
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing python3-venv with apt-get"
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv; } >/dev/null 2>&1 || true
    fi
    "$python" -m venv --clear .venv || fail "$python cannot create a virtual environment: install its venv module"
}

export DIST_EXTRA_CONFIG="$PWD/requirements/wheels.cfg"
install() {
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-build-isolation --no-compile "$@"
}

python=$(find_python)
[ -n "$python" ] || fail "no Python 3.11 or newer was found: install it, or set PYTHON to its path"
PYTHONPATH=services "$python" -B -m skewless.lab.local.java
if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    say "creating .venv"
    make_venv
fi
say "installing the locked packages (the first download takes 1 to 3 minutes)"
for lock in requirements/build.txt requirements/lock.txt; do
    install --require-hashes -r "$lock" || fail "cannot install the packages of $lock: check the network or proxy"
done
install --no-deps --editable . || fail "cannot install skewless from this folder"
# pip compiles with one core. A module that this Python cannot compile is none that it imports.
.venv/bin/python -m compileall -q -j 0 .venv/lib services >/dev/null || true
# The first process that uses a grouping compiles its loops for seconds. This compiles all of them, beside the downloads.
printf '%s\tkey\n' 1 2 3 | .venv/bin/skewless simulate --input - --grouping all --workers 8 -q >/dev/null &
.venv/bin/python -m skewless.lab.local.prefetch
wait
say "done: run .venv/bin/skewless"
