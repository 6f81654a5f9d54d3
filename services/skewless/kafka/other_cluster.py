"""Errors of the clients of another cluster than that of `kafka`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from skewless.errors import ConfigurationError, SkewlessError
from skewless.kafka.settings import KafkaSettings

SECTION = ("mirror", "kafka")
"""Path of its settings, which are those of `kafka`."""
_SETTING = re.compile(rf"(?<![\w./-])kafka(?=\.({'|'.join(KafkaSettings.model_fields)})\b)")


@contextmanager
def errors_of_other_cluster() -> Iterator[None]:
    """Name the settings `mirror.kafka` in the errors of its clients. All clients of Kafka name those of `kafka`."""
    try:
        yield
    except SkewlessError as error:
        error.args = tuple(map(of_other_cluster, error.args))
        if isinstance(error, ConfigurationError):
            error.problems = tuple(map(of_other_cluster, error.problems))
        raise


def of_other_cluster(text: str) -> str:
    """Return the text of an error with these names."""
    return _SETTING.sub(".".join(SECTION), text)
