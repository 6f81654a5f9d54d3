"""Sales by hour and category, from CSV lines to a SELECT: four workers and one flusher, killed at random."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from helpers.databases import Server, new_database
from helpers.input_lines import SALES, lines
from helpers.kafka import Pipeline, Source
from helpers.killer import Killer

pytestmark = pytest.mark.thorough

PARTITIONS = 4
COUNTERS = 4
KILLS = 8
SETTINGS: dict[str, dict[str, Any]] = {
    "splitter": {
        "format": {"name": "csv", "delimiter": ";", "columns": ["time", "category", "country", "quantity", "price"]},
        "key": {"fields": [{"field": "time", "name": "hour", "truncate": "hour"}, {"field": "category"}]},
        "value": {"field": "price", "times": "quantity", "decimals": 2},
        "time": {"field": "time", "unit": "iso8601"},
    },
    "worker_input": {"max_workers": COUNTERS},
    "router": {"workers": COUNTERS},
    "worker": {"pane_s": 3_600},
    "aggregator": {
        "window_s": 3_600,
        "aggregates": ["count", {"sum": "value", "as": "sum_amount"}, {"mean": "value", "as": "mean_amount"}],
    },
    "observer": {"tick_s": 86_400},
    "event_time": {"allowed_lateness_s": 3_600, "idle_timeout_s": None},
    "transport": {"commit_interval_s": 0.3, "session_timeout_s": 6},
    "replicas": {"worker": COUNTERS},
}
Row = tuple[str, str, int, Decimal, float]


def plain_count(sales: list[str]) -> set[Row]:
    """Count in a plain loop: hour, category, count, sum and mean of quantity times price."""
    counts: Counter[tuple[str, str]] = Counter()
    sums: defaultdict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for line in sales:
        sold, category, _, quantity, price = line.split(";")
        group = (f"{sold[:13].replace(' ', 'T')}:00:00Z", category)
        counts[group] += 1
        sums[group] += (Decimal(price) * Decimal(quantity)).quantize(Decimal("0.01"), ROUND_HALF_EVEN)
    return {(*group, count, sums[group], float(sums[group]) / count) for group, count in counts.items()}


@pytest.mark.timeout(900)
def test_sales_with_workers_and_flusher_killed_equal_a_plain_count(
    broker: str, database_servers: Callable[[str], Server], tmp_path: Path
) -> None:
    database = new_database("postgresql", database_servers, tmp_path)
    sink = {**database.settings, "mode": "merge", "table": "sales", "transaction_rows": 200, "transaction_s": 0.1}
    source, sales = Source(broker, PARTITIONS), list(lines(SALES))
    random = Random(3)  # noqa: S311 - kills are seeded, not secret
    pipeline = Pipeline(broker, tmp_path, source, **SETTINGS, sink=sink)
    victims = ["flusher-0", *(f"worker-{number}" for number in range(COUNTERS))]
    with pipeline.running() as supervisor:
        killer = Killer(supervisor)
        for number in range(KILLS):
            portion = sales[number * len(sales) // KILLS : (number + 1) * len(sales) // KILLS]
            source.send((index % PARTITIONS, line.encode()) for index, line in enumerate(portion))
            victim = "flusher-0" if number % 2 else random.choice(victims)
            killer.kill(victim, after_s=random.uniform(0.2, 2.0))
    pipeline.drain(limit_s=300)
    assert killer.killed["flusher-0"] >= KILLS / 2
    rows = database.query("SELECT hour, category, count, sum_amount, mean_amount FROM sales_results")
    assert len(rows) == len(set(rows))
    assert set(rows) == plain_count(sales)
    window = "to_char(window_start AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')"
    assert database.query(f"SELECT count(*) FROM sales WHERE {window} <> hour") == [(0,)]
