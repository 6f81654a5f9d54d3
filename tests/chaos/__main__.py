"""Long pipeline runs under faults: `python -m chaos --seeds 1-20 --faults kill,stop --modes final,open`."""
# ruff: noqa: T201 - it is a command, and prints what it found

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from chaos.ends import allowed
from chaos.run import Outcome, Plan, run
from chaos.scenario import MODES
from chaos.table import FAULTS

HEADER = (
    "| seed | emit | run | idle | join | kills | stops | broker | network | absences | duplicates, zombies | leaves "
    "| own ends | recovery s | complete s | drain s | MB | wrong |"
)
OF_BROKER = ("broker kills", "broker outages", "broker restarts", "broker stops", "disks full")


def main() -> int:
    """Run all seeds; returns 1 if a run was not exact. The logs of such runs are kept."""
    options = _options()
    folder = Path(options.folder or tempfile.mkdtemp(prefix="skewless-chaos-"))
    print(f"journals and logs: {folder}")
    outcomes = []
    for seed in options.seeds:
        place = folder / f"seed-{seed}"
        plan = Plan(
            seed,
            options.faults,
            records=options.records,
            seconds=options.seconds,
            modes=options.modes,
            always=options.always,
            patience=options.patience,
            brokers=options.brokers,
            strict=not options.lenient,
        )
        outcome = run(plan, place, shown=options.verbose)
        outcomes.append(outcome)
        if len(outcomes) == 1:
            print(HEADER)
        print(_row(outcome), *outcome.failures, sep="\n", flush=True)
        if not outcome.failures:
            shutil.rmtree(place / "broker", ignore_errors=True)
    print(_summary(outcomes))
    return 1 if any(outcome.failures for outcome in outcomes) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=_seeds, default=[1], help="such as 1-20 or 3,7")
    parser.add_argument("--faults", type=_faults, default=list(FAULTS), help=f"some of {','.join(FAULTS)}")
    parser.add_argument("--modes", type=_modes, default=list(MODES), help=f"some of {','.join(MODES)}, or none")
    parser.add_argument("--always", action="store_true", help="give every seed all of these modes")
    parser.add_argument("--patience", type=float, default=1.0, help="factor on the time to complete results")
    parser.add_argument("--brokers", type=int, default=1, help="1, or at least 3 that replicate all topics")
    parser.add_argument("--lenient", action="store_true", help="allow exit codes 1 and 3 without a reason")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the faults")
    parser.add_argument("--folder", help="where journals and logs go")
    parser.add_argument("--verbose", action="store_true", help="show the journal")
    return parser.parse_args()


def _seeds(text: str) -> list[int]:
    parts = [part.partition("-") for part in text.split(",")]
    return [seed for first, _, last in parts for seed in range(int(first), int(last or first) + 1)]


def _faults(text: str) -> list[str]:
    return _chosen(text, FAULTS)


def _modes(text: str) -> list[str]:
    return [] if text == "none" else _chosen(text, MODES)


def _chosen(text: str, known: Iterable[str]) -> list[str]:
    names = text.split(",") if text else list(known)
    if unknown := [name for name in names if name not in known]:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known are: {', '.join(known)}")
    return names


def _row(outcome: Outcome) -> str:
    count, scenario = Counter(outcome.counts), outcome.plan.scenario
    cells = (
        outcome.plan.seed,
        scenario.emit,
        "drains" if scenario.drains else "open",
        f"{scenario.idle_timeout_s:g} s" if scenario.idle_timeout_s else "-",
        scenario.join or "-",
        count["kills"],
        count["stops"],
        sum(count[name] for name in OF_BROKER),
        count["network cuts"],
        count["absences"],
        f"{count['duplicates']}, {count['zombies']}",
        count["leaves"],
        _codes(outcome.ends),
        f"{max(outcome.recoveries, default=0):.1f}",
        _complete(outcome),
        "-" if outcome.drained_s is None else f"{outcome.drained_s:.1f}",
        max(outcome.largest.values(), default=0),
        len(outcome.failures),
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def _codes(ends: Mapping[int, int]) -> str:
    return ", ".join(f"{count} with {code}" for code, count in sorted(ends.items())) or "0"


def _complete(outcome: Outcome) -> str:
    found = outcome.completion
    if found is None:
        return "-"
    return f"{'never' if found.seconds is None else f'{found.seconds:.1f}'} of {found.allowed_s:.1f}"


def _summary(outcomes: list[Outcome]) -> str:
    counts = sum((Counter(outcome.counts) for outcome in outcomes), Counter[str]())
    recoveries = [seconds for outcome in outcomes for seconds in outcome.recoveries]
    exact = sum(1 for outcome in outcomes if not outcome.failures)
    lines = [f"{exact} of {len(outcomes)} seeds exact", ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))]
    ends = sum((Counter(outcome.ends) for outcome in outcomes), Counter[int]())
    lines.append(f"processes that ended by themselves: {_codes(ends)}; justified at most: {_codes(allowed(counts))}")
    if recoveries:
        lines.append(f"recovery after {len(recoveries)} faults of the broker: at most {max(recoveries):.1f} s")
    for what in ("join", "leave"):
        if pauses := [seconds for outcome in outcomes for kind, seconds in outcome.pauses if kind == what]:
            p50, p99 = np.percentile(pauses, (50, 99))
            lines.append(f"standstill of {len(pauses)} partitions after a {what}: p50 {p50:.1f} s, p99 {p99:.1f} s")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
