"""Results of the demo: a table and texts for the console, and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from skewless.lab.demo.demo_plan import COST_MS, STREAM_S, Plan
from skewless.lab.demo.live_comparison import LiveResult
from skewless.wire.distribution import RunDistribution


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


NOTES = f"""\
A worker takes {COST_MS} ms per tuple. By key, the worker of the hot key limits the rate, and more workers do not help.
Workers per key: the price of an even load, because each of these workers keeps a partial count of the key.
dynamic_key adds at most one worker per key and minute, so {STREAM_S:.0f} s are only its warm-up. Longer runs:
docs/reference/published-experiment.md"""


def comparison_title(plan: Plan) -> str:
    """Return the title of the comparison."""
    return (
        f"Groupings side by side: {plan.stream_rate:,.0f} tuples/s, 80 % of them of one key; {plan.workers:,} workers "
        f"of {plan.worker_rate:,.0f} tuples/s each"
    )


def comparison(results: Sequence[LiveResult]) -> RenderableType:
    """Return a table with a column per grouping."""
    table = Table()
    table.add_column()
    for result in results:
        table.add_column(result.grouping, justify="right")
    table.add_row("tuples/s", *(Text(f"{result.tuples_per_s:,.0f}", "bold") for result in results))
    table.add_row(f"tuples that wait after {STREAM_S:.0f} s", *(f"{result.waiting:,}" for result in results))
    table.add_row("most loaded worker / average", *(f"{result.max_over_avg:.2f}" for result in results))
    table.add_row("workers per key", *(f"{result.replication_factor:.2f}" for result in results))
    return table
