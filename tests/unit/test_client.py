"""The groupings as a library: the same decisions as a router's, in any batches, and stable names."""

from __future__ import annotations

import contextlib
import inspect
import itertools
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skewless import client
from skewless.algorithms.grouping import GROUPINGS
from skewless.client import Balancer
from skewless.errors import ConfigurationError

SKEWED = [
    "hot" if draw < 0.5 else f"key-{number}"
    for draw, number in zip(
        np.random.default_rng(1).random(20_000), np.random.default_rng(2).integers(0, 2_000, 20_000), strict=True
    )
]


@pytest.mark.parametrize("grouping", GROUPINGS)
@settings(max_examples=settings().max_examples // 5)
@given(cuts=st.lists(st.integers(0, 3_000), max_size=6))
def test_balancer_any_cut_of_the_keys_gives_the_same_workers(grouping: str, cuts: list[int]) -> None:
    keys = SKEWED[:3_000]
    at_once = Balancer(grouping, workers=10).assign(keys, now_ms=1_000)
    balancer, edges = Balancer(grouping, workers=10), [0, *sorted(cuts), len(keys)]
    pieces = [balancer.assign(keys[start:end], 1_000) for start, end in itertools.pairwise(edges)]
    assert np.concatenate(pieces).tolist() == at_once.tolist()


def test_balancer_even_spreads_a_hot_key_and_keeps_cold_keys_together() -> None:
    workers = Balancer("even", workers=16).assign(SKEWED)
    assert np.bincount(workers, minlength=16).max() < 1.03 * len(SKEWED) / 16
    of_hot = {int(worker) for key, worker in zip(SKEWED, workers, strict=True) if key == "hot"}
    of_cold: dict[str, set[int]] = {key: set() for key in SKEWED if key != "hot"}
    for key, worker in zip(SKEWED, workers, strict=True):
        if key != "hot":
            of_cold[key].add(int(worker))
    assert len(of_hot) >= 8
    assert np.mean([len(chosen) for chosen in of_cold.values()]) < 1.5


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_balancer_restored_from_a_snapshot_continues_exactly(grouping: str) -> None:
    first = Balancer(grouping, workers=7)
    first.assign(SKEWED[:5_000], 1_000)
    other = Balancer(grouping, workers=3)
    other.restore(first.snapshot())
    assert other.workers == 7
    assert other.assign(SKEWED[5_000:9_000], 2_000).tolist() == first.assign(SKEWED[5_000:9_000], 2_000).tolist()


@pytest.mark.parametrize("other", GROUPINGS)
@pytest.mark.parametrize("grouping", GROUPINGS)
def test_balancer_snapshot_that_does_not_fit_is_refused_and_changes_nothing(grouping: str, other: str) -> None:
    three: Any = np.int64(3)
    balancer, reference = (Balancer(grouping, workers=three) for _ in range(2))
    foreign = Balancer(other, workers=1_000)
    if other != grouping:
        with pytest.raises(TypeError, match=f"the snapshot is of grouping {other}, not {grouping}"):
            balancer.restore(foreign.snapshot())
    broken = {name: None if name not in ("grouping", "workers") else part for name, part in foreign.snapshot().items()}
    with contextlib.suppress(TypeError):
        balancer.restore(broken | {"grouping": grouping, "workers": "many"})
    with pytest.raises(TypeError, match="0 workers instead of at least 1"):
        balancer.restore(reference.snapshot() | {"workers": 0})
    assert balancer.workers == 3
    assert balancer.assign(SKEWED[:500], 1_000).tolist() == reference.assign(SKEWED[:500], 1_000).tolist()
    balancer.restore(reference.snapshot())


def test_balancer_after_a_resize_uses_the_new_workers() -> None:
    balancer = Balancer("even", workers=4)
    balancer.assign(SKEWED[:5_000])
    balancer.resize(6)
    assert set(balancer.assign(SKEWED[5_000:15_000]).tolist()) == set(range(6))


def test_balancer_without_keys_returns_no_workers() -> None:
    assert Balancer(workers=4).assign([]).tolist() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"grouping": "evn", "workers": 4}, "grouping 'evn' is unknown: choose one of shuffle, key,"),
        ({"workers": 0}, "a grouping needs at least 1 worker, not 0"),
        ({"workers": 4, "options": {"even": {"decay_tuples": 1}}}, "options: even.decay_tuples: should be"),
        ({"workers": 4, "options": {"evn": {}}}, "options: evn: unknown setting; `skewless config dump` lists"),
        ({"workers": 4, "options": 5}, "options: must be a mapping, not 5"),
        ({"grouping": ["even"], "workers": 4}, r"grouping \['even'\] is unknown"),
        *(({"workers": workers}, "workers: .* must be a whole number") for workers in ("4", 4.0, None, 10**30)),
    ],
)
def test_balancer_invalid_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Balancer(**arguments)  # type: ignore[arg-type]  # the arguments are wrong on purpose


def test_balancer_key_without_text_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="a key is None"):
        Balancer(workers=4).assign(["a", None])  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match="keys: must be texts"):
        Balancer(workers=4).assign([1])  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match="keys: must be texts: 'NoneType' object is not iterable"):
        Balancer(workers=4).assign(None)  # type: ignore[arg-type]


def test_balancer_argument_of_another_type_is_named() -> None:
    balancer: Any = Balancer(workers=4)
    for now_ms in ("x", datetime.now(UTC), 10**30):
        with pytest.raises(ConfigurationError, match=r"now_ms: .* must be a whole number of at most 64 bits"):
            balancer.assign(["a"], now_ms=now_ms)
    with pytest.raises(ConfigurationError, match="workers: 'x' must be a whole number"):
        balancer.resize("x")
    with pytest.raises(ConfigurationError, match="keys: must be texts, not a DataFrame: name its column"):
        balancer.assign(pd.DataFrame({"key": ["a"]}))
    with pytest.raises(TypeError, match="a snapshot is a mapping, not None"):
        balancer.restore(None)


def test_balancer_one_text_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"keys: must be a list of texts, and are one text: give \['books'\]"):
        Balancer(workers=4).assign("books")


def test_client_public_names_are_stable() -> None:
    public = {
        name: str(inspect.signature(member))
        for name, member in vars(Balancer).items()
        if callable(member) and not name.startswith("_")
    }
    assert client.__all__ == ["Balancer"]
    assert public == {
        "assign": "(self, keys: 'Sequence[str]', now_ms: 'int | None' = None) -> 'NDArray[np.int32]'",
        "resize": "(self, workers: 'int') -> 'None'",
        "snapshot": "(self) -> 'dict[str, object]'",
        "restore": "(self, snapshot: 'Mapping[str, object]') -> 'None'",
    }
    assert str(inspect.signature(Balancer)) == (
        "(grouping: 'str' = 'even', *, workers: 'int', options: 'Mapping[str, Any] | None' = None) -> 'None'"
    )
