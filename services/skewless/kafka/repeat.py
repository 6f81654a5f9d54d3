"""Repeats requests that only read."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaException

from skewless.kafka.errors import is_transient

Answer = TypeVar("Answer")

PAUSE_S = 0.1
"""Pause before a request is repeated."""


def repeat_while_transient(request: Callable[[], Answer], timeout_s: float) -> Answer:
    """Send a request, and repeat it while its error is transient, for at most `timeout_s`.

    Raises the last KafkaException.
    """
    # Just after a broker has started, or has been cut off, it answers that it is not the coordinator or leader.
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return request()
        except KafkaException as error:
            if not is_transient(error.args[0]) or time.monotonic() > deadline:
                raise
        time.sleep(PAUSE_S)
