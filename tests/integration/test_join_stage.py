"""The join stage on a real broker: topics without records, and a topic that gets more partitions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from helpers.join_oracle import Event
from helpers.joined import PARTITIONS, Joined
from helpers.kafka import START_MS
from helpers.waiting import WAIT_S
from skewless.algorithms.join.window_join import Side

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("filled", [[], [Side.LEFT], [Side.RIGHT]], ids=["both empty", "right empty", "left empty"])
def test_join_bounded_run_with_topics_that_stay_empty_ends(broker: str, tmp_path: Path, filled: list[Side]) -> None:
    tested = Joined(broker, tmp_path)
    for side in filled:
        tested.send(side, [Event(f"{number}", START_MS + number) for number in range(20)])
    tested.flush()
    assert tested.drain().count("finished") == 1
    assert tested.wrong() == {}
    assert [len(list(tested.read(f"unmatched-{side.value}"))) for side in filled] == [20] * len(filled)


@pytest.mark.parametrize("side", Side)
def test_join_topic_that_gets_more_partitions_while_it_runs_ends_the_process(
    broker: str, tmp_path: Path, side: Side
) -> None:
    tested = Joined(broker, tmp_path)
    tested.document["kafka"]["options"] = {"topic.metadata.refresh.interval.ms": 300}
    tested.load()
    command = [sys.executable, "-m", "skewless", "run", "join", "-f", str(tested.file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines = iter(process.stderr)
            assert any("assigned" in line for line in lines)
            admin = AdminClient({"bootstrap.servers": broker})
            grown = NewPartitions(tested.topics[side], PARTITIONS + 1)
            admin.create_partitions([grown])[grown.topic].result()
            last = [line for line in lines if line.startswith("error:")]
            assert process.wait(WAIT_S) == 3
        finally:
            process.kill()
    assert f"topic {tested.topics[side]} has {PARTITIONS + 1} partitions" in last[-1]
