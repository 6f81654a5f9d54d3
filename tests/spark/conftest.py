"""What tests of Spark jobs share: one session on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from skewless.local.jars import ensure
from skewless.spark.session import SparkOptions, session

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
