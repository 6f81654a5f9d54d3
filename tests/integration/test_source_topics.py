"""Commands and first offsets of a pipeline with several source topics, on a real broker."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from helpers.kafka import START_MS, Pipeline, Record, Source
from helpers.stage_hosts import share_host
from helpers.waiting import WAIT_S, until
from skewless.cli.main import main
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.operations.offset_range import START, source_ranges

pytestmark = pytest.mark.broker


def send(source: Source, partitions: int, first: int, count: int) -> None:
    """Write records, one second apart, to all partitions."""
    value = b'{"key":"k","value":1,"time":%d}'
    times = [START_MS + number * 1000 for number in range(first, first + count)]
    source.send_complete(
        Record(number % partitions, 0, time, b"k", value % time, {}) for number, time in enumerate(times)
    )


def invoke(pipeline: Pipeline, *command: str) -> Result:
    return CliRunner().invoke(main, [*command, "-f", str(pipeline.file)])


def counted(pipeline: Pipeline) -> int:
    return sum(result["count"] for result in pipeline.results()[0].values())


def pipeline_of(broker: str, folder: Path, first: Source, named: object, **source: Any) -> Pipeline:
    return Pipeline(broker, folder, first, source={"topic": None, "topics": named, **source})


@pytest.mark.thorough
@pytest.mark.parametrize("start", ["latest", START_MS + 100_000], ids=["latest", "time"])
def test_pipeline_with_several_topics_starts_in_each_of_them_where_it_first_did(
    start: Any, broker: str, tmp_path: Path
) -> None:
    prefix = f"s{uuid.uuid4().hex[:8]}"
    sources = [Source(broker, partitions, f"{prefix}-{partitions}") for partitions in (1, 2)]
    for partitions, source in enumerate(sources, 1):
        send(source, partitions, 0, 100)
    pipeline = pipeline_of(broker, tmp_path, sources[0], {"match": f"{prefix}-.*"}, start=start)
    pipeline.drain()
    for partitions, source in enumerate(sources, 1):
        send(source, partitions, 100, 20)
    later = Source(broker, 1, f"{prefix}-later")
    send(later, 1, 0, 30)
    pipeline.drain()
    assert counted(pipeline) == 2 * 20 + 30, "a topic that is found later is read from its beginning"
    ranges = source_ranges(OffsetReader(pipeline.settings.kafka), pipeline.settings, START, "committed")
    assert ranges == {
        sources[0].topic: {0: (100, 120)},
        sources[1].topic: {0: (50, 60), 1: (50, 60)},
        later.topic: {0: (0, 30)},
    }


@pytest.mark.thorough
def test_commands_of_a_pipeline_with_several_topics_name_them(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share_host(monkeypatch)
    first, second = Source(broker, 1), Source(broker, 2)
    send(first, 1, 0, 10)
    second.send([(1, b"{")])
    pipeline = pipeline_of(broker, tmp_path, first, [first.topic, second.topic])
    status = json.loads(invoke(pipeline, "status", "--json").stdout)
    lag = {first.topic: {"0": 10}, second.topic: {"0": 0, "1": 1}}
    assert status["stages"][0]["lag_by_partition"] == lag
    run = invoke(pipeline, "up", "--drain")
    assert run.exit_code == 0, run.output
    status = json.loads(invoke(pipeline, "status", "--json").stdout)
    assert status["problems"] == []
    assert {stage["lag_records"] for stage in status["stages"]} == {0}
    assert all(stage["ended"] for stage in status["stages"] if stage["stage"] not in ("splitter", "observer"))

    letters = invoke(pipeline, "dead-letters", "list").stdout
    assert second.topic in letters, letters
    replay = invoke(pipeline, "dead-letters", "replay", "--dry-run")
    assert replay.exit_code == 2
    assert f"--from: missing; the pipeline reads {', '.join(sorted((first.topic, second.topic)))}" in replay.output
    for command in (["plan"], ["produce", "zipf", "--records", "1"]):
        refused = invoke(pipeline, *command)
        assert refused.exit_code == 2
        assert "source.topics: name one topic with --topic" in refused.output, refused.output
    planned = invoke(pipeline, "reset", "--to-start", "--dry-run")
    first_name, second_name = sorted((first.topic, second.topic))
    assert planned.stdout.endswith(f"stays as it is: topic {first_name}, topic {second_name}\n"), planned.output
    reset = invoke(pipeline, "reset", "--to-start", "--yes")
    assert reset.exit_code == 0, reset.output
    pipeline.drain()
    assert counted(pipeline) == 10


@pytest.mark.parametrize(
    ("topics", "transport", "plan"),
    [(2, {"guarantee": "exactly_once"}, {}), (1, {"guarantee": "at_least_once"}, {"tuples_partitions": 1})],
    ids=["several topics", "tuples_partitions, at least once"],
)
def test_source_topic_created_again_with_fewer_records_during_the_run_is_not_counted_in_addition(
    topics: int, transport: dict[str, str], plan: dict[str, int], broker: str, tmp_path: Path
) -> None:
    """Kafka deletes the offsets with the topic, and the tuples do not show of which partitions they are."""
    sources = [Source(broker, 2) for _ in range(topics)]
    for source in sources:
        send(source, 2, 0, 100)
    names = [source.topic for source in sources]
    pipeline = Pipeline(
        broker, tmp_path, sources[0], source={"topic": None, "topics": names}, transport=transport, topics=plan
    )
    reader, group = OffsetReader(pipeline.settings.kafka), f"{pipeline.name}-splitter"
    splitter = pipeline.start("splitter")
    until(lambda: all(reader.committed(group, name).keys() == {0, 1} for name in names))
    until(lambda: pipeline.tuples("tuples") == 100 * topics)
    pipeline.admin.delete_topics(names[:1])[names[0]].result(WAIT_S)
    send(Source(broker, 2, names[0]), 2, 0, 60)
    assert splitter.wait(WAIT_S) == 3
    again = f"topic {names[0]} was deleted and created again while group {group} was reading it"
    assert again in (pipeline.folder / "splitter-0.log").read_text()
    restarted = pipeline.start("splitter", log=pipeline.folder / "restarted.log")
    assert restarted.wait(WAIT_S) == 3
    again = f"topic {names[0]} was deleted and created again after group {group} had read partition 0 up to offset 50"
    assert again in (pipeline.folder / "restarted.log").read_text()
    assert pipeline.tuples("tuples") == 100 * topics


def test_topics_apply_pattern_that_matches_nothing_is_refused(broker: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    pipeline = {
        "name": "p",
        "source": {"topics": {"match": "no-such-topic-.*"}},
        "kafka": {"bootstrap_servers": broker, "connect_timeout_s": WAIT_S},
    }
    file.write_text(json.dumps(pipeline))
    refused = CliRunner().invoke(main, ["topics", "apply", "-f", str(file)])
    assert refused.exit_code == 2
    assert f"source.topics.match: matches no topic at {broker}" in refused.output
