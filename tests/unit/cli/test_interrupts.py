"""Signals that a command handles."""

from __future__ import annotations

import signal

import pytest

from skewless.cli.interrupts import received_signals


def test_received_signals_inside_the_block_are_kept_in_order_and_later_ones_are_not() -> None:
    previous = signal.getsignal(signal.SIGTERM)
    with received_signals() as signals:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
    assert signals == [signal.SIGTERM, signal.SIGINT, signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) == previous


def test_received_signals_once_gives_the_second_signal_to_the_previous_handler() -> None:
    with received_signals(once=True) as signals:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signals == [signal.SIGINT]
