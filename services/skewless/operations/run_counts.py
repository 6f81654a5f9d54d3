"""Counts what a run of a pipeline has processed, from offsets and topics.

Counters of processes would begin at 0 again after a restart, and would count repeated records twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from skewless import topology
from skewless.config import topic_plan
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import CheckFailedError
from skewless.kafka.consumer.offsets import OffsetRanges, OffsetReader, newest_offsets, offset_count
from skewless.kafka.consumer.topic_reader import has_records_after, read_ranges
from skewless.operations.data_quality import Reasons, invalid_record
from skewless.stages.splitter.checkpoint import start_of
from skewless.wire.headers import WATERMARK, schema_of
from skewless.wire.record import Headers

ACCEPTED = {"aggregates": ("tuples",), "joined": ("joined", "unmatched-left", "unmatched-right")}
"""Topics with results, each with the topics of the records that are neither late nor invalid."""
MAX_READ = 200_000
"""Records of a topic that are read at most, unless the number must be exact. Of more, the offsets are counted."""
NEWEST = 1_000
"""Offsets of a topic of the user of which each is read, to see whether they are those of records."""


@dataclass(frozen=True)
class Count:
    """A number of records."""

    records: int
    is_exact: bool = True

    def __str__(self) -> str:
        """Return the number as text."""
        return f"{self.records:,}" if self.is_exact else f"about {self.records:,}"

    @property
    def with_noun(self) -> str:
        """The number with its noun."""
        return f"{self} record{'' if self.records == 1 else 's'}"


@dataclass(frozen=True)
class RunCounts:
    """What a run has processed."""

    records: int
    """Records of the user's topics that were processed."""
    is_exact: bool
    """Whether `records` is exact. Otherwise, it includes aborted records, and markers of transactions."""
    uncommitted: Mapping[str, int]
    """Number of offsets, by topic, that were not read because transactions of producers are open."""
    results: Count
    late: Count
    invalid: Count
    reasons: Reasons
    """Reasons of the invalid records that were read: all, or the last ones of many."""
    is_any_accepted: bool
    """Whether a record was neither late nor invalid. True if there are no records."""
    is_all_filtered: bool
    """Whether there were valid records, and none of them became a tuple or a late tuple."""
    is_none_paired: bool
    """Whether they became none because the pipeline aggregates the pairs of its join, and there was no pair."""
    has_earlier_results: bool
    """Whether there were results before."""

    @property
    def records_text(self) -> str:
        """The number of processed records with its noun."""
        return Count(self.records, self.is_exact).with_noun

    @property
    def others_text(self) -> str:
        """The number of processed records that are not invalid, with its noun."""
        return Count(self.records - self.invalid.records, self.is_exact and self.invalid.is_exact).with_noun


def check_accepted(counts: RunCounts) -> None:
    """Raise CheckFailedError if a run has processed records, and none of them is in a result."""
    expired = counts.reasons.expired
    if not counts.is_any_accepted or (expired and not counts.results.records):
        after_expiry = f", and {expired:,} tuples came after their windows had expired" if expired else ""
        remedy = "Correct the settings, and count again with `skewless reset --to-start`"
        if counts.has_earlier_results:
            replay = ". Correct the settings, and replay the invalid records with `skewless dead-letters replay`"
            remedy = f"The earlier results remain{replay if counts.invalid.records else ''}"
        raise CheckFailedError(
            f"none of {counts.records_text} is in a result: {counts.invalid} are invalid, and {counts.late} late"
            f"{after_expiry}. {remedy}"
        )


class RunCounter:
    """Counts what was processed since it was made. The topics of the pipeline must exist."""

    def __init__(self, settings: PipelineSettings) -> None:
        self._settings = settings
        self._offsets = OffsetReader(settings.kafka)
        needed = [row.name for row in topology.needed_topics(settings)]
        self._results = next(name for name in ACCEPTED if name in needed)
        self._late = [name for name in needed if name in {"late", "join-late"}]
        self._aggregates_pairs = settings.own_source == "joined"
        pairs = ["joined"] if self._aggregates_pairs else []
        counted = {self._results, "dead-letters", *self._late, *ACCEPTED[self._results], *pairs}
        self._ends = {name: self._offsets.end(settings.topic(name)) for name in counted}
        self._starts = {
            (stage, topic): self._offsets.committed(settings.group(stage), topic) for stage, topic in self._inputs()
        }

    def counts(self, *, exact: bool) -> RunCounts:
        """Return the numbers so far. With `exact`, all late tuples and invalid records are read, however many.

        Raises BrokerError if the user may not read a topic, and UnreachableError if no broker answers.
        """
        processed = self._processed()
        source = self._source_records(processed)
        late = [self._count(name, exact=exact) for name in self._late]
        reasons = Reasons()
        invalid = self._count(
            "dead-letters", exact=exact, observe=lambda headers, value: reasons.add(invalid_record(headers, value))
        )
        # Of many dead letters, only the last ones are read.
        expired_records = round(invalid.records * reasons.expired_records / max(1, reasons.records))
        invalid = Count(invalid.records - expired_records, invalid.is_exact)
        rejected = invalid.records + sum(count.records for count in late)
        results = self._count(self._results, exact=False)
        is_any_valid = source.records > invalid.records and not any(count.records for count in late)
        may_be_filtered = is_any_valid and results.records == 0 and self._results == "aggregates"
        is_all_filtered = may_be_filtered and not self._is_any_accepted()
        return RunCounts(
            records=source.records,
            is_exact=source.is_exact,
            uncommitted={
                topic: offset_count(found) for topic in processed if (found := self._offsets.uncommitted(topic))
            },
            results=results,
            late=Count(sum(count.records for count in late), all(count.is_exact for count in late)),
            invalid=invalid,
            reasons=reasons,
            is_any_accepted=not rejected or self._is_any_accepted() or self._has_more_than(rejected, processed),
            is_all_filtered=is_all_filtered,
            has_earlier_results=any(self._ends[self._results].values()),
            is_none_paired=is_all_filtered and self._aggregates_pairs and not self._is_any_in(["joined"]),
        )

    def _inputs(self) -> Iterator[tuple[str, str]]:
        """Yield the topics of the user, each with the stage that reads it."""
        for row in topology.needed_stages(self._settings):
            for name in row.inputs_of(self._settings):
                if name in self._settings.user_inputs and name != "source":
                    yield row.name, self._settings.topic(name)
                elif name in self._settings.user_inputs:
                    yield from ((row.name, topic) for topic in topic_plan.source_topics(self._settings))

    def _processed(self) -> dict[str, OffsetRanges]:
        """Return the offsets of the user's topics that stages have committed since the start."""
        processed: dict[str, OffsetRanges] = {}
        for stage, topic in self._inputs():
            starts, begin = self._starts.get((stage, topic), {}), self._offsets.begin(topic)
            processed[topic] = {}
            for partition, committed in self._offsets.committed(self._settings.group(stage), topic).items():
                # The first run of a pipeline may start after the beginning of its source.
                first = (start_of(committed.checkpoint) if stage == topology.SOURCE_STAGE else None) or 0
                start = starts[partition].offset if partition in starts else max(begin[partition], first)
                processed[topic][partition] = (start, max(start, committed.offset))
        return processed

    def _source_records(self, processed: Mapping[str, OffsetRanges]) -> Count:
        """Count the processed records. Markers of transactions and aborted records take offsets, too."""
        records, is_exact = 0, True
        for topic, ranges in processed.items():
            offsets, newest = offset_count(ranges), newest_offsets(ranges, max(1, NEWEST // max(1, len(ranges))))
            if self._read(topic, newest) == offset_count(newest):
                records += offsets
            elif offsets <= MAX_READ and self._is_retained(topic, ranges):
                records += self._read(topic, ranges)
            else:
                records, is_exact = records + offsets, False
        return Count(records, is_exact)

    def _is_retained(self, topic: str, ranges: OffsetRanges) -> bool:
        begin = self._offsets.begin(topic)
        return all(first >= begin[partition] for partition, (first, _) in ranges.items())

    def _read(self, topic: str, ranges: OffsetRanges) -> int:
        """Return the number of records in these offsets."""
        return sum(len(messages) for _, messages in read_ranges(self._settings.kafka, topic, ranges))

    def _written(self, name: str) -> OffsetRanges:
        """Return the offsets of a topic that were written since the start, and that are not deleted."""
        topic, starts = self._settings.topic(name), self._ends[name]
        return {
            partition: (max(begin, starts.get(partition, 0)), end)
            for partition, (begin, end) in self._offsets.ranges(topic).items()
        }

    def _count(
        self, name: str, *, exact: bool, observe: Callable[[Headers, bytes | None], None] | None = None
    ) -> Count:
        """Count the records that were written to a topic. Call `observe` with each of them, or of the last.

        Of records that are deleted already, the offsets are counted.
        """
        ranges = self._written(name)
        # As by a retention, which deletes results of old windows soon after they are written.
        deleted = sum(first - self._ends[name].get(partition, 0) for partition, (first, _) in ranges.items())
        offsets = offset_count(ranges) + deleted
        is_exact = not deleted and (exact or offsets <= MAX_READ)
        if not is_exact and observe is None:
            return Count(offsets, is_exact=False)
        if not is_exact:
            ranges = newest_offsets(ranges, MAX_READ // len(ranges))
        records = 0
        for _, messages in read_ranges(self._settings.kafka, self._settings.topic(name), ranges):
            records += len(messages)
            if observe is not None:
                for message in messages:
                    observe(message.headers() or (), message.value())
        return Count(records) if is_exact else Count(offsets, is_exact=False)

    def _is_any_accepted(self) -> bool:
        """Return whether a stage has written a record that is neither late nor invalid."""
        return self._is_any_in(ACCEPTED[self._results])

    def _is_any_in(self, names: Iterable[str]) -> bool:
        """Return whether a record has been written to one of these topics, apart from watermarks."""
        return any(
            has_records_after(
                self._offsets,
                self._settings.topic(name),
                {partition: start for partition, (start, _) in self._written(name).items()},
                lambda headers: schema_of(headers) != WATERMARK,
            )
            for name in names
        )

    def _has_more_than(self, rejected: int, processed: Mapping[str, OffsetRanges]) -> bool:
        """Return whether more records were processed than are late or invalid: filtered ones, or empty ones."""
        records = 0
        for topic, ranges in processed.items():
            for _, messages in read_ranges(self._settings.kafka, topic, ranges):
                records += len(messages)
                if records > rejected:
                    return True
        return False
