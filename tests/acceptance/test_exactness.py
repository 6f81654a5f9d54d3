"""The whole pipeline counts every record once, whether it is late or not and however skewed the keys are."""
# ruff: noqa: T201 - figures are shown with `-s`

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from helpers.kafka import Pipeline, Source, crashes, differences, read, truth, zipf_records

RECORDS = int(os.environ.get("SKEWLESS_RECORDS", "200000"))
LATENESS_S = 20


@pytest.mark.timeout(900)
def test_pipeline_skewed_keys_and_late_records_counts_each_record_once(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 4)
    source.send(zipf_records(RECORDS, 4, seed=1))
    pipeline = Pipeline(
        broker,
        tmp_path,
        source,
        event_time={"allowed_lateness_s": LATENESS_S},
        transport={"commit_interval_s": 0.5},
    )
    started = time.monotonic()
    events = pipeline.drain(limit_s=600)
    seconds = time.monotonic() - started

    expected = truth(read(broker, source.topic), lateness_ms=LATENESS_S * 1000)
    print(f"{RECORDS:,} records, {len(expected.late):,} late, {len(expected.counts):,} results, {seconds:.1f} s")
    assert [event.kind for event in events].count("finished") == 5
    assert crashes(events) == []
    assert expected.tuples + len(expected.late) == RECORDS
    assert len(expected.late) > RECORDS / 200
    assert differences(pipeline, expected) == []
    assert pipeline.count("dead-letters") == 0
    assert {topic: pipeline.tuples(topic) for topic in ("tuples", "worker-input")} == {
        "tuples": expected.tuples,
        "worker-input": expected.tuples,
    }
