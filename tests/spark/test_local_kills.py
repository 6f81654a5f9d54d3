"""Local aggregation with stages killed, splitters and workers scaled, and modes side by side: as in a batch run.

`make local-kills` runs all modes with 20 kills of each stage. Otherwise, one mode is run with one kill of each.
"""
# ruff: noqa: T201, S311 - figures are shown with `-s`; kills are seeded, not secret

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from helpers.kafka import BASE, STAGES, Feed, Pipeline, Source, differences, read, truth, zipf_records
from helpers.killer import Killer
from helpers.waiting import until
from skewless.algorithms.aggregates import AGGREGATES
from skewless.cli.main import main
from skewless.lab.local import child_process

pytestmark = pytest.mark.thorough

KILLS = int(os.environ.get("SKEWLESS_KILLS", "1"))
SEED = int(os.environ.get("SKEWLESS_SEED", "3"))
PARTITIONS = 4
LATENESS_S = 20
MOST, RATE, SPAN_S = 500_000, 500, 9_000
"""Records at most, records per second, and event time of the records, of which 9 s pass in each second."""
STOP_S = 60.0
REPLICAS = {"splitter": 2, "worker": 2}
WINDOWS_OF_5 = {"mode": "windows", "window_s": 5}
MODES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "none": ({"mode": "none"}, WINDOWS_OF_5),
    "buffer": ({"mode": "buffer", "adaptive": False}, {"mode": "none"}),
    "adaptive": ({"mode": "buffer", "adaptive": True}, {"mode": "buffer", "adaptive": False, "buffer_rows": 50}),
    "windows of 5 s": (WINDOWS_OF_5, {"mode": "buffer"}),
    "windows of 15 s": ({"mode": "windows", "window_s": 15}, WINDOWS_OF_5),
}
"""Local aggregation of most processes, and the other one: that of further processes, and of all of them at the end."""
CHOSEN = MODES if KILLS > 1 else ["windows of 5 s"]


def with_local(tested: Pipeline, local: dict[str, Any]) -> Path:
    """Write the settings of the pipeline with another local aggregation."""
    document = json.loads(tested.file.read_text())
    document["splitter"]["local"] = local
    file = tested.folder / "other.yaml"
    file.write_text(json.dumps(document))
    return file


@contextlib.contextmanager
def further(tested: Pipeline, file: Path, instance: int) -> Iterator[None]:
    """Run one more splitter and one more worker, and stop them cleanly at the end of the block."""
    with contextlib.ExitStack() as stack:
        children = []
        for stage in ("splitter", "worker"):
            child = tested.start(stage, instance, file=file)
            stack.callback(child_process.stop, child)
            children.append(child)
        yield
        for child in children:
            child.send_signal(signal.SIGTERM)
        assert [child.wait(STOP_S) for child in children] == [0, 0]


def kill_each_stage(killer: Killer, chance: random.Random, times: int) -> None:
    """Kill a process of each stage at random times, so many times."""
    for stage in chance.sample([*STAGES] * times, len(STAGES) * times):
        killer.kill(f"{stage}-{chance.randrange(REPLICAS.get(stage, 1))}", after_s=chance.uniform(0.2, 1.5))


def all_share(tested: Pipeline, processes: int) -> bool:
    return all(tested.shares(stage) == processes for stage in ("splitter", "worker"))


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("mode", CHOSEN)
def test_pipeline_local_modes_side_by_side_killed_and_scaled_give_the_batch_answer(
    broker: str, tmp_path: Path, mode: str
) -> None:
    local, other = MODES[mode]
    source = Source(broker, PARTITIONS)
    tested = Pipeline(
        broker,
        tmp_path,
        source,
        splitter=BASE["splitter"] | {"local": local},
        aggregator={"aggregates": [*AGGREGATES]},
        event_time={"allowed_lateness_s": LATENESS_S, "idle_timeout_s": None},
        transport={"commit_interval_s": 0.5, "max_poll_records": 2_000, "session_timeout_s": 15},
        replicas=REPLICAS,
    )
    file, feed = with_local(tested, other), Feed(source, zipf_records(MOST, PARTITIONS, SEED, span_s=SPAN_S), RATE)
    with feed, tested.running() as supervisor:
        killer, chance = Killer(supervisor), random.Random(SEED)
        with further(tested, file, 2):
            until(lambda: all_share(tested, 3), each=killer.poll, every_s=0.2)
            kill_each_stage(killer, chance, -(-KILLS // 3))
            with further(tested, file, 3):
                until(lambda: all_share(tested, 4), each=killer.poll, every_s=0.2)
                kill_each_stage(killer, chance, -(-KILLS // 3) if KILLS > 1 else 0)
        until(lambda: all_share(tested, 2), each=killer.poll, every_s=0.2)
        kill_each_stage(killer, chance, KILLS - 2 * -(-KILLS // 3) if KILLS > 1 else 0)
        feed.finish()
    document = file.read_text()
    tested.file.write_text(document)
    source.send(zipf_records(4_000, PARTITIONS, SEED + 1, span_s=240))
    tested.drain(limit_s=300)
    print(f"{mode}: {feed.sent:,} records, {killer.killed.total()} processes killed")
    assert killer.killed.total() == KILLS * len(STAGES)
    assert differences(tested, truth(read(broker, source.topic), lateness_ms=LATENESS_S * 1000)) == []
    audit = CliRunner().invoke(main, ["audit", "-f", str(tested.file), "--json"])
    assert audit.exit_code == 0, audit.output
    report = json.loads(audit.stdout)
    assert (report["settled"], report["differences"], report["compared"] > 0) == (True, 0, True)
