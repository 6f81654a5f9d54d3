"""Errors of the clients of another cluster than that of `kafka`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from skewless.errors import ConfigurationError, SkewlessError
from skewless.kafka.errors import WHERE_RIGHTS_ARE
from skewless.kafka.settings import KafkaSettings

SECTION = ("mirror", "kafka")
"""Path of its settings, which are those of `kafka`."""
_SETTING = re.compile(rf"(?<![\w./-])kafka(?=\.({'|'.join(KafkaSettings.model_fields)})\b)")
_RIGHTS = "docs/how-to/copy-to-another-cluster.md lists what the stage needs in the other cluster"


@contextmanager
def errors_of_other_cluster() -> Iterator[None]:
    """Name the settings `mirror.kafka` in the errors of its clients, and where its rights are described.

    All clients of Kafka name the settings of `kafka`, and the command that prints the rights of a pipeline's cluster.
    """
    try:
        yield
    except SkewlessError as error:
        error.args = tuple(map(of_other_cluster, error.args))
        if isinstance(error, ConfigurationError):
            error.problems = tuple(map(of_other_cluster, error.problems))
        raise


def of_other_cluster(text: str) -> str:
    """Return the text of an error with these names."""
    return _SETTING.sub(".".join(SECTION), text).replace(WHERE_RIGHTS_ARE, _RIGHTS)
