"""A function of the user reaches the executors, and gives the results and invalid records of the stages."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import skewless as sk
from skewless.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.thorough

PIPELINE = """
name: p
source: {topic: t}
splitter: {python: "executors_shop.rules:doubled", key: {field: "keys[]"}, value: {field: v}, time: {field: t}}
aggregator: {aggregates: [count, sum]}
"""
RULES = """
from executors_factor import FACTOR
from executors_shop.names import FIRST

def doubled(records):
    for record in records:
        yield None if record["v"] < 0 else {"t": record["t"], "keys": [FIRST, record["k"]], "v": FACTOR * record["v"]}
"""


def test_function_of_the_user_in_spark_gives_the_results_of_the_stages(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    package = tmp_path / "executors_shop"
    package.mkdir()
    for name, code in {"__init__": "", "names": "FIRST = 'a'", "rules": RULES}.items():
        (package / f"{name}.py").write_text(code)
    (tmp_path / "executors_factor.py").write_text("FACTOR = 2")
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    records = [{"t": 1_767_225_600_000 + i, "k": f"k{i % 5}", "v": i % 10 - 1} for i in range(3_000)]
    records += [{"t": 0, "k": "x", "v": "text"}] * 2
    (tmp_path / "records.json").write_text("\n".join(map(json.dumps, records)))
    pipeline = sk.Pipeline.load(tmp_path / "pipeline.yaml")
    outcome = sk.testing.run(pipeline, records)
    with pipeline.batch(spark, tmp_path / "records.json") as answer:
        found = {(row["key"], row["count"], row["sum"]) for row in answer.rows.collect()}
        invalid = dict(answer.invalid)
    assert found == {(result.key, result.count, result.sum) for result in outcome.results}
    assert sum(count for key, count, _ in found if key == "a") == 2_700
    assert invalid == {"splitter.python raised TypeError (rules.py:7)": 2}
    assert {record.reason for record in outcome.invalid} == invalid.keys()


def test_function_of_the_user_that_does_not_exist_ends_the_job_before_it_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "records.json").write_text("{}")
    pipeline = sk.Pipeline("t", key="k", time="t", splitter={"python": "no_such_module_here:f"})
    with pytest.raises(ConfigurationError, match=r"^splitter.python: there is no module no_such_module_here"):
        pipeline.batch(spark, tmp_path / "records.json")
