"""Measures the bytes of the internal topics per source byte, and what compression makes of them.

A pipeline with the default settings and `emit: final` runs in memory, so the bytes do not depend on the load of the
machine. One JSON line per topic, encoding of the columns and distribution of the keys: bytes of the values per tuple
and per byte of a source record, and for each compression what remains of them, and the CPU time of both directions.
`bench_costs.py` measures the bytes in the log of a broker, also those of Kafka Streams.

    PYTHONPATH=services:tests python tests/bench/bench_bytes.py [--rate 50000] [--keys 10000] [--record-bytes 100]
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from skewless.algorithms.value_type import VALUE
from skewless.algorithms.watermark import WatermarkState
from skewless.config.pipeline_settings import PipelineSettings
from skewless.in_memory import InMemoryPipeline
from skewless.wire.headers import report_of, schema_header
from skewless.wire.record import OutputRecord

TOPICS = ("tuples", "worker-input", "partials", "aggregator-changelog")
PARTITIONS, COMMITS, COMMIT_S = 4, 6, 0.5
START_MS = 1_767_225_600_000
ZIPF = 1.1
VALUES = 100_000
CODECS = {"lz4": pa.Codec("lz4"), "zstd": pa.Codec("zstd", compression_level=3)}
"""Compression with the levels of librdkafka."""


def drawn(distribution: str, count: int, keys: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return the keys of some tuples."""
    if distribution == "uniform":
        return random.integers(0, keys, count)
    weights = np.arange(1, keys + 1) ** -ZIPF
    return random.choice(keys, count, p=weights / weights.sum())


def written(columns: str, distribution: str, rate: float, keys: int) -> dict[str, list[bytes]]:
    """Return the values of the records of each topic. Keys have 13 bytes, and digits in no order."""
    settings = PipelineSettings.model_validate(
        {
            "name": "p",
            "source": {"topic": "source"},
            "worker_input": {"max_workers": 16},
            "aggregator": {"emit": "final"},
            "topics": {"columns": columns},
        }
    )
    pipeline, form = InMemoryPipeline(settings, {"source": PARTITIONS}), settings.tuple_format
    random = np.random.default_rng(7)
    found: defaultdict[str, list[bytes]] = defaultdict(list)
    names = np.array([f"user-{number * 2_654_435_761 % 2**32:08x}" for number in range(keys)])
    for commit in range(1, COMMITS + 1):
        now = START_MS + round(commit * COMMIT_S * 1000)
        records: list[OutputRecord] = []
        for partition in range(PARTITIONS):
            count = round(rate * COMMIT_S / PARTITIONS)
            texts = pa.array(names[drawn(distribution, count, keys, random)]).dictionary_encode()
            times = np.sort(now - random.integers(0, round(COMMIT_S * 1000), count))
            tuples = form.batch(texts, {VALUE: pa.array(random.integers(0, VALUES, count))}, times)
            headers = [schema_header(form.columns_name), *report_of({partition: WatermarkState(now - 1000)})]
            records += form.records(settings.topic("tuples"), partition, tuples, headers)
        outputs: dict[str, Sequence[OutputRecord]] = {**pipeline.process(records, now), "tuples": records}
        for topic in TOPICS:
            found[topic] += [record.value for record in outputs[topic] if record.value]
    return found


def compression(codec: pa.Codec, values: Sequence[bytes]) -> dict[str, float]:
    """Return what compression leaves, and the CPU time in ns per byte of both directions."""
    started = time.process_time()
    compressed = [codec.compress(value) for value in values]
    middle = time.process_time()
    for small, value in zip(compressed, values, strict=True):
        codec.decompress(small, len(value))
    size = sum(map(len, values))
    return {
        "left": round(sum(map(len, compressed)) / size, 3),
        "compress_ns": round((middle - started) / size * 1e9, 2),
        "decompress_ns": round((time.process_time() - middle) / size * 1e9, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=50_000, help="tuples per second")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--record-bytes", type=int, default=100, help="size of a source record")
    options = parser.parse_args()
    tuples = COMMITS * COMMIT_S * options.rate
    for distribution in ("uniform", "zipf"):
        for columns in ("arrow", "packed"):
            for topic, values in written(columns, distribution, options.rate, options.keys).items():
                size = sum(map(len, values)) / tuples
                line = {
                    "bench": "bytes",
                    "keys": distribution,
                    "columns": columns,
                    "topic": topic,
                    "bytes_per_tuple": round(size, 2),
                    "per_source_byte": round(size / options.record_bytes, 4),
                    **{name: compression(codec, values) for name, codec in CODECS.items()},
                }
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
