# Where all that is built once lies; sourced by the other scripts.
CACHE=${SKEWLESS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/skewless}/kubernetes
mkdir -p "$CACHE"
say() { printf '%s\n' "kubernetes: $*" >&2; }
fail() { say "$*"; exit 2; }
