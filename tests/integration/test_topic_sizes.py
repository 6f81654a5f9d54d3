"""The estimated sizes of topics, compared with the bytes in the log of a real broker while a pipeline runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from helpers.kafka import Pipeline, Source
from helpers.waiting import WAIT_S, until
from skewless.config.topic_plan import planned
from skewless.lab.local.broker import Broker
from skewless.operations.topic_sizes import Load, topic_sizes

pytestmark = pytest.mark.thorough

RATE = 1_000
KEY_BYTES = 12
RECORD_BYTES = 100
PORTION_S = 0.1
WARM_UP_S, MEASURED_S = 2.0, 4.0
SMALL_WINDOWS: dict[str, Any] = {
    "worker": {"pane_s": 1},
    "observer": {"tick_s": 2},
    "aggregator": {"window_s": 4, "aggregates": ["count", "sum", "mean"]},
    # The first tick ends when the lateness has passed, and before it some topics have no records.
    "event_time": {"allowed_lateness_s": 1, "idle_timeout_s": None},
    "router": {"workers": 8, "snapshot_interval_s": 1},
    "transport": {"commit_interval_s": 0.3, "compression": "none"},
}
MEASUREMENTS = 9
"""Measurements at most, because a process of a busy machine may stand still in any of them."""
AT_LEAST, AT_MOST = 0.7, 2.0
"""Bounds of the estimate divided by the bytes in the log."""


@pytest.fixture(scope="module")
def measurable(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Yield the address of a broker and the folder of its log: those of the tests, if the log is on this machine."""
    admin = AdminClient({"bootstrap.servers": broker})
    node = ConfigResource(ConfigResource.Type.BROKER, str(next(iter(admin.list_topics(timeout=WAIT_S).brokers))))
    (described,) = admin.describe_configs([node]).values()
    log = Path(str(described.result(WAIT_S)["log.dirs"].value))
    if log.is_dir():
        yield broker, log
        return
    folder = tmp_path_factory.mktemp("broker")
    with Broker(folder) as own:
        yield own.bootstrap, folder / "data"


def log_bytes(folder: Path, topic: str) -> int:
    """Return the bytes of the segments of a topic."""
    return sum(segment.stat().st_size for segment in folder.glob(f"{topic}-*/*.log"))


def measured(
    pipeline: Pipeline, folder: Path, load: Load, sources: Mapping[Source, int]
) -> Iterator[tuple[dict[str, float], dict[str, float]]]:
    """Send records at about the rate of the load while the pipeline runs.

    Yields the bytes per second that each topic has grown by, and the estimate for the rate that was reached. `sources`
    are the topics, and the distance of their event times from the wall clock in ms.
    """
    random = np.random.default_rng(7)
    specs, _ = planned(pipeline.settings)
    measurements: list[tuple[float, int, dict[str, int]]] = []
    sent = 0
    with pipeline.running() as supervisor:
        until(
            lambda: all(pipeline.shares(name.rpartition("-")[0]) for name in pipeline.processes()),
            each=lambda: supervisor.poll(time.monotonic()),
        )
        begin = time.monotonic()
        for moment in (WARM_UP_S + number * MEASURED_S for number in range(MEASUREMENTS + 1)):
            while (elapsed := time.monotonic() - begin) < moment:
                due = round(elapsed * load.records_per_s) - sent
                keys = random.integers(0, load.keys, due)
                for source, shift_ms in sources.items():
                    source.send(
                        (number % source.partitions, record(key, round(time.time() * 1000) + shift_ms))
                        for number, key in zip(range(sent, sent + due), keys.tolist(), strict=True)
                    )
                sent += due
                time.sleep(PORTION_S)
            measurements.append((time.monotonic(), sent, {spec.name: log_bytes(folder, spec.name) for spec in specs}))
            if len(measurements) == 1:
                continue
            (first_at, first_sent, first), (last_at, last_sent, last) = measurements[-2:]
            if last_sent == first_sent:  # both moments had passed
                continue
            seconds = last_at - first_at
            reached = replace(load, records_per_s=(last_sent - first_sent) / seconds)
            estimated = {size.name: size.bytes_per_s for size in topic_sizes(pipeline.settings, specs, reached)}
            full_names = {name: pipeline.settings.topic(name) for name in estimated}
            found = {name: (last[full_name] - first[full_name]) / seconds for name, full_name in full_names.items()}
            yield found, {name: bytes_per_s for name, bytes_per_s in estimated.items() if bytes_per_s is not None}


def record(key: int, time_ms: int) -> bytes:
    text = b'{"key":"%0*d","value":%d,"time":%d,"rest":"' % (KEY_BYTES, key, key % 1_000, time_ms)
    return text + b"x" * (RECORD_BYTES - len(text) - 2) + b'"}'


@pytest.mark.parametrize(
    ("keys", "parts"),
    [
        (200, {}),
        (20_000, {}),
        # The first changes the records of the splitters and the workers, the second those of the aggregators.
        (
            500,
            {
                "splitter": {"local": {"mode": "buffer", "adaptive": False}},
                "aggregator": {**SMALL_WINDOWS["aggregator"], "window_s": 2, "emit": "final"},
            },
        ),
    ],
    ids=["few keys", "many keys", "local and final"],
)
def test_topic_sizes_are_near_the_bytes_in_the_log(
    measurable: tuple[str, Path], tmp_path: Path, keys: int, parts: Mapping[str, Any]
) -> None:
    address, folder = measurable
    source = Source(address, 4)
    pipeline = Pipeline(address, tmp_path, source, **{**SMALL_WINDOWS, **parts})
    load = Load(RATE, RECORD_BYTES, keys, KEY_BYTES)
    # How many of these few records are written depends on where the measured time begins.
    seldom = ["distribution", "router-state"]
    if pipeline.settings.aggregator.emit == "final":
        seldom.append("aggregates")  # all results of a window come at once, when the window has ended
    wrong = []
    for found, estimated in measured(pipeline, folder, load, {source: 0}):
        ratios = {name: round(bytes_per_s / max(1.0, found[name]), 2) for name, bytes_per_s in estimated.items()}
        factors = {name: 2 if name in seldom else 1 for name in ratios}
        if all(AT_LEAST / factors[name] < ratio < AT_MOST * factors[name] for name, ratio in ratios.items()):
            return
        wrong.append(ratios)
    pytest.fail(f"estimated / measured: {wrong}")


def test_topic_sizes_of_a_join_are_at_least_the_bytes_in_the_log(measurable: tuple[str, Path], tmp_path: Path) -> None:
    address, folder = measurable
    left, right = Source(address, 2), Source(address, 2)
    sides = {
        side: {"topic": source.topic, "id": {"field": "key"}, "time": {"field": "time"}}
        for side, source in (("left", left), ("right", right))
    }
    parts = {**SMALL_WINDOWS, "join": {**sides, "apart_s": 1, "repartition": "always"}}
    pipeline = Pipeline(address, tmp_path, left, **parts)
    load = Load(RATE / 4, RECORD_BYTES, 1_000_000, KEY_BYTES)
    wrong = []
    for found, estimated in measured(pipeline, folder, load, {left: 0, right: 1}):
        near = all(
            AT_LEAST < estimated[topic] / max(1.0, found[topic]) < AT_MOST
            for topic in ("left-records", "right-records", "joined")
        )
        if near and all(
            estimated[topic] >= found[topic] for topic in ("unmatched-left", "unmatched-right", "join-changelog")
        ):
            return
        wrong.append((found, estimated))
    pytest.fail(f"measured, estimated: {wrong}")
