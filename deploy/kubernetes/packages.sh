#!/bin/sh
# Installs the packages of a node from Debian or Ubuntu: etcd, containerd and tools that build images. Starts nothing.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/folders.sh"

PROGRAMS="etcd containerd ctr runc podman buildah mmdebstrap iptables socat"
missing=$(for program in $PROGRAMS; do command -v "$program" >/dev/null || echo "$program"; done)
[ -z "$missing" ] && [ -x /usr/lib/cni/bridge ] && exit
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || fail "install these programs first:" $missing "and the CNI plugins in /usr/lib/cni"
say "installing" $missing "with apt-get"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    buildah conntrack containerd containernetworking-plugins ethtool etcd-server iptables mmdebstrap podman runc socat >&2
