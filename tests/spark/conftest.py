"""What tests of Spark jobs share: one session on this machine, and pipelines that have run."""

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
    """Start Spark on two cores in 1 GB, with Kafka's connector."""
    few = [("spark.sql.shuffle.partitions", "2")]
    options = SparkOptions("local[2]", jars=[str(jar) for jar in ensure("spark")], memory="1g", settings=few)
    with session("tests", options) as running:
        yield running


@pytest.fixture(scope="module")
def pipelines(broker: str, tmp_path_factory: pytest.TempPathFactory) -> list[Pipeline]:
    """Two pipelines that have run to the end of one source, which has late and bad records: by key, and even.

    Each file of tests has its own, because tests plant differences and delete what has been read.
    """
    return list(recorded(broker, tmp_path_factory.mktemp("recorded")))
