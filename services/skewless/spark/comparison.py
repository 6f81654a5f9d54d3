"""Compares runs that had the same input: which one completed the most tuples, and why. Does not use Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from skewless.config.pipeline_settings import PipelineSettings

Run = Mapping[str, Any]
"""Measures of a run (`skewless.spark.evaluation_json`)."""

CLEAR = 1.05
"""Ratio of two measures from which on they differ. Smaller differences may be noise."""
MAX_NAMED = 3
"""Number of other runs that a sentence names; of more of them it names the slowest."""


class Compared(NamedTuple):
    """Measures of a run that a comparison states."""

    name: str
    tuples_per_s: float | None
    """Tuples that the workers completed per second; None if not measured."""
    waiting: int | None
    max_over_avg: float


def comparisons(settings: Sequence[PipelineSettings], runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return a JSON object for each input of the runs: indices of its `runs`, their `names`, and a `summary`.

    Runs have the same input if they read the same topics by the same rules from the same tick on.
    """
    inputs: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    by_name = {each.full_name: each for each in settings}
    for index, run in enumerate(runs):
        parsing = by_name[run["pipeline"]].splitter.model_dump_json(exclude={"local"})
        inputs[run["source"], parsing, str(run["ticks"][0]["tick_start"])].append(index)
    return [_comparison(indices, [runs[index] for index in indices]) for indices in inputs.values()]


def _comparison(indices: Sequence[int], runs: Sequence[Run]) -> dict[str, Any]:
    names = _names(runs)
    text = summary([_compared(name, run) for name, run in zip(names, runs, strict=True)])
    measured = [run["completed"] for run in runs if run["completed"]]
    if measured and max(each["first_at"] for each in measured) > min(each["last_at"] for each in measured):
        text += " They did not run at the same time."
    return {"runs": list(indices), "names": names, "summary": text}


def _compared(name: str, run: Run) -> Compared:
    completed = run["completed"] or {"tuples_per_s": None, "waiting": None}
    return Compared(name, completed["tuples_per_s"], completed["waiting"], run["max_over_avg"])


def _names(runs: Sequence[Run]) -> list[str]:
    """Return the shortest names by which the runs differ."""
    choices: list[Callable[[Run], str]] = [
        lambda run: str(run["grouping"]),
        lambda run: f"{run['grouping']} on {run['workers']} workers",
    ]
    for name in choices:
        names = [name(run) for run in runs]
        if len(set(names)) == len(names):
            return names
    return [f"{run['pipeline']}: {run['grouping']} on {run['workers']} workers" for run in runs]


def summary(runs: Sequence[Compared]) -> str:
    """Return a sentence: which run completed the most tuples per second, by how much, and why."""
    measured = [(run.tuples_per_s, run) for run in runs if run.tuples_per_s is not None]
    if len(runs) == 1:
        return _summary_of_one(runs[0])
    if len(measured) < len(runs):
        return f"The most loaded worker got {_loads(runs)}; what the workers completed was not measured for all runs."
    ordered = [run for _, run in sorted(measured, key=lambda each: -each[0])]
    best, slowest = ordered[0], ordered[-1]
    leaders = [run for run in ordered if _ratio(best, run) < CLEAR]
    everyone = listed([run.name for run in runs])
    if len(leaders) == len(runs):
        return (
            f"On the same input, {everyone} completed about the same number of tuples per second "
            f"({_rate(slowest)} to {_rate(best)}); the most loaded worker got {_loads(runs)}."
        )
    others = ordered[len(leaders) :][::-1]
    named = others if len(others) <= MAX_NAMED else others[:1]
    factors = listed([_factor(best, run) for run in named])
    reason = (
        f", because its most loaded worker got {best.max_over_avg:.2f} times the average load, and that of "
        f"{slowest.name} {slowest.max_over_avg:.2f} times"
        if best.max_over_avg * CLEAR < slowest.max_over_avg
        else ""
    )
    subject = best.name if len(leaders) == 1 else f"{best.name} (with {listed([run.name for run in leaders[1:]])})"
    return (
        f"Of {everyone} on the same input, {subject} completed the most tuples: {_rate(best)} per second, {factors}"
        f"{reason}."
    )


def _summary_of_one(run: Compared) -> str:
    load = f"most loaded worker got {run.max_over_avg:.2f} times the average load"
    if run.tuples_per_s is None:
        return f"With {run.name}, the {load}; what the workers completed was not measured."
    return f"{run.name} completed {_rate(run)} tuples per second, and {run.waiting:,} waited at the end; its {load}."


def _ratio(best: Compared, run: Compared) -> float:
    if run.tuples_per_s == best.tuples_per_s:  # none, too
        return 1.0
    return (best.tuples_per_s or 0.0) / run.tuples_per_s if run.tuples_per_s else float("inf")


def _factor(best: Compared, run: Compared) -> str:
    if not run.tuples_per_s:
        return f"against none of {run.name}"
    return f"{_ratio(best, run):.1f} times the {_rate(run)} of {run.name}"


def _rate(run: Compared) -> str:
    return f"{run.tuples_per_s:,.0f}"


def _loads(runs: Sequence[Compared]) -> str:
    return listed([f"{run.max_over_avg:.2f} times the average load with {run.name}" for run in runs])


def listed(texts: Sequence[str]) -> str:
    """Return the texts as a list in a sentence."""
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
