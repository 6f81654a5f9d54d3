"""All stages in one process: it is observed and stopped as one, and takes over from one process per stage and back."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import shlex
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.docs_blocks import ROOT, blocks
from helpers.kafka import (
    STAGES,
    WRITES,
    Feed,
    Pipeline,
    Sent,
    Source,
    differences,
    read,
    truth,
    zipf_records,
)
from helpers.stage_hosts import stage_host
from helpers.waiting import WAIT_S, until
from skewless.cli.main import main
from skewless.lab.local import child_process
from skewless.lab.local.child_process import ChildProcess
from skewless.lab.local.ports import find_free_ports
from skewless.operations.readiness import readiness

PAGE = ROOT / "docs" / "how-to" / "one-process.md"
LATENESS_S = 20
KILL_POINTS = ("before-offsets", "written", "in-commit", "after-commit")
RESULTS = 300
"""Records of `aggregates` that show that a pipeline makes progress."""


@pytest.fixture
def source(broker: str) -> Source:
    return Source(broker, 4)


@pytest.fixture
def tested(broker: str, tmp_path: Path, source: Source) -> Pipeline:
    return Pipeline(
        broker,
        tmp_path,
        source,
        event_time={"allowed_lateness_s": LATENESS_S, "idle_timeout_s": None},
        transport={"commit_interval_s": 0.5, "session_timeout_s": 15},
    )


def endless(source: Source) -> Feed[Sent]:
    return Feed(source, zipf_records(400_000, 4, seed=3, span_s=6_000), rate=600)


def failures(broker: str, tested: Pipeline) -> list[str]:
    """Process what is left, and list the differences of the results, and transactions that stayed open."""
    tested.drain()
    expected = truth(read(broker, tested.source.topic), lateness_ms=LATENESS_S * 1000)
    still_open = [f"{topic}: a transaction is open" for topic in WRITES.values() if tested.is_open(topic)]
    return [*differences(tested, expected), *still_open]


def progress(tested: Pipeline) -> None:
    """Wait until the pipeline has written further results."""
    before = tested.written("aggregates")
    until(lambda: tested.written("aggregates") > before + RESULTS)


@contextmanager
def one_process(tested: Pipeline, *, armed: bool = False) -> Iterator[ChildProcess]:
    """Run all stages in one process until the end of the block, which must be a clean one."""
    child = tested.start("all", armed=armed)
    yield child
    child.send_signal(signal.SIGTERM)
    assert child.wait(WAIT_S) == 0


def page(port: int, path: str) -> str:
    """Return a page. It is empty if a busy process does not answer in time."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return str(response.read().decode())
    except (OSError, http.client.HTTPException):
        return ""


def test_one_process_has_one_port_and_ends_cleanly(
    tested: Pipeline, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = find_free_ports(1)
    settings = tested.settings.model_copy(update={"metrics": tested.settings.metrics.model_copy(update={"port": port})})
    members = {f"{stage}-0": "127.0.0.1" for stage in STAGES}
    monkeypatch.setenv("SKEWLESS__METRICS__PORT", str(port))
    source.send(zipf_records(2_000, 4, seed=1, span_s=600))
    with one_process(tested):
        until(lambda: readiness(settings, members) == dict.fromkeys(members, ()))
        until(lambda: tested.written("aggregates") > RESULTS)
        until(lambda: '"stage": "all"' in page(port, "/readyz"))
        ready = [f'skewless_ready{{pipeline="{tested.name}",stage="{stage}"}} 1.0' for stage in STAGES]
        # A busy event loop answers with the values of its last answer.
        until(lambda: all(line in page(port, "/metrics") for line in ready))
    lines = [json.loads(line) for line in (tested.folder / "all-0.log").read_text().splitlines()]
    for text in ("started", "stopped, everything processed is committed"):
        assert {line["stage"] for line in lines if line["message"].endswith(text)} == set(STAGES)
    assert {line["stage"] for line in lines if line["logger"].startswith("skewless.engine")} == set(STAGES)


@pytest.mark.thorough
def test_page_of_one_process_its_commands_as_written_run_and_grow(
    broker: str, tested: Pipeline, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, grown = (block.text.splitlines() for block in blocks(PAGE) if block.language == "sh")
    create, *runs = (shlex.split(command) for command in [*alone, *grown])
    assert {command[0] for command in [create, *runs]} == {"skewless"}
    monkeypatch.chdir(tested.folder)
    assert CliRunner().invoke(main, create[1:]).exit_code == 0
    with endless(source) as feed:
        for _, *arguments in runs:
            process = stage_host().start("page", arguments, os.environ, log=tested.folder / "page.log")
            try:
                progress(tested)
                process.send_signal(signal.SIGTERM)
                assert process.wait(WAIT_S) == 0
            finally:
                child_process.kill(process)
        feed.finish()
    assert failures(broker, tested) == []


@pytest.mark.thorough
def test_one_process_grows_to_one_per_stage_and_back_under_load_exactly(
    broker: str, tested: Pipeline, source: Source
) -> None:
    with endless(source) as feed:
        with one_process(tested):
            progress(tested)
        with tested.running() as supervisor:
            before = tested.written("aggregates")
            until(
                lambda: tested.written("aggregates") > before + RESULTS,
                each=lambda: supervisor.poll(time.monotonic()),
            )
        with one_process(tested):
            progress(tested)
        feed.finish()
    assert failures(broker, tested) == []


class Pods:
    """Processes that are started again when they end, as those of Kubernetes."""

    def __init__(self, tested: Pipeline, *names: str) -> None:
        self._tested = tested
        self._children = {name: tested.start(name) for name in names}

    def progress(self) -> None:
        """Wait until the pipeline has written further results."""
        before = self._tested.written("aggregates")
        until(lambda: self._tested.written("aggregates") > before + RESULTS, each=self._restart)

    def _restart(self) -> None:
        for name, child in self._children.items():
            if child.poll() is not None:
                assert child.returncode == 3, f"{name} was not replaced by another process"
                self._children[name] = self._tested.start(name)

    def delete(self) -> None:
        """Stop the processes. They end cleanly, unless others have replaced them."""
        for child in self._children.values():
            child.send_signal(signal.SIGTERM)
        assert {child.wait(WAIT_S) for child in self._children.values()} <= {0, 3}


@pytest.mark.thorough
def test_one_process_overlapping_with_one_per_stage_gives_exact_results(
    broker: str, tested: Pipeline, source: Source
) -> None:
    """As when an upgrade of the chart starts the new pods before it deletes the old ones."""
    with endless(source) as feed:
        older = Pods(tested, "all")
        older.progress()
        for names in (STAGES, ("all",)):
            newer = Pods(tested, *names)
            newer.progress()  # by either
            older.delete()
            newer.progress()
            older = newer
        older.delete()
        feed.finish()
    assert failures(broker, tested) == []


@pytest.mark.thorough
def test_one_process_stage_is_replaced_ends_with_its_exit_code_and_commits_the_others(
    tested: Pipeline, source: Source
) -> None:
    source.send(zipf_records(2_000, 4, seed=1, span_s=600))
    child = tested.start("all")
    progress(tested)
    until(lambda: not tested.is_open("aggregator-changelog"))
    successor = tested.start("observer")
    assert child.wait(WAIT_S) == 3
    successor.send_signal(signal.SIGTERM)
    assert successor.wait(WAIT_S) == 0
    lines = [json.loads(line) for line in (tested.folder / "all-0.log").read_text().splitlines() if line[0] == "{"]
    ends = {line["stage"]: line["message"].split(": ")[1] for line in lines if line["logger"] == "skewless.service"}
    assert ends == {
        **dict.fromkeys(STAGES, "stopped, everything processed is committed"),
        "observer": "ended by an error",
    }


@pytest.mark.thorough
def test_one_process_killed_in_the_transaction_of_each_stage_gives_exact_results(
    broker: str, tested: Pipeline, source: Source
) -> None:
    """Each stage is killed at two of the points, and at each point at least two stages are.

    A kill ends the transactions of all stages, of which most are then at other points.
    """
    with endless(source) as feed:
        for topic, point in zip([*WRITES.values()] * 2, itertools.cycle(KILL_POINTS), strict=False):
            child = tested.start("all", armed=True)
            progress(tested)
            tested.arm("all-0", point, "kill", topic=tested.settings.topic(topic))
            assert child.wait(WAIT_S) == -signal.SIGKILL
        with one_process(tested):
            progress(tested)
        feed.finish()
    assert failures(broker, tested) == []
