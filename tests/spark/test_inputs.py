"""Inputs of a pipeline, also with every stage killed: a plain count and an audit find the same results.

With $SKEWLESS_DATA the records are those of real files, and every case is run with kills, too (`make inputs`). Without
it, records of the same form are made up, and one case has kills. Each way to read records occurs in one case. A case
has several of them where no one of them changes what another one does.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from helpers.envelopes import attributes, change, structured, with_schema
from helpers.input_lines import FOLDER, LINES, PAGES, SALES, lines
from helpers.kafka import Pipeline, Record, Source, read
from helpers.waiting import WAIT_S
from skewless.cli.main import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.thorough

PARTITIONS = 3
BLOCK = 100
"""Consecutive records of a partition."""


def record(number: int, timestamp: int, value: str, key: str | None = None, **headers: str) -> Record:
    partition = number // BLOCK % PARTITIONS
    encoded = {name: text.encode() for name, text in headers.items()}
    return Record(partition, 0, timestamp, key.encode() if key else None, value.encode(), encoded)


def pages() -> list[Record]:
    """Return page views: the page is the record key. Every 500th record has none."""
    records = []
    for number, line in enumerate(lines(PAGES)):
        at, page = line.split("\t")
        records.append(record(number, int(at), line, None if number % 500 == 499 else page))
    return records


def pages_in_headers() -> list[Record]:
    """Return page views: page and time are headers. Every 500th record has none, and every 40th one has no value."""
    records = []
    for number, line in enumerate(lines(PAGES)):
        at, page = line.split("\t")
        headers = {} if number % 500 == 499 else {"page": page, "at": at}
        page_view = record(number, 0, line, **headers)
        records.append(replace(page_view, value=None) if number % 40 == 39 else page_view)
    return records


def changes() -> list[Record]:
    """Return page views as change events, half of them with a schema; every 50th is a delete and a tombstone."""
    records = []
    for number, line in enumerate(lines(PAGES)):
        at, page = line.split("\t")
        row = json.dumps({"page": page, "at": int(at)} if number % 500 != 499 else {"at": int(at)})
        event = change("d", before=row) if number % 50 == 7 else change("c", after=row)
        event = with_schema(event) if number % 2 else event
        records.append(record(number, int(at), event.decode()))
        if number % 50 == 7:
            records.append(replace(records[-1], value=None))
    return records


def events() -> list[Record]:
    """Return page views as CloudEvents, structured and binary in turn. Every 500th has no page."""
    records = []
    for number, line in enumerate(lines(PAGES)):
        at, page = line.split("\t")
        data = {"page": page} if number % 500 != 499 else {}
        time = datetime.fromtimestamp(int(at) / 1000, UTC).isoformat()
        if number % 2:
            records.append(record(number, 0, structured(time=time, data=data).decode()))
        else:
            headers = {name: (value or b"").decode() for name, value in attributes()} | {"ce_time": time}
            records.append(record(number, 0, json.dumps(data), **headers))
    return records


def sales() -> list[Record]:
    """Return sales of `time;category;country;quantity;unit_price`. Every 700th line has only its time."""
    return [
        record(number, 0, line.split(";")[0] if number % 700 == 699 else line)
        for number, line in enumerate(lines(SALES))
    ]


@dataclass(frozen=True)
class Counted:
    """A tuple by the plain definition of a case."""

    key: str
    time: int
    amount: Decimal = Decimal(0)


Outcome = Counted | str
"""A tuple, or why there is none: `invalid` or `filtered`."""


def by_record_key(found: Record) -> Outcome:
    return "invalid" if found.key is None else Counted(found.key.decode(), found.timestamp)


def by_partition(found: Record) -> Outcome:
    return Counted(str(found.partition), found.timestamp)


def by_headers(found: Record) -> Outcome:
    if found.value is None:
        return "filtered"
    if "page" not in found.headers:
        return "invalid"
    return Counted(found.headers["page"].decode(), int(found.headers["at"]))


def by_change(found: Record) -> Outcome:
    event = json.loads(found.value or b"null")
    event = event["payload"] if event and "payload" in event else event
    if event is None or event["op"] == "d":
        return "filtered"
    row = event["after"]
    return Counted(row["page"], row["at"]) if "page" in row else "invalid"


def by_event(found: Record) -> Outcome:
    event = json.loads(found.value or b"")
    data = event.get("data", event)
    at = event["time"] if "time" in event else found.headers["ce_time"].decode()
    return Counted(data["page"], round(datetime.fromisoformat(at).timestamp() * 1000)) if "page" in data else "invalid"


def sale(found: Record) -> tuple[datetime, list[str]]:
    sold, *rest = (found.value or b"").decode().split(";")
    return datetime.fromisoformat(sold).replace(tzinfo=UTC), rest


def by_hour_and_category(found: Record) -> Outcome:
    sold, rest = sale(found)
    if not rest:
        return "invalid"
    category, _, quantity, price = rest
    hour = sold.replace(minute=0, second=0).strftime("%Y-%m-%dT%H:%M:%SZ")
    amount = (Decimal(price) * Decimal(quantity)).quantize(Decimal("0.01"), ROUND_HALF_EVEN)
    key = json.dumps([category, hour], separators=(",", ":"), ensure_ascii=False)
    return Counted(key, round(sold.timestamp() * 1000), amount)


def by_quantity_abroad(found: Record) -> Outcome:
    sold, rest = sale(found)
    if not rest:
        return "filtered"
    _, country, quantity, price = rest
    if country == "United Kingdom" or Decimal(quantity) <= 0:
        return "filtered"
    return Counted(quantity, round(sold.timestamp() * 1000), Decimal(price))


@dataclass(frozen=True)
class Case:
    """Records, how a pipeline reads them, and the plain definition of its tuples."""

    records: Callable[[], list[Record]]
    outcome: Callable[[Record], Outcome]
    parts: dict[str, Any]
    sum: str | None = None
    """Name of the result that is the sum of the amounts."""
    start: int | None = None
    """Number of the record whose time is `source.start`."""
    topics: int = 1
    """Number of source topics, each of which has a part of the records and one partition more than the previous one."""
    results: int = 100
    """Minimum number of results."""


CSV = {
    "format": {"name": "csv", "delimiter": ";", "columns": ["time", "category", "country", "quantity", "unit_price"]},
    "time": {"field": "time", "unit": "iso8601"},
}
DAY: dict[str, Any] = {"worker": {"pane_s": 3_600}, "observer": {"tick_s": 3_600}}
"""Ticks of an hour end in each portion of the records. Otherwise the observer writes only every two minutes."""
CASES = {
    # The default way to read a record.
    "two topics from a time": Case(pages, by_record_key, {"splitter": None}, start=LINES // 12, topics=2),
    "headers and tombstones": Case(
        pages_in_headers,
        by_headers,
        {"splitter": {"key": {"header": "page"}, "value": {}, "time": {"header": "at"}, "tombstones": "skip"}},
    ),
    "change events": Case(
        changes,
        by_change,
        {"splitter": {"envelope": "debezium", "key": {"field": "page"}, "value": {}, "time": {"field": "at"}}},
    ),
    "cloud events": Case(
        events,
        by_event,
        {
            "splitter": {
                "envelope": "cloudevents",
                "key": {"field": "page"},
                "value": {},
                "time": {"header": "ce_time", "unit": "iso8601"},
            }
        },
    ),
    "composite key": Case(
        sales,
        by_hour_and_category,
        {
            **DAY,
            "splitter": {
                **CSV,
                "key": {"fields": [{"field": "category"}, {"field": "time", "name": "hour", "truncate": "hour"}]},
                "value": {"field": "unit_price", "times": "quantity", "decimals": 2},
            },
            "aggregator": {"window_s": 86_400, "aggregates": ["count", {"sum": "value", "as": "amount"}]},
        },
        sum="amount",
    ),
    # The audit compares the sketches of the stream with those of the batch.
    "where, distinct and quantiles": Case(
        sales,
        by_quantity_abroad,
        {
            **DAY,
            "splitter": {
                **CSV,
                "key": {"field": "quantity"},
                "values": {
                    "item": {"field": "category", "kind": "text"},
                    "price": {"field": "unit_price", "decimals": 2},
                },
                "where": [{"field": "country", "is_not": "United Kingdom"}, {"field": "quantity", "above": 0}],
            },
            "aggregator": {
                "window_s": 86_400,
                "aggregates": [
                    "count",
                    {"sum": "price", "as": "amount"},
                    {"distinct": "item"},
                    {"quantile": "price", "at": [0.5, 0.99]},
                ],
            },
        },
        sum="amount",
        results=30,
    ),
    "partitions of two topics": Case(
        pages,
        by_partition,
        {"splitter": {"format": "text", "key": {"from": "partition"}, "value": {}, "time": {}}},
        topics=2,
    ),
}
FILTERED = {"headers and tombstones", "change events", "where, distinct and quantiles"}
KILLED = {"composite key"}
RUNS = (
    [(name, killed) for name in CASES for killed in (False, True)]
    if FOLDER
    else [(name, name in KILLED) for name in CASES]
)
"""Case, and whether every stage is killed."""


@pytest.mark.parametrize(("name", "killed"), RUNS, ids=[f"{name}{', killed' * killed}" for name, killed in RUNS])
def test_pipeline_each_input_equals_a_plain_count_and_the_audit(
    name: str, *, killed: bool, broker: str, spark: SparkSession, tmp_path: Path
) -> None:
    case = CASES[name]
    records = case.records()
    sources = [Source(broker, PARTITIONS + number) for number in range(case.topics)]
    source = SeveralSources(sources)
    start = 0 if case.start is None else records[case.start].timestamp
    pipeline = Pipeline(
        broker,
        tmp_path,
        sources[0],
        event_time={"allowed_lateness_s": 3_600, "idle_timeout_s": None},
        transport={"commit_interval_s": 0.5, "session_timeout_s": 6},
        kafka={"connect_timeout_s": WAIT_S},
        source=({} if case.start is None else {"start": start})
        | ({} if case.topics == 1 else {"topic": None, "topics": [each.topic for each in sources]}),
        **case.parts,
    )
    if killed:
        pipeline.run_with_kills(source, records)
    else:
        source.send(records)
    pipeline.drain(limit_s=300)
    expected, outcomes = plain_count(broker, pipeline, case, start)
    found, wrong = pipeline.results()
    assert wrong == []
    assert {at: (fact["count"], decimal(fact, case)) for at, fact in found.items()} == expected
    assert all(parts_of(fact, pipeline) == parts_in(fact, pipeline) for fact in found.values())
    report = audited(pipeline)
    assert (report["compared"], report["late"]) == (len(expected), 0)
    assert report["dead_letters"] == pipeline.count("dead-letters") == outcomes["invalid"]
    assert report["records"] == outcomes.total()
    assert len(expected) > case.results
    assert (outcomes["filtered"] > 100) == (name in FILTERED)
    assert (outcomes.total() < LINES - 100) == (case.start is not None)


@dataclass(frozen=True)
class SeveralSources:
    """Source topics that share the records: each gets those of every second, third and so on."""

    sources: list[Source]

    def send(self, records: Iterable[Record]) -> None:
        """Write records, and wait until they have arrived."""
        remaining = list(records)
        for number, source in enumerate(self.sources):
            source.send_complete(remaining[number :: len(self.sources)])


def plain_count(
    broker: str, pipeline: Pipeline, case: Case, start: int
) -> tuple[dict[tuple[int, str], tuple[int, Decimal]], Counter[str]]:
    """Count in a plain loop. Returns count and sum by window and key, and the number of records of each outcome."""
    window_ms = pipeline.settings.aggregator.window_ms
    counts: Counter[tuple[int, str]] = Counter()
    sums: defaultdict[tuple[int, str], Decimal] = defaultdict(Decimal)
    outcomes: Counter[str] = Counter()
    started = set[tuple[str, int]]()
    topics = pipeline.settings.aggregated.select(())
    for topic, found in ((name, record) for name in topics for record in read(broker, name)):
        if found.timestamp >= start:
            started.add((topic, found.partition))
        if (topic, found.partition) not in started:
            continue
        outcome = case.outcome(found)
        outcomes[outcome if isinstance(outcome, str) else "tuple"] += 1
        if isinstance(outcome, Counted):
            at = (outcome.time // window_ms * window_ms, outcome.key)
            counts[at] += 1
            sums[at] += outcome.amount
    return {at: (count, sums[at]) for at, count in counts.items()}, outcomes


def decimal(fact: dict[str, Any], case: Case) -> Decimal:
    """Return the sum of a result; these sums have fewer digits than a double keeps."""
    return Decimal(0) if case.sum is None else Decimal(str(fact[case.sum]))


def parts_in(fact: dict[str, Any], pipeline: Pipeline) -> list[str]:
    """Return the parts of a key that are fields of its result."""
    return [fact[part] for part in pipeline.settings.splitter.key.parts]


def parts_of(fact: dict[str, Any], pipeline: Pipeline) -> list[str]:
    """Return the parts of a key by its text."""
    return list(json.loads(fact["key"])) if pipeline.settings.splitter.key.parts else []


def audited(pipeline: Pipeline) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["audit", "-f", str(pipeline.file), "--json"])
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    assert (report["differences"], report["left_out"], report["settled"]) == (0, {}, True)
    return report
