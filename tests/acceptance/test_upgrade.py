"""Switch from one pipeline to another at noted offsets, as docs/how-to/upgrade.md describes."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from helpers.kafka import Pipeline, Source, zipf_records
from skewless.errors import ConfigurationError
from skewless.kafka.consumer.offsets import OffsetReader

pytestmark = pytest.mark.thorough

NONE_LATE = {"allowed_lateness_s": 600}
"""Without late records, because lateness depends on earlier records, which the new pipeline does not read."""
CHECKPOINT_OF_0_1 = '[1767225650452,false]\n[2,60000,60000,"count,sum",0,64,4,"updates",0]'


def counts(pipeline: Pipeline) -> Counter[tuple[int, str]]:
    return Counter({key: result["count"] for key, result in pipeline.results()[0].items()})


def test_pipeline_that_skips_to_the_offsets_of_another_one_counts_the_rest(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 2)
    records = list(zipf_records(6_000, 2, seed=11, keys=50))
    source.send(records[:4_000])
    (tmp_path / "old").mkdir()
    old = Pipeline(broker, tmp_path / "old", source, event_time=NONE_LATE)
    old.drain(limit_s=240)
    committed = OffsetReader(old.settings.kafka).committed(old.settings.group("splitter"), source.topic)
    noted = {partition: position.offset for partition, position in committed.items()}
    assert sum(noted.values()) == 4_000
    source.send(records[4_000:])
    (tmp_path / "new").mkdir()
    new = Pipeline(broker, tmp_path / "new", source, event_time=NONE_LATE)
    document = json.loads(new.file.read_text())
    new.file.write_text(json.dumps(document | {"source": {"topic": source.topic, "skip_to": noted}}))
    new.drain(limit_s=240)
    (tmp_path / "whole").mkdir()
    whole = Pipeline(broker, tmp_path / "whole", source, event_time=NONE_LATE)
    whole.drain(limit_s=240)
    assert counts(old) + counts(new) == counts(whole)
    assert (counts(old).total(), counts(new).total()) == (4_000, 2_000)


def test_stage_in_a_group_of_version_0_1_refuses_to_start(broker: str, tmp_path: Path) -> None:
    source = Source(broker, 1)
    source.send(zipf_records(100, 1, seed=12))
    pipeline = Pipeline(broker, tmp_path, source)
    offset = TopicPartition(source.topic, 0, 100, CHECKPOINT_OF_0_1)
    group = pipeline.settings.group("splitter")
    with contextlib.closing(Consumer({"bootstrap.servers": broker, "group.id": group})) as consumer:
        consumer.commit(offsets=[offset], asynchronous=False)
    with pytest.raises(ConfigurationError, match=r"another version of Skewless.*docs/how-to/upgrade\.md"):
        pipeline.drain()
