#!/bin/sh
# Builds a release of the checked-out commit in dist/, and tags the commit: wheel, source distribution, chart, checksums.
# With REGISTRY, it also pushes the chart and both images. With HOMEPAGE, the chart names this address. `make release`
# runs it; a repeated run continues.
set -eu
cd "$(dirname "$0")/.."

say() { printf '%s\n' "release: $*" >&2; }
fail() { say "error: $*"; exit 2; }
chart_field() { sed -n "s/^$1: *//p" helm/skewless/Chart.yaml; }

version=$(PYTHONPATH=services .venv/bin/python -c 'import skewless; print(skewless.__version__)')
for field in version appVersion; do
    [ "$(chart_field $field)" = "$version" ] ||
        fail "helm/skewless/Chart.yaml: $field is $(chart_field $field), but the package has version $version: set both, run make chart docs"
done
grep -Eq "^## $version \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$" CHANGELOG.md ||
    fail "CHANGELOG.md has no heading '## $version (YYYY-MM-DD)': name the day of the release"
[ -z "$(git status --porcelain)" ] || fail "the working tree has changes: commit them first"
commit=$(git rev-parse HEAD)
tagged=$(git rev-parse --quiet --verify "refs/tags/$version^{commit}" || true)
[ "${tagged:-$commit}" = "$commit" ] || fail "tag $version is at another commit ($tagged): set the next version"

engine=
if [ -n "${REGISTRY:-}" ] && [ "${IMAGES:-yes}" != no ]; then
    for name in podman docker; do
        if command -v "$name" >/dev/null; then engine=$name; break; fi
    done
    [ -n "$engine" ] || fail "the images need podman or docker: install one, or set IMAGES=no to push the chart only"
fi

tools=$(deploy/chart-tools.sh --find) || fail "helm is not built: run make chart-tools"
rm -rf dist
say "building the wheel and the source distribution of $version"
# The time of the commit makes archives of equal content equal.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) .venv/bin/python -m hatchling build >/dev/null
say "packaging the chart"
packed=$(mktemp -d)
trap 'rm -rf "$packed"' EXIT
cp -R helm/skewless "$packed"
if [ -n "${HOMEPAGE:-}" ]; then
    printf 'home: %s\nsources: [%s]\n' "$HOMEPAGE" "$HOMEPAGE" >>"$packed/skewless/Chart.yaml"
fi
"$tools"/helm package "$packed/skewless" --destination dist >/dev/null
(cd dist && sha256sum -- * >SHA256SUMS)
[ -n "$tagged" ] || git tag --annotate --message "Skewless $version" "$version"

if [ -n "${REGISTRY:-}" ]; then
    # Not to the repository of the images: the slim image has the name and the tag that the chart would have.
    say "pushing the chart to oci://$REGISTRY/charts"
    "$tools"/helm push "dist/skewless-$version.tgz" "oci://$REGISTRY/charts" ${HELM_PUSH_OPTIONS:-}
    for target in ${engine:+slim spark}; do
        image=$REGISTRY/skewless:$version
        [ "$target" = slim ] || image=$image-$target
        say "building and pushing $image"
        "$engine" build -f deploy/Containerfile --target "$target" -t "$image" \
            --build-arg "VERSION=$version" --build-arg "REVISION=$commit" .
        "$engine" push "$image"
    done
fi
say "done: dist/ has $(ls dist | wc -l | tr -d ' ') files; publish the tag with: git push origin $version"
