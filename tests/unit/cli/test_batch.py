"""Formats of packages report their requirements on Spark."""

from __future__ import annotations

from skewless.cli.commands.batch import with_format

DELTA = "io.delta:delta-spark_2.13:4.4.0"


def test_batch_command_delta_package_adds_its_settings_before_those_of_the_user() -> None:
    options = with_format("delta", {"packages": (DELTA,), "conf": ("spark.sql.extensions=mine",)})
    names = [setting.split("=")[0] for setting in options["conf"]]
    assert names == ["spark.sql.extensions", "spark.sql.catalog.spark_catalog", "spark.sql.extensions"]
    assert options["conf"][-1] == "spark.sql.extensions=mine"
    assert options["packages"] == (DELTA,)


def test_batch_command_without_a_format_package_adds_no_settings() -> None:
    assert with_format("delta", {"packages": (), "conf": ("a=b",)})["conf"] == ("a=b",)
    assert with_format("parquet", {"packages": (DELTA,), "conf": ()})["conf"] == ()
