"""Keys of changelog records have one form. Other forms are refused with a remedy."""

from __future__ import annotations

import re

import pytest

from skewless.algorithms.windowing.window import ChunkId
from skewless.errors import ConfigurationError
from skewless.wire.changelog import chunks_by_window, decode_chunk_key, encode_chunk_key


@pytest.mark.parametrize("window", [0, -60_000, 1_767_225_600_000])
@pytest.mark.parametrize("chunk", [ChunkId(0, compacted=False), ChunkId(33, compacted=True)])
def test_chunk_key_is_decoded_as_it_was_encoded(window: int, chunk: ChunkId) -> None:
    key = encode_chunk_key(window, chunk)
    assert decode_chunk_key(key) == (window, chunk)
    assert re.fullmatch(r"-?[0-9]+/[0-9]+/(deferred-)?(changes|compacted)", key.decode())


def test_chunk_key_names_window_number_and_kind() -> None:
    assert encode_chunk_key(-60, ChunkId(33, compacted=True)) == b"-60/33/compacted"


@pytest.mark.parametrize(
    "key",
    [b"", b"run", b"0/1", b"0/-1", b"0/1/changed", b"0/-1/changes", b"0/1/changes/", b" 0/1/changes", b"0/01/changes",
     b"+0/1/changes", b"0/1_0/changes", b"x/1/changes", b"0//changes", b"\xff/0/changes"],
)  # fmt: skip
def test_malformed_chunk_key_is_refused_with_its_form_and_a_remedy(key: bytes) -> None:
    with pytest.raises(
        ConfigurationError, match=r"<window start>/<chunk number>.*another.*version.*new pipeline"
    ) as failed:
        chunks_by_window([(b"0/0/changes", b"columns"), (key, b"columns")])
    assert repr(key) in str(failed.value)


def test_long_malformed_key_is_truncated_in_the_message() -> None:
    with pytest.raises(ConfigurationError) as failed:
        decode_chunk_key(b"x" * 10_000)
    assert len(str(failed.value)) < 600
