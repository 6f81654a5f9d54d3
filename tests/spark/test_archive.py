"""The Java processes of the tests use the archive of Spark's classes. Java itself ignores an archive without a word."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from helpers import spark_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_session_of_the_tests_maps_its_classes_from_the_archive(spark: SparkSession) -> None:
    java = spark.sparkContext._gateway.proc.pid
    (archive,) = (option.partition("=")[2] for option in spark_archive.options().split() if "Archive" in option)
    assert archive in Path(f"/proc/{java}/maps").read_text()
