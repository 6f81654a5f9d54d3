"""Checkpoints of a join are readable by earlier versions, which may run beside this one during an upgrade."""

from __future__ import annotations

import pytest

from skewless.wire.join_changelog import JoinCheckpoint, decode_checkpoint, encode_checkpoint


@pytest.mark.parametrize(
    ("checkpoint", "text"),
    [
        (JoinCheckpoint(), "[null,null,0]"),
        (JoinCheckpoint(20, 10, 3), "[20,10,3]"),
        (JoinCheckpoint(20, None, 3, "watermarks"), '[20,null,3,"watermarks"]'),
        (JoinCheckpoint(20, None, 3, "watermarks", ended=True), '[20,null,3,"watermarks",true]'),
        (JoinCheckpoint(20, None, 3, ended=True), '[20,null,3,"",true]'),
    ],
)
def test_join_checkpoint_is_written_without_its_empty_last_fields(checkpoint: JoinCheckpoint, text: str) -> None:
    assert encode_checkpoint(checkpoint) == text
    assert decode_checkpoint(text) == checkpoint


def test_join_checkpoint_of_a_partition_without_a_commit_is_empty() -> None:
    assert decode_checkpoint(None) == JoinCheckpoint()
