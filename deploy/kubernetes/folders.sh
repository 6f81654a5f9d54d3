# The cache folder and functions of the other scripts, which source this file.
CACHE=$(realpath -m "${SKEWLESS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/skewless}")/kubernetes
mkdir -p "$CACHE"
version() { sed -n "s/^$1 = \"\(.*\)\"/\1/p" "$here/../versions.toml"; }
say() { printf '%s\n' "kubernetes: $*" >&2; }
fail() { say "$*"; exit 2; }
