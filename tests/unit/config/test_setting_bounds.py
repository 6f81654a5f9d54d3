"""Bounds of the settings: `config check` reports values that would make a stage fail."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel, ValidationError

from helpers.source_files import assert_none
from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings

BASE: dict[str, Any] = {"name": "p", "source": {"topic": "t"}}
JOIN: dict[str, Any] = {
    "left": {"topic": "l", "id": {"field": "id"}},
    "right": {"topic": "r", "id": {"field": "id"}},
    "apart_s": 1,
}
REQUIRED: dict[str, dict[str, Any]] = {
    "sink": {"url": "sqlite:///tmp/results.db"},
    "join": JOIN,
    "registry": {"url": "http://r"},
    "mirror": {"kafka": {"bootstrap_servers": "other:9092"}},
}
"""Settings that an optional section must have."""


def floats(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of all settings that accept fractions. The element of a list of groups is `0`."""
    for name, field in model.model_fields.items():
        kinds = (field.annotation, *get_args(field.annotation))
        if float in kinds:
            yield (*path, name)
        for kind in kinds:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                element = ("0",) if get_origin(field.annotation) is tuple else ()
                yield from floats(kind, (*path, name, *element))


def document(path: tuple[str, ...], value: object) -> dict[str, Any]:
    found: Any = value
    for name in reversed(path):
        found = [{"field": "f"} | found] if name == "0" else {name: found}
    section = path[0]
    return BASE | {section: merged(REQUIRED.get(section, {}), found[section])}


def merged(required: Any, more: Any) -> Any:
    if not isinstance(required, dict):
        return more
    return required | {name: merged(required.get(name), value) for name, value in more.items()}


def problems(path: tuple[str, ...], value: object) -> list[tuple[str, ...]]:
    try:
        PipelineSettings.model_validate(document(path, value))
    except ValidationError as error:
        return [tuple(map(str, problem["loc"])) for problem in error.errors()]
    return []


OUTSIDE = (math.inf, -math.inf, math.nan, 1e308)
FLOATS = [
    (path, value)
    for path in floats(PipelineSettings)
    for value in OUTSIDE
    if value != 1e308 or "where" not in path  # a field may be compared with any finite number
]


def test_settings_value_out_of_bounds_is_refused_with_its_path() -> None:
    # A setting that accepts whole numbers and fractions has a problem for each.
    refused = {(path, value): {problem[: len(path)] for problem in problems(path, value)} for path, value in FLOATS}
    assert_none(
        f"{'.'.join(path)}: {value} is accepted or has another path: {paths}"
        for (path, value), paths in refused.items()
        if paths != {path}
    )


def test_settings_librdkafka_option_that_is_not_finite_is_refused() -> None:
    assert problems(("kafka", "options"), {"linger.ms": math.inf})


SPANS = [("worker", "pane_s"), ("aggregator", "window_s"), ("observer", "tick_s")]


@pytest.mark.parametrize("value", [0, 0.0001, 0.0005, 0.0015, 1.0005, -15])
@pytest.mark.parametrize("path", SPANS, ids=".".join)
def test_settings_span_that_is_not_whole_milliseconds_is_refused(path: tuple[str, ...], value: float) -> None:
    assert problems(path, value) == [path]


@pytest.mark.parametrize("value", [0.001, 0.1, 0.3, 1.001, 86_399.999])
def test_settings_span_of_whole_milliseconds_is_kept_exactly(value: float) -> None:
    pane, window, tick = (document(path, value) for path in SPANS)
    settings = PipelineSettings.model_validate(pane | window | tick)
    assert settings.pane_ms == settings.aggregator.window_ms == settings.observer.tick_ms == round(value * 1000)


@pytest.mark.parametrize("topic", [row.name for row in topology.TOPICS])
def test_settings_source_topic_of_the_pipeline_itself_is_refused(topic: str) -> None:
    expected = rf"source\.topic: p\.{topic} is one of the pipeline's own topics"
    with pytest.raises(ValidationError, match=expected):
        PipelineSettings.model_validate(BASE | {"source": {"topic": f"p.{topic}"}})


@pytest.mark.parametrize("section", ["event_time", "join"])
def test_settings_idle_timeout_that_rounds_to_zero_is_refused(section: str) -> None:
    document = BASE | {"join": JOIN}
    timeout = {section: document.get(section, {}) | {"idle_timeout_s": 0.0004}}
    with pytest.raises(ValidationError, match=rf"{section}\.idle_timeout_s"):
        PipelineSettings.model_validate(document | timeout)


@pytest.mark.parametrize("side", ["left", "right"])
def test_settings_joined_topic_of_the_pipeline_itself_is_refused(side: str) -> None:
    join = JOIN | {side: {"topic": "p.late", "id": {"field": "id"}}}
    with pytest.raises(ValidationError, match=rf"join\.{side}\.topic: p\.late is one of the pipeline's own topics"):
        PipelineSettings.model_validate(BASE | {"join": join})


@pytest.mark.parametrize(
    ("field", "required_s", "reason"),
    [
        (None, 8, "by left_time, pairs are out of order by up to join.sync_delay_s, or join.window_s - join.apart_s"),
        ("left.t", 8, "by left.t, pairs"),
        ("right_time", 9, "by right_time, pairs are out of order by up to join.window_s, or join.sync_delay_s - "),
        ("right.t", 9, "by right.t, pairs"),
    ],
)
def test_settings_pairs_as_source_require_the_lateness_of_pairs(
    field: str | None, required_s: int, reason: str
) -> None:
    join = JOIN | {"sync_delay_s": 3, "window_s": 9}
    splitter = {"key": {"field": "id"}, "time": {"field": field}}
    pairs = {"name": "p", "source": {"topic": "p.joined"}, "join": join, "splitter": splitter}
    problem = f"event_time.allowed_lateness_s: is {required_s - 0.001}, set at least {required_s}: {reason}"
    with pytest.raises(ValidationError, match=re.escape(problem)):
        PipelineSettings.model_validate(pairs | {"event_time": {"allowed_lateness_s": required_s - 0.001}})
    valid = PipelineSettings.model_validate(pairs | {"event_time": {"allowed_lateness_s": required_s}})
    assert valid.topic("source") == "p.joined"


def test_settings_pairs_of_no_join_are_refused_as_source() -> None:
    with pytest.raises(ValidationError, match=r"source\.topic: p\.joined is one of the pipeline's own"):
        PipelineSettings.model_validate({"name": "p", "source": {"topic": "p.joined"}})


def test_settings_pairs_of_a_repartitioned_join_as_source_are_refused() -> None:
    pairs = {"name": "p", "source": {"topic": "p.joined"}, "join": JOIN | {"repartition": "always"}}
    with pytest.raises(
        ValidationError, match=r"source\.topic: p\.joined is not possible with join\.repartition: always"
    ):
        PipelineSettings.model_validate(pairs | {"event_time": {"allowed_lateness_s": 1000}})


def test_settings_repartitioned_join_requires_the_retention_of_its_topics() -> None:
    join = JOIN | {"repartition": "always", "sync_delay_s": 100_000}
    with pytest.raises(ValidationError, match=r"topics\.internal_retention_s: is 86400, set at least 10000"):
        PipelineSettings.model_validate({"name": "p", "join": join})


def test_settings_options_that_delete_records_a_join_waits_for_are_refused() -> None:
    join = JOIN | {"repartition": "always", "sync_delay_s": 100}
    required_ms = PipelineSettings.model_validate({"name": "p", "join": join}).joined.rules().retention_ms
    for retention_ms, is_refused in ((required_ms - 1, True), (required_ms, False), (-1, False)):
        topics = {"options": {"right-records": {"retention.ms": str(retention_ms)}}}
        problem = f"topics.options.right-records.retention.ms: is {retention_ms}, set at least {required_ms}: it must"
        with pytest.raises(ValidationError, match=re.escape(problem)) if is_refused else contextlib.nullcontext():
            PipelineSettings.model_validate({"name": "p", "join": join, "topics": topics})


@pytest.mark.parametrize(
    ("topic", "policy", "needed"),
    [
        ("tuples", "compact", "delete"),
        ("partials", "compact,delete", "delete"),
        ("enriched", "compact", "delete"),
        ("aggregator-changelog", "delete", "compact"),
        ("tuples", "delete", None),
        ("hot-keys", "compact", None),
        ("aggregates", "compact,delete", None),
    ],
)
def test_settings_cleanup_of_a_topic_that_stages_read_is_not_an_option(
    topic: str, policy: str, needed: str | None
) -> None:
    enrich = {"topic": "events", "tables": [{"topic": "t", "key": {"field": "id"}, "fields": {"a": "a"}}]}
    document = {"name": "p", "source": {"topic": "p.enriched"}, "enrich": enrich}
    topics = {"options": {topic: {"cleanup.policy": policy}}}
    problem = f"topics.options.{topic}.cleanup.policy: is {policy}, but stages read this topic and need {needed}"
    with pytest.raises(ValidationError, match=re.escape(problem)) if needed else contextlib.nullcontext():
        PipelineSettings.model_validate(document | {"topics": topics})


def test_settings_repartitioned_join_without_transactions_is_refused() -> None:
    transport = {"guarantee": "at_least_once"}
    with pytest.raises(
        ValidationError, match=r"transport\.guarantee: at_least_once is not possible with join\.repartition: always"
    ):
        PipelineSettings.model_validate({"name": "p", "join": JOIN | {"repartition": "always"}, "transport": transport})
    PipelineSettings.model_validate({"name": "p", "join": JOIN, "transport": transport})


def test_settings_source_topic_of_another_pipeline_is_accepted() -> None:
    PipelineSettings.model_validate(BASE | {"source": {"topic": "other.aggregates"}})
