"""Several pipelines in one namespace: two releases, or one release of a parent chart, have nothing in common."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from helpers.docs_blocks import ROOT, blocks
from helpers.source_files import assert_none, problem_of
from skewless.config.loader import load

CHART = ROOT / "helm" / "skewless"
EXAMPLES = sorted((CHART / "ci").glob("*.yaml"))
PAGE = ROOT / "docs" / "how-to" / "kubernetes.md"
RELEASES = ("clicks", "clicks-eu")
"""One name begins like the other."""

Objects = list[dict[str, Any]]
Labels = Mapping[str, str]
Render = Callable[..., Objects]


def identities(objects: Objects) -> set[tuple[str, str, str]]:
    found = [(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in objects]
    assert len(found) == len(set(found)), "a release has two objects with one name"
    return set(found)


def pods(objects: Objects) -> Iterator[tuple[str, Labels]]:
    """Yield name and labels of each kind of pod."""
    for each in objects:
        match each["kind"]:
            case "Pod":
                yield each["metadata"]["name"], each["metadata"]["labels"]
            case "StatefulSet" | "Job":
                yield each["metadata"]["name"], each["spec"]["template"]["metadata"]["labels"]
            case "CronJob":
                template = each["spec"]["jobTemplate"]["spec"]["template"]
                yield each["metadata"]["name"], template["metadata"]["labels"]


def selectors(objects: Objects) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each selector of pods, and that of a ServiceMonitor for Services."""
    for each in objects:
        name = f"{each['kind']} {each['metadata']['name']}"
        match each["kind"]:
            case "Service":
                yield name, {"matchLabels": each["spec"]["selector"]}
            case "NetworkPolicy":
                yield name, each["spec"]["podSelector"]
            case "StatefulSet":
                yield name, each["spec"]["selector"]
                for constraint in each["spec"]["template"]["spec"].get("topologySpreadConstraints", []):
                    yield f"{name}, spread", constraint["labelSelector"]
            case "PodDisruptionBudget" | "PodMonitor" | "ServiceMonitor":
                yield name, each["spec"]["selector"]


def selects(selector: Mapping[str, Any], labels: Labels) -> bool:
    """Return whether a selector selects an object with these labels."""
    equal = all(labels.get(name) == value for name, value in selector.get("matchLabels", {}).items())
    expressions = selector.get("matchExpressions", [])
    assert {each["operator"] for each in expressions} <= {"In"}
    return equal and all(labels.get(each["key"]) in each["values"] for each in expressions)


def assert_separate(one: Objects, other: Objects) -> None:
    """No object has the name of one of the other pipeline, and no selector selects what belongs to it."""
    assert identities(one) & identities(other) == set()
    for first, second in ((one, other), (other, one)):
        selectable = [*pods(second), *services(second)]
        assert selectable
        own = [*pods(first), *services(first)]
        for name, selector in selectors(first):
            assert [found for found, labels in selectable if selects(selector, labels)] == [], name
            assert any(selects(selector, labels) for _, labels in own), f"{name} selects nothing"


def services(objects: Objects) -> Iterator[tuple[str, Labels]]:
    for each in objects:
        if each["kind"] == "Service":
            yield each["metadata"]["name"], each["metadata"]["labels"]


@pytest.mark.thorough
def test_two_releases_in_one_namespace_share_no_name_and_select_no_pod_of_each_other(render: Render) -> None:
    def check(values: Path) -> None:
        # The pipeline has the name of its release, unless the values name it.
        one, other = (render(values, "tests.enabled=true", f"pipeline.name={name}", release=name) for name in RELEASES)
        assert_separate(one, other)

    assert_none(problem for values in EXAMPLES for problem in problem_of(values.stem, partial(check, values)))


def test_releases_with_different_examples_are_separate(render: Render) -> None:
    chosen = [path for path in EXAMPLES if path.stem in {"minimal", "embedded-kafka", "postgresql", "hpa", "spark"}]
    rendered = {path.stem: render(path, release=f"r-{number}") for number, path in enumerate(chosen)}
    for one, other in itertools.combinations(rendered.values(), 2):
        assert_separate(one, other)


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    """Write the parent chart of the documentation, with this chart in its folder of charts."""
    chart, values = (block.text for block in blocks(PAGE) if block.name in {"parent-chart", "parent-values"})
    # This chart may have a development version, which is a pre-release. Helm includes those in 0.x-0, and not in 0.x.
    (tmp_path / "Chart.yaml").write_text(chart.replace("version: 0.x", "version: 0.x-0"))
    (tmp_path / "values.yaml").write_text(values)
    shutil.copytree(CHART, tmp_path / "charts" / "skewless")
    return tmp_path


def test_two_pipelines_of_a_parent_chart_are_separate_in_one_release(
    render: Render, parent: Path, tmp_path: Path
) -> None:
    objects = render(parent / "values.yaml", chart=parent, release="shop")
    identities(objects)
    names = {each["metadata"]["labels"]["app.kubernetes.io/name"] for each in objects}
    assert names == {"clicks", "views"}
    one, other = (
        [each for each in objects if each["metadata"]["labels"]["app.kubernetes.io/name"] == name]
        for name in sorted(names)
    )
    assert_separate(one, other)
    maps = [each["data"]["pipeline.yaml"] for each in objects if each["kind"] == "ConfigMap"]
    pipelines = set()
    for number, text in enumerate(maps):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        pipelines.add((load(file, {}).name, load(file, {}).topic("source")))
    assert pipelines == {("clicks", "clicks"), ("views", "page-views")}
