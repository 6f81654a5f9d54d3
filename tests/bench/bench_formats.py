"""Records per CPU-second in the splitter's step: the same records in JSON, Avro and Protobuf, side by side in one run.

Avro and Protobuf are in the wire format of a real registry. A line has the median of the rounds, and its share of the
line `json`. Exits with 1 if Avro has less than 60 % of the records per CPU-second that JSON has, or Protobuf 50 %.

PYTHONPATH=services:tests python tests/bench/bench_formats.py [--records 100000] [--rounds 9]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf import message_factory

from helpers.avro import encoded, record_of
from helpers.schema_registry import RegistryServer, running_registry
from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.message_batch import MessageBatch
from skewless.parsing.protobuf.compile_schema import compile_text
from skewless.parsing.record_parser import RecordParser
from skewless.schema_registry.schema import Schema, prefix
from skewless.stages.splitter.reports import SourceReports
from skewless.stages.splitter.step import SplitterRules, SplitterStep
from skewless.wire.record import OutputRecord
from skewless.wire.topic_partition import TopicPartition

START_MS = 1_478_568_050_000
BATCH = 5_000
SOURCE = TopicPartition("clicks", 0)
SCHEMA = record_of("Click", key="string", time={"type": "long", "logicalType": "timestamp-millis"}, value="int")
PROTO = 'syntax = "proto3"; message Click { string key = 1; int64 time = 2; int32 value = 3; }'
TARGETS = {"avro": 0.6, "protobuf": 0.5}


def payloads(records: int, server: RegistryServer) -> dict[str, list[bytes]]:
    """Return the same records in each format."""
    clicks = [{"key": f"country{i % 204}", "time": START_MS + i % 1000, "value": i % 100} for i in range(records)]
    descriptor = compile_text(Schema("PROTOBUF", PROTO)).message_types_by_name["Click"]
    message: Any = message_factory.GetMessageClass(descriptor)
    avro, proto = server.register("avro-value", SCHEMA), server.register("proto-value", PROTO, "PROTOBUF")
    return {
        "json": [json.dumps(click, separators=(",", ":")).encode() for click in clicks],
        "avro": [encoded(SCHEMA, click, avro) for click in clicks],
        "protobuf": [prefix(proto) + b"\0" + message(**click).SerializeToString() for click in clicks],
    }


def batches(values: list[bytes]) -> Iterator[MessageBatch]:
    """Yield the batches that a consumer would deliver."""
    for first in range(0, len(values), BATCH):
        outputs = [OutputRecord("clicks", value) for value in values[first : first + BATCH]]
        yield MessageBatch.of_outputs(SOURCE, outputs, START_MS, first)


def process(name: str, url: str, given: list[MessageBatch]) -> tuple[float, int]:
    """Return the CPU seconds and the tuples of a new step, without its first batch, which fetches the schema."""
    fields = {name: {"field": name} for name in ("key", "time", "value")}
    document = {"name": "p", "source": {"topic": "clicks"}, "registry": {"url": url}}
    settings = PipelineSettings.model_validate({**document, "splitter": {"format": name, **fields}})
    parser = RecordParser(settings.splitter)
    rules = SplitterRules(
        event_time=settings.event_time_rules(), tuple_format=settings.tuple_format, idle_timeout_ms=None, drain=False
    )
    step = SplitterStep(parser, rules, SourceReports(4, settings.aggregated.topic))
    step.assign(SOURCE, None, ())
    started = 0.0
    for index, batch in enumerate(given):
        if index == 1:
            step.tuples, started = 0, time.process_time()
        fresh = MessageBatch(SOURCE, 0, batch.messages)  # without the columns of earlier rounds
        missing = [schema_id for cache, needed in parser.needed_schemas(fresh) for schema_id in cache.missing(needed)]
        assert index == 0 or not missing
        for _ in (*step.process(fresh, START_MS), *step.held_records(fresh.source)):
            pass
    return time.process_time() - started, step.tuples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_registry(Path(folder)) as server:
        given = {name: list(batches(values)) for name, values in payloads(args.records, server).items()}
        counted = args.records - BATCH
        seconds: dict[str, list[float]] = {name: [] for name in given}
        for _ in range(args.rounds):
            for name, of_format in given.items():
                elapsed, tuples = process(name, server.url, of_format)
                assert tuples == counted, f"{name}: {tuples} tuples of {counted} records"
                seconds[name].append(elapsed)
    rates = {name: counted / statistics.median(found) for name, found in seconds.items()}
    shares = {name: rate / rates["json"] for name, rate in rates.items()}
    for name, rate in rates.items():
        line = {
            "bench": "formats",
            "format": name,
            "records": counted,
            "records_per_cpu_s": round(rate),
            "us_per_record": round(1e6 / rate, 3),
            "share_of_json": round(shares[name], 3),
        }
        print(json.dumps(line), flush=True)
    if missed := [name for name, target in TARGETS.items() if shares[name] < target]:
        sys.exit(f"below the target: {', '.join(missed)}")


if __name__ == "__main__":
    main()
