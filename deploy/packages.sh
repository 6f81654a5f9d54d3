#!/bin/sh
# In the build of an image: `packages.sh locked LOCK` puts the packages of a lock into /opt/skewless, `packages.sh own` our
# own, and the list of all into /sbom.json.
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
