"""Scenario of a seed: settings of the pipeline, source partitions that become silent, and the end of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from helpers.kafka import STAGES
from skewless.algorithms.grouping import GROUPINGS

MODES = ("final", "idle", "open", "shapes", "join")
"""Features of a scenario: `emit: final`, silent partitions, a run that is not drained, other sizes, a join of two more
topics."""
CHANCES = {"final": 0.5, "idle": 0.5, "open": 0.75, "shapes": 0.8, "join": 0.5}
Repartition = Literal["never", "always"]
SHORT: dict[str, Any] = {"window_s": 15.0, "tick_s": 15.0}
"""Windows and ticks so short that some of them end while a stage is stopped."""
LATENESS_S = 20
COMMITS = 10
"""Delay in s of four stages that commit one after another, each just after a missed commit."""
GRACE_S = 2.0


@dataclass(frozen=True)
class Silence:
    """A span in which a source partition has no new records, in seconds of the feed."""

    partition: int
    begin_s: float
    end_s: float | None
    """End of the span; None if it lasts to the end of the run."""
    delayed: bool = False
    """Whether the records of the span are written when it ends. Otherwise they are never written."""

    def covers(self, second: float) -> bool:
        """Return whether the partition is silent at this second."""
        return self.begin_s <= second and (self.end_s is None or second < self.end_s)

    def __str__(self) -> str:
        end = "the end" if self.end_s is None else f"{self.end_s:.0f} s"
        return f"{self.partition} from {self.begin_s:.0f} s to {end}{' delayed' if self.delayed else ''}"


@dataclass(frozen=True)
class Scenario:
    """Settings of one run. The defaults are those of a run without any feature."""

    emit: Literal["updates", "final"] = "updates"
    drains: bool = True
    """Whether the run ends at the end of the source. Otherwise it is compared while it runs."""
    idle_timeout_s: float | None = None
    silences: tuple[Silence, ...] = ()
    beats: bool = False
    """Whether partition 0 gets a few records after the end of the feed, so that not all partitions become idle."""
    absent: str | None = None
    """Stage that is stopped when the feed ends and partitions become idle, if absences are among the faults."""
    partitions: int = 4
    aggregator_partitions: int = 2
    max_workers: int = 8
    workers: int = 8
    pane_s: float = 15.0
    window_s: float = 60.0
    tick_s: float = 60.0
    grouping: str = "even"
    commit_interval_s: float = 0.3
    join: Repartition | None = None
    """Whether the pipeline also joins two topics, and whether it repartitions them."""

    @property
    def window_ms(self) -> int:
        """Length of a window in milliseconds."""
        return round(self.window_s * 1000)

    @property
    def tick_ms(self) -> int:
        """Length of a tick in milliseconds."""
        return round(self.tick_s * 1000)

    @property
    def complete_within_s(self) -> float:
        """Longest expected time from the last record to complete results below the watermark."""
        return COMMITS * self.commit_interval_s + GRACE_S + (self.idle_timeout_s or 0.0)

    def parts(self) -> dict[str, dict[str, Any]]:
        """Return the sections of the pipeline's file."""
        return {
            "event_time": {"allowed_lateness_s": LATENESS_S, "idle_timeout_s": self.idle_timeout_s},
            "aggregator": {"emit": self.emit, "window_s": self.window_s},
            "observer": {"tick_s": self.tick_s},
            "worker": {"pane_s": self.pane_s},
            "worker_input": {"max_workers": self.max_workers},
            "router": {"workers": self.workers, "grouping": self.grouping},
            "topics": {"aggregator_partitions": self.aggregator_partitions},
        }

    def watermark(self, watermarks: dict[int, int]) -> int | None:
        """Return the event time up to which results must be complete some time after the feed's end.

        `watermarks` contains source partitions with records only. Without idle exclusion every partition counts.
        With idle exclusion only active partitions count; if all are idle, the minimum of the last watermarks is used.
        """
        if self.idle_timeout_s is None and len(watermarks) < self.partitions:
            return None
        return watermarks.get(0) if self.beats else min(watermarks.values(), default=None)

    def highest(self, watermarks: dict[int, int]) -> int | None:
        """Return the latest event time at which a window can have closed."""
        if self.idle_timeout_s is None:
            return self.watermark(watermarks)
        return max(watermarks.values(), default=None)

    def __str__(self) -> str:
        silent = ", ".join(map(str, self.silences)) or "none silent"
        return (
            f"{self.emit}, {'drains' if self.drains else 'open'}{', beats' if self.beats else ''}, "
            f"{f'{self.absent} away at the end, ' if self.absent else ''}"
            f"{f'idle after {self.idle_timeout_s:g} s ({silent})' if self.idle_timeout_s else 'never idle'}, "
            f"{self.partitions} source and {self.aggregator_partitions} aggregator partitions, "
            f"{self.workers} of {self.max_workers} workers, {self.grouping}, windows of {self.window_s:g} s, "
            f"ticks of {self.tick_s:g} s, commits every {self.commit_interval_s:g} s, "
            f"{f'a join that {self.join} repartitions' if self.join else 'no join'}"
        )


def draw(seed: int, modes: Sequence[str], seconds: float, *, always: bool = False) -> Scenario:
    """Choose a scenario. `modes` are the features that the seed may turn on, or must with `always`."""
    rng = Random(f"scenario/{seed}")  # noqa: S311 - seeded, not secret
    chances = {mode: Random(f"join/{seed}") if mode == "join" else rng for mode in MODES}  # noqa: S311 - as above
    has = {mode: chances[mode].random() < CHANCES[mode] or always for mode in MODES}
    has = {mode: on and mode in modes for mode, on in has.items()}
    sizes = _sizes(rng) if has["shapes"] else SHORT if has["idle"] else {}
    partitions = sizes.get("partitions", Scenario.partitions)
    idle = rng.choice((1.5, 3.0, 5.0))
    silences = _silences(rng, partitions, idle, seconds)
    beats = rng.random() < 0.5
    absent = rng.choice((None, *STAGES))
    if absent and not beats and has["idle"] and has["open"]:
        # All partitions must become idle in one batch. With several, the partitions that are ahead would close the
        # windows.
        sizes, silences = {**sizes, "partitions": 1}, ()
    return Scenario(
        emit="final" if has["final"] else "updates",
        drains=not has["open"],
        idle_timeout_s=idle if has["idle"] else None,
        silences=silences if has["idle"] else (),
        beats=beats and has["idle"] and has["open"],
        absent=absent if has["idle"] and has["open"] else None,
        join=chances["join"].choice(("never", "always")) if has["join"] else None,
        **sizes,
    )


def _sizes(rng: Random) -> dict[str, Any]:
    pane = rng.choice((5.0, 15.0))
    most = rng.choice((2, 4, 8, 16))
    return {
        "partitions": rng.randint(1, 8),
        "aggregator_partitions": rng.randint(1, 4),
        "max_workers": most,
        "workers": rng.randint(1, most),
        "pane_s": pane,
        "window_s": pane * rng.choice((1, 2, 4)),
        "tick_s": pane * rng.choice((1, 2, 4)),
        "grouping": rng.choice(sorted(GROUPINGS)),
        "commit_interval_s": rng.choice((0.1, 0.3, 0.5, 1.0)),
    }


def _silences(rng: Random, partitions: int, idle_s: float, seconds: float) -> tuple[Silence, ...]:
    """Choose some partitions that become silent. Partition 0 never does while the feed lasts."""
    chosen = [partition for partition in range(1, partitions) if rng.random() < 0.5]
    return tuple(_silence(rng, partition, idle_s, seconds) for partition in chosen)


def _silence(rng: Random, partition: int, idle_s: float, seconds: float) -> Silence:
    begin = rng.uniform(0.1, 0.7) * seconds
    if rng.random() < 0.4:
        return Silence(partition, 0.0 if rng.random() < 0.2 else begin, None)
    return Silence(partition, begin, begin + rng.uniform(5.0, 8.0) * idle_s, delayed=rng.random() < 0.5)
