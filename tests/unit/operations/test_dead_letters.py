"""Headers of dead letters, the loop guard, and the ranges that are read for a replay."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError
from skewless.operations import dead_letters
from skewless.operations.dead_letters import (
    ATTEMPT_HEADER,
    MAX_GAP,
    DeadLetter,
    Original,
    Position,
    decode_headers,
    offset_runs,
    replay,
)
from skewless.wire.dead_letters import DeadLetterHeaders

PREFIX = "__skewless.errors."


def test_decode_headers_of_another_program_are_none() -> None:
    headers = [(PREFIX + name, value) for name, value in (("topic", b"t"), ("partition", b"3"), ("offset", b"7"))]
    assert decode_headers(headers) is None
    assert decode_headers([*headers, (PREFIX + "reason", b"")]) is None
    found = decode_headers([*headers, (PREFIX + "reason", b"not UTF-8"), ("own", None)])
    assert found is not None
    assert (found.topic, found.partition, found.offset, found.reason) == ("t", "3", "7", "not UTF-8")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(b"2", 2), *((value, sys.maxsize) for value in (b"x", None, b"-1", b"9" * 5000))],
)
def test_original_attempts_foreign_value_is_more_than_any_maximum(value: bytes | None, expected: int) -> None:
    assert Original(None, None, None, [(ATTEMPT_HEADER, value)]).attempts == expected
    assert Original(None, None, None, ()).attempts == 0


def test_replay_to_a_topic_that_the_pipeline_writes_is_refused_and_to_one_of_the_user_with_its_prefix_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = PipelineSettings.model_validate({"name": "p", "source": {"topics": {"match": r"p\.raw-.*"}}})
    counts = {"p.raw-a": 1, "p.tuples": 1}
    monkeypatch.setattr(dead_letters, "Admin", lambda _kafka: SimpleNamespace(partition_counts=lambda: counts))
    assert replay(settings, (), origin="p.raw-a", target="p.raw-a", dry_run=True).replayed == 0
    with pytest.raises(ConfigurationError, match=r"--to: p\.tuples is a topic of the pipeline itself"):
        replay(settings, (), origin="p.raw-a", target="p.tuples", dry_run=True)


@pytest.mark.parametrize(
    ("letter", "size", "record", "expected"),
    [
        (b"abc", None, b"abc", True),
        (b"abc", None, b"abcd", False),
        (b"abc", "4", b"abcd", True),
        (b"abc", "4", b"abcde", False),
        (b"abc", "4", b"abxd", False),
        (None, None, None, True),
        (None, None, b"", False),
        (b"abc", "4", None, False),
    ],
)
def test_dead_letter_is_of_a_record_with_its_key_and_value(
    letter: bytes | None, size: str | None, record: bytes | None, *, expected: bool
) -> None:
    for name, pair in (("key", (letter, b"v")), ("value", (b"k", letter))):
        headers = DeadLetterHeaders("t", "0", "0", "reason", **({f"{name}_bytes": size} if size else {}))
        found = DeadLetter(0, 0, Position("t", 0, 0), headers, *pair)
        key, value = (record, b"v") if name == "key" else (b"k", record)
        original = Original(key, value, None, ())
        assert found.is_of(original) is expected


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ([], []),
        ([3], [(3, 4)]),
        ([3, 5, 8], [(3, 9)]),
        ([1, 1 + MAX_GAP], [(1, 2 + MAX_GAP)]),
        ([1, 2 + MAX_GAP], [(1, 2), (2 + MAX_GAP, 3 + MAX_GAP)]),
    ],
)
def test_offset_runs_contain_the_offsets_without_long_gaps(offsets: list[int], expected: list[tuple[int, int]]) -> None:
    assert list(offset_runs(offsets)) == expected
