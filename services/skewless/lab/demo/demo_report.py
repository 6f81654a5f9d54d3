"""Results of the demo: tables for the console, and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from skewless.lab.demo.reference_count import WindowCounts
from skewless.wire.distribution import RunDistribution

TOP_KEYS = 5
LAST_WINDOWS = 3
MAX_KEY_LENGTH = 30


@dataclass(frozen=True)
class RunResult:
    """Result of one pipeline's run. The fields are also the names in the JSON."""

    grouping: str
    counted: int
    """Sum of all final counts."""
    wrong: tuple[str, ...]
    """Differences from the reference count; empty if the result is exact."""
    seconds: float
    """From the start of its processes to the exit of the last one."""
    counting_s: float
    """From the first tuple to the commit of the last counts."""
    memory_bytes: int
    """Peak resident memory of all its processes together."""
    distribution: RunDistribution

    @property
    def exact(self) -> bool:
        """True if the count of every window and key is correct."""
        return not self.wrong

    @property
    def rate(self) -> float:
        """Tuples per second between the first tuple and the commit of the last counts."""
        return self.counted / self.counting_s if self.counting_s else 0.0

    def __str__(self) -> str:
        if not self.exact:
            return "NOT EXACT: " + "; ".join(self.wrong)
        memory = self.memory_bytes / 1e6
        return f"exact: {self.counted:,} tuples counted, {self.rate:,.0f} tuples/s, peak memory {memory:,.0f} MB"

    def to_json(self) -> dict[str, object]:
        """Return the result as a JSON object."""
        distribution = {name: getattr(self.distribution, name) for name in self.distribution.__struct_fields__}
        return asdict(self) | {"exact": self.exact, "tuples_per_s": self.rate, "distribution": distribution}


LEGEND = """\
max/avg: load of the most loaded worker / average load. If workers are the bottleneck, it divides the throughput.
Workers per key: the price of an even load, because each of these workers keeps a partial count of the key.
Exact: every key of every window has the count that the demo computed itself, without Kafka."""


def comparison(results: Sequence[RunResult]) -> RenderableType:
    """Return a table with a column per grouping."""
    table = Table(title="Groupings side by side", title_justify="left", title_style="bold")
    table.add_column()
    for result in results:
        table.add_column(result.grouping, justify="right")
    distributions = [result.distribution for result in results]
    table.add_row(
        "load: standard deviation, % points",
        *(f"{distribution.load_stddev_percent:.2f}" for distribution in distributions),
    )
    table.add_row("load: imbalance", *(f"{distribution.imbalance:.4f}" for distribution in distributions))
    table.add_row("load: max/avg", *(f"{distribution.max_over_avg:.2f}" for distribution in distributions))
    table.add_row("workers per key", *(f"{distribution.replication_factor:.2f}" for distribution in distributions))
    table.add_row("tuples/s on this machine", *(f"{result.rate:,.0f}" for result in results))
    table.add_row("seconds, including start and stop", *(f"{result.seconds:.1f}" for result in results))
    table.add_row("tuples counted", *(f"{result.counted:,}" for result in results))
    table.add_row("exact", *(Text("yes", "green") if result.exact else Text("NO", "red") for result in results))
    return table


def top_keys(counts: WindowCounts, windows: Sequence[int]) -> RenderableType:
    """Return a table of the most frequent keys of the last windows."""
    table = Table(title="Most frequent keys of the last windows", title_justify="left", title_style="bold")
    table.add_column("window from (UTC)", no_wrap=True)
    table.add_column("keys")
    by_window: dict[int, Counter[str]] = {window: Counter() for window in windows[-LAST_WINDOWS:]}
    for (window, key), count in counts.items():
        if window in by_window:
            by_window[window][key] = count
    for window, key_counts in by_window.items():
        keys = "  ".join(f"{_short(key)} {count:,}" for key, count in key_counts.most_common(TOP_KEYS))
        table.add_row(_time(window), Text(keys))
    return table


def _short(key: str) -> str:
    printable = key if key.isprintable() else ascii(key)
    return printable if len(printable) <= MAX_KEY_LENGTH else printable[: MAX_KEY_LENGTH - 1] + "…"


def _time(instant_ms: int) -> str:
    return datetime.fromtimestamp(instant_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
