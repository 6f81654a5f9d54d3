#!/bin/sh
# In the build of an image: the packages of a lock and our own in /opt/skewless, and the list of them in /sbom.json.
set -eu
lock=$1
/build/bin/pip wheel --require-hashes --no-deps --no-build-isolation --wheel-dir /wheels -r "$lock"
python -m venv --without-pip /opt/skewless
/build/bin/pip --python /opt/skewless install --no-index --no-deps /wheels/*.whl /own/*.whl
/build/bin/cyclonedx-py environment /opt/skewless --output-reproducible --output-file /sbom.json
