from __future__ import annotations

import numpy as np
import pytest

from skewless.algorithms.grouping import GROUPINGS, KeyBatch, create
from skewless.errors import ConfigurationError


def batch(*keys: str) -> KeyBatch:
    distinct = list(dict.fromkeys(keys))
    codes = np.array([distinct.index(key) for key in keys], dtype=np.int32)
    return KeyBatch(distinct, codes, np.zeros(len(keys), dtype=np.int64))


def test_grouping_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="grouping 'best' is unknown: choose one of shuffle, key, partial_key"):
        create("best", 4)


@pytest.mark.parametrize("name", GROUPINGS)
def test_grouping_without_workers_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="needs at least 1 worker, not 0"):
        create(name, 0)
    with pytest.raises(ConfigurationError, match="needs at least 1 worker, not 0"):
        create(name, 1).resize(0)


def test_shuffle_grouping_next_batch_continues_after_the_last_worker() -> None:
    shuffle = create("shuffle", 3)
    assert shuffle.assign(batch("a", "a", "a", "a"), 0).tolist() == [0, 1, 2, 0]
    assert shuffle.assign(batch("a", "b"), 0).tolist() == [1, 2]


def test_shuffle_grouping_resized_keeps_its_turn() -> None:
    shuffle = create("shuffle", 4)
    shuffle.assign(batch(*["a"] * 7), 0)
    shuffle.resize(5)
    assert shuffle.assign(batch("a", "a", "a"), 0).tolist() == [3, 4, 0]
    shuffle.resize(1)
    assert shuffle.assign(batch("a", "a"), 0).tolist() == [0, 0]


def test_partial_key_grouping_one_key_uses_two_workers_equally() -> None:
    workers = create("partial_key", 50).assign(batch(*["Germany"] * 1_000), 0)
    assert sorted(np.unique(workers, return_counts=True)[1].tolist()) == [500, 500]


def test_partial_key_grouping_resized_resets_loads() -> None:
    grouping = create("partial_key", 10)
    grouping.assign(batch(*"abcdefgh"), 0)
    grouping.resize(20)
    assert grouping.snapshot() == create("partial_key", 20).snapshot()


def test_grouping_restored_has_the_workers_of_the_snapshot() -> None:
    grouping = create("key", 3)
    grouping.restore(create("key", 7).snapshot())
    assert grouping.workers == 7


@pytest.mark.parametrize("sent", [None, [1], b"short"])
def test_grouping_invalid_snapshot_is_refused(sent: object) -> None:
    with pytest.raises(TypeError, match="snapshot"):
        create("partial_key", 2).restore({"workers": 2, "sent": sent})
