#!/bin/sh
# Runs in image builds. `packages.sh locked LOCK` installs the packages of a lock file into /opt/skewless.
# `packages.sh own` installs Skewless there and writes the SBOM of all packages to /sbom.json.
set -eu
install() { /build/bin/pip --python /opt/skewless install --no-index --no-deps "$@"; }

case $1 in
locked)
    /build/bin/pip wheel --require-hashes --no-deps --no-build-isolation --wheel-dir /wheels -r "$2"
    python -m venv --without-pip /opt/skewless
    install /wheels/*.whl
    rm -r /wheels
    ;;
own)
    install /own/*.whl
    /build/bin/cyclonedx-py environment /opt/skewless --output-reproducible --output-file /sbom.json
    ;;
esac
