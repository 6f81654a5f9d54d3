"""A bounded run does not end what comes after it."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from support_kafka import Pipeline, Source, differences, read, truth, zipf_records

LATENESS = {"allowed_lateness_s": 20}


def test_second_bounded_run_takes_in_what_came_after_the_first(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 2)
    records = list(zipf_records(20_000, 2, seed=7, keys=500))
    pipeline = Pipeline(broker, tmp_path, source, aggregator={"emit": "final"}, event_time=LATENESS)
    for part in (records[:12_000], records[12_000:]):
        source.send(islice(part, None))
        events = pipeline.drain(limit_s=240)
        assert [event.kind for event in events].count("finished") == 5
    unlike = differences(pipeline, truth(read(broker, source.topic), lateness_ms=20_000))
    # The tick in which the first run ended was told, and is not told again.
    assert [line for line in unlike if not line.startswith("sums of tuples: ")] == []
