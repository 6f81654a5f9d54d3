"""Keys with a log-normal distribution: the synthetic streams of partial key grouping (Nasir et al., ICDE 2015)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np

from skewless.lab.datasets.base import BATCH_RECORDS, DatasetOptions, FixedRate, RecordBatch
from skewless.lab.datasets.zipf import MAX_VALUE

PUBLISHED = {"ln1": (1.789, 2.366), "ln2": (2.245, 1.133)}
"""Mean and standard deviation of the logarithm, by the name of the stream in the paper."""
MAX_KEY = 10**15
"""Larger draws become this key. With the published parameters, no stream reaches it."""


def lognormal(options: DatasetOptions) -> Iterator[RecordBatch]:
    """Generate records `{"key", "value", "time"}`: the key is a rounded draw, the value is uniform in 1..100."""
    random = np.random.default_rng(options.seed)
    clock = FixedRate.of(options)
    for first in count(0, BATCH_RECORDS):
        draws = random.lognormal(options.mu, options.sigma, BATCH_RECORDS)
        keys = np.rint(np.minimum(draws, MAX_KEY)).astype(np.int64)
        numbers = random.integers(1, MAX_VALUE + 1, BATCH_RECORDS)
        times = clock.times(first, BATCH_RECORDS)
        values = [
            b'{"key": "k%05d", "value": %d, "time": %d}' % row
            for row in zip(keys.tolist(), numbers.tolist(), times.tolist(), strict=True)
        ]
        yield RecordBatch(values, times)
