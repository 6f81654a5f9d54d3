"""States of the stages left and right that the join reads in the background."""

from __future__ import annotations

import pytest

from helpers.waiting import until
from skewless.algorithms.join.window_join import JoinRules, Side
from skewless.algorithms.watermark import WatermarkState
from skewless.errors import UnreachableError
from skewless.kafka.settings import KafkaSettings
from skewless.stages.join import first_states as module
from skewless.stages.join.first_states import LatestStates, first_states
from skewless.wire.topic_partition import CommittedOffset


def test_latest_states_of_a_side_are_those_of_the_read_before() -> None:
    found = iter([{0: WatermarkState(1)}, {0: WatermarkState(2)}])
    states = LatestStates(lambda _side: next(found))
    assert states(Side.LEFT) == {}
    until(states._pending[Side.LEFT].done)
    assert states(Side.LEFT) == {0: WatermarkState(1)}


def test_latest_states_read_that_fails_is_reported_and_repeated(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[Side] = []

    def read(side: Side) -> dict[int, WatermarkState]:
        asked.append(side)
        if len(asked) == 1:
            raise UnreachableError("no broker")
        return {0: WatermarkState(3)}

    states = LatestStates(read)
    for _ in range(2):
        assert states(Side.RIGHT) == {}
        until(states._pending[Side.RIGHT].done)
    assert states(Side.RIGHT) == {0: WatermarkState(3)}
    assert "cannot read the state of the stage right: no broker" in caplog.text


def test_first_states_are_those_of_the_committed_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reader:
        def __init__(self, _kafka: object) -> None:
            pass

        def committed(self, group: str, topic: str) -> dict[int, CommittedOffset]:
            assert (group, topic) == ("p.left", "orders")
            return {0: CommittedOffset(5, "[100,false,95]"), 1: CommittedOffset(0, "[null,true,null]")}

    monkeypatch.setattr(module, "OffsetReader", Reader)
    writers = {Side.LEFT: ("p.left", "orders"), Side.RIGHT: ("p.right", "payments")}
    states = first_states(KafkaSettings(), writers, JoinRules(5, 10, 0), Side.LEFT)
    assert states == {0: WatermarkState(90), 1: WatermarkState(idle=True)}
