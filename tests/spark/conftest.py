"""Fixtures of the tests of Spark jobs: one local Spark session, and pipelines that have run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from helpers.kafka import Pipeline
from helpers.recorded_runs import recorded
from skewless.lab.local.jars import ensure
from skewless.spark.spark_session import SparkOptions, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Start Spark with two cores and 1 GB of memory, with Kafka's connector."""
    few = [("spark.sql.shuffle.partitions", "2")]
    options = SparkOptions("local[2]", jars=[str(jar) for jar in ensure("spark")], memory="1g", settings=few)
    with session("tests", options) as running:
        yield running


@pytest.fixture(scope="module")
def pipelines(broker: str, tmp_path_factory: pytest.TempPathFactory) -> list[Pipeline]:
    """Run three pipelines, `key`, `even` and `local`, to the end of one source with late and invalid records.

    Each test file has its own pipelines, because tests add differences and delete records.
    """
    return list(recorded(broker, tmp_path_factory.mktemp("recorded")))
