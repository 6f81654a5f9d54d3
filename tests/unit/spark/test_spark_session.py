"""Errors of Spark jobs: a failure of Spark or of the machine, and a bug."""

from __future__ import annotations

import pytest

from skewless.spark.spark_session import failure_of

TRACEBACK = "An exception was thrown from the Python worker.\nTraceback (most recent call last):\n  File x\n"


@pytest.mark.parametrize(
    ("text", "exit_code", "reason"),
    [
        (f"{TRACEBACK}ZeroDivisionError: division by zero", 70, "ZeroDivisionError: division by zero"),
        (f"{TRACEBACK}KeyError: 'a'", 70, "KeyError: 'a'"),
        (f"{TRACEBACK}OSError: [Errno 28] No space left on device", 3, "No space left on device"),
        (f"{TRACEBACK}MemoryError: no more", 3, "no more"),
        (f"{TRACEBACK}skewless.errors.StoreError: no table", 3, "no table"),
        ("org.apache.spark.SparkException: Job aborted", 3, "Job aborted"),
        ("java.net.ConnectException: refused", 3, "the Spark job lost its connection"),
    ],
)
def test_failure_of_a_spark_job_is_a_crash_only_for_an_exception_of_its_code(
    text: str, exit_code: int, reason: str
) -> None:
    error = failure_of(RuntimeError(text))
    assert error.exit_code == exit_code
    assert reason in str(error)
    assert ("bug in skewless" in str(error)) == (exit_code == 70)
