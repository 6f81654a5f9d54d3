"""The example producer spreads a hot key over the partitions of a real topic, and loses no record."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

import pytest

from helpers.docs_blocks import ROOT
from helpers.kafka import Source, read
from skewless.lab.local.broker import Broker

pytestmark = pytest.mark.broker
PROGRAM = ROOT / "deploy" / "examples" / "producers" / "spread_hot_key.py"
HOT, COLD = 6_000, 2_000


def run(broker: str, topic: str, lines: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), broker, topic],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def require_line(stderr: str, line: str) -> None:
    """Require this line once, and otherwise only lines of librdkafka, which may be written between its parts."""
    assert stderr.count(line) == 1, stderr
    others = stderr.replace(line, "").splitlines()
    assert [other for other in others if other and "rdkafka#" not in other] == []


def test_spread_hot_key_missing_topic_ends_with_one_line_and_is_not_created() -> None:
    with Broker(properties={"auto.create.topics.enable": "true"}) as creating:
        for _ in range(2):
            done = run(creating.bootstrap, "no-such-topic", ["key\t1"])
            assert (done.returncode, done.stdout) == (1, "")
            # A broker that starts is busy, so librdkafka may log.
            expected = f"topic no-such-topic at {creating.bootstrap}: Broker: Unknown topic or partition"
            require_line(done.stderr, expected)


def test_spread_hot_key_line_without_a_tab_is_named_after_delivery_of_those_before_it(broker: str) -> None:
    source = Source(broker, 2)
    done = run(broker, source.topic, ["a\t1", "b\t2", "c 3", "d\t4"])
    assert (done.returncode, done.stdout) == (1, "")
    require_line(done.stderr, "line 3 has no tab after a key, so only the lines before it are records: 'c 3'")
    assert sorted((record.key, record.value) for record in read(broker, source.topic)) == [(b"a", b"1"), (b"b", b"2")]


def test_spread_hot_key_loads_all_partitions_alike(broker: str) -> None:
    source = Source(broker, 8)
    lines = [f"{'hot' if number % 4 else f'key-{number}'}\t{number}" for number in range(HOT + COLD)]
    done = run(broker, source.topic, lines)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    records = list(read(broker, source.topic))
    assert sorted(f"{(record.key or b'').decode()}\t{(record.value or b'').decode()}" for record in records) == sorted(
        lines
    )
    by_partition = Counter(record.partition for record in records)
    assert max(by_partition.values()) < 1.1 * len(records) / 8
    assert len({record.partition for record in records if record.key == b"hot"}) >= 6
