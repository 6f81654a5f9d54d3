"""Results in every format of a registry, with killed stages: the same results, for each reader of the topic.

The format is that of one stage and its readers. So the other stages are killed, and the batch is run, with one format.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
from click.testing import CliRunner

from helpers.joined import Joined, traffic
from helpers.kafka import STAGES, START_MS, Pipeline, Sent, Source, differences, read, truth
from helpers.schema_registry import RegistryServer
from skewless.cli.main import main
from skewless.schema_registry.result_schemas import SchemaFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.thorough
FORMATS: tuple[SchemaFormat, ...] = get_args(SchemaFormat)
KILLED = dict.fromkeys(FORMATS, ("aggregator",)) | {"avro": STAGES}
RECORDS = 2_000
PAIRS = 1_000


def entries() -> list[Sent]:
    return [
        (number % 2, json.dumps({"key": f"k{number % 37}", "value": number, "time": START_MS + 200 * number}).encode())
        for number in range(RECORDS)
    ]


def output(*arguments: str) -> str:
    result = CliRunner().invoke(main, [*arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("schema_format", FORMATS)
def test_results_in_each_format_with_kills_are_exact_for_every_reader(
    schema_format: SchemaFormat,
    broker: str,
    registry_server: RegistryServer,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    source = Source(broker, 2)
    aggregator: dict[str, Any] = {"format": schema_format, "aggregates": ["count", "sum", "mean"]}
    parts: dict[str, Any] = {"registry": {"url": registry_server.url}, "aggregator": aggregator}
    parts["sink"] = {"url": f"sqlite://{tmp_path}/results.db"}
    transport = {"commit_interval_s": 0.5, "session_timeout_s": 6}
    pipeline = Pipeline(broker, tmp_path, source, transport=transport, **parts)
    pipeline.run_with_kills(source, entries(), KILLED[schema_format])
    pipeline.drain(limit_s=300)
    assert differences(pipeline, truth(read(broker, source.topic))) == []
    report = json.loads(output("audit", "-f", str(pipeline.file), "--json"))
    assert (report["differences"], report["left_out"]) == (0, {})
    expected, _ = pipeline.results()
    document = json.loads(pipeline.file.read_text())
    del document["sink"]
    without_table = tmp_path / "topic.yaml"
    without_table.write_text(json.dumps(document))
    for file in (pipeline.file, without_table):
        lines = output("results", "-f", str(file), "--window", "all", "--json").splitlines()
        assert {(line["window_start"], line["key"]): line for line in map(json.loads, lines)} == expected


@pytest.mark.parametrize("schema_format", FORMATS)
@pytest.mark.usefixtures("spark")
def test_pairs_in_each_format_with_kills_are_exact_and_the_audit_finds_only_a_wrong_one(
    schema_format: SchemaFormat, broker: str, registry_server: RegistryServer, tmp_path: Path
) -> None:
    tested = Joined(broker, tmp_path)
    tested.document["registry"] = {"url": registry_server.url}
    tested.document["join"]["format"] = schema_format
    tested.load()
    tested.send_while_killing(traffic(PAIRS, 5), random.Random(5), times=2, processes=1)  # noqa: S311 - no secret
    tested.drain()
    assert tested.wrong() == {}
    file = str(tested.file)
    if schema_format == "avro":  # the job writes the JSON of the pairs
        assert json.loads(output("batch", "-f", file, "--out", str(tmp_path / "out"), "--json"))["results"]
    tested.write_result("joined", ("joined", 0, "0", "no pair", START_MS))
    wrong = CliRunner().invoke(main, ["audit", "-f", file, "--json"])
    assert wrong.exit_code == 1, wrong.output
    report = json.loads(wrong.stdout)
    assert (report["differences_by_kind"], report["compared_by_topic"]["joined"] > PAIRS / 2) == (
        {"unexpected": 1},
        True,
    )
