"""The checks of a run on this machine before it starts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError
from skewless.operations import local_run


@pytest.mark.parametrize(
    ("replicas", "groups_with_offsets", "problems"),
    [
        ({"router": 0}, [], ["replicas.router"]),
        ({"router": 0}, ["p-router"], []),
        ({"splitter": 0, "router": 0}, ["p-router"], ["replicas.splitter"]),
        ({"observer": 0}, [], []),
        ({"router": 0, "worker": 0, "aggregator": 0, "observer": 0}, [], []),
    ],
)
def test_bounded_run_stage_that_never_ran_and_that_others_wait_for_is_refused(
    monkeypatch: pytest.MonkeyPatch, replicas: dict[str, int], groups_with_offsets: list[str], problems: list[str]
) -> None:
    groups = SimpleNamespace(
        describe=lambda group: SimpleNamespace(state="Empty" if group in groups_with_offsets else "Dead")
    )
    monkeypatch.setattr(local_run, "GroupReader", lambda _kafka: groups)
    settings = PipelineSettings.model_validate({"name": "p", "source": {"topic": "t"}, "replicas": replicas})
    found: list[str] = []
    try:
        local_run.check_inputs_end(settings)
    except ConfigurationError as error:
        found = [problem.partition(":")[0] for problem in error.problems]
    assert found == problems
