"""Runs of `skewless produce` with a producer that delivers at once."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from types import FrameType
from typing import Any, NoReturn, cast

import numpy as np

from skewless.cli.interrupts import received_signals
from skewless.kafka.producer.bulk import BulkProducer
from skewless.lab.datasets import RecordBatch, produce_run

RECORDS = 20
TRACED = (produce_run.__file__, threading.__file__)


class Delivering:
    """Counts the records that it gets."""

    taken = 0

    @property
    def delivered(self) -> int:
        return self.taken

    def send(self, values: list[bytes], *_: object) -> None:
        self.taken += len(values)

    def flush(self) -> None: ...

    def close(self) -> None: ...


def run(each_line: Callable[[], None]) -> produce_run.Summary:
    """Send some records, and call `each_line` before each line of the run and of the locks of the library."""

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line":
            each_line()
        return trace

    batch = RecordBatch([b"x"] * RECORDS, np.arange(RECORDS, dtype=np.int64))
    producer = cast("BulkProducer", Delivering())
    with received_signals() as signals:
        previous = sys.gettrace()
        sys.settrace(trace)
        try:
            return produce_run.run(iter([batch]), producer, RECORDS, 10_000.0, None, signals=signals)
        finally:
            sys.settrace(previous)


def hang(_number: int, _frame: FrameType | None) -> NoReturn:
    raise AssertionError("the run did not end")


def test_produce_run_signal_before_any_line_ends_the_run_with_the_number_of_sent_records() -> None:
    lines: list[int] = []
    complete = run(lambda: lines.append(0))
    assert (complete.records, complete.interrupted) == (RECORDS, False)
    timeout = signal.setitimer(signal.ITIMER_REAL, 0)  # that of pytest
    previous = signal.signal(signal.SIGALRM, hang)
    try:
        for chosen in range(len(lines)):
            passed = count()

            def send_signal(passed: Iterator[int] = passed, chosen: int = chosen) -> None:
                if next(passed) == chosen:
                    signal.raise_signal(signal.SIGTERM)

            signal.setitimer(signal.ITIMER_REAL, 120.0)
            summary = run(send_signal)
            # The number of lines differs between runs. In the last ones, the summary may be complete already.
            assert summary.interrupted or 3 * chosen > len(lines)
            assert summary.records == summary.size <= RECORDS
    finally:
        signal.signal(signal.SIGALRM, previous)
        signal.setitimer(signal.ITIMER_REAL, *timeout)
