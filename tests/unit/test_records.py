"""What is read is looked at before it is believed, and what is written fits into its topic."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from skewless.asyncapi.written import WrittenBatch
from skewless.errors import BadRecordError
from skewless.records import (
    LETTER_BYTES,
    LETTER_KEY_BYTES,
    TUPLES,
    TUPLES_SCHEMA,
    Output,
    dead_letter,
    dead_letter_rows,
    headers_of,
    idle_of,
    read_partials,
    read_table,
    read_tuples,
    schema_of,
    tuple_records,
    tuples_of,
    watermarks_of,
    write_table,
)
from support import marks_in, reasons_in, rows_in, tuples_in

KAFKA_DEFAULT_BYTES = 1_048_588
"""`max.message.bytes` of a topic that nobody has given another."""


def written_tuples(indices: list[int], dictionary: list[str | None]) -> bytes:
    codes = pa.array(indices, pa.int32())
    keys = pa.DictionaryArray.from_arrays(codes, pa.array(dictionary, pa.string()), safe=False)
    numbers = pa.array(np.zeros(len(indices), dtype=np.int64))
    return write_table(pa.record_batch([keys, numbers, numbers], schema=TUPLES_SCHEMA))


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
def test_tuples_whose_parts_do_not_fit_are_bad(value: bytes) -> None:
    with pytest.raises(BadRecordError):
        read_tuples(value)


def test_partials_whose_keys_are_not_text_are_bad() -> None:
    value = write_table(pa.table({"pane": [0], "key": ["a" * 8]})).replace(b"a" * 8, b"\xff" * 8)
    with pytest.raises(BadRecordError):
        read_partials(value, ("pane", "key"))


def test_headers_without_a_value_are_bad() -> None:
    with pytest.raises(BadRecordError, match="no schema header"):
        schema_of([("schema", None)])
    with pytest.raises(BadRecordError, match="watermarks header cannot be read"):
        watermarks_of([("schema", TUPLES.encode()), ("watermarks", None)])
    with pytest.raises(BadRecordError, match="idle header cannot be read"):
        idle_of([("schema", TUPLES.encode()), ("idle", None)])


def test_a_large_batch_is_cut_and_the_last_record_alone_tells_of_time() -> None:
    keys = pa.array([f"{number:01000d}" for number in range(20_000)]).dictionary_encode()
    numbers = np.arange(20_000)
    outputs = list(tuple_records("any", 3, tuples_of(keys, numbers, numbers), headers_of(TUPLES, {0: 9})))
    assert max(len(output.value or b"") for output in outputs) < 8 * 2**20
    assert marks_in(outputs) == [*({} for _ in outputs[1:]), {0: 9}]
    assert [value for _, value, _ in tuples_in(outputs)] == numbers.tolist()
    assert {(output.partition, schema_of(output.headers)) for output in outputs} == {(3, TUPLES)}


def size(output: Output) -> int:
    return (
        len(output.value or b"") + len(output.key or b"") + sum(len(name) + len(fact) for name, fact in output.headers)
    )


@pytest.mark.parametrize("value", [None, b"", b"x" * LETTER_BYTES, b"x" * (LETTER_BYTES + 1), b"x" * 10_000_000])
@pytest.mark.parametrize("key", [None, b"k" * LETTER_KEY_BYTES, b"k" * 2_000_000])
def test_a_dead_letter_fits_into_any_topic_and_says_what_is_missing(value: bytes | None, key: bytes | None) -> None:
    batch = WrittenBatch(3, [Output("any", value, key, timestamp=5)], [17])
    letter = dead_letter("t" * 249, batch, 0, "longer than 262144 bytes")
    assert size(letter) < KAFKA_DEFAULT_BYTES - 10_000
    told = {name.removeprefix("__skewless.errors."): fact for name, fact in letter.headers}
    assert (told["offset"], letter.timestamp) == (b"17", 5)
    for name, whole, found in (("value_bytes", value, letter.value), ("key_bytes", key, letter.key)):
        if found == whole:
            assert name not in told
        else:
            assert whole is not None
            assert found is not None
            assert whole.startswith(found)
            assert int(told[name]) == len(whole)


def test_rows_of_a_forgotten_window_are_dead_letters_that_fit_into_any_topic() -> None:
    rows = pa.table({"pane": np.arange(20_000), "key": [f"{number:0350d}" for number in range(20_000)]})
    batch = WrittenBatch(3, [Output("any", b"")], [17])
    letters = list(dead_letter_rows("t", batch, 0, rows, "window is forgotten"))
    assert max(map(size, letters)) < KAFKA_DEFAULT_BYTES - 10_000
    assert set(reasons_in(letters)) == {(17, "window is forgotten")}
    assert rows_in(letters) == rows.to_pylist()


def test_what_is_no_stream_of_columns_is_bad() -> None:
    for value in (None, b"", b"junk", write_table(pa.table({"a": [1]}))[:-20]):
        with pytest.raises(BadRecordError):
            read_table(value)
