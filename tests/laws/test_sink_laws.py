"""Laws of the sink: its table has the newest result of each window and key, for any transactions, aborts and kills."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from helpers.databases import TestDatabase
from integration.sql.sql_sink import Item, Sink, result
from skewless.engine.step import Sample

FOREIGN: Item = (b"foreign", b"{")
PARTITIONS = 0, 1
Log = Sequence[tuple[str, int | None] | None]

logs = st.lists(st.none() | st.tuples(st.sampled_from("abc"), st.sampled_from([0, 1, 2, None])), max_size=20)
"""Key and revision of each record, where None deletes the row; None for a record of another program."""
moves = st.lists(
    st.tuples(
        st.sampled_from([*["read"] * 6, "commit", "commit", "abort", "kill"]),
        st.sampled_from(PARTITIONS),
        st.integers(1, 4),
    )
)


def items(partition: int, log: Log) -> list[Item]:
    """Return the records of a partition. Each result has another count."""
    records: list[Item] = []
    for offset, row in enumerate(log):
        if row is None:
            records.append(FOREIGN)
            continue
        key, revision = row
        record_key, value = result(f"{key}{partition}", revision=revision or 0, count=offset)
        records.append((record_key, None if revision is None else value))
    return records


def newest(records: Sequence[Item]) -> list[tuple[int, int]]:
    """Return the count and the revision of each row, by a plain loop."""
    rows: dict[bytes | None, tuple[int, int]] = {}
    for key, value in records:
        if value is None:
            rows.pop(key, None)
        elif value != FOREIGN[1]:
            row = json.loads(value)
            if row["revision"] >= rows.get(key, (0, 0))[1]:
                rows[key] = row["count"], row["revision"]
    return sorted(rows.values())


def pending(sink: Sink) -> float:
    (sample,) = sink.step.collect_metrics()
    assert isinstance(sample, Sample)
    return sample.value


@example(
    ([("a", 2), ("a", None), ("a", 0), ("a", 1), ("a", 1)], []),
    [("read", 0, 1), ("read", 0, 1), ("abort", 0, 0), ("read", 0, 1)],
    1,
)
@given(st.tuples(logs, logs), moves, st.integers(1, 8))
def test_sink_after_any_sequence_of_events_has_the_newest_results_and_each_refused_record_once(
    drawn: tuple[Log, ...],
    events: list[tuple[str, int, int]],
    transaction_rows: int,
) -> None:
    records = [items(partition, log) for partition, log in enumerate(drawn)]
    rest = [each for partition in PARTITIONS for each in (("commit", 0, 0), ("read", partition, 20))]
    with tempfile.TemporaryDirectory() as folder:
        database = TestDatabase("sqlite", f"sqlite://{folder}/p.db", None, "p")
        sink = Sink(database, transaction_rows=transaction_rows).start(*PARTITIONS)
        waiting = set[tuple[int, bytes | int | None]]()
        """Rows of the next transaction: keys, and offsets of refused records."""
        for what, partition, amount in [*events, *rest, ("commit", 0, 0)]:
            if what == "read":
                if sink.step.wants_commit and sink.step.stops_for_commit:
                    continue
                assert len(waiting) < transaction_rows
                first = sink.offsets[partition]
                batch = records[partition][first : first + amount]
                sink.read(batch, partition)
                waiting |= {(partition, at if item == FOREIGN else item[0]) for at, item in enumerate(batch, first)}
            else:
                waiting.clear()
            match what:
                case "commit":
                    sink.commit()
                case "abort":
                    sink.output.abort(replace=False)
                    for each in PARTITIONS:
                        sink.step.revoke(each)
                    sink.start(*PARTITIONS)
                case "kill":
                    sink.output.close()
                    sink = Sink(database, transaction_rows=transaction_rows).start(*PARTITIONS)
            assert pending(sink) == len(waiting)
            assert sink.step.wants_commit == (len(waiting) >= transaction_rows)
        stored = database.query("SELECT count, revision FROM p")
        refused = database.query('SELECT "partition", "offset" FROM p_refused')
        sink.output.close()
    assert sorted(stored) == newest([item for each in records for item in each])
    assert sorted(refused) == [
        (partition, offset)
        for partition, each in enumerate(records)
        for offset, item in enumerate(each)
        if item == FOREIGN
    ]
