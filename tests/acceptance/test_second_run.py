"""A run after a bounded run continues from the committed offsets, or is refused."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from helpers.kafka import STAGES, Pipeline, Source, differences, read, truth, zipf_records
from helpers.waiting import WAIT_S, until
from skewless.errors import ConfigurationError, UnreachableError

LATENESS = {"allowed_lateness_s": 20}


@pytest.fixture(scope="module")
def pipeline(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """Run a pipeline to its end twice, with new records between the runs."""
    source = Source(broker, 2)
    records = list(zipf_records(20_000, 2, seed=7, keys=500))
    folder = tmp_path_factory.mktemp("twice")
    made = Pipeline(broker, folder, source, aggregator={"emit": "final"}, event_time=LATENESS)
    for part in (records[:12_000], records[12_000:]):
        source.send(islice(part, None))
        events = made.drain(limit_s=240)
        assert [event.kind for event in events].count("finished") == 5
    return made


def test_bounded_run_records_after_the_first_run_are_counted_by_the_second(broker: str, pipeline: Pipeline) -> None:
    unlike = differences(pipeline, truth(read(broker, pipeline.source.topic), lateness_ms=20_000))
    # The first run emitted the tick in which it ended; the second run must not emit it again.
    assert [line for line in unlike if not line.startswith("sums of tuples: ")] == []


def change(file: Path, **sections: dict[str, object]) -> None:
    document = json.loads(file.read_text())
    file.write_text(json.dumps(document | {name: document.get(name, {}) | more for name, more in sections.items()}))


def test_bounded_run_changed_state_settings_refuses_to_start(pipeline: Pipeline) -> None:
    before = pipeline.file.read_text()
    pipeline.source.send(zipf_records(100, 2, seed=8))
    other = {"window_s": 120, "aggregates": ["count", "sum", "max"]}
    change(pipeline.file, aggregator=other, splitter={"value": {"field": "time"}})
    try:
        with pytest.raises(ConfigurationError) as caught:
            pipeline.drain()
    finally:
        pipeline.file.write_text(before)
    assert "aggregator.window_s: is 120.0, was 60.0" in str(caught.value)
    assert "aggregator.aggregates: needs the columns count,max,sum, needed count,sum" in str(caught.value)
    assert "splitter.value: is not what it was when group" in str(caught.value)
    assert pipeline.count("dead-letters") == 0


@pytest.mark.thorough
@pytest.mark.parametrize(
    "stages", [("splitter",), tuple(stage for stage in STAGES if stage != "splitter")], ids=["splitter", "others"]
)
def test_bounded_run_expired_offsets_refuses_to_count_again(pipeline: Pipeline, stages: tuple[str, ...]) -> None:
    """Kafka deletes the offsets of a group a week after its last member has left (KIP-211)."""
    answers, _ = pipeline.results()
    admin, groups = AdminClient({"bootstrap.servers": pipeline.bootstrap}), [f"{pipeline.name}-{at}" for at in stages]
    until(lambda: not any(found.result(WAIT_S).members for found in admin.describe_consumer_groups(groups).values()))
    for future in admin.delete_consumer_groups(groups).values():
        future.result(WAIT_S)
    with pytest.raises(UnreachableError, match="has no offset in any partition of topic"):
        pipeline.drain()
    assert pipeline.results() == (answers, [])
