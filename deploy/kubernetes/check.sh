#!/bin/sh
# Checks the chart on a real Kubernetes of this machine: `make test-kubernetes`. Needs root on Linux. All that runs does so
# in namespaces of its own, for processes, mounts and network, so that it ends with this script however that ends.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/folders.sh"

[ "$(id -u)" = 0 ] && [ "$(uname)" = Linux ] || fail "this needs root on Linux: it starts containers"
"$here/packages.sh"
programs=$("$here/build.sh")
images=$("$here/images.sh")
folder=$(mktemp -d "${TMPDIR:-/tmp}/skewless-kubernetes-XXXXXX")
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
cd "$root"
PYTHONPATH=services:tests setpriv --pdeathsig KILL unshare --net --mount --pid --uts --fork --kill-child --mount-proc \
    .venv/bin/python -m acceptance.kubernetes --programs "$programs" --images "$images" --folder "$folder" "$@"
