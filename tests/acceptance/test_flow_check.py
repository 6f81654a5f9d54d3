"""What `helm test` runs: its records are counted by a pipeline that runs, no other is hurt, and mistakes are named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support_kafka import Pipeline, Source, differences, read, truth, zipf_records

RECORDS = 2_000
SENT = 500


def check(tested: Pipeline, timeout_s: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "skewless.flow_check", "--file", str(tested.file), "--records", str(SENT)]
    return subprocess.run(
        [*command, "--timeout", str(timeout_s)], capture_output=True, text=True, timeout=120, check=False
    )


def test_a_check_passes_while_stages_run_and_leaves_all_other_results_as_they_are(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 3)
    tested = Pipeline(broker, tmp_path, source, worker_input={"max_workers": 4}, router={"workers": 4})
    with tested.running():
        empty = check(tested, 60)
        assert empty.returncode == 0, empty.stderr
        source.send(zipf_records(RECORDS, 3, seed=5))
        used = check(tested, 60)
        assert used.returncode == 0, used.stderr
        assert used.stdout.startswith(f"{SENT} records into partition ")
        assert "the counts of 10 keys are right" in used.stdout
    unanswered = check(tested, 2)
    assert unanswered.returncode == 1
    assert "key flowcheck" in unanswered.stderr
    assert ": 0 instead of 250" in unanswered.stderr
    tested.drain()
    expected = truth(read(broker, source.topic), lateness_ms=tested.settings.event_time.lateness_ms)
    assert expected.tuples >= RECORDS + 2 * SENT
    assert differences(tested, expected) == []
