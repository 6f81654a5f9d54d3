"""Scenario of a seed: settings of the pipeline, source partitions that fall silent, and the end of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from skewless import topology
from skewless.algorithms.grouping import GROUPINGS

MODES = ("final", "idle", "open", "shapes")
"""Features that a seed may have: `emit: final`, silent partitions, a run that does not drain, sizes of its own."""
CHANCES = {"final": 0.5, "idle": 0.5, "open": 0.75, "shapes": 0.8}
SHORT: dict[str, Any] = {"window_s": 15.0, "tick_s": 15.0}
"""Windows and ticks so short that some of them end while a stage is away."""
LATENESS_S = 20
COMMITS = 10
"""Four stages commit one after another; each may just have missed a commit."""
GRACE_S = 2.0


@dataclass(frozen=True)
class Silence:
    """A span in which a source partition has no new records, in seconds of the feed."""

    partition: int
    begin_s: float
    end_s: float | None
    """None if it lasts to the end of the run."""
    delayed: bool = False
    """Whether the records of the span are written when it ends. Otherwise nobody ever writes them."""

    def covers(self, second: float) -> bool:
        """Return whether the partition is silent at this second."""
        return self.begin_s <= second and (self.end_s is None or second < self.end_s)

    def __str__(self) -> str:
        end = "the end" if self.end_s is None else f"{self.end_s:.0f} s"
        return f"{self.partition} from {self.begin_s:.0f} s to {end}{' delayed' if self.delayed else ''}"


@dataclass(frozen=True)
class Scenario:
    """Settings of one run; the defaults are those of a run without any mode."""

    emit: Literal["updates", "final"] = "updates"
    drains: bool = True
    """Whether the run ends at the end of the source. Otherwise it is compared while it still runs."""
    idle_timeout_s: float | None = None
    silences: tuple[Silence, ...] = ()
    beats: bool = False
    """Whether partition 0 gets a few records after the end of the feed, so that not all partitions become idle."""
    absent: str | None = None
    """Stage that is away when the feed ends and partitions become idle, if absences are among the faults."""
    partitions: int = 4
    aggregator_partitions: int = 2
    max_workers: int = 8
    workers: int = 8
    pane_s: float = 15.0
    window_s: float = 60.0
    tick_s: float = 60.0
    grouping: str = "even"
    commit_interval_s: float = 0.3

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
        """Longest time from the last record to complete results below the watermark."""
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

    def watermark(self, marks: dict[int, int]) -> int | None:
        """Return the event time up to which results must be complete some time after the feed's end.

        `marks` has the watermark of each source partition with records. Without idle exclusion every partition counts.
        With it, those that still get records count; when all are idle, the minimum of the last watermarks holds.
        """
        if self.idle_timeout_s is None and len(marks) < self.partitions:
            return None
        return marks.get(0) if self.beats else min(marks.values(), default=None)

    def highest(self, marks: dict[int, int]) -> int | None:
        """Return the event time beyond which no window may have closed."""
        if self.idle_timeout_s is None:
            return self.watermark(marks)
        return max(marks.values(), default=None)

    def __str__(self) -> str:
        silent = ", ".join(map(str, self.silences)) or "none silent"
        return (
            f"{self.emit}, {'drains' if self.drains else 'open'}{', beats' if self.beats else ''}, "
            f"{f'{self.absent} away at the end, ' if self.absent else ''}"
            f"{f'idle after {self.idle_timeout_s:g} s ({silent})' if self.idle_timeout_s else 'never idle'}, "
            f"{self.partitions} source and {self.aggregator_partitions} aggregator partitions, "
            f"{self.workers} of {self.max_workers} workers, {self.grouping}, windows of {self.window_s:g} s, "
            f"ticks of {self.tick_s:g} s, commits every {self.commit_interval_s:g} s"
        )


def draw(seed: int, modes: Sequence[str], seconds: float, *, always: bool = False) -> Scenario:
    """Choose a scenario; `modes` are the features that the seed may turn on, or must with `always`."""
    chance = Random(f"scenario/{seed}")  # noqa: S311 - seeded, not secret
    has = {mode: chance.random() < CHANCES[mode] or always for mode in MODES}
    has = {mode: on and mode in modes for mode, on in has.items()}
    sizes = _sizes(chance) if has["shapes"] else SHORT if has["idle"] else {}
    partitions = sizes.get("partitions", Scenario.partitions)
    idle = chance.choice((1.5, 3.0, 5.0))
    silences = _silences(chance, partitions, idle, seconds)
    beats = chance.random() < 0.5
    absent = chance.choice((None, *(row.name for row in topology.STAGES)))
    if absent and not beats and has["idle"] and has["open"]:
        # All partitions must become idle in one batch. Among several, those that are ahead would close the windows.
        sizes, silences = {**sizes, "partitions": 1}, ()
    return Scenario(
        emit="final" if has["final"] else "updates",
        drains=not has["open"],
        idle_timeout_s=idle if has["idle"] else None,
        silences=silences if has["idle"] else (),
        beats=beats and has["idle"] and has["open"],
        absent=absent if has["idle"] and has["open"] else None,
        **sizes,
    )


def _sizes(chance: Random) -> dict[str, Any]:
    pane = chance.choice((5.0, 15.0))
    most = chance.choice((2, 4, 8, 16))
    return {
        "partitions": chance.randint(1, 8),
        "aggregator_partitions": chance.randint(1, 4),
        "max_workers": most,
        "workers": chance.randint(1, most),
        "pane_s": pane,
        "window_s": pane * chance.choice((1, 2, 4)),
        "tick_s": pane * chance.choice((1, 2, 4)),
        "grouping": chance.choice(sorted(GROUPINGS)),
        "commit_interval_s": chance.choice((0.1, 0.3, 0.5, 1.0)),
    }


def _silences(chance: Random, partitions: int, idle_s: float, seconds: float) -> tuple[Silence, ...]:
    """Choose some partitions that fall silent; partition 0 never does while the feed lasts."""
    chosen = [partition for partition in range(1, partitions) if chance.random() < 0.5]
    return tuple(_silence(chance, partition, idle_s, seconds) for partition in chosen)


def _silence(chance: Random, partition: int, idle_s: float, seconds: float) -> Silence:
    begin = chance.uniform(0.1, 0.7) * seconds
    if chance.random() < 0.4:
        return Silence(partition, 0.0 if chance.random() < 0.2 else begin, None)
    return Silence(partition, begin, begin + chance.uniform(5.0, 8.0) * idle_s, delayed=chance.random() < 0.5)
