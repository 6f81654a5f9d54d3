"""The simple groupings, compared with a second, plain implementation of the published hash and the decisions."""

from __future__ import annotations

from itertools import count

import numpy as np
import pyarrow as pa
import pytest

from skewless.algorithms.grouping import KeyBatch, create
from skewless.algorithms.hashing import hashes_of_keys, partition_of_keys

MASK = 2**64 - 1
C1, C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & MASK


def finalise(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return value ^ value >> 33


def murmur3_x64_128(data: bytes, seed: int) -> tuple[int, int]:
    """Both words, unsigned, as in Appleby's MurmurHash3_x64_128."""
    one = two = seed
    tail = len(data) // 16 * 16
    for start in range(0, tail, 16):
        low, high = (int.from_bytes(data[at : at + 8], "little") for at in (start, start + 8))
        one ^= rotate(low * C1 & MASK, 31) * C2 & MASK
        one = ((rotate(one, 27) + two) * 5 + 0x52DCE729) & MASK
        two ^= rotate(high * C2 & MASK, 33) * C1 & MASK
        two = ((rotate(two, 31) + one) * 5 + 0x38495AB5) & MASK
    low, high = (int.from_bytes(data[at : at + 8], "little") for at in (tail, tail + 8))
    one ^= rotate(low * C1 & MASK, 31) * C2 & MASK
    two ^= rotate(high * C2 & MASK, 33) * C1 & MASK
    one, two = one ^ len(data), two ^ len(data)
    one = (one + two) & MASK
    two = (two + one) & MASK
    one, two = finalise(one), finalise(two)
    one = (one + two) & MASK
    return one, (two + one) & MASK


def candidate(key: str, seed: int, workers: int) -> int:
    word = murmur3_x64_128(key.encode(), seed)[0]
    return (word if word < 2**63 else 2**64 - word) % workers


def by_shuffle(keys: list[str], workers: int) -> list[int]:
    return [turn % workers for turn, _ in zip(count(), keys, strict=False)]


def by_key(keys: list[str], workers: int) -> list[int]:
    return [candidate(key, 13, workers) for key in keys]


def by_partial_key(keys: list[str], workers: int) -> list[int]:
    sent = dict.fromkeys(range(workers), 0)
    chosen = []
    for key in keys:
        candidates = [candidate(key, 13, workers), candidate(key, 17, workers)]
        least = min(candidates, key=lambda worker: sent[worker])
        sent[least] += 1
        chosen.append(least)
    return chosen


REFERENCE = {"shuffle": by_shuffle, "key": by_key, "partial_key": by_partial_key}

KEYS = [
    "Germany",
    "Germany",
    "",
    "Côte d'Ivoire",
    "Germany",
    "日本",
    "🎈",
    "a",
    "b",
    "",
    "x" * 100,
    "Åland",
    "\x00",
    "Germany",
]
KEYS = KEYS + [f"key {number * number % 97}" for number in range(500)]


@pytest.mark.parametrize(
    ("text", "seed", "words"),
    [
        ("", 0, (0, 0)),
        ("hello", 0, (0xCBD8A7B341BD9B02, 0x5B1E906A48AE1D19)),
        ("hello, world", 0, (0x342FAC623A5EBC8E, 0x4CDCBC079642414D)),
        ("19 Jan 2038 at 3:14:07 AM", 0, (0xB89E5988B737AFFC, 0x664FC2950231B2CB)),
        ("The quick brown fox jumps over the lazy dog.", 0, (0xCD99481F9EE902C9, 0x695DA1A38987B6E7)),
        ("", 1, (0x4610ABE56EFF5CB5, 0x51622DAA78F83583)),
        ("hello", 1, (0xA78DDFF5ADAE8D10, 0x128900EF20900135)),
    ],
)
def test_reference_hash_gives_the_published_words(text: str, seed: int, words: tuple[int, int]) -> None:
    """From the test tables of github.com/spaolacci/murmur3."""
    assert murmur3_x64_128(text.encode(), seed) == words


def test_reference_hash_has_the_published_verification_value() -> None:
    """SMHasher's VerificationTest: hash 0..n-1 under seed 256 - n for n in 0..255, then all the digests."""
    digests = b""
    for length in range(256):
        for word in murmur3_x64_128(bytes(range(length)), 256 - length):
            digests += word.to_bytes(8, "little")
    assert murmur3_x64_128(digests, 0)[0] & 0xFFFFFFFF == 0x6384BA69


@pytest.mark.parametrize("seed", [0, 13, 17, 29])
def test_hashes_of_keys_equal_the_first_word_of_the_reference_hash(seed: int) -> None:
    expected = [murmur3_x64_128(key.encode(), seed)[0] for key in KEYS]
    assert hashes_of_keys(KEYS, seed).view(np.uint64).tolist() == expected


@pytest.mark.parametrize("workers", [1, 2, 3, 50, 100])
@pytest.mark.parametrize("name", REFERENCE)
def test_grouping_over_any_keys_decides_as_the_reference(name: str, workers: int) -> None:
    distinct = sorted(set(KEYS))
    codes = np.array([distinct.index(key) for key in KEYS], dtype=np.int32)
    batch = KeyBatch(distinct, codes, np.zeros(len(KEYS), dtype=np.int64))
    assert create(name, workers).assign(batch, 0).tolist() == REFERENCE[name](KEYS, workers)


def test_partial_key_grouping_tie_chooses_the_first_candidate() -> None:
    batch = KeyBatch(["Germany"], np.zeros(4, dtype=np.int32), np.zeros(4, dtype=np.int64))
    first, second = candidate("Germany", 13, 100), candidate("Germany", 17, 100)
    assert first != second
    assert create("partial_key", 100).assign(batch, 0).tolist() == [first, second, first, second]


def test_partition_of_keys_equals_the_recorded_partitions() -> None:
    """Fixed values, because stored partial results depend on them."""
    keys = ["", "a", "Germany", "日本"]
    assert [candidate(key, 29, 64) for key in keys] == [30, 39, 19, 24]
    assert partition_of_keys(pa.array(keys), 64).tolist() == [30, 39, 19, 24]
