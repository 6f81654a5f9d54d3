"""The tuples of a batch by worker, in the order of their keys."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from skewless.stages.router.by_worker import by_worker

ROUTE = """
import sys
from skewless.config.pipeline_settings import PipelineSettings
from skewless.in_memory import InMemoryPipeline
from skewless.wire.record import OutputRecord
splitter = {"key": {"field": "key"}, "time": {"field": "time"}, "values": {"price": {"field": "price"}}}
names = ("first", "last", "distinct", "quantile", "largest", "stddev", "mean")
document = {"name": "p", "source": {"topic": "t"}, "splitter": splitter, "router": {"grouping": "key", "workers": 4}}
document["aggregator"] = {"aggregates": [{name: "price"} for name in names]}
settings = PipelineSettings.model_validate(document)
record = OutputRecord("t", b'{"key": "a", "time": 1767225600, "price": 5}', partition=0, timestamp=1767225600000)
written = InMemoryPipeline(settings).process([record], now=1767225600000, end=True)
print(len(written["aggregates"]), "numba" in sys.modules)
"""


@pytest.mark.parametrize("keys", [3, 70_000])  # with more than 2^16 keys they are sorted in two passes
def test_by_worker_tuples_of_a_worker_are_ordered_by_key_and_time(keys: int) -> None:
    rng = np.random.default_rng(keys)
    codes = np.concatenate((np.arange(keys), rng.integers(0, keys, 2 * keys))).astype(np.int32)
    workers = (codes % 5).astype(np.int32)
    dictionary = pa.array([f"{code:05d}" for code in range(keys)])
    column = pa.DictionaryArray.from_arrays(pa.array(codes), dictionary)
    tuples = pa.table([column, pa.array(np.arange(len(codes)))], ["key", "time"])
    parts = dict(by_worker(workers, tuples))
    assert list(parts) == list(range(min(5, keys)))
    for worker, part in parts.items():
        found = list(zip(part["key"].to_pylist(), part["time"].to_pylist(), strict=True))
        own = np.flatnonzero(workers == worker)
        assert found == sorted((dictionary[int(codes[row])].as_py(), int(row)) for row in own)
        assert len(part["key"].dictionary) == len(set(codes[own].tolist()))


def test_pipeline_by_key_with_any_aggregate_needs_no_numba() -> None:
    done = subprocess.run([sys.executable, "-c", ROUTE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]
