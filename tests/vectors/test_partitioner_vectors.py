"""Recorded decisions of the groupings that the Java partitioner has too. Its tests read the same file.

After a change of a grouping, `PYTHONPATH=services:tests python tests/vectors/test_partitioner_vectors.py` writes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from skewless.client import Balancer

FILE = Path(__file__).with_name("partitioner.tsv")
"""The first line has the keys. Each other line is a case: properties, two numbers of partitions, chosen partitions."""
KEYS = 4_000
SPECIAL = ["", "é", "日本", "🙂", "sixteen bytes ok", "seventeen bytes !", "x" * 31, "y" * 32, "z" * 99]
"""Keys without bytes, with characters of several bytes, and of one block of the hash or more."""


class Case(NamedTuple):
    """A grouping with options. The second number of partitions applies to the second half of the keys."""

    grouping: str
    partitions: tuple[int, int]
    even: dict[str, int] = {}  # noqa: RUF012 - never changed

    def line(self, keys: list[str]) -> str:
        """Return the line of the case, with the partitions that Python chooses."""
        options: dict[str, Any] = {"even": self.even} if self.even else {}
        balancer, half = Balancer(self.grouping, workers=self.partitions[0], options=options), len(keys) // 2
        chosen = balancer.assign(keys[:half]).tolist()
        if self.partitions[1] != self.partitions[0]:
            balancer.resize(self.partitions[1])
        chosen += balancer.assign(keys[half:]).tolist()
        named = {"grouping": self.grouping, **{f"even.{name}": value for name, value in self.even.items()}}
        properties = " ".join(f"skewless.{name}={value}" for name, value in named.items())
        return "\t".join([properties, ",".join(map(str, self.partitions)), ",".join(map(str, chosen))])


SMALL = {"hash_buckets": 256, "decay_tuples": 100}
"""The weights grow fast enough to be divided, and epochs are short."""
CASES = [
    Case("partial_key", (2, 2)),
    Case("partial_key", (12, 12)),
    Case("partial_key", (5, 8)),
    Case("even", (1, 1)),
    Case("even", (12, 12)),
    Case("even", (2, 2), SMALL),
    Case("even", (10, 7), SMALL),
    Case("even", (64, 64), {"overload_tolerance": 2, "decay_tuples": 200}),
]


def skewed_keys() -> list[str]:
    """Return keys of which a few are hot. The hot keys of the second half are others."""
    random = np.random.default_rng(20)
    numbers = random.zipf(1.4, KEYS) % 997 + np.repeat([0, 3], KEYS // 2)
    keys = [f"k{number}" for number in numbers.tolist()]
    for place, key in zip(random.choice(KEYS, 4 * len(SPECIAL), replace=False).tolist(), SPECIAL * 4, strict=True):
        keys[place] = key
    return keys


def content() -> str:
    keys = skewed_keys()
    return "\n".join(["\t".join(keys), *(case.line(keys) for case in CASES)]) + "\n"


def test_groupings_of_the_java_partitioner_choose_as_recorded() -> None:
    assert FILE.read_text(encoding="utf-8") == content()


if __name__ == "__main__":
    FILE.write_text(content(), encoding="utf-8")
