#!/bin/sh
# Builds the images slim, spark, kafka and pause as archives in the cache, unless they exist for the current source.
# The base image is $PYTHON if it is set, otherwise that of the Containerfile if it can be pulled, otherwise a
# substitute built from Debian's packages. The substitute is only for tests of the chart, because it contains the CA
# certificates of this machine.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
. "$here/folders.sh"

SUBSTITUTE=localhost/skewless-base:bookworm
DEBIAN=localhost/skewless-debian:bookworm
SOURCES="deploy/Containerfile deploy/packages.sh deploy/spark-entrypoint.sh requirements services pyproject.toml README.md"
images=$CACHE/images
mkdir -p "$images"
export CONTAINERS_CONF=$CACHE/containers.conf
# podman's and buildah's default limits need the privilege to raise limits. crun needs pure cgroups v2.
cat >"$CONTAINERS_CONF" <<'CONF'
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
[engine]
runtime = "runc"
CONF

source_of() { (cd "$root" && { git ls-files -s $SOURCES; git diff HEAD -- $SOURCES; } | sha256sum | cut -c1-12); }

build() { buildah bud --layers --format docker --runtime runc --ulimit nofile=20000:20000 --network host "$@"; }

# An archive with its final name is complete. podman refuses to write to an archive that exists.
save() {
    rm -f "$1.new"
    podman save --quiet --format docker-archive --output "$1.new" "$2" >&2
    mv "$1.new" "$1"
}

# Debian's Python of the same version, with the paths of the official base image.
make_substitute() {
    podman image exists "$SUBSTITUTE" && return
    say "building a substitute for the base image from Debian's packages"
    if ! podman image exists "$DEBIAN"; then
        mmdebstrap --quiet --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$images/base.tar"
        podman import --quiet "$images/base.tar" "$DEBIAN" >/dev/null
        rm "$images/base.tar"
    fi
    context=$(mktemp -d)
    mkdir "$context/ca-certificates"
    find /usr/local/share/ca-certificates -name '*.crt' -exec cp {} "$context/ca-certificates" \; 2>/dev/null || true
    printf '%s\n' "FROM $DEBIAN" 'COPY ca-certificates /usr/local/share/ca-certificates' \
        'RUN update-ca-certificates && ln -s /usr/bin/python3 /usr/local/bin/python && ln -s /usr/bin/python3 /usr/local/bin/python3' \
        >"$context/Containerfile"
    build --quiet --tag "$SUBSTITUTE" "$context" >/dev/null
    rm -r "$context"
}

choose_base() {
    official_base=$(sed -n 's/^ARG PYTHON=//p' "$root/deploy/Containerfile")
    if ! podman image exists "$SUBSTITUTE" && timeout 120 podman pull --quiet "$official_base" >/dev/null 2>&1; then
        echo "$official_base"
    else
        make_substitute
        echo "$SUBSTITUTE"
    fi
}

make_pause() {
    [ -e "$images/pause.tar" ] && return
    context=$(mktemp -d)
    cc -Os -static -o "$context/pause" "$here/pause.c"
    printf '%s\n' 'FROM scratch' 'COPY pause /pause' 'ENTRYPOINT ["/pause"]' >"$context/Containerfile"
    build --quiet --tag localhost/pause:1 "$context" >/dev/null
    save "$images/pause.tar" localhost/pause:1
    rm -r "$context"
}

# A substitute for the image of Kafka: the jars of the embedded broker, with scripts of the same names.
make_kafka() {
    kafka=$(version kafka)
    [ -e "$images/kafka-$kafka.tar" ] && return
    say "building a substitute for the image of Kafka $kafka"
    [ -n "${PYTHON:-}" ] || PYTHON=$(choose_base)
    build --quiet --target java --tag localhost/skewless-java -f "$root/deploy/Containerfile" \
        --build-arg PYTHON="$PYTHON" "$root" >/dev/null
    context=$(mktemp -d)
    mkdir "$context/libs" "$context/bin"
    jars=$("$root/.venv/bin/python" -c "from skewless.lab.local.jars import ensure; print(*ensure('kafka'), sep='\n')")
    cp $jars "$context/libs"
    printf '%s\n' '#!/bin/sh' 'exec java -cp "/opt/kafka/libs/*" kafka.tools.StorageTool "$@"' >"$context/bin/kafka-storage.sh"
    printf '%s\n' '#!/bin/sh' 'exec java $KAFKA_HEAP_OPTS -cp "/opt/kafka/libs/*" kafka.Kafka "$@"' \
        >"$context/bin/kafka-server-start.sh"
    chmod +x "$context/bin"/*
    printf '%s\n' 'FROM localhost/skewless-java' 'COPY . /opt/kafka' 'ENTRYPOINT []' >"$context/Containerfile"
    build --quiet --tag "localhost/apache/kafka:$kafka" "$context" >/dev/null
    rm -f "$images/kafka-"*
    save "$images/kafka-$kafka.tar" "localhost/apache/kafka:$kafka"
    rm -r "$context"
}

make_image() {
    target=$1
    archive=$images/$target-$source.tar
    [ -e "$archive" ] && return
    [ -n "${PYTHON:-}" ] || PYTHON=$(choose_base)
    say "building the image $target on $PYTHON"
    tag=localhost/skewless:$version
    [ "$target" = slim ] || tag=$tag-$target
    build --target "$target" --tag "$tag" -f "$root/deploy/Containerfile" \
        --build-arg PYTHON="$PYTHON" --build-arg VERSION="$version" --build-arg REVISION="$revision" "$root" >&2
    rm -f "$images/$target-"*
    save "$archive" "$tag"
}

source=$(source_of)
version=$(sed -n 's/^VERSION = "\(.*\)"/\1/p' "$root/services/skewless/version.py")
revision=$(cd "$root" && git rev-parse HEAD)
make_pause
make_kafka
for target in ${*:-slim spark}; do make_image "$target"; done
echo "$images"
