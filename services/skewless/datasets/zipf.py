"""Keys of a Zipf distribution: the standard model of skew."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np
from numpy.typing import NDArray

from skewless.datasets.base import CHUNK, Chunk, DatasetOptions, FixedRate
from skewless.splitter.settings import SplitterSettings

LARGEST_VALUE = 100


def zipf(options: DatasetOptions) -> Iterator[Chunk]:
    """Make records `{"key", "value", "time"}`: rank r has probability r^-z / sum, value is uniform in 1..100."""
    random = np.random.default_rng(options.seed)
    clock = FixedRate.of(options)
    # A permutation, so that neither the order nor the hash of the names follows the rank.
    heads = [b'{"key": "%b", "value": ' % name for name in key_names(random.permutation(options.keys))]
    steps = cumulative(options.keys, options.z)
    for first in count(0, CHUNK):
        ranks = np.searchsorted(steps, random.random(CHUNK), side="right")
        numbers = random.integers(1, LARGEST_VALUE + 1, CHUNK)
        times = clock.times(first, CHUNK)
        values = [
            b'%b%d, "time": %d}' % (heads[rank], number, time)
            for rank, number, time in zip(ranks.tolist(), numbers.tolist(), times.tolist(), strict=True)
        ]
        yield Chunk(values, times)


def cumulative(keys: int, z: float) -> NDArray[np.float64]:
    """Cumulative distribution over the ranks 1..keys; the last entry is infinite, so that no draw falls behind it."""
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -z
    steps: NDArray[np.float64] = np.cumsum(weights) / weights.sum()
    steps[-1] = np.inf
    return steps


def key_names(numbers: NDArray[np.int64]) -> list[bytes]:
    """Names `k00017`: at least five digits, all of the same length."""
    width = max(5, len(str(len(numbers) - 1)))
    return [b"k%0*d" % (width, number) for number in numbers.tolist()]


def splitter_settings() -> SplitterSettings:
    """Key and value of the record, at its own time."""
    return SplitterSettings.model_validate(
        {"format": "json", "key": {"field": "key"}, "value": {"field": "value"}, "time": {"field": "time"}}
    )
