"""Time to parse one record, per format: one JSON line per run.

PYTHONPATH=services:tests python tests/bench/bench_parse.py [--records 100000]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from helpers.avro import encoded, record_of
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns

START = 1_478_568_050_000
JSON_FIELDS = {"key": {"field": "key"}, "time": {"field": "time"}, "value": {"field": "value"}}


def runs(records: int) -> Iterator[tuple[str, dict[str, Any], list[bytes]]]:
    flat = [b'{"key":"country%d","time":%d,"value":%d}' % (i % 204, START + i, i % 100) for i in range(records)]
    yield "json", JSON_FIELDS, flat
    function = {**JSON_FIELDS, "python": "helpers.user_functions:same_fields"}
    yield "json, function of the user", function, flat
    yield "json, 1 % invalid", JSON_FIELDS, [b'{"key":' if i % 100 == 0 else value for i, value in enumerate(flat)]
    yield "json, 1 % not UTF-8", JSON_FIELDS, [b"\xff" if i % 100 == 0 else value for i, value in enumerate(flat)]
    decimal = [b'{"key":"k%d","time":"%d","value":%d.25}' % (i % 204, START + i, i % 100) for i in range(records)]
    yield "json, decimals, time as text", {**JSON_FIELDS, "value": {"field": "value", "decimals": 2}}, decimal
    tags = b'{"timestamp_ms":"%d","text":"#A #B","entities":{"hashtags":[{"text":"Tag%d"},{"text":"B"}]}}'
    lists = {"key": {"field": "entities.hashtags[].text"}, "time": {"field": "timestamp_ms"}}
    yield "json, two hashtags", lists, [tags % (START + i, i % 204) for i in range(records)]
    pages = [b"%d\thttp://en.wikipedia.org/wiki/Page_%d" % (START + i, i % 204) for i in range(records)]
    page = {"field": 1, "strip_prefix": "http://en.wikipedia.org/wiki/"}
    yield "tsv", {"format": "tsv", "key": page, "time": {"field": 0}}, pages
    counts = [b"en.m Page_%d %d 12345" % (i % 204, i % 100) for i in range(records)]
    language = {"field": 0, "pattern": "^[^.]+"}
    yield "csv, blanks", {"format": {"name": "csv", "delimiter": " "}, "key": language, "value": {"field": 2}}, counts
    iso = [b"2016-11-08 01:%02d:%02d,Page_%d" % (i // 60 % 60, i % 60, i % 204) for i in range(records)]
    yield "csv, iso8601", {"format": "csv", "key": {"field": 1}, "time": {"field": 0, "unit": "iso8601"}}, iso
    yield from avro_runs(records)
    words = [b"the quick brown fox %d jumps over the lazy dog" % i for i in range(records)]
    yield "text, words", {"format": "text", "key": {"pattern": r"\w+", "lowercase": True}}, words


FLAT_AVRO = record_of("Flat", key="string", time="long", value="int")
MANY = {"type": "map", "values": "string"}
WIDE_AVRO = record_of(
    "Wide", id="string", session=["null", "string"], url="string", labels=MANY, key="string", time="long", value="int"
)


def avro_runs(records: int) -> Iterator[tuple[str, dict[str, Any], list[bytes]]]:
    """Yield runs with the fields of the run json, and with further fields, in Avro and in JSON."""
    folder = Path(tempfile.mkdtemp())
    flat = [{"key": f"country{i % 204}", "time": START + i, "value": i % 100} for i in range(records)]
    more = {"session": None, "url": "https://example.org/a/b/c", "labels": {"a": "b", "c": "d"}}
    wide = [{"id": f"{i:032d}", **more, **record} for i, record in enumerate(flat)]
    for name, schema, documents in (("flat", FLAT_AVRO, flat), ("wide", WIDE_AVRO, wide)):
        file = folder / f"{name}.avsc"
        file.write_text(json.dumps(schema))
        values = [encoded(schema, document) for document in documents]
        yield f"avro, {name}", {**JSON_FIELDS, "format": {"name": "avro", "schema": str(file)}}, values
    yield "json, wide", JSON_FIELDS, [json.dumps(document).encode() for document in wide]


def best_of(settings: dict[str, Any], values: list[bytes], repeat: int = 5) -> tuple[float, int, int]:
    """Return the shortest time in s, and the numbers of tuples and invalid records."""
    parser = RecordParser(ParsingSettings.model_validate(settings))
    timestamps = np.full(len(values), START, np.int64)
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        parsed = parser.parse(RecordColumns.of_values(values, timestamps))
        times.append(time.perf_counter() - started)
    return min(times), len(parsed.keys), len(parsed.invalid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    records = parser.parse_args().records
    for name, settings, values in runs(records):
        seconds, tuples, invalid = best_of(settings, values)
        line = {
            "bench": "parse",
            "run": name,
            "records": records,
            "tuples": tuples,
            "bad": invalid,
            "us_per_record": round(seconds / records * 1e6, 3),
            "us_per_tuple": round(seconds / max(tuples, 1) * 1e6, 3),
        }
        sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
