#!/bin/sh
# Checks the chart on a Kubernetes cluster on this machine: `make test-kubernetes`. Needs root on Linux. All processes
# run in separate PID, mount and network namespaces, so they end with this script even if it is killed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/folders.sh"

[ "$(id -u)" = 0 ] && [ "$(uname)" = Linux ] || fail "root on Linux is required to start containers"
"$here/packages.sh"
programs=$("$here/build.sh")
images=$("$here/images.sh")
folder=$(mktemp -d "${TMPDIR:-/tmp}/skewless-kubernetes-XXXXXX")
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
cd "$root"
PYTHONPATH=services:tests setpriv --pdeathsig KILL unshare --net --mount --pid --uts --fork --kill-child --mount-proc \
    .venv/bin/python -m kubernetes --programs "$programs" --images "$images" --folder "$folder" "$@"
