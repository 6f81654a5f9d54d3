"""The mirror's output in another cluster: its names, its checks and its errors."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.stage_start import in_memory
from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.stage_start import StageStart
from skewless.engine.start_checks import PriorOutputInTopic
from skewless.errors import ConfigurationError
from skewless.service import build_runtime
from skewless.stages.built_stage import build
from skewless.stages.mirror.builder import offsets_group

DAY_S = 24 * 3600
OTHER = {"bootstrap_servers": "other:9092"}
TOKENS = {"token_endpoint_url": "https://login.example.org/token", "client_id": "sales"}


def start_of(mirror: dict[str, Any], prefix: str = "") -> StageStart:
    document = {"name": "sales", "source": {"topic": "raw"}, "topics": {"prefix": prefix}, "mirror": mirror}
    return in_memory("mirror", PipelineSettings.model_validate(document), 2)


def test_offsets_of_a_mirror_are_in_no_group_of_a_pipeline_with_the_names_of_the_copies() -> None:
    start = start_of({"kafka": OTHER, "prefix": "eu."})
    assert start.settings.mirror is not None
    reading = start_of({"kafka": OTHER}, prefix="eu.").settings
    groups = {reading.group(stage.name) for stage in topology.STAGES}
    assert f"eu.{start.group}" in groups
    assert offsets_group(start, start.settings.mirror) not in groups


@pytest.mark.parametrize("topic", ["aggregates", "partials"])
def test_build_runtime_of_a_mirror_looks_for_results_in_its_copy(topic: str) -> None:
    start = start_of({"kafka": OTHER, "topic": topic, "prefix": "eu."})
    found = build_runtime(start, build(start), 0).prior_output
    assert isinstance(found, PriorOutputInTopic)
    assert (found.kafka.bootstrap_servers, found.topic) == ("other:9092", f"eu.sales.{topic}")


def test_mirror_commits_offsets_at_least_once_a_day() -> None:
    renew_s = build(start_of({"kafka": OTHER})).renew_offsets_s
    assert renew_s is not None
    assert renew_s <= DAY_S


@pytest.mark.parametrize(
    ("kafka", "problem"),
    [
        ({"security_protocol": "SSL", "tls": {"ca": "/none"}}, "mirror.kafka.tls.ca: /none: cannot be read"),
        ({"options": {"lingr.ms": 5}}, "mirror.kafka.options: librdkafka refuses them: "),
        # The other processes read the same file, and do not have these secrets.
        (
            {"security_protocol": "SASL_SSL", "sasl": {"username": "sales"}},
            "mirror.kafka.sasl.password: is required with",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl": {"mechanism": "OAUTHBEARER", "oauthbearer": TOKENS}},
            "mirror.kafka.sasl.oauthbearer.client_secret: is required",
        ),
    ],
)
def test_mirror_that_cannot_create_its_clients_names_its_own_settings(kafka: dict[str, Any], problem: str) -> None:
    output = build(start_of({"kafka": OTHER | kafka})).output
    assert output is not None
    with pytest.raises(ConfigurationError, match=f"^{problem}") as raised:
        output("sales-mirror-0")
    assert raised.value.problems[0].startswith(problem)
