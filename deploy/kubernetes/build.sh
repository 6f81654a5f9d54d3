#!/bin/sh
# Builds Kubernetes, its name server and Helm from their Go modules, for machines that cannot download releases. The
# first build takes 20 to 30 minutes on two cores. Programs in the cache are not built again. If Helm or kubectl is
# installed, it is used.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/folders.sh"

KUBERNETES=$(version kubernetes)
GO=$(version kubernetes_go)
HELM=$(version helm)
COREDNS=$(version coredns)
PROGRAMS="kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl"
bin=$CACHE/$KUBERNETES/bin
source=$CACHE/$KUBERNETES/source
export CGO_ENABLED=0 GOFLAGS=-buildvcs=false

# `go install` rejects modules with replace directives, and Kubernetes replaces each of its libraries by a folder in its
# source. The libraries are also published as modules, so this module replaces them by the published versions.
write_module() {
    cd "$source"
    [ -e .complete ] && return
    printf 'module localhost/kubernetes\n\ngo %s\n\nrequire k8s.io/kubernetes v%s\n\ntool (\n' "$GO" "$KUBERNETES" >go.mod
    for name in $PROGRAMS; do echo "	k8s.io/kubernetes/cmd/$name" >>go.mod; done
    echo ')' >>go.mod
    kubernetes_mod=$(go mod download -json "k8s.io/kubernetes@v$KUBERNETES" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
    sed -n 's#^[[:space:]]*\(k8s.io/[a-z-]*\) => ./staging/.*#\1#p' "$kubernetes_mod" | while read -r library; do
        go mod edit -replace "$library=$library@v0.${KUBERNETES#1.}"
    done
    go mod tidy
    touch .complete
}

flags() {
    minor=${KUBERNETES#1.}
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        printf -- '-X %s.gitVersion=v%s -X %s.gitMajor=1 -X %s.gitMinor=%s ' \
            "$package" "$KUBERNETES" "$package" "$package" "${minor%%.*}"
    done
}

command -v go >/dev/null || fail "Go $GO or newer is needed to build Kubernetes $KUBERNETES"
mkdir -p "$bin" "$source"
for client in helm kubectl; do
    [ -x "$bin/$client" ] || { installed=$(command -v "$client") && ln -sf "$installed" "$bin/$client"; } || true
done
if ! [ -x "$bin/helm" ]; then
    say "building helm $HELM"
    GOBIN=$bin go install "helm.sh/helm/v3/cmd/helm@v$HELM"
fi
if ! [ -x "$bin/coredns" ]; then
    say "building coredns $COREDNS"
    GOBIN=$bin go install "github.com/coredns/coredns@v$COREDNS"
fi
write_module
for program in $PROGRAMS; do
    [ -x "$bin/$program" ] && continue
    say "building $program $KUBERNETES"
    go build -ldflags "-s -w $(flags)" -o "$bin/$program" "k8s.io/kubernetes/cmd/$program"
done
echo "$bin"
