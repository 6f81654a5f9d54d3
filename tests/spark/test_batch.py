"""The batch equals the stream for every record format, including late and invalid records."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer

import skewless as sk
from helpers import aggregates as aggregate_helpers
from helpers.batches import json_values_in, source, written
from helpers.in_memory_batch import InMemoryBatch
from helpers.kafka import START_MS, Record, Sent, Source, read
from helpers.stage_start import in_memory
from helpers.tiers import thorough_except
from helpers.waiting import until
from skewless import topology
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.cli.main import main
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError, JobFailedError
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.settings import KafkaSettings
from skewless.spark import audit_job, batch_pipeline, kafka_options, kafka_source
from skewless.spark.batch_job import Folder
from skewless.stages.built_stage import build
from skewless.wire.record import OutputRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ONE_WORKER: dict[str, Any] = {
    "worker_input": {"max_workers": 1},
    "router": {"workers": 1},
    "event_time": {"allowed_lateness_s": 20},
    "aggregator": {"aggregates": ["count", "sum", "mean", "min", "max"]},
}
RECORDS = 5_000
NOW = 4_000_000_000_000
"""Wall-clock time that only the records with a time too far in the future exceed."""
Answer = dict[tuple[int, str], dict[str, Any]]


def times(partition: int) -> list[int]:
    """Yield event times of a partition, out of order by up to 40 s. A third of partition 1 is an hour ahead."""
    random = np.random.default_rng(partition)
    steady = START_MS + np.arange(RECORDS) * 120 - random.integers(0, 40_000, RECORDS)
    ahead = (np.arange(RECORDS) // (RECORDS // 3) == 1) * partition * 3_600_000
    found: list[int] = (steady + ahead).tolist()
    return found


def entries() -> Iterator[tuple[int, int, str, float, int]]:
    """Partition, number, key, value and time of every record. Half of the records have the same key."""
    random = np.random.default_rng(7)
    for partition in (0, 1):
        for number, time in enumerate(times(partition)):
            key = "hot" if random.random() < 0.5 else f"k{random.integers(200)}"
            yield partition, number, key, round(float(random.normal(0, 50)), 2), time


BINARY_AND_EXACT = (
    "count", "digits", "sum", "newest", "first", "stddev", "distinct", {"largest": "value", "n": 2},
    {"quantile": "value", "at": [0.5, 0.9]},
)  # fmt: skip
"""Aggregates whose partials are bytes or 128-bit integers."""


def as_json(number: int, key: str, value: float, time: int) -> bytes | None:
    if number % 500 == 17:
        return None if number % 1000 == 17 else b'{"tags": "'
    time = NOW + 2 * 86_400_000 if number == 1_234 else time
    return json.dumps({"tags": [{"text": key}, {"text": "all"}], "price": value, "at": time}).encode()


def as_text(number: int, key: str, value: float, time: int) -> bytes:
    return f"level={key} number={number} level=any".encode() if number % 10 else b"no level"


FORMATS: dict[str, tuple[dict[str, Any], Any]] = {
    "json": (
        {
            "format": "json",
            "key": {"field": "tags[].text"},
            "value": {"field": "price", "decimals": 2},
            "time": {"field": "at"},
        },
        as_json,
    ),
    "csv": (
        {"format": {"name": "csv", "columns": ["k", "v", "t"]}, "key": {"field": "k"},
         "value": {"field": "v", "decimals": 1},
         "time": {"field": "t", "unit": "s"}},
        lambda _, key, value, time: f"{key},{value},{time / 1000:.3f}".encode(),
    ),
    "tsv": (
        {"format": "tsv", "time": {"field": 0},
         "key": {"field": 1, "drop_if_contains": ["k13"], "rename_if_contains": {"tens": ["k10", "k11"]}}},
        lambda _, key, __, time: f"{time}\t{key}".encode(),
    ),
    "text": ({"format": "text", "key": {"pattern": r"level=(\w+)"}}, as_text),
}  # fmt: skip


def stream(settings: PipelineSettings, records: Iterable[Record], partitions: int) -> tuple[Answer, int, int]:
    """Run the stream's own steps; returns (last result of each window and key, late tuples, dead letters)."""
    aggregates, outputs = streamed(settings, records, partitions)
    last = {(entry["window_start"], entry["key"]): entry for entry in json_values_in(aggregates)}
    return last, len(written(outputs, "late")), len(written(outputs, "dead-letters"))


def streamed(
    settings: PipelineSettings, records: Iterable[Record], partitions: int
) -> tuple[list[OutputRecord], list[OutputRecord]]:
    """Run the stream's own steps; returns its records in `aggregates`, and what the splitter writes."""
    split, work, merge = (
        build(in_memory(stage, settings, partitions, drain=True)).step for stage in ("splitter", "worker", "aggregator")
    )
    outputs: list[OutputRecord] = []
    by_partition: dict[int, list[Record]] = {partition: [] for partition in range(partitions)}
    for record in records:
        by_partition[record.partition].append(record)
    for partition, own in by_partition.items():
        split.assign(source(partition), None, ())
        sent = [OutputRecord("source", record.value, record.key, timestamp=record.timestamp) for record in own]
        outputs += split.process(InMemoryBatch(partition, sent), NOW)
        split.end_of_partition(source(partition), NOW)
    outputs += split.flush(NOW)
    work.assign(0, None, ())
    list(work.process(InMemoryBatch(0, written(outputs, "tuples")), NOW))
    partials = list(work.flush(NOW))
    for partition in range(settings.topics.aggregator_partitions):
        merge.assign(partition, None, ())
        own_of = [output for output in partials if output.partition == partition]
        assert not written(merge.process(InMemoryBatch(partition, own_of), NOW), "dead-letters")
    return written(merge.flush(NOW), "aggregates"), outputs


def exact(answer: Answer) -> Answer:
    """Read floating-point numbers as the decimals that they were written as, to compare them with decimals."""

    def decimal(item: Any) -> Any:
        return Decimal(repr(item)) if isinstance(item, float) else item

    return {group: {name: decimal(item) for name, item in row.items()} for group, row in answer.items()}


def settings_of(bootstrap: str, topic: str, splitting: Mapping[str, Any]) -> PipelineSettings:
    document = {"name": "history", "source": {"topic": topic}, "kafka": {"bootstrap_servers": bootstrap}}
    return PipelineSettings.model_validate({**document, **ONE_WORKER, "splitter": splitting})


def sent(kind: str) -> list[Sent]:
    write = FORMATS[kind][1]
    return [(partition, write(*others)) for partition, *others in entries()]


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[SparkSession]:
    """Reduce the number of records per task, so that each partition has several splits."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "250")
    yield spark
    spark.conf.set(name, str(before))


@pytest.mark.parametrize("kind", thorough_except(["csv"], FORMATS))
def test_batch_of_each_record_format_gives_the_results_of_the_stream(
    kind: str, small_batches: SparkSession, broker: str
) -> None:
    topic = Source(broker, 2)
    topic.send(sent(kind))
    settings = settings_of(broker, topic.topic, FORMATS[kind][0])
    expected, late, invalid = stream(settings, read(broker, topic.topic), 2)
    ends = OffsetReader(settings.kafka).end(topic.topic)
    spans = {partition: (0, end) for partition, end in ends.items()}
    records = kafka_source.of_topic(
        kafka_options.read(small_batches, settings.kafka, {topic.topic: spans}, records_per_task=1_700),
        settings.splitter,
    )
    found = batch_pipeline.answer(records, batch_pipeline.read_plan(settings, NOW))
    rows = [row.asDict() for row in batch_pipeline.results(found, settings).collect()]
    found.close()
    for row in rows:
        row.pop("partition")
        row["revision"] = 0
    assert exact({(row["window_start"], row["key"]): row for row in rows}) == exact(expected)
    assert (found.records, found.late, sum(found.invalid.values())) == (2 * RECORDS, late, invalid)
    if kind != "text":
        assert late > 1_000, "the data must have late tuples"
        assert len(found.cached) == 2, "a chunk must have been read again"


def cached(spark: SparkSession) -> int:
    """Return how many DataFrames Spark has cached."""
    return int(spark._jsparkSession.sharedState().cacheManager().numCachedEntries())


def test_batch_of_records_that_change_between_two_reads_asks_to_repeat_it_and_caches_nothing(
    small_batches: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    splitting = {"format": {"name": "csv", "columns": ["k", "t"]}, "key": {"field": "k"}, "time": {"field": "t"}}
    records = small_batches.range(0, 4_000, 1, numPartitions=1).selectExpr(
        "0 AS source_partition", "id DIV 2000 AS block", "id % 2000 AS offset", "-1L AS timestamp",
        f"CAST('a,' || ({START_MS} + IF(id < 2000, 3600000, id)) AS BINARY) AS value",
    )  # fmt: skip
    read, compacted = batch_pipeline._read, records.where("block = 0 OR offset > 0")
    monkeypatch.setattr(
        batch_pipeline, "_read", lambda _, plan: read(compacted if plan.earlier_max_times else records, plan)
    )
    before = cached(small_batches)
    with pytest.raises(JobFailedError, match="records of source partition 0 changed while they were read"):
        batch_pipeline.answer(records, batch_pipeline.read_plan(settings_of("127.0.0.1:1", "t", splitting), NOW))
    assert cached(small_batches) == before


def test_read_of_a_topic_that_gets_a_partition_meanwhile_has_the_records_of_its_ranges(
    spark: SparkSession, broker: str
) -> None:
    topic, kafka = Source(broker, 2), KafkaSettings(bootstrap_servers=broker)
    topic.send([(0, b"of the range"), (1, b"of another partition")])
    records = kafka_options.read(spark, kafka, {topic.topic: {0: (0, 1)}})
    assert [bytes(row.value) for row in records.collect()] == [b"of the range"]


def test_batch_of_the_python_api_reads_what_the_pipeline_reads(
    spark: SparkSession, broker: str, tmp_path: Path
) -> None:
    topic, now = Source(broker, 1), round(datetime.now(UTC).timestamp() * 1000)
    begin, ahead = now - 3_600_000, now + 1_800_000
    event = {"specversion": "1.0", "id": "1", "source": "shop", "type": "click", "data": {"user": "a"}}
    topic.send_complete(
        Record(0, 0, time, None, json.dumps(event).encode(), {"content-type": b"application/cloudevents+json"})
        for time in (begin - 1, begin, begin, ahead)
    )
    file = tmp_path / "pipeline.yaml"
    settings = {
        "name": topic.topic,
        "kafka": {"bootstrap_servers": broker},
        "source": {"topic": topic.topic, "start": begin},
        "splitter": {"envelope": "cloudevents", "key": {"field": "user"}},
    }
    file.write_text(json.dumps(settings))
    with sk.Pipeline.load(file).batch(spark) as answer:
        assert [(row["key"], row["count"]) for row in answer.rows.collect()] == [("a", 2)]
        assert (answer.records, answer.invalid) == (3, {"time too far ahead of the clock": 1})


@pytest.fixture
def added_aggregates(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register the aggregates with binary partials, and send their code to Spark's tasks, because no package has it."""
    from pyspark import cloudpickle

    aggregate_helpers.install(monkeypatch)
    cloudpickle.register_pickle_by_value(aggregate_helpers)
    yield
    cloudpickle.unregister_pickle_by_value(aggregate_helpers)


def whole_topic(spark: SparkSession, settings: PipelineSettings, topic: str, **options: Any) -> DataFrame:
    ranges = {topic: OffsetReader(settings.kafka).ranges(topic)}
    return kafka_options.read(spark, settings.kafka, ranges, **options)


@pytest.mark.thorough
@pytest.mark.usefixtures("added_aggregates")
def test_batch_and_audit_with_binary_partials_give_the_answer_of_the_stream(
    spark: SparkSession, broker: str, tmp_path: Path
) -> None:
    from pyspark.sql import functions

    splitting, write = FORMATS["csv"]
    source, dead_letters = Source(broker, 2), Source(broker, 1)
    # Without the record that is too far in the future, because the audit needs its dead letter.
    source.send((partition, write(number, *others)) for partition, number, *others in entries() if number != 1_234)
    dead_letters.send([(0, b"no dead letter")])
    settings = settings_of(broker, source.topic, splitting)
    aggregator = settings.aggregator.model_copy(update={"aggregates": BINARY_AND_EXACT})
    settings = settings.model_copy(update={"aggregator": aggregator})
    partitions = settings.topics.aggregator_partitions
    target = Source(broker, partitions)
    expected, _, _ = stream(settings, read(broker, source.topic), 2)
    assert max(len(row["digits"]) for row in expected.values()) > 50

    done = invoke(settings, tmp_path, "--output-topic", target.topic)
    assert done.exit_code == 0, done.output
    results = {record.key: json.loads(record.value or b"") for record in read(broker, target.topic)}
    assert results == {f"{window}/{key}".encode(): row for (window, key), row in expected.items()}

    output = audit_job.PipelineOutput(
        whole_topic(spark, settings, source.topic),
        whole_topic(spark, settings, target.topic),
        whole_topic(spark, settings, dead_letters.topic, headers=True),
        dict.fromkeys(range(partitions), MAX_WATERMARK),
    )
    answer = audit_job.answer_of(output, settings)
    report = audit_job.compare(output, answer, settings)
    assert (report["compared"], report["differences"]) == (len(expected), 0)
    key, row = next((key, row) for key, row in results.items() if key and len(row["digits"]) > 1)
    changed = json.dumps(row | {"digits": row["digits"][1:]}).encode()
    value = functions.when(output.aggregates["key"] == key, functions.lit(changed)).otherwise(functions.col("value"))
    changed_output = replace(output, aggregates=output.aggregates.withColumn("value", value))
    report = audit_job.compare(changed_output, answer, settings)
    answer.close()
    assert report["differences_by_kind"] == {"different": 1}


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Write the CSV records into files, one for each partition."""
    folder = tmp_path / "lines"
    folder.mkdir()
    for partition in (0, 1):
        values = [value or b"" for at, value in sent("csv") if at == partition]
        (folder / f"{partition}.csv").write_bytes(b"\n".join(values) + b"\n")
    return folder


def invoke(settings: PipelineSettings, folder: Path, *arguments: str) -> Result:
    file = folder / "pipeline.yaml"
    document = settings.model_dump(mode="json", exclude_unset=True)
    file.write_text(json.dumps(document))
    return CliRunner().invoke(main, ["batch", "-f", str(file), *arguments])


@pytest.mark.thorough
def test_batch_of_files_gives_the_results_of_a_topic_in_a_folder_or_a_topic(
    spark: SparkSession, broker: str, tmp_path: Path, lines: Path
) -> None:
    settings = settings_of(broker, Source(broker, 1).topic, FORMATS["csv"][0])
    out, target = tmp_path / "out", Source(broker, settings.topics.aggregator_partitions).topic
    values = [Record(at, 0, 0, None, value, {}) for at, value in sent("csv")]
    expected, late, _ = stream(settings, values, 2)

    done = invoke(settings, tmp_path, "--input", str(lines), "--out", str(out), "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["records"], report["late"], report["results"]) == (2 * RECORDS, late, len(expected))
    rows = [row.asDict() | {"revision": 0} for row in spark.read.parquet(str(out)).collect()]
    assert exact({(row["window_start"], row["key"]): row for row in rows}) == exact(expected)

    again = invoke(settings, tmp_path, "--input", str(lines), "--out", str(out))
    assert again.exit_code == 2
    assert "--overwrite" in again.output
    deleted = invoke(settings, tmp_path, "--input", f"{lines}/*.csv", "--out", str(tmp_path), "--overwrite")
    assert deleted.exit_code == 2
    assert "a file of --input, and would delete it: name another folder" in deleted.output
    assert len([*lines.iterdir()]) == 2
    replaced = invoke(settings, tmp_path, "--input", str(lines), "--out", str(out), "--overwrite")
    assert replaced.exit_code == 0, replaced.output

    done = invoke(settings, tmp_path, "--input", str(lines), "--output-topic", target)
    assert done.exit_code == 0, done.output
    records = list(read(broker, target))
    reported = {record.key: json.loads(record.value or b"") for record in records}
    assert reported == {f"{window}/{key}".encode(): entry for (window, key), entry in expected.items()}
    headers = {"schema": b"skewless.aggregate.v1", "content-type": b"application/json"}
    assert [record for record in records if record.headers != headers] == []


@pytest.mark.parametrize(
    ("changes", "results"),
    [({}, 4), ({"numbers": "text", "emit": "final", "having": {"count": {"above": 7, "at_most": 8}}}, 3)],
    ids=["number", "text"],
)
def test_batch_records_for_a_topic_have_the_bytes_of_the_stream(
    spark: SparkSession, tmp_path: Path, changes: dict[str, Any], results: int
) -> None:
    """Such as the number 1.0, not 1.00, and the escapes of the characters of a key."""
    values = ["1", "1.5", "-0.01", "0.00", "10000000.25", "1234567890123456.78", "1e12", "null"]
    keys = ["a", "\u00fc\u2028", '\x1f\x7f"\\/', "\U0001f600"]
    lines = [
        json.dumps({"k": key, "p": key[:1], "v": float("nan"), "t": START_MS + number}).replace("NaN", value)
        for number, value in enumerate(values)
        for key in (keys if number else keys[:3])
    ]
    (tmp_path / "lines.json").write_text("\n".join(lines) + "\n")
    value = {"field": "v", "decimals": 2, "missing": "skip"}
    fields = {"key": {"fields": [{"field": "k"}, {"field": "p"}]}, "values": {"value": value}, "time": {"field": "t"}}
    aggregates = ["count", "sum", "mean", "stddev", "first", "distinct", {"largest": "value", "n": 2}]
    settings = settings_of("localhost:1", "numbers", fields)
    aggregator = settings.aggregator.model_validate({"aggregates": aggregates, **changes})
    settings = settings.model_copy(update={"aggregator": aggregator})
    expected, _ = streamed(settings, [Record(0, 0, 0, None, line.encode(), {}) for line in lines], 1)

    answer = batch_pipeline.answer(
        kafka_source.of_files(spark, [str(tmp_path)], settings), batch_pipeline.read_plan(settings, NOW)
    )
    rows = batch_pipeline.records(answer, settings).collect()
    answer.close()
    found = {(f"{row.window_start}/{row.key}".encode(), row.partition): bytes(row.value) for row in rows}
    assert len(found) == results
    assert found == {(record.key, record.partition): record.value for record in expected}


def test_batch_file_that_does_not_exist_or_is_skipped_is_named_without_options_and_codes_of_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings, missing = settings_of("localhost:1", "numbers", FORMATS["csv"][0]), tmp_path / "none.csv"
    done = invoke(settings, tmp_path, "--input", str(missing), "--out", str(tmp_path / "out"))
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (2, f"error: {missing}: no such file; check its name")
    pipeline = sk.Pipeline.load(tmp_path / "pipeline.yaml")
    with pytest.raises(ConfigurationError) as missed:
        pipeline.batch(spark, missing)
    assert str(missed.value) == f"{missing}: no such file; check its name"
    hidden, folder = tmp_path / "_b.csv", tmp_path / "_folder"
    folder.mkdir()
    for file in (hidden, folder / ".c.csv", folder / "d.csv"):
        file.write_text("a,1\n")
    assert kafka_source.of_files(spark, [str(folder)], settings).count() == 1
    with pytest.raises(ConfigurationError) as skipped:
        pipeline.batch(spark, hidden)
    assert str(skipped.value) == f"{hidden}: Spark skips files whose names begin with _ or .; rename it"
    with pytest.raises(ConfigurationError) as refused:
        sk.Pipeline("t").batch(spark, tmp_path)
    assert "lines of files have no record keys" in str(refused.value)
    assert "--input" not in str(refused.value)


def test_batch_of_paths_with_spaces_other_letters_and_patterns_reads_them(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "My Data ü").mkdir()
    (tmp_path / "My Data ü" / "50% #1.csv").write_text("a,1,1\n")
    pipeline = sk.Pipeline("t", key=0, time=2, format="csv")
    for path in (tmp_path / "My Data ü" / "50% #1.csv", f"{tmp_path}/My Data ü/*.csv"):
        with pipeline.batch(spark, path) as done:
            assert (done.records, done.tuples) == (1, 1)


def test_batch_of_numbers_with_18_digits_is_exact(spark: SparkSession, tmp_path: Path) -> None:
    numbers = ["89070440662435.13", "1234567890123456.78", "-0.005", "1e3", "92233720368547758.08"]
    (tmp_path / "lines.json").write_text("".join(f'{{"k": "a", "v": {number}, "t": 1}}\n' for number in numbers))
    fields = {"key": {"field": "k"}, "value": {"field": "v", "decimals": 2}, "time": {"field": "t"}}
    settings, out = settings_of("localhost:1", "numbers", fields), tmp_path / "out"

    done = invoke(settings, tmp_path, "--input", str(tmp_path / "lines.json"), "--out", str(out), "--json")
    assert done.exit_code == 0, done.output
    (row,) = [row.asDict() for row in spark.read.parquet(str(out)).collect()]
    # The last number needs more than 64 bits, and the third one is rounded to 0.
    assert json.loads(done.stdout)["dead_letters_by_reason"] == {"value field v is not a number within bounds": 1}
    assert (row["count"], row["sum"]) == (4, sum(map(Decimal, [numbers[0], numbers[1], "1000"])))


def test_folder_in_a_file_system_without_its_library_is_refused_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "java.lang.ClassNotFoundException: Class S3AFileSystem not found"
    monkeypatch.setattr("skewless.spark.batch_job._load_error", lambda *_: f"An error in o1.load.\n: {reason}\n\tat x")
    with pytest.raises(ConfigurationError, match=f"^--out: s3a://b/x: {reason}$"):
        Folder("s3a://b/x", "delta").check(MagicMock())


def test_folder_with_overwrite_replaces_the_columns_of_a_table_too() -> None:
    # The tests download neither Delta nor Iceberg.
    delta, iceberg = MagicMock(), MagicMock()
    Folder("out", "delta", overwrite=True).save(delta)
    delta.write.format("delta").mode("overwrite").option.assert_called_once_with("overwriteSchema", True)
    Folder("lake.shop.results", "iceberg", overwrite=True).save(iceberg)
    iceberg.writeTo("lake.shop.results").using("iceberg").createOrReplace.assert_called_once_with()
    iceberg.write.format.assert_not_called()


@pytest.mark.parametrize(
    "case",
    [
        ([], 2, "--out DIR or --output-topic TOPIC"),
        (["--out", "x", "--starting-offsets", '{"0": 99}'], 2, "partition 0 has no offset 99, it has 0 to 0"),
        (["--out", "x", "--ending-offsets", "never"], 2, "--ending-offsets: 'never' must be source.start"),
        (["--out", "x", "--ending-offsets", "committed"], 2, "has no committed offsets"),
        (["--out", "x"], 1, "has no records in this range"),
        (["--out", "x", "--input", "/nowhere"], 2, "/nowhere: no such file"),
        (["--out", "x", "--input", "10:00.csv"], 2, "URI: 10:00.csv; write ./ before a name with a colon"),
        (["--out", "x", "--input", "/nowhere", "--conf", "wrong"], 2, "--conf: 'wrong' is not NAME=VALUE"),
        (["--out", "s3a://b/x", "--input", __file__, "--overwrite"], 2, "--out: s3a://b/x: java.lang.RuntimeExc"),
        (["--out", "x", "--input", __file__, "--format", "delta"], 2, "delta is not installed: add --packages"),
        (["--out", "x", "--input", __file__, "--format", "iceberg"], 2, "iceberg-spark-runtime-4.2_2.13:VERSION; "),
    ],
)
def test_batch_command_unsupported_arguments_end_with_their_message(
    case: tuple[list[str], int, str], spark: SparkSession, broker: str, tmp_path: Path
) -> None:
    arguments, code, message = case
    done = invoke(settings_of(broker, Source(broker, 1).topic, FORMATS["csv"][0]), tmp_path, *arguments)
    assert (done.exit_code, message in done.output) == (code, True), done.output


def test_batch_into_the_results_of_a_running_pipeline_is_refused_until_it_stops(broker: str, tmp_path: Path) -> None:
    settings = settings_of(broker, Source(broker, 1).topic, FORMATS["csv"][0])
    name = settings.source.topic if settings.source else ""
    transport = settings.transport.model_copy(update={"session_timeout_s": 1})
    settings = settings.model_copy(update={"name": name, "transport": transport})
    command = ("--output-topic", settings.topic("aggregates"))
    group, client = settings.group(topology.RESULTS_STAGE), f"{settings.full_name}-aggregator-0"
    process = Consumer({"bootstrap.servers": broker, "group.id": group, "client.id": client})
    process.subscribe([name])
    try:
        until(process.assignment, each=lambda: process.poll(0.1))
        refused = invoke(settings, tmp_path, *command)
    finally:
        process.close()
    assert refused.exit_code == 1
    assert f"error: pipeline {name} runs: aggregator-0; stop these processes first" in refused.stderr
    assert "has no records in this range" in invoke(settings, tmp_path, *command).stderr


def test_batch_of_unreadable_records_ends_with_a_remedy(spark: SparkSession, broker: str, tmp_path: Path) -> None:
    topic = Source(broker, 1)
    topic.send([(0, b"who knows"), (0, b"what this is")])
    done = invoke(settings_of(broker, topic.topic, FORMATS["csv"][0]), tmp_path, "--out", str(tmp_path / "out"))
    assert (done.exit_code, "none of 2 records can be read: check splitter" in done.output) == (1, True), done.output
    assert not (tmp_path / "out").exists()


def test_batch_command_broker_without_answer_ends_with_3(tmp_path: Path) -> None:
    settings = settings_of("localhost:1", "any", FORMATS["csv"][0])
    kafka_settings = settings.kafka.model_copy(update={"connect_timeout_s": 0.5})
    done = invoke(settings.model_copy(update={"kafka": kafka_settings}), tmp_path, "--out", "x")
    assert done.exit_code == 3, done.output
