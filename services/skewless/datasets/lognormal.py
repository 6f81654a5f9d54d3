"""Keys of a log-normal distribution: the synthetic streams of partial key grouping (Nasir et al., ICDE 2015)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np

from skewless.datasets.base import CHUNK, Chunk, DatasetOptions, FixedRate
from skewless.datasets.zipf import LARGEST_VALUE

PUBLISHED = {"ln1": (1.789, 2.366), "ln2": (2.245, 1.133)}
"""Mean and standard deviation of the logarithm, by the name of the stream in the paper."""
LARGEST_KEY = 10**15
"""Draws above it share its key: far more than a stream ever reaches with the published parameters."""


def lognormal(options: DatasetOptions) -> Iterator[Chunk]:
    """Make records `{"key", "value", "time"}`: the key is a rounded draw, the value is uniform in 1..100."""
    random = np.random.default_rng(options.seed)
    clock = FixedRate.of(options)
    for first in count(0, CHUNK):
        draws = np.rint(np.minimum(random.lognormal(options.mu, options.sigma, CHUNK), LARGEST_KEY)).astype(np.int64)
        numbers = random.integers(1, LARGEST_VALUE + 1, CHUNK)
        times = clock.times(first, CHUNK)
        values = [
            b'{"key": "k%05d", "value": %d, "time": %d}' % row
            for row in zip(draws.tolist(), numbers.tolist(), times.tolist(), strict=True)
        ]
        yield Chunk(values, times)
