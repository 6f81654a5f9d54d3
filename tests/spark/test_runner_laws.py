"""Stages, a query and a batch of Spark give the results of a plain loop, for any records and settings.

The stages run in memory, and `skewless audit` computes the batch. `tests/laws` has the same laws with more examples, of
the stages and of the tasks of a query, without Spark and Kafka.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.kafka import START_MS, Pipeline, Sent, Source
from skewless.cli.main import main
from skewless.config.pipeline_settings import PipelineSettings
from skewless.in_memory import InMemoryPipeline
from skewless.wire.record import OutputRecord

pytestmark = [pytest.mark.usefixtures("spark")]

PARTITIONS = 2
WINDOW_MS = 60_000
END_MS = START_MS + 3_600_000
"""Time at which the windows of all records but the closing ones have ended."""
NOW_MS = END_MS + 86_400_000


@dataclass(frozen=True)
class Setup:
    """Settings that a user may choose."""

    every_ms: int
    """From the start of a window to the next one."""
    lateness_s: int
    late_rule: str
    emit: str
    costs: bool
    """Whether tuples take time, so that a query chooses a worker for each of them."""
    aggregator_partitions: int

    def sections(self) -> dict[str, dict[str, Any]]:
        window = {"size_s": WINDOW_MS / 1000, "every_s": self.every_ms / 1000}
        late = {"allowed_lateness_s": self.lateness_s, "late_rule": self.late_rule}
        return {
            "event_time": {**late, "idle_timeout_s": None},
            "worker": {"pane_s": 10, "cost": {"cycle": 1_000_000 if self.costs else 0}},
            "aggregator": {"window": window, "emit": self.emit, "aggregates": ["count", "sum"]},
            "observer": {"tick_s": WINDOW_MS / 1000},
            "topics": {"aggregator_partitions": self.aggregator_partitions},
        }


Results = dict[tuple[int, str], tuple[int, int]]
"""Count and sum by start of the window and key."""
Late = set[tuple[int, int]]
"""Partitions and offsets of late records."""


def plain_loop(sent: Iterable[Sent], setup: Setup) -> tuple[Results, Late]:
    counts: Counter[tuple[int, str]] = Counter()
    sums: Counter[tuple[int, str]] = Counter()
    newest: dict[int, int] = {}
    offsets: Counter[int] = Counter()
    late = set()
    for partition, value in sent:
        entry = json.loads(value or b"")
        time = entry["time"]
        last = time // setup.every_ms * setup.every_ms
        starts = range(last, time - WINDOW_MS, -setup.every_ms)
        deadline = min(starts) + WINDOW_MS - 1 if setup.late_rule == "window_end" else time
        if deadline < newest.get(partition, time) - setup.lateness_s * 1000:
            late.add((partition, offsets[partition]))
        else:
            for start in starts:
                counts[start, entry["key"]] += 1
                sums[start, entry["key"]] += entry["value"]
        newest[partition] = max(time, newest.get(partition, time))
        offsets[partition] += 1
    return {at: (count, sums[at]) for at, count in counts.items()}, late


def in_memory(portions: Sequence[Sequence[Sent]], chosen: PipelineSettings) -> tuple[Results, Late]:
    stages = InMemoryPipeline(chosen, {chosen.topic("source"): PARTITIONS})
    written: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for portion in portions:
        records = [OutputRecord(chosen.topic("source"), value, partition=at) for at, value in portion]
        for topic, outputs in stages.process(records, NOW_MS).items():
            if topic in {"aggregates", "late"}:
                written[topic] += [json.loads(output.value or b"") for output in outputs]
    results = {(row["window_start"], row["key"]): (row["count"], row["sum"]) for row in written["aggregates"]}
    return results, {(row["partition"], row["offset"]) for row in written["late"]}


def query(portions: Sequence[Sequence[Sent]], tested: Pipeline) -> tuple[Results, Late]:
    for portion in portions:
        tested.source.send(portion)
        checkpoint = ["--checkpoint", str(tested.folder / "checkpoint")]
        done = CliRunner().invoke(main, ["stream", "-f", str(tested.file), "--available-now", *checkpoint])
        assert done.exit_code == 0, done.output
    last, failures = tested.results()
    assert failures == []
    assert tested.settings.aggregator.emit == "updates" or all(row["revision"] == 0 for row in last.values())
    late = [json.loads(record.value or b"") for record in tested.read("late")]
    found = {(row["partition"], row["offset"]) for row in late}
    assert len(found) == len(late)
    return {at: (row["count"], row["sum"]) for at, row in last.items()}, found


setups = st.builds(
    Setup,
    every_ms=st.sampled_from([WINDOW_MS, WINDOW_MS, 20_000]),
    lateness_s=st.sampled_from([0, 20]),
    late_rule=st.sampled_from(["window_end", "event_time"]),
    emit=st.sampled_from(["updates", "final"]),
    costs=st.booleans(),
    aggregator_partitions=st.integers(1, 2),
)
entries = st.tuples(
    st.integers(0, PARTITIONS - 1), st.sampled_from(["a", "b", "c"]), st.integers(-9, 9), st.integers(0, 300_000)
)


# Spark runs a few micro-batches and an audit for each example, in about five seconds.
@settings(max_examples=settings().max_examples // 12)
@given(setup=setups, log=st.lists(entries, min_size=20, max_size=60), cuts=st.lists(st.integers(1, 60), max_size=2))
def test_runners_of_a_pipeline_give_the_results_of_a_plain_loop(
    broker: str,
    tmp_path_factory: pytest.TempPathFactory,
    setup: Setup,
    log: list[tuple[int, str, int, int]],
    cuts: list[int],
) -> None:
    text = b'{"key":"%s","value":%d,"time":%d}'
    sent = [(at, text % (key.encode(), value, START_MS + time)) for at, key, value, time in log]
    sent += [(at, text % (b"last", 0, END_MS + 3_600_000)) for at in range(PARTITIONS)]
    bounds = [0, *sorted({min(cut, len(sent) - 1) for cut in cuts}), len(sent)]
    portions = [sent[first:end] for first, end in itertools.pairwise(bounds)]
    folder: Path = tmp_path_factory.mktemp("law")
    tested = Pipeline(broker, folder, Source(broker, PARTITIONS), **setup.sections())

    def closed(found: tuple[Results, Late]) -> tuple[Results, Late]:
        return {at: row for at, row in found[0].items() if at[0] < END_MS}, found[1]

    expected = closed(plain_loop(sent, setup))
    assert closed(in_memory(portions, tested.settings)) == expected
    assert closed(query(portions, tested)) == expected
    audit = CliRunner().invoke(main, ["audit", "-f", str(tested.file), "--json"])
    assert audit.exit_code == 0, audit.output
