"""`simulate`, `plan` and `inspect` measure the same on the same tuples, so they lead to the same recommendation."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from skewless.algorithms.grouping import GroupingOptions
from skewless.algorithms.watermark import MAX_WATERMARK
from skewless.lab.inspection.inspector import Inspector
from skewless.lab.inspection.load_comparison import GROUPINGS, WORKERS
from skewless.lab.simulation.planning import plan
from skewless.lab.simulation.recommend import Demand, recommend
from skewless.lab.simulation.simulation import Simulation, SimulationConfig
from skewless.lab.simulation.tsv_reader import STDIN, batches, open_source
from skewless.lab.simulation.tuple_blocks import Block, BlockBuilder, ReadPlan
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import RecordColumns
from skewless.parsing.validation import EventTimeRules

TUPLES = 50_000
START_MS = 1_767_225_600_000
KEYS = [f"k{number}" for number in np.random.default_rng(7).zipf(1.3, TUPLES) % 3000]
TIMES = START_MS + 10 * np.arange(TUPLES)
NEVER_LATE = EventTimeRules(lateness_ms=MAX_WATERMARK, max_ahead_ms=MAX_WATERMARK)
MEASURES = ("grouping", "workers", "max_over_avg", "replication_factor")


def simulation() -> Simulation:
    config = SimulationConfig(GroupingOptions(clock="event"))
    return Simulation(product(GROUPINGS, WORKERS), config)


def records() -> Iterator[RecordColumns]:
    """Yield the records in batches of any size."""
    values = [json.dumps({"k": key}).encode() for key in KEYS]
    for first in range(0, TUPLES, 7_000):
        yield RecordColumns.of_values(values[first : first + 7_000], TIMES[first : first + 7_000])


@pytest.fixture(scope="module")
def simulated() -> list[dict[str, Any]]:
    lines = "".join(f"{time}\t{key}\n" for time, key in zip(TIMES.tolist(), KEYS, strict=True)).encode()
    simulated = simulation()
    with open_source(STDIN, io.BytesIO(lines)) as source:
        for read in batches(source, simulated.rows):
            simulated.add(read.keys, read.times)
    return simulated.facts()


def planned() -> list[dict[str, Any]]:
    splitter = ParsingSettings.model_validate({"key": {"field": "k"}})
    builder, offset = BlockBuilder(ReadPlan(splitter, NEVER_LATE, {0: (0, TUPLES)}, now=0)), 0
    blocks: list[Block] = []
    for batch in records():
        blocks += builder.add(0, np.arange(offset, offset + len(batch.values)), batch)
        offset += len(batch.values)
    candidates: list[dict[str, Any]] = plan([*blocks, *builder.finish()], simulation(), DEMAND)["candidates"]
    return candidates


def inspected() -> list[dict[str, Any]]:
    first, *others = records()
    inspector = Inspector([first], "k")
    for batch in (first, *others):
        inspector.add(batch)
    return [load | {"replication_factor": load["workers_per_key"]} for load in inspector.report()["loads"]]


DEMAND = Demand(cost_ms=1.0, rate=9_000.0, headroom=1.5)


@pytest.mark.parametrize("command", [planned, inspected])
def test_advice_of_every_command_is_the_same_for_the_same_keys(command: Any, simulated: list[dict[str, Any]]) -> None:
    found = command()
    assert [[each[name] for name in MEASURES] for each in found] == [
        [each[name] for name in MEASURES] for each in simulated
    ]
    # An inspection does not have all measures that the reasons mention.
    completed = [other | each for other, each in zip(simulated, found, strict=True)]
    chosen = [recommend(each, DEMAND)["recommendation"] for each in (completed, simulated)]
    assert (chosen[0]["grouping"], chosen[0]["workers"]) == (chosen[1]["grouping"], chosen[1]["workers"])
