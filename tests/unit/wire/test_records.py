"""Records are validated before use, and written records fit into their topics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from helpers.aggregates import DIGITS
from helpers.batches import FORMAT, reasons_in, rows_in, tuples_in, watermarks_in
from helpers.headers import internal_headers
from helpers.in_memory_batch import InMemoryBatch
from skewless.algorithms.aggregates import BinaryColumn
from skewless.algorithms.value_type import VALUE
from skewless.errors import BadRecordError, LimitError
from skewless.wire.columns import read_table, write_table
from skewless.wire.dead_letters import DEAD_LETTER_KEY_BYTES, DEAD_LETTER_VALUE_BYTES, dead_letter, dead_letter_rows
from skewless.wire.headers import idle_of, schema_of, watermarks_of
from skewless.wire.partials import read_partials
from skewless.wire.record import OutputRecord
from skewless.wire.top_candidates import encode_candidates
from skewless.wire.tuples import TUPLES

KAFKA_DEFAULT_BYTES = 1_048_588
"""Default `max.message.bytes` of a topic."""


def written_tuples(indices: list[int], dictionary: list[str | None]) -> bytes:
    codes = pa.array(indices, pa.int32())
    keys = pa.DictionaryArray.from_arrays(codes, pa.array(dictionary, pa.string()), safe=False)
    numbers = pa.array(np.zeros(len(indices), dtype=np.int64))
    return write_table(pa.record_batch([keys, numbers, numbers], schema=FORMAT.schema))


@pytest.mark.parametrize(
    "value",
    [
        written_tuples([0, 7], ["a"]),
        written_tuples([0, -1], ["a"]),
        written_tuples([0, 1], ["a", None]),
        written_tuples([0], ["a" * 8]).replace(b"a" * 8, b"\xff" * 8),
    ],
    ids=["index beyond", "index below", "null in the dictionary", "not UTF-8"],
)
def test_tuples_codec_inconsistent_columns_are_refused(value: bytes) -> None:
    with pytest.raises(BadRecordError):
        FORMAT.read(value)


def test_partials_codec_keys_that_are_not_text_are_refused() -> None:
    value = write_table(pa.table({"pane": [0], "key": ["a" * 8]})).replace(b"a" * 8, b"\xff" * 8)
    with pytest.raises(BadRecordError):
        read_partials(value, ("pane", "key"))


def test_partials_with_another_type_than_their_column_are_bad() -> None:
    value = write_table(pa.table({"pane": [0], "key": ["a"], "digit_set": [b"\x07"]}))
    assert read_partials(value, ("pane", "key"), DIGITS.columns).to_pylist() == [
        {"pane": 0, "key": "a", "digit_set": b"\x07"}
    ]
    for digit_set in (pa.array([7]), pa.array(["7"]), pa.array([None], pa.binary())):
        value = write_table(pa.table({"pane": [0], "key": ["a"], "digit_set": digit_set}))
        with pytest.raises(BadRecordError):
            read_partials(value, ("pane", "key"), DIGITS.columns)


def test_partials_of_a_group_without_an_optional_value_may_be_null() -> None:
    (column,) = DIGITS.columns
    assert isinstance(column, BinaryColumn)
    value = write_table(pa.table({"pane": [0], "key": ["a"], "digit_set": pa.array([None], pa.binary())}))
    (partial,) = read_partials(value, ("pane", "key"), [replace(column, optional=True)]).to_pylist()
    assert partial["digit_set"] is None


def test_header_codec_header_without_a_value_is_refused() -> None:
    with pytest.raises(BadRecordError, match="no schema header"):
        schema_of([("schema", None)])
    with pytest.raises(BadRecordError, match="invalid watermarks header"):
        watermarks_of([("schema", TUPLES.encode()), ("watermarks", None)])
    with pytest.raises(BadRecordError, match="invalid idle header"):
        idle_of([("schema", TUPLES.encode()), ("idle", None)])


def test_tuple_records_large_batch_is_split_and_the_last_record_has_the_watermark() -> None:
    keys = pa.array([f"{number:01000d}" for number in range(20_000)]).dictionary_encode()
    numbers = np.arange(20_000)
    tuples = FORMAT.batch(keys, {VALUE: pa.array(numbers)}, numbers)
    outputs = list(FORMAT.records("any", 3, tuples, internal_headers(TUPLES, {0: 9})))
    assert max(len(output.value or b"") for output in outputs) < 8 * 2**20
    assert watermarks_in(outputs) == [*({} for _ in outputs[1:]), {0: 9}]
    assert [value for _, value, _ in tuples_in(outputs)] == numbers.tolist()
    assert {(output.partition, schema_of(output.headers)) for output in outputs} == {(3, TUPLES)}


def size(output: OutputRecord) -> int:
    return (
        len(output.value or b"")
        + len(output.key or b"")
        + sum(len(name) + len(entry) for name, entry in output.headers)
    )


@pytest.mark.parametrize(
    "value", [None, b"", b"x" * DEAD_LETTER_VALUE_BYTES, b"x" * (DEAD_LETTER_VALUE_BYTES + 1), b"x" * 10_000_000]
)
@pytest.mark.parametrize("key", [None, b"k" * DEAD_LETTER_KEY_BYTES, b"k" * 2_000_000])
def test_dead_letter_of_a_large_record_fits_into_any_topic_and_states_omitted_bytes(
    value: bytes | None, key: bytes | None
) -> None:
    batch = InMemoryBatch(3, [OutputRecord("any", value, key, timestamp=5)], [17])
    written = dead_letter("t" * 249, batch, 0, "longer than 262144 bytes")
    assert size(written) < KAFKA_DEFAULT_BYTES - 10_000
    reported = {name.removeprefix("__skewless.errors."): entry for name, entry in written.headers}
    assert (reported["offset"], written.timestamp) == (b"17", 5)
    for name, whole, found in (("value_bytes", value, written.value), ("key_bytes", key, written.key)):
        if found == whole:
            assert name not in reported
        else:
            assert whole is not None
            assert found is not None
            assert whole.startswith(found)
            assert int(reported[name]) == len(whole)


def test_dead_letter_rows_of_an_expired_window_fit_into_any_topic() -> None:
    rows = pa.table({"pane": np.arange(20_000), "key": [f"{number:0350d}" for number in range(20_000)]})
    batch = InMemoryBatch(3, [OutputRecord("any", b"")], [17])
    dead_letters = list(dead_letter_rows("t", batch, 0, rows, "window has expired"))
    assert max(map(size, dead_letters)) < KAFKA_DEFAULT_BYTES - 10_000
    assert set(reasons_in(dead_letters)) == {(17, "window has expired")}
    assert rows_in(dead_letters) == rows.to_pylist()


def test_column_codec_value_that_is_not_an_arrow_stream_is_refused() -> None:
    for value in (None, b"", b"junk", write_table(pa.table({"a": [1]}))[:-20]):
        with pytest.raises(BadRecordError):
            read_table(value)


def test_candidates_that_fit_into_no_record_are_refused_with_the_settings() -> None:
    assert len(encode_candidates(1, ["k" * 1_000])) < 1_100
    with pytest.raises(LimitError, match=r"take 17,000,0\d\d bytes, .* lower aggregator\.top\.n"):
        encode_candidates(1, ["k" * 17_000_000])
