"""Time and memory in which a splitter with local windows reads held tuples again, after it was killed.

Zipf 1.4, JSON, 4 partitions, event time at 100,000 records per second, local windows of 5 s and no allowed lateness.
The splitter is killed with SIGKILL at the end of the topic. `seconds` is the time that an assignment of all partitions
then takes in one process. One line of JSON per run.

    PYTHONPATH=services:tests python tests/bench/bench_local_restart.py [--records 1990000] [--repeats 3]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from bench.bench_pipeline import pipeline, produce, run
from bench.stage_process import peak_rss_bytes
from helpers.stage_start import in_memory
from helpers.waiting import until
from skewless.config.loader import load
from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.step import Sample
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.lab.local import child_process
from skewless.lab.local.broker import Broker
from skewless.stages.built_stage import build
from skewless.stages.splitter.checkpoint import decode_checkpoint
from skewless.wire.topic_partition import TopicPartition

WINDOW_S = 5
RATE = 100_000
TOPIC = "events"


def killed_splitter(file: Path, settings: PipelineSettings) -> Mapping[TopicPartition, str | None]:
    """Run a splitter to the end of the topic, and kill it; returns its checkpoints by partition."""
    reader = OffsetReader(settings.kafka)
    group, ends = settings.group("splitter"), reader.end(TOPIC)
    command = [sys.executable, "-m", "skewless", "run", "splitter", "--file", str(file)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    child = child_process.start(command, env, log=file.with_suffix(".log"))

    def is_at_end() -> bool:
        committed = reader.committed(group, TOPIC)
        return {partition: at.offset for partition, at in committed.items()} == ends

    try:
        until(is_at_end)
    finally:
        child_process.kill(child)
    return {TopicPartition(TOPIC, number): at.checkpoint for number, at in reader.committed(group, TOPIC).items()}


def measure(file: Path, settings: PipelineSettings) -> dict[str, Any]:
    """Restore the partitions of a killed splitter in this process."""
    checkpoints = killed_splitter(file, settings)
    held = [decode_checkpoint(checkpoint).held for checkpoint in checkpoints.values()]
    built = build(in_memory("splitter", settings, len(checkpoints)))
    before, began = peak_rss_bytes(), time.monotonic()
    states = built.restore(checkpoints)
    for partition, checkpoint in checkpoints.items():
        built.step.assign(partition, checkpoint, states.get(partition, ()))
    seconds = time.monotonic() - began
    reread = next(
        sample.value
        for sample in built.step.collect_metrics()
        if isinstance(sample, Sample) and sample.name == "skewless_splitter_local_reread_records_total"
    )
    return {
        "bench": "local restart",
        "seconds": round(seconds, 3),
        "records_read_again": int(reread),
        "held_tuples": sum(one.tuples for one in held if one is not None),
        "event_time_s": round(int(reread) / RATE, 2),
        "added_rss_mb": round((peak_rss_bytes() - before) / 1e6),
    }


def runs(bootstrap: str, folder: Path, repeats: int) -> Iterator[dict[str, Any]]:
    for repeat in range(repeats):
        document = pipeline(f"restart-{repeat}", bootstrap, "exactly_once", "key", TOPIC)
        document["splitter"]["local"] = {"mode": "windows", "window_s": WINDOW_S}
        document["event_time"] = {"allowed_lateness_s": 0}
        file = folder / f"restart-{repeat}.yaml"
        file.write_text(yaml.safe_dump(document))
        run("-m", "skewless", "topics", "apply", "-f", str(file))
        yield measure(file, load(file, os.environ))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_990_000)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary, Broker() as broker:
        rate = ("--zipf-exponent", "1.4", "--event-rate", str(RATE))
        produce(broker.bootstrap, TOPIC, args.records, *rate)
        for line in runs(broker.bootstrap, Path(temporary), args.repeats):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
