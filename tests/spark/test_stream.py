"""`skewless stream` on a real broker: results, audit, restarts and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from helpers.kafka import START_MS, Pipeline, Sent, Source, Truth, differences, read, truth, zipf_records
from helpers.tiers import thorough_except
from helpers.waiting import until
from skewless.cli.main import main
from skewless.errors import UnreachableError

PARTITIONS = 3
LATENESS_S = 10
RECORDS = 6_000

pytestmark = pytest.mark.usefixtures("spark")


def stream(tested: Pipeline, *arguments: str, file: Path | None = None) -> Result:
    checkpoint = ["--checkpoint", str(tested.folder / "checkpoint")] if "--checkpoint" not in arguments else []
    return CliRunner().invoke(
        main, ["stream", "-f", str(file or tested.file), "--available-now", *checkpoint, *arguments]
    )


def audit(tested: Pipeline) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["audit", "-f", str(tested.file), "--json"])
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    return report


def expected_of(tested: Pipeline) -> Truth:
    return truth(read(tested.bootstrap, tested.source.topic), lateness_ms=LATENESS_S * 1000)


def closing(time_ms: int) -> list[Sent]:
    """Return a record for each partition after which all windows up to a time are closed."""
    value = b'{"key":"last","value":0,"time":%d}' % (time_ms + LATENESS_S * 1000)
    return [(partition, value) for partition in range(PARTITIONS)]


@pytest.mark.thorough
@pytest.mark.parametrize("emit", ["updates", "final"])
def test_stream_run_three_times_equals_a_plain_count_and_the_batch(broker: str, tmp_path: Path, emit: str) -> None:
    source = Source(broker, PARTITIONS)
    tested = Pipeline(broker, tmp_path, source, aggregator={"emit": emit, "aggregates": ["count", "sum"]})
    records = list(zipf_records(RECORDS, PARTITIONS, seed=5, keys=300))
    end = START_MS + 3_600_000
    for portion in (records[: RECORDS // 2], records[RECORDS // 2 :], closing(end)):
        source.send(portion)
        result = stream(tested)
        assert result.exit_code == 0, result.output
    assert f"{PARTITIONS:,} records read" in result.output
    closed_to = None if emit == "updates" else end
    assert differences(tested, expected_of(tested), ticks=False, closed_to=closed_to) == []
    assert audit(tested)["compared"] > RECORDS / 10
    shown = CliRunner().invoke(main, ["results", "-f", str(tested.file), "--json"])
    assert shown.exit_code == 0, shown.output
    status = json.loads(CliRunner().invoke(main, ["status", "-f", str(tested.file), "--json"]).stdout)
    assert sum(stage["lag_records"] for stage in status["stages"]) == 0


@pytest.mark.parametrize("moment", thorough_except(["before"], ["before", "after"]))
def test_stream_failed_around_its_commit_counts_once_after_a_restart(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Before the commit of the driver all partitions are committed. After it, Spark does not know of it."""
    from skewless.spark.stream_job import StreamJob

    source = Source(broker, PARTITIONS)
    tested = Pipeline(broker, tmp_path, source, aggregator={"aggregates": ["count", "sum"]})
    source.send(zipf_records(600, PARTITIONS, seed=6, keys=30))
    commit = StreamJob._commit

    def failing(job: StreamJob) -> None:
        if moment == "after":
            commit(job)
        raise UnreachableError("injected")

    with monkeypatch.context() as patched:
        patched.setattr(StreamJob, "_commit", failing)
        failed = stream(tested)
    assert (failed.exit_code, "injected" in failed.output) == (3, True), failed.output
    other = stream(tested, "--checkpoint", str(tmp_path / "other"))
    if moment == "before":
        assert other.exit_code == 2
        assert "is not complete" in other.output
    else:
        assert other.exit_code == 0, other.output
    source.send(zipf_records(300, PARTITIONS, seed=7, keys=30))
    again = stream(tested, *(["--checkpoint", str(tmp_path / "other")] if moment == "after" else []))
    assert again.exit_code == 0, again.output
    assert differences(tested, expected_of(tested), ticks=False) == []
    audit(tested)


def with_section(tested: Pipeline, section: str, **settings: Any) -> Path:
    """Write the settings of the pipeline with another section."""
    document = json.loads(tested.file.read_text())
    document[section] = {**document.get(section, {}), **settings}
    file = tested.folder / f"{section}.yaml"
    file.write_text(json.dumps(document))
    return file


def test_stream_with_another_state_or_checkpoint_or_engine_is_refused(broker: str, tmp_path: Path) -> None:
    source = Source(broker, PARTITIONS)
    tested, other = (Pipeline(broker, tmp_path, source) for _ in range(2))
    source.send(zipf_records(300, PARTITIONS, seed=8, keys=30))
    assert stream(tested).exit_code == 0
    refused = {
        "aggregator.window_s: is 120.0, was 60.0": stream(
            tested, file=with_section(tested, "aggregator", window_s=120)
        ),
        "aggregator.aggregates: needs": stream(tested, file=with_section(tested, "aggregator", aggregates=["max"])),
        "splitter.key: is not what it was": stream(
            tested, file=with_section(tested, "splitter", key={"field": "time"})
        ),
        "that of another pipeline": stream(other, "--checkpoint", str(tested.folder / "checkpoint")),
    }
    source.send(zipf_records(300, PARTITIONS, seed=9, keys=30))
    refused["that of another pipeline"] = stream(other, "--checkpoint", str(tested.folder / "checkpoint"))
    for reason, result in refused.items():
        assert (result.exit_code, reason in result.output) == (2, True), result.output
    stage = CliRunner().invoke(main, ["run", "splitter", "-f", str(tested.file), "--drain"])
    assert stage.exit_code == 2, stage.output
    assert "pipeline: is run by the stages, was run by `skewless stream` (its --hand-back" in stage.output


@pytest.mark.thorough
def test_stream_while_stages_run_is_refused(broker: str, tmp_path: Path) -> None:
    source = Source(broker, PARTITIONS)
    tested = Pipeline(broker, tmp_path, source, transport={"session_timeout_s": 1})
    with tested.running():
        until(lambda: tested.shares("splitter") == 1)
        result = stream(tested)
    assert (result.exit_code, "splitter-0" in result.output) == (3, True), result.output
