"""A plan depends on the records of a topic, not on the batches in which they are read.

The law holds for any records, any cut into batches and any order in which the batches of several partitions arrive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewless.lab.simulation import tuple_blocks
from skewless.lab.simulation.tuple_blocks import Block, BlockBuilder, ReadPlan, decode_block
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns
from skewless.parsing.validation import EventTimeRules

SETTINGS = ParsingSettings.model_validate({"key": {"field": "k[]"}, "time": {"field": "t"}})
RULES = EventTimeRules(lateness_ms=5, max_ahead_ms=0)
NOW = 18
"""Later times are invalid."""
BLOCK_TUPLES = 4
PARTITIONS = 3
Topic = Mapping[int, Sequence[bytes]]
Read = tuple[int, int]
"""Partition, and number of records."""


def record(keys: Sequence[str], time: int) -> bytes:
    return b'{"k": [%s], "t": %d}' % (", ".join(f'"{key}"' for key in keys).encode(), time)


RECORDS = st.lists(
    st.one_of(st.just(b"{"), st.builds(record, st.lists(st.sampled_from("abc"), max_size=6), st.integers(0, 20))),
    max_size=12,
)
TOPICS = st.fixed_dictionaries(dict.fromkeys(range(PARTITIONS), RECORDS))
READS = st.lists(st.tuples(st.integers(0, PARTITIONS - 1), st.integers(1, 5)))


def batches(topic: Topic, reads: Sequence[Read]) -> Iterator[tuple[int, range]]:
    """Yield the records of a topic by partition and index: as they are read first, and then the others."""
    read = dict.fromkeys(topic, 0)
    for partition, records in [*reads, *((partition, len(values)) for partition, values in topic.items())]:
        begin, end = read[partition], min(read[partition] + records, len(topic[partition]))
        if begin < end:
            yield partition, range(begin, end)
            read[partition] = end


def blocks_of(topic: Topic, reads: Sequence[Read]) -> list[Block]:
    # Between two records is an offset without a record, as after a transaction.
    builder = BlockBuilder(ReadPlan(SETTINGS, RULES, {p: (3, 3 + 2 * len(topic[p])) for p in topic}, NOW))
    blocks: list[Block] = []
    for partition, rows in batches(topic, reads):
        values = [topic[partition][row] for row in rows]
        records = RecordColumns.of_values(values, np.zeros(len(values), dtype=np.int64))
        blocks += builder.add(partition, 3 + 2 * np.array(rows), records)
    blocks += builder.finish()
    return sorted(blocks, key=lambda block: (block.progress, block.partition))


def counts(blocks: Sequence[Block]) -> list[int]:
    return [sum(numbers) for numbers in zip(*((block.tuples, block.late, block.bad) for block in blocks), strict=True)]


def tuples_in(block: Block) -> dict[str, Any]:
    keys, times = decode_block(block.block)
    return {
        "partition": block.partition,
        "progress": block.progress,
        "tuples": list(zip(keys.to_pylist(), times.tolist(), strict=True)),
    }


@given(TOPICS, READS)
def test_plan_of_any_batches_has_the_same_blocks_and_totals(topic: Topic, reads: Sequence[Read]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuple_blocks, "TUPLES", BLOCK_TUPLES)
        expected, found = blocks_of(topic, []), blocks_of(topic, reads)
    assert counts(found) == counts(expected)
    full = [tuples_in(block) for block in found if block.tuples]
    assert full == [tuples_in(block) for block in expected if block.tuples]
    assert max((block.tuples for block in found), default=0) <= BLOCK_TUPLES
