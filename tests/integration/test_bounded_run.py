"""A bounded run on a source that gets records all the time: it ends where the source ended when the run began."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.kafka import START_MS, Feed, Pipeline, Record, Source
from helpers.waiting import until

pytestmark = pytest.mark.thorough

PARTITIONS = 3
RATE = 2000


class Keyed:
    """Writes complete records."""

    def __init__(self, source: Source) -> None:
        self.send = source.send_complete


def records() -> Iterator[Record]:
    """Yield records of five keys, 10 ms apart, without end."""
    for number in itertools.count():
        yield Record(number % PARTITIONS, 0, START_MS + 10 * number, b"key %d" % (number % 5), None, {})


def processed(pipeline: Pipeline) -> int:
    """Return the number of records in results and in topic `late`."""
    return sum(int(fact["count"]) for fact in pipeline.results()[0].values()) + pipeline.count("late")


def sent_at_assignment(feed: Feed[Record], pipeline: Pipeline) -> int:
    """Run a pipeline to the end of its source.

    Returns about the number of records that were sent when its splitter got its partitions, or some more.
    """
    log = pipeline.folder / "splitter-0.log"
    before = log.stat().st_size if log.exists() else 0
    with pipeline.running(drain=True) as supervisor:
        until(
            lambda: "assigned 3 partitions" in log.read_text()[before:],
            each=lambda: supervisor.poll(time.monotonic()),
        )
        sent = feed.sent
        pipeline.finish(supervisor)
    return sent


def test_bounded_run_source_gets_records_all_the_time_ends_where_it_began_and_next_run_continues(
    broker: str, tmp_path: Path
) -> None:
    source = Source(broker, PARTITIONS)
    # The splitter commits five seconds after it has got its partitions.
    pipeline = Pipeline(broker, tmp_path, source, splitter=None, transport={"commit_interval_s": 5})
    with Feed(Keyed(source), records(), RATE) as feed:
        for _ in range(2):
            before = feed.sent
            most = sent_at_assignment(feed, pipeline) + RATE
            assert before <= processed(pipeline) <= most
        feed.finish()
    pipeline.drain()
    assert processed(pipeline) == feed.sent
