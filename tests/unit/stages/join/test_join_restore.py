"""Tests of how held records are read again."""

from __future__ import annotations

import pytest

from skewless.engine.message_batch import MessageBatch
from skewless.errors import ConfigurationError
from skewless.parsing.join_records import side_rules
from skewless.parsing.join_side_settings import JoinSideSettings
from skewless.stages.join.restore import _records
from skewless.wire.record import OutputRecord
from skewless.wire.topic_partition import TopicPartition


def test_join_restore_held_record_that_is_invalid_by_a_changed_file_is_named_with_the_way_out() -> None:
    rules = side_rules(JoinSideSettings.model_validate({"topic": "clicks", "id": {"field": "id"}}))
    values = (b'{"id": "a"}', b'{"name": "b"}')
    batch = MessageBatch.of_outputs(
        TopicPartition("clicks", 2), [OutputRecord("clicks", value) for value in values], 1000, first_offset=7
    )
    place = r"topic clicks partition 2 offset 8 waits for a partner, and was valid before: key field id is missing\."
    with pytest.raises(ConfigurationError, match=f"{place} Set the file .* back, or count everything again"):
        _records(batch, rules, merged=False)
