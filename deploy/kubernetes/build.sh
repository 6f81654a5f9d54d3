#!/bin/sh
# Builds Kubernetes and Helm from their Go modules, for machines that cannot fetch releases: once, in 20 to 30 minutes of
# two cores. Programs that the cache has are left as they are, and Helm and kubectl are taken where they are installed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/folders.sh"

# 1.34 is the last that runs on nodes with cgroups v1 without more ado.
KUBERNETES=1.34.4
HELM=3.22.0
PROGRAMS="kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl"
bin=$CACHE/$KUBERNETES/bin
source=$CACHE/$KUBERNETES/source
export CGO_ENABLED=0 GOFLAGS=-buildvcs=false

# `go install` refuses modules that replace others: Kubernetes replaces each of its libraries by a folder of its own
# source. The same libraries are published one by one, so a module of ours replaces them by those.
write_module() {
    cd "$source"
    [ -e go.sum ] && return
    printf 'module localhost/kubernetes\n\ngo 1.24.0\n\nrequire k8s.io/kubernetes v%s\n\ntool (\n' "$KUBERNETES" >go.mod
    for name in $PROGRAMS; do echo "	k8s.io/kubernetes/cmd/$name" >>go.mod; done
    echo ')' >>go.mod
    theirs=$(go mod download -json "k8s.io/kubernetes@v$KUBERNETES" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
    sed -n 's#^[[:space:]]*\(k8s.io/[a-z-]*\) => ./staging/.*#\1#p' "$theirs" | while read -r library; do
        go mod edit -replace "$library=$library@v0.${KUBERNETES#1.}"
    done
    go mod tidy
}

flags() {
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        printf -- '-X %s.gitVersion=v%s -X %s.gitMajor=1 -X %s.gitMinor=34 ' \
            "$package" "$KUBERNETES" "$package" "$package"
    done
}

command -v go >/dev/null || fail "Go 1.24 or newer is needed to build Kubernetes $KUBERNETES"
mkdir -p "$bin" "$source"
for client in helm kubectl; do
    [ -x "$bin/$client" ] || { found=$(command -v "$client") && ln -sf "$found" "$bin/$client"; } || true
done
if ! [ -x "$bin/helm" ]; then
    say "building helm $HELM"
    GOBIN=$bin go install "helm.sh/helm/v3/cmd/helm@v$HELM"
fi
write_module
for program in $PROGRAMS; do
    [ -x "$bin/$program" ] && continue
    say "building $program $KUBERNETES"
    go build -ldflags "-s -w $(flags)" -o "$bin/$program" "k8s.io/kubernetes/cmd/$program"
done
echo "$bin"
