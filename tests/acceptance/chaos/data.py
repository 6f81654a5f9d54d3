"""What the pipeline is fed: skewed records out of order, some late, some that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from support_kafka import Pipeline, Record, Sent, Truth, differences, read, truth, zipf_records

LATENESS_S = 20
BAD_SHARE = 0.002
BAD: dict[bytes | None, str] = {
    None: "empty record",
    b"": "malformed JSON",
    b"{": "malformed JSON",
    b'{"key":"\xff\xfe","value":1,"time":1}': "not UTF-8",
    b'{"key":' + b"[" * 1000 + b"]" * 1000 + b"}": "nested deeper than 32",
    b'{"key":"a","value":1}': "time field missing",
    b'{"key":"a","value":1e400,"time":1}': "value has the wrong type or is out of range",
    b'{"key":"a","value":1,"time":99999999999999}': "time too far ahead of the clock",
    b'{"key":"a","value":1,"time":-1}': "time before splitter.time.earliest",
}
"""Value of a bad record -> reason."""
COORDINATES = "__skewless.errors."


def records(count: int, partitions: int, seed: int) -> Iterator[Sent]:
    """Make records for a source, always the same for a seed."""
    chance = Random(seed)  # noqa: S311 - seeded, not secret
    for partition, value in zipf_records(count, partitions, seed, keys=5_000):
        yield partition, value
        if chance.random() < BAD_SHARE:
            yield partition, chance.choice(list(BAD))


def wrong(bootstrap: str, pipeline: Pipeline) -> list[str]:
    """Say in what the pipeline's topics differ from the batch answer over its source; empty if they are exact."""
    sent = list(read(bootstrap, pipeline.source.topic))
    expected = truth((record for record in sent if record.value not in BAD), lateness_ms=LATENESS_S * 1000)
    return [*differences(pipeline, expected), *_wrong_hops(pipeline, expected), *_wrong_letters(pipeline, sent)]


def _wrong_hops(pipeline: Pipeline, expected: Truth) -> list[str]:
    found = {topic: pipeline.tuples(topic) for topic in ("tuples", "worker-input")}
    return [
        f"{topic}: holds {count} tuples, should hold {expected.tuples}"
        for topic, count in found.items()
        if count != expected.tuples
    ]


def _wrong_letters(pipeline: Pipeline, sent: list[Record]) -> list[str]:
    wanted = {(at.partition, at.offset): (at.value, BAD[at.value]) for at in sent if at.value in BAD}
    found: dict[tuple[int, int], tuple[bytes | None, str]] = {}
    problems = []
    for letter in pipeline.read("dead-letters"):
        where = {name: letter.headers[COORDINATES + name].decode() for name in ("partition", "offset", "reason")}
        at = (int(where["partition"]), int(where["offset"]))
        problems += [f"dead-letters: {at} is told twice"] if at in found else []
        found[at] = (letter.value, where["reason"])
    unlike = sorted(at for at in found.keys() | wanted.keys() if found.get(at) != wanted.get(at))
    return [
        *problems[:5],
        *(f"dead-letters: {at} is {found.get(at)}, should be {wanted.get(at)}" for at in unlike[:5]),
    ]
