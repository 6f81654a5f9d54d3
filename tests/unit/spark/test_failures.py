"""Errors of Spark jobs: a failure of Spark or of the machine, and a bug."""

from __future__ import annotations

import pytest

from skewless.spark.failures import failure_of

TRACEBACK = "An exception was thrown from the Python worker.\nTraceback (most recent call last):\n  File x\n"
OVERFLOW = """An error occurred while calling o81.collectToPython.
: org.apache.spark.sql.kafka010.KafkaIllegalStateException: Record at topic t partition 0 offset 1 has timestamp value \
1767225600000000000 that overflows when converting to Spark's microsecond-precision TimestampType.
Ensure the Kafka producer sets the ProducerRecord timestamp in milliseconds.
\tat org.apache.spark.sql.kafka010.KafkaExceptions$.kafkaMalformedRecordTimestamp(KafkaExceptions.scala:188)
Caused by: java.lang.ArithmeticException: long overflow
\tat java.base/java.lang.Math.multiplyExact(Math.java:1004)
"""


@pytest.mark.parametrize(
    ("text", "exit_code", "reason"),
    [
        (f"{TRACEBACK}ZeroDivisionError: division by zero", 70, "ZeroDivisionError: division by zero"),
        (f"{TRACEBACK}KeyError: 'a'", 70, "KeyError: 'a'"),
        (f"{TRACEBACK}OSError: [Errno 28] No space left on device", 3, "No space left on device"),
        (f"{TRACEBACK}MemoryError: no more", 3, "no more"),
        (f"{TRACEBACK}skewless.errors.StoreError: no table", 3, "no table"),
        ("org.apache.spark.SparkException: Job aborted", 3, "Job aborted"),
        ("An error occurred while calling o1.save.\n: java.lang.NoSuchMethodError: f()", 3, "NoSuchMethodError: f()"),
        ("java.net.ConnectException: refused", 3, "the Spark job lost its connection"),
        ("java.net.SocketTimeoutException: no answer", 3, "the Spark job lost its connection"),
        ("java.net.URISyntaxException: Expected scheme", 3, "the Spark job failed: java.net.URISyntax"),
        (OVERFLOW, 3, "Record at topic t partition 0 offset 1 has timestamp value 1767225600000000000 that overflows"),
    ],
)
def test_failure_of_a_spark_job_is_a_crash_only_for_an_exception_of_its_code(
    text: str, exit_code: int, reason: str
) -> None:
    error = failure_of(RuntimeError(text))
    assert error.exit_code == exit_code
    assert reason in str(error)
    assert ("bug in skewless" in str(error)) == (exit_code == 70)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            f"{TRACEBACK}ModuleNotFoundError: No module named 'skewless'",
            "has no package skewless: send the packages with",
        ),
        ("/usr/bin/python3: No module named pyspark", "has no package pyspark: "),
        (f"{TRACEBACK}[PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be installed", "has no package PyArrow: "),
        ('java.io.IOException: Cannot run program "/opt/python": error=2', "no Python /opt/python: name theirs in "),
        ("bin/python: 3: exec: python3.9: not found", "no Python python3.9: name theirs in "),
        (
            f"{TRACEBACK}[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver",
            "the executors have Python 3.9, and this process has 3.",
        ),
        ("Failed to find the data source: kafka.", "no connector for Kafka: add --packages org.apache.spark:spark-sql"),
        (
            f"{TRACEBACK}skewless.errors.ConfigurationError: kafka.tls.ca: ca.crt: cannot be read: No such file",
            "an executor lacks a file: kafka.tls.ca: ca.crt: cannot be read: No such file: copy it there",
        ),
        (
            "java.io.InvalidClassException: org.X; local class incompatible: stream",
            "another version of Spark than this",
        ),
    ],
)
def test_failure_of_executors_that_lack_something_names_it_and_the_next_step(text: str, problem: str) -> None:
    error = failure_of(RuntimeError(text))
    assert error.exit_code == 3
    assert str(error).startswith("the Spark job failed: ")
    assert problem in str(error)
    assert "\n" not in str(error)


def test_failure_of_executors_that_lack_a_package_despite_ship_does_not_propose_it() -> None:
    error = failure_of(RuntimeError(f"{TRACEBACK}No module named 'mine'"), shipped=True)
    assert str(error).endswith("no package mine: install it there, because --ship has not sent it")
