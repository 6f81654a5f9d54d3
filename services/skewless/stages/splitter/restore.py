"""Restores the held tuples of a splitter: reads the source records again from which they came."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from skewless.algorithms.local_windows import LocalWindows
from skewless.algorithms.watermark import MAX_WATERMARK, WatermarkGenerator
from skewless.engine.executor import State
from skewless.engine.message_batch import MessageBatch
from skewless.errors import BrokerError, ConfigurationError
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.consumer.topic_reader import read_ranges
from skewless.kafka.settings import KafkaSettings
from skewless.parsing.batch_slices import slices
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.validation import classify
from skewless.stages.splitter.checkpoint import Held, decode_checkpoint
from skewless.stages.splitter.local_step import LocalSplitterRules, RestoredRows, hold
from skewless.stages.splitter.step import Accepted
from skewless.wire.record import Batch
from skewless.wire.topic_partition import TopicPartition

log = logging.getLogger(__name__)


def restore_from(
    kafka: KafkaSettings,
    label_of: Callable[[TopicPartition], str],
    skip_to: Callable[[str], Mapping[int, int]],
    rules: LocalSplitterRules,
    new_parser: Callable[[], RecordParser],
) -> Callable[[TopicPartition, str | None], State]:
    """Return a function that restores a source partition from its checkpoint.

    It raises ConfigurationError if records are parsed by other settings than before, and BrokerError if records are
    gone. `label_of` returns the name of a source partition in settings, `skip_to` the setting of this name for a topic.
    """

    def restore(source: TopicPartition, checkpoint: str | None) -> State:
        held = decode_checkpoint(checkpoint).held
        if held is None:
            return ()
        if held.settings != rules.parsing:
            raise _other_settings(source, held)
        log_start, _ = OffsetReader(kafka).log_range(*source)
        is_whole, first = log_start <= held.offset, skip_to(source.topic).get(source.partition, 0)
        if not is_whole and first < log_start:
            raise _deleted(source, held, log_start, label_of(source))
        again = read_again(_batches(kafka, source, max(held.offset, log_start), held.end), held, rules, new_parser())
        if again.tuples != held.tuples:
            if is_whole:
                raise _incomplete(source, held, again.tuples)
            log.warning(
                "skipped %d tuples of %s partition %d, whose records were deleted",
                held.tuples - again.tuples,
                *source,
            )
        return replace(again, skips_next=first > held.end)

    return restore


def read_again(batches: Iterable[Batch], held: Held, rules: LocalSplitterRules, parser: RecordParser) -> RestoredRows:
    """Return the held tuples from the records of their range. Late and invalid ones are not written again."""
    windows = LocalWindows(rules.local, rules.event_time.lateness_ms)
    generator = WatermarkGenerator(rules.event_time.lateness_ms, held.max_time)
    records = 0
    for batch in batches:
        records += len(batch.values)
        for part in slices(batch):
            previous_max = generator.max_time
            # The range has no records that the wall clock has refused, so it refuses none now.
            classified = classify(parser.parse(part), rules.event_time, generator, MAX_WATERMARK)
            if held.floor is not None:
                # These tuples were sent when their local windows closed. They still count in the largest event time.
                closed = classified.parsed.times < held.floor
                classified = replace(classified, late=classified.late | closed)
            keys, values, times = classified.tuples()
            if len(times):
                tuples = rules.tuple_format.batch(keys.dictionary_encode(), values, times)
                hold(windows, Accepted(tuples, part, classified, previous_max))
    return RestoredRows(records=records, tuples=windows.tuples, openings=windows.openings, rows=windows.reduced())


def _batches(kafka: KafkaSettings, source: TopicPartition, begin: int, end: int) -> Iterator[Batch]:
    for _, messages in read_ranges(kafka, source.topic, {source.partition: (begin, end)}):
        yield MessageBatch(source, 0, messages)


def _other_settings(source: TopicPartition, held: Held) -> ConfigurationError:
    return ConfigurationError(
        f"splitter: the settings of keys, values, times, conditions or limits have changed, while {held.tuples} tuples "
        f"of topic {source.topic} partition {source.partition} wait for the end of their local window: they would be "
        "read again by other settings. Start once with the previous settings and splitter.local.mode: buffer, which "
        "sends these tuples, and then change the settings"
    )


def _deleted(source: TopicPartition, held: Held, log_start: int, label: str) -> BrokerError:
    return BrokerError(
        f"records of topic {source.topic} partition {source.partition} were deleted while {held.tuples} of their "
        f"tuples waited for the end of their local window: the first of them has offset {held.offset}, log start "
        f"offset is {log_start}. The tuples of {min(log_start, held.end) - held.offset} offsets are lost: the topic's "
        "retention is shorter than the time for which the splitter was stopped. Give the pipeline another name: it "
        "then reads the source from its beginning; or set source.skip_to to "
        f"{{{label}: {log_start}}} to continue without these tuples"
    )


def _incomplete(source: TopicPartition, held: Held, found: int) -> BrokerError:
    return BrokerError(
        f"topic {source.topic} partition {source.partition} has {found} of the {held.tuples} tuples that waited for "
        f"the end of their local window, at offsets {held.offset} to {held.end - 1}: records were deleted or "
        "compacted, or the file of a schema or function was changed. Set the file back. Otherwise disable compaction, "
        "and give the pipeline another name: it then reads the source from its beginning"
    )
