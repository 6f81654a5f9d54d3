"""`helm test`: a running pipeline counts its records, other pipelines stay unchanged, and errors name their cause."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from helpers.kafka import STAGES, Pipeline, Record, Source, read, truth, zipf_records
from helpers.waiting import WAIT_S, until
from skewless.cli.main import main

pytestmark = pytest.mark.thorough

RECORDS = 2_000
SENT = 500


def check(tested: Pipeline, timeout_s: float) -> Result:
    command = ["smoke-test", "--file", str(tested.file), "--records", str(SENT), "--timeout", str(timeout_s)]
    return CliRunner().invoke(main, command)


def foreign(records: Iterable[Record]) -> Iterator[Record]:
    return (record for record in records if not json.loads(record.value or b"")["key"].startswith("flowcheck"))


def counts(tested: Pipeline) -> dict[tuple[int, str], int]:
    results, failures = tested.results()
    assert failures == []
    return {at: entry["count"] for at, entry in results.items()}


def test_smoke_test_while_stages_run_passes_and_changes_no_other_result(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 3)
    tested = Pipeline(broker, tmp_path, source, worker_input={"max_workers": 4}, router={"workers": 4})
    unanswered = check(tested, 2)
    assert unanswered.exit_code == 1
    assert "no process of splitter, router, worker, aggregator runs: start what is missing" in unanswered.stderr
    assert "key 'flowcheck" in unanswered.stderr
    assert ": 0 instead of 250" in unanswered.stderr
    source.send(zipf_records(RECORDS, 3, seed=5))
    with tested.running() as supervisor:
        until(lambda: all(map(tested.shares, STAGES)), each=lambda: supervisor.poll(time.monotonic()))
        passed = check(tested, WAIT_S)
        assert passed.exit_code == 0, passed.stderr
        assert passed.stdout.startswith(f"sent {SENT} records to partition ")
        assert "the counts of 10 keys are correct" in passed.stdout
        lateness_ms = tested.settings.event_time.lateness_ms
        expected = truth(read(broker, source.topic), lateness_ms=lateness_ms)
        until(lambda: counts(tested) == expected.counts)
    alone = truth(foreign(read(broker, source.topic)), lateness_ms=lateness_ms)
    assert expected.tuples == alone.tuples + 2 * SENT
    assert len(expected.late) == len(alone.late) > 0
