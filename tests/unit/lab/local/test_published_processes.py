"""The processes of a run on this machine, as other commands see them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

import skewless as sk
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import FencedError
from skewless.kafka.settings import KafkaSettings
from skewless.lab.local import published_processes
from skewless.lab.local.published_processes import published, read, recently_ended, run_by_others


@pytest.fixture(autouse=True)
def _clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the brokers: the cluster of an address is its part before the dot."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def admin(kafka: KafkaSettings) -> SimpleNamespace:
        return SimpleNamespace(cluster_id=lambda: kafka.bootstrap_servers.partition(".")[0])

    monkeypatch.setattr(published_processes, "Admin", admin)


def of(brokers: str) -> PipelineSettings:
    return sk.Pipeline("clicks", brokers=brokers).settings


def test_published_second_run_in_this_process_is_refused_and_the_first_one_stays() -> None:
    settings = of("a.local:9092")
    with published(settings, {"router-0": 9100}):
        with pytest.raises(FencedError, match="this process runs pipeline clicks already"):
            published(settings, {}).__enter__()
        assert {name: process.metrics_port for name, process in read(settings).items()} == {"router-0": 9100}
    with published(settings, {}):
        assert read(settings) == {}


def test_read_other_address_of_the_same_cluster_finds_the_processes() -> None:
    with published(of("a.local:9092"), {"router-0": 9100}):
        assert set(read(of("a.127:9092"))) == {"router-0"}
        assert read(of("b.local:9092")) == {}
    assert recently_ended(of("a.127:9092")) == {"router-0"}
    assert recently_ended(of("b.local:9092")) == frozenset()


def test_run_by_others_other_command_on_the_same_cluster_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with published(of("a.local:9092"), {"router-0": 0}):
        assert run_by_others(of("a.local:9092")) == frozenset()
        with monkeypatch.context() as other:
            other.setattr(os, "getpid", lambda: 1)
            assert run_by_others(of("a.local:9092")) == frozenset(), "this process has published nothing"
            stack = contextlib.ExitStack()
            stack.enter_context(published(of("a.127:9092"), {"splitter-0": 0}))
        with stack:
            assert run_by_others(of("a.local:9092")) == {"splitter-0"}
