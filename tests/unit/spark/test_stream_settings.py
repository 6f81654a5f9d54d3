"""Settings that a query of Spark refuses, and those that it does not use."""

from __future__ import annotations

from typing import Any

import pytest

from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError
from skewless.spark.stream_start import check_settings, unused_settings

SIDE = {"id": {"field": "id"}}


def pipeline(**sections: Any) -> PipelineSettings:
    return PipelineSettings.model_validate({"name": "shop", "source": {"topic": "orders"}, **sections})


@pytest.mark.parametrize(
    ("sections", "named"),
    [
        ({"join": {"left": SIDE | {"topic": "l"}, "right": SIDE | {"topic": "r"}, "apart_s": 60}}, "join"),
        ({"sink": {"url": "sqlite:///x.db", "mode": "merge"}}, "sink.mode"),
        ({"mirror": {"kafka": {"bootstrap_servers": "other:9092"}, "topic": "partials"}}, "mirror.topic"),
        ({"worker_input": {"encoding": "record"}}, "worker_input.encoding"),
        ({"aggregator": {"emit_interval_s": 5}}, "aggregator.emit_interval_s"),
        ({"aggregator": {"top": {"n": 3, "by": "count"}}}, "aggregator.top"),
        ({"source": {"topic": "orders", "skip_to": {"0": 5}}}, "source.skip_to"),
        *(
            ({"source": {"topics": {"match": match}}}, "source.topics.match")
            for match in ("orders-(?P<zone>eu|us)", "orders(?#all)-.*", "(?a)orders", "(?ia)orders", "orders.{,3}")
        ),
    ],
)
def test_stream_settings_that_change_results_are_refused_by_name(sections: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        check_settings(pipeline(**sections))
    assert [problem.partition(":")[0] for problem in error.value.problems] == [named]


def test_stream_settings_only_of_the_stages_are_named() -> None:
    settings = pipeline(
        router={"workers": 4},
        replicas={"router": 2},
        splitter={"key": {"field": "k"}, "local": {"mode": "buffer"}},
        event_time={"max_watermark_drift_s": 60},
        transport={"guarantee": "at_least_once"},
        topics={"aggregator_partitions": 2},
    )
    check_settings(settings)
    check_settings(pipeline(source={"topics": {"match": "orders-(?:eu|us)-.{1,3}"}}))
    assert unused_settings(settings) == [
        "router",
        "replicas",
        "splitter.local",
        "event_time.max_watermark_drift_s",
        "transport.guarantee (always exactly_once)",
    ]
    assert unused_settings(pipeline()) == []
