"""Former versions are replaced by this one while records arrive, as docs/how-to/upgrade.md describes.

SKEWLESS_RATE=10000 sends more records per second.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from helpers.kafka import STAGES, WRITES, Feed, Pipeline, Sent, Source, differences, read, truth, zipf_records
from helpers.released import package_of
from helpers.waiting import WAIT_S, until
from skewless import topology
from skewless.cli.main import main
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.lab.local import child_process
from skewless.lab.local.child_process import ChildProcess
from skewless.lab.local.supervisor import Supervisor

pytestmark = pytest.mark.thorough

PARTITIONS = 4
LATENESS_S = 20
RATE = int(os.environ.get("SKEWLESS_RATE", "200"))
MOST = 2_000 * RATE
"""Upper bound of the records of a feed. The feed ends when all stages were replaced."""
FAST_SPAN_S = 24_000
"""Event time of the records of a test that waits for the ends of windows. Each second of the feed is 12 s of it."""
SHARED = [stage for stage in STAGES if not topology.stage(stage).singleton]
"""Stages that may have several processes."""


@dataclass(frozen=True)
class Former:
    """A version that this one replaces."""

    version: str
    event_time: dict[str, Any]
    """Settings of this version that keep the rules of the former one."""
    lacks: tuple[str, ...]
    """Topics of this version that the former one does not have."""

    @property
    def package(self) -> Path:
        """Folder to import it from."""
        folder = package_of(self.version)
        command = [sys.executable, "-c", "import skewless; print(skewless.__file__)"]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env={"PYTHONPATH": str(folder)})
        assert Path(done.stdout.strip()).is_relative_to(folder)
        return folder

    def pipeline(self, broker: str, folder: Path, source: Source, **parts: Any) -> Pipeline:
        """Return a pipeline with the topics of this version."""
        tested = Pipeline(
            broker,
            folder,
            source,
            **parts,
            event_time={**self.event_time, "allowed_lateness_s": LATENESS_S, "idle_timeout_s": None},
            transport={"commit_interval_s": 1.0, "max_poll_records": 2_000, "session_timeout_s": 10},
        )
        for topic in self.lacks:
            tested.admin.delete_topics([tested.settings.topic(topic)])[tested.settings.topic(topic)].result()
        return tested


V0_2 = Former("0.2.0", {"late_rule": "event_time"}, ("hot-keys", "replays"))
V0_5 = Former("0.5.0", {}, ())


def skewless(tested: Pipeline, *arguments: str) -> str:
    """Run a command of this version for a pipeline and return its output."""
    done = CliRunner().invoke(main, [*arguments, "-f", str(tested.file)])
    assert done.exit_code == 0, done.output
    return done.stdout


def looking_after(supervisor: Supervisor) -> Callable[[], object]:
    """Return a function that restarts processes that ended. It fails if one of them refuses to start."""
    return lambda: supervisor.poll(time.monotonic())


def refusal(tested: Pipeline) -> str:
    """Return why a stage of this version refuses to start with the settings of the former one."""
    done = CliRunner().invoke(main, ["run", "splitter", "--instance", "1", "-f", str(tested.released_file)])
    assert done.exit_code == 2, done.output
    return done.output


def progress(tested: Pipeline, stage: str) -> int:
    """Return the sum of the offsets that a stage has committed."""
    settings, topic = tested.settings, topology.stage(stage).input
    committed = OffsetReader(settings.kafka).committed(settings.group(stage), settings.topic(topic))
    return sum(position.offset for position in committed.values())


def await_commit(tested: Pipeline, supervisor: Supervisor, stage: str) -> None:
    before = progress(tested, stage)
    until(lambda: progress(tested, stage) > before, each=looking_after(supervisor), every_s=0.2)


def replace(tested: Pipeline, supervisor: Supervisor, stage: str, *, killed: bool) -> None:
    """Replace the process of a stage: stop or kill it, and start this version.

    Kills happen in an open transaction, first of the process of the former version, and then of the new one. A host
    forks the new processes, which then need not load their code.
    """
    supervisor.processes[f"{stage}-0"].command = tested.armed_command(stage, 0)
    for _ in range(2 if killed else 1):
        with ending(supervisor, f"{stage}-0") as child:
            if killed:
                tested.arm(f"{stage}-0", "written", "kill", topic=tested.settings.topic(WRITES[stage]))
                until(lambda: child.poll() is not None, each=looking_after(supervisor))
                assert child.returncode == -signal.SIGKILL
            else:
                child_process.stop(child, grace_s=WAIT_S)
                assert child.returncode == 0
        supervisor.processes[f"{stage}-0"].child = tested.start(stage, armed=True)
    await_commit(tested, supervisor, stage)


@contextlib.contextmanager
def ending(supervisor: Supervisor, name: str) -> Iterator[ChildProcess]:
    """Yield a process that ends in the block, and that the supervisor does not restart."""
    replica = supervisor.processes[name]
    child, replica.child = replica.child, None
    assert child is not None
    try:
        yield child
    finally:
        child_process.kill(child)


def add_until_their_first_commits(tested: Pipeline, supervisor: Supervisor) -> None:
    """Add a process of this version to each stage that may have several, and kill it when it has committed.

    The processes of the former version then continue with the checkpoints that the killed ones have committed. Their
    groups notice the deaths at the same time, so that the test waits for the end of a session once.
    """
    for stage in SHARED:
        tested.arm(f"{stage}-1", "after-commit", "kill", topic=tested.settings.topic(WRITES[stage]))
        child = tested.start(stage, 1, armed=True)
        until(lambda: child.poll() is not None, each=looking_after(supervisor))  # noqa: B023 - is over before the next
        assert (child.returncode or 0) < 0
    for stage in SHARED:
        until(lambda: tested.shares(stage) == 1, each=looking_after(supervisor), every_s=0.2)  # noqa: B023 - as above
        await_commit(tested, supervisor, stage)


def assert_exact(broker: str, tested: Pipeline) -> None:
    """Compare the results with a plain count, and audit them."""
    by_window = tested.settings.event_time.late_rule == "window_end"
    expected = truth(read(broker, tested.source.topic), lateness_ms=LATENESS_S * 1000, by_window=by_window)
    still_open = [f"{topic}: a transaction is open" for topic in WRITES.values() if tested.is_open(topic)]
    assert [*differences(tested, expected), *still_open] == []
    assert [record.value for record in tested.read("dead-letters")] == []
    report = json.loads(skewless(tested, "audit", "--json"))
    assert (report["compared"], report["differences"]) == (len(expected.counts), 0)
    assert report["late"] == len(expected.late) > 0


@pytest.mark.usefixtures("spark")
def test_stages_of_0_2_killed_and_replaced_against_the_order_of_data_give_exact_results(
    broker: str, tmp_path: Path
) -> None:
    source = Source(broker, PARTITIONS)
    tested = V0_2.pipeline(broker, tmp_path, source, aggregator={"emit": "final"})
    records: Feed[Sent] = Feed(source, zipf_records(MOST, PARTITIONS, 21, span_s=FAST_SPAN_S), RATE)
    with records as feed, tested.running(armed=True, package=V0_2.package) as supervisor:
        until(lambda: tested.written("aggregates") > 0, each=looking_after(supervisor), every_s=0.2)
        skewless(tested, "topics", "apply")
        assert "event_time.late_rule: is window_end, was event_time when group" in refusal(tested)
        for stage in STAGES[::-1]:
            replace(tested, supervisor, stage, killed=True)
        before = tested.written("aggregates")
        until(lambda: tested.written("aggregates") > before, each=looking_after(supervisor), every_s=0.2)
        feed.finish()
    tested.drain(limit_s=300)
    assert_exact(broker, tested)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("former", [V0_2, V0_5], ids=lambda former: former.version)
def test_stages_of_a_former_version_beside_this_one_then_stopped_in_the_order_of_data_give_exact_results(
    broker: str, tmp_path: Path, former: Former
) -> None:
    source = Source(broker, PARTITIONS)
    tested = former.pipeline(broker, tmp_path, source)
    records: Feed[Sent] = Feed(source, zipf_records(MOST, PARTITIONS, 22, span_s=6_000), RATE)
    with records as feed, tested.running(armed=True, package=former.package) as supervisor:
        until(lambda: tested.written("aggregates") > 0, each=looking_after(supervisor), every_s=0.2)
        skewless(tested, "topics", "apply")
        pids = {name: replica.pid for name, replica in supervisor.processes.items()}
        add_until_their_first_commits(tested, supervisor)
        assert {name: replica.pid for name, replica in supervisor.processes.items()} == pids
        for stage in STAGES:
            replace(tested, supervisor, stage, killed=False)
        feed.finish()
    tested.drain(limit_s=300)
    assert_exact(broker, tested)
