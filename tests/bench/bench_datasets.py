"""Every data set of the evaluation through the whole pipeline, a process per stage, then audited by Spark.

    PYTHONPATH=tests python tests/bench/bench_datasets.py [--page FILE] [--records 1000000]

Prints one JSON line per data set and grouping. With --page it also writes the page of the documentation (`make
datasets`), which needs the folder of real data in $SKEWLESS_DATA. Without this folder all data sets are generated.
Exits with code 1 when an audit finds a difference.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import datasets_page
from skewless.cli.audit_scope import find
from skewless.config.pipeline_settings import PipelineSettings
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.producer.bulk import BulkProducer, prepare_topic
from skewless.kafka.settings import KafkaSettings
from skewless.lab.datasets import DatasetOptions, find_dataset, take
from skewless.lab.datasets.produce_run import Summary
from skewless.lab.datasets.produce_run import run as produce
from skewless.lab.demo.demo_pipeline import drain
from skewless.lab.demo.demo_plan import SOURCE_PARTITIONS, Plan, window_for
from skewless.lab.demo.read_results import read_counts, read_distribution
from skewless.lab.local.broker import Broker
from skewless.spark import audit_job
from skewless.spark.job_runner import spark_running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GROUPINGS = ("partial_key", "even")
SPARK = {"master": "local[2]", "packages": (), "ship": False, "driver_memory": "2g", "ui": False, "conf": ()}


@dataclass(frozen=True, slots=True)
class Case:
    """One data set, by its name in `skewless produce`, and its real files."""

    name: str
    files: str = ""
    """Pattern of file names in the folder of real data. If it is empty, the records are generated."""

    def options(self, folder: Path | None) -> DatasetOptions:
        found = tuple(sorted(folder.glob(self.files))) if folder and self.files else ()
        if folder and self.files and not found:
            sys.exit(f"error: no {self.files} in {folder}")
        return DatasetOptions(input=found)


CASES = (
    *(Case(f"COUNTRY_SKEW_R{skew}") for skew in range(0, 101, 10)),
    Case("COUNTRY_HALF_SKEW_R80"),
    Case("country", "country_hotel_resort.txt.zst"),
    Case("country", "country_retail_*.txt.zst"),
    Case("TWITTER_TICKER", "twitter_ticker_*.jsonl.zst"),
    Case("TWITTER_ELECTION", "twitter_election_*.jsonl.zst"),
    Case("WIKIPEDIA_PAGEVIEWS", "wiki_edits_by_page_*.tsv.zst"),
    Case("WIKIPEDIA_PAGEVIEWS", "http_nasa_by_page_*.tsv.zst"),
    Case("WIKIPEDIA_PAGEVIEWS_BY_LANG", "pagecounts-*.txt.zst"),
    Case("WIKIPEDIA_CLICKSTREAM", "clickstream-*.tsv.zst"),
    Case("WIKIPEDIA_CLICKSTREAM", "wikispeedia_clicks_a.tsv.zst"),
    Case("sales", "retail_hour_category_*.csv.zst"),
    Case("edits", "wiki_edits_hour_category_*.csv.zst"),
    Case("impressions", "ads_obd_men_impressions.csv.zst"),
    Case("clicks", "ads_obd_men_clicks.csv.zst"),
    Case("zipf"),
)


@dataclass(frozen=True, slots=True)
class Bench:
    """Parameters of all runs."""

    kafka: KafkaSettings
    spark: SparkSession
    folder: Path
    data: Path | None
    records: int

    def run(self, number: int, case: Case) -> Iterator[dict[str, Any]]:
        """Produce the data set once; run a pipeline per grouping over it, and audit each."""
        options = case.options(self.data)
        name = case.name.lower().replace("_", "-")
        topic = f"{number:02}-{name}"
        sent = self._produce(case, options, topic)
        window_s = window_for((sent.last_ms or 0) - (sent.first_ms or 0))
        for grouping in GROUPINGS:
            settings = self._pipeline(name, options, topic, grouping, window_s)
            start = time.monotonic()
            drain(settings, self.folder, lambda _now, _snapshot: None, lambda event: print(event, file=sys.stderr))
            seconds = time.monotonic() - start
            yield {
                "bench": "datasets",
                "dataset": case.name,
                "files": [path.name for path in options.input],
                "records": sent.records,
                "window_s": window_s,
                "seconds": round(seconds, 1),
                **self._found(settings),
            }

    def _produce(self, case: Case, options: DatasetOptions, topic: str) -> Summary:
        dataset = find_dataset(case.name)
        sender = BulkProducer(self.kafka, topic, prepare_topic(self.kafka, topic, SOURCE_PARTITIONS))
        expected = None if options.input else dataset.generated_records and min(dataset.generated_records, self.records)
        options = DatasetOptions(input=options.input, records=expected)
        return produce(take(dataset.batches(options), expected), sender, expected, None, None)

    def _pipeline(
        self, name: str, options: DatasetOptions, topic: str, grouping: str, window_s: float
    ) -> PipelineSettings:
        plan = Plan(name, options, (grouping,), 10)
        settings = plan.pipeline(self.kafka.bootstrap_servers, window_s)
        source = settings.aggregated.model_copy(update={"topic": topic})
        named = f"{topic}-{grouping.replace('_', '-')}"
        return settings.model_copy(update={"name": named, "source": source})

    def _found(self, settings: PipelineSettings) -> dict[str, Any]:
        scope = find(OffsetReader(settings.kafka), settings)
        written = audit_job.read(
            self.spark,
            settings,
            source_ranges=scope.source_ranges,
            offset_ranges=scope.offset_ranges,
            closed_until=scope.closed_until,
            ranks_closed_until=scope.ranks_closed_until,
        )
        with closing(audit_job.answer_of(written, settings)) as answer:
            entries = audit_job.compare(written, answer, settings)
        keys: Counter[str] = Counter()
        for (_, key), count in read_counts(settings).items():
            keys[key] += count
        run = read_distribution(settings).run
        return {
            "grouping": settings.router.grouping,
            "workers": settings.router.workers,
            "tuples": entries["tuples"],
            "late": entries["late"],
            "dead_letters": sum(entries["dead_letters_by_reason"].values()),
            "keys": len(keys),
            "p1": round(max(keys.values(), default=0) / max(keys.total(), 1), 4),
            "settled": scope.settled,
            "compared": entries["compared"],
            "windows": entries["compared_windows"],
            "left_out": entries["left_out"],
            "differences": entries["differences"],
            "max_over_avg": run.max_over_avg,
            "replication_factor": run.replication_factor,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000, help="records of each data set that is made up")
    parser.add_argument("--only", default="", help="only data sets whose name has this in it")
    parser.add_argument("--page", type=Path)
    args = parser.parse_args()
    data = os.environ.get("SKEWLESS_DATA")
    if args.page and not data:
        sys.exit("error: SKEWLESS_DATA is not set: name the folder of real data, or leave --page away")
    found = []
    with tempfile.TemporaryDirectory() as folder, spark_running("audit", SPARK) as spark:
        broker = Broker(Path(folder) / "broker")
        try:
            broker.start()
            client = KafkaSettings(bootstrap_servers=broker.bootstrap)
            bench = Bench(client, spark, Path(folder), Path(data) if data else None, args.records)
            for number, case in enumerate(CASES):
                if args.only.lower() in case.name.lower():
                    for entries in bench.run(number, case):
                        print(json.dumps(entries), flush=True)
                        found.append(entries)
        finally:
            broker.stop()
    if args.page:
        args.page.write_text(datasets_page.render(found), encoding="utf-8")
    sys.exit(any(entries["differences"] or not entries["compared"] for entries in found))


if __name__ == "__main__":
    main()
