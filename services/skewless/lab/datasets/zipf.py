"""Keys with a Zipf distribution: the standard model of skew."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np
from numpy.typing import NDArray

from skewless.lab.datasets.base import BATCH_RECORDS, DatasetOptions, FixedRate, RecordBatch
from skewless.stages.splitter.settings import SplitterSettings

MAX_VALUE = 100


def zipf(options: DatasetOptions) -> Iterator[RecordBatch]:
    """Generate records `{"key", "value", "time"}`: rank r has probability r^-z / sum, values are uniform in 1..100."""
    random = np.random.default_rng(options.seed)
    clock = FixedRate.of(options)
    # Ranks are permuted, so that neither the order nor the hash of the names follows the rank.
    prefixes = [b'{"key": "%b", "value": ' % name for name in key_names(random.permutation(options.keys))]
    steps = cumulative(options.keys, options.zipf_exponent)
    for first in count(0, BATCH_RECORDS):
        ranks = np.searchsorted(steps, random.random(BATCH_RECORDS), side="right")
        numbers = random.integers(1, MAX_VALUE + 1, BATCH_RECORDS)
        times = clock.times(first, BATCH_RECORDS)
        values = [
            b'%b%d, "time": %d}' % (prefixes[rank], number, time)
            for rank, number, time in zip(ranks.tolist(), numbers.tolist(), times.tolist(), strict=True)
        ]
        yield RecordBatch(values, times)


def cumulative(keys: int, z: float) -> NDArray[np.float64]:
    """Return the cumulative distribution over the ranks 1..keys. The last entry is infinite: every draw has a rank."""
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -z
    steps: NDArray[np.float64] = np.cumsum(weights) / weights.sum()
    steps[-1] = np.inf
    return steps


def key_names(numbers: NDArray[np.int64]) -> list[bytes]:
    """Return names like `k00017`: at least five digits, all of the same length."""
    width = max(5, len(str(len(numbers) - 1)))
    return [b"k%0*d" % (width, number) for number in numbers.tolist()]


def splitter_settings() -> SplitterSettings:
    """Return settings that use the record's own key, value and time."""
    return SplitterSettings.model_validate(
        {"format": "json", "key": {"field": "key"}, "value": {"field": "value"}, "time": {"field": "time"}}
    )
