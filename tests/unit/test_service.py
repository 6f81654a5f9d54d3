"""Starts of stages, and the watch of the pipeline's file, which continues after a step has refused a new W."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from helpers.stage_start import in_memory
from skewless import service
from skewless.config import loader
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.watcher import ConfigWatcher
from skewless.engine.step import Step
from skewless.errors import BrokerError, ConfigurationError, UnreachableError
from skewless.kafka.settings import KafkaSettings
from skewless.lab.local import supervisor
from skewless.monitoring.settings import MetricsSettings
from skewless.monitoring.stage_monitor import StageMonitor
from skewless.stages.built_stage import build
from skewless.stages.router.step import RouterStep
from skewless.wire.topic_partition import CommittedOffset

DEADLINE_S = 30.0


class Values:
    """Replaces `ConfigWatcher`: one value per poll."""

    def __init__(self, *values: int | None) -> None:
        self._values: Iterator[int | None] = iter(values)

    def poll(self) -> int | None:
        return next(self._values, None)


class Reported:
    """Replaces `OffsetReader`: offsets without a checkpoint, as a stage with an output of its own reports them."""

    def __init__(self, _kafka: KafkaSettings) -> None:
        pass

    def committed(self, _group: str, _topic: str) -> dict[int, CommittedOffset]:
        return {0: CommittedOffset(1234, "")}


def test_run_stages_label_of_the_pipeline_begins_with_the_prefix_of_its_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = PipelineSettings.model_validate({"name": "p", "source": {"topic": "t"}, "topics": {"prefix": "prod."}})

    def served(_settings: MetricsSettings, monitors: Sequence[StageMonitor]) -> None:
        raise LookupError(monitors[0].identity)

    monkeypatch.setattr(service, "served", served)
    with pytest.raises(LookupError) as labels:
        service.run_stages(["router"], settings)
    assert labels.value.args == ({"pipeline": "prod.p", "stage": "router", "instance": 0},)


def test_former_inputs_of_a_stage_whose_offsets_are_elsewhere_may_have_been_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "OffsetReader", Reported)
    settings = PipelineSettings.model_validate(
        {"name": "p", "source": {"topic": "t"}, "mirror": {"kafka": {"bootstrap_servers": "other:9092"}}}
    )
    start = in_memory("mirror", settings, 1)
    assert [source.topic for source in start.former_inputs()] == ["p.partials"]
    built = build(start)
    service._check_former_inputs(start, built)
    with pytest.raises(BrokerError, match=r"offsets of topic p\.partials that Skewless did not commit"):
        service._check_former_inputs(start, replace(built, output=None))


def test_run_of_stages_that_a_signal_ends_returns_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(_stage: object, stopping: asyncio.Event) -> None:
        signal.raise_signal(signal.SIGTERM)
        await stopping.wait()

    monkeypatch.setattr(service, "_run_stage", run)
    health = SimpleNamespace(stopping=False)
    stage = cast("service._PreparedStage", SimpleNamespace(name="splitter", monitor=SimpleNamespace(health=health)))
    assert asyncio.run(service._run([stage])) == signal.SIGTERM
    assert health.stopping


def test_run_of_stages_of_which_several_fail_logs_the_error_of_each_and_raises_the_first(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = {"sink": UnreachableError("the last commit failed"), "router": BrokerError("a right is missing")}
    stopped = SimpleNamespace(health=SimpleNamespace(), on=lambda _loop: nullcontext())
    built = SimpleNamespace(processor=None, step=None)
    stages = [
        cast(
            "service._PreparedStage",
            SimpleNamespace(name=name, instance=0, runtime=name, built=built, watcher=None, monitor=stopped),
        )
        for name in failures
    ]

    async def end(app: SimpleNamespace, stopping: asyncio.Event) -> BaseException:
        if app.name == "sink":
            await stopping.wait()
        return failures[app.name]

    monkeypatch.setattr(service, "App", lambda name: SimpleNamespace(name=name, running=nullcontext, loop=None))
    monkeypatch.setattr(service, "declare_agent", lambda *_: None)
    monkeypatch.setattr(service, "_wait_for_exit", end)
    with pytest.raises(BrokerError, match="a right is missing"):
        asyncio.run(service._run(stages))
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "router-0: ended by an error: a right is missing",
        "sink-0: ended by an error: the last commit failed",
    ]


@pytest.mark.parametrize("error", [ConfigurationError("too many: raise it"), ZeroDivisionError("bug")])
def test_config_following_step_raises_logs_the_error_and_applies_the_next_value(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "FILE_POLL_S", 0.001)
    followed = asyncio.Event()
    seen: list[int] = []

    class Failing:
        def set_workers(self, workers: int) -> None:
            if workers == 20:
                raise error
            seen.append(workers)
            followed.set()

    async def run() -> None:
        with service._watch_config(cast("Step", Failing()), cast("ConfigWatcher", Values(20, None, 7))):
            await asyncio.wait_for(followed.wait(), DEADLINE_S)

    with caplog.at_level(logging.WARNING, "skewless.service"):
        asyncio.run(run())
    assert seen == [7]
    assert len(caplog.messages) == 1
    assert "the number of workers does not change, correct router.workers in the file" in caplog.messages[0]


def test_config_following_workers_beyond_the_running_sketch_are_refused_until_a_valid_value(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = (
        "name: p\nsource: {topic: t}\n"
        "router: {workers: %d, grouping: w_choices, choices: {sketch_size: %d, head_share: 0.2}}\n"
    )
    file = tmp_path / "pipeline.yaml"
    file.write_text(text % (8, 50))
    settings = loader.load(file, {})
    live = ConfigWatcher(file, {}, settings, "router")
    step = cast("RouterStep", build(in_memory("router", settings, 1)).step)
    # The new file is valid, but this process still has the small sketch.
    for workers, size, expected in ((12, 5_000, None), (9, 50, 9)):
        file.write_text(text % (workers, size))
        found = [value for value in (live.poll() for _ in range(4)) if value is not None]
        assert found == ([] if expected is None else [expected])
        for value in found:
            step.set_workers(value)
    assert step.workers == 9
    assert "w_choices with 12 workers needs choices.sketch_size above W / head_share = 60, not 50" in caplog.text


def test_service_clean_stop_ends_before_the_supervisor_kills_the_process() -> None:
    assert service.STOP_S < supervisor.GRACE_S
