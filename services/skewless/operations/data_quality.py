"""Measures the records of a pipeline that are in no result, and says why.

Topics are the source, so the numbers do not depend on restarts, or on which processes can be reached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow.compute as pc

from skewless.algorithms.aggregates import LOAD_COLUMN
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import BadRecordError
from skewless.kafka.consumer.offsets import OffsetRanges, OffsetReader, newest_offsets, offset_count
from skewless.kafka.consumer.topic_reader import read_ranges
from skewless.operations.dead_letters import Position, decode_headers
from skewless.operations.recent_records import RecentRecords, recent_records
from skewless.parsing.join_side_settings import JoinSideSettings
from skewless.parsing.json_path import LIST
from skewless.parsing.remedies import SPLITTER, remedy_of
from skewless.parsing.validation import EventTimeRules
from skewless.wire.columns import read_table
from skewless.wire.dead_letters import WINDOW_EXPIRED
from skewless.wire.record import Headers
from skewless.wire.rows import is_rows

SHOWN_BYTES = 60
"""Bytes of the value of an invalid record that are shown."""
SHOWN_REASONS = 3
"""Number of reasons of invalid records that are shown."""
MIN_RECORDS = 10
"""Number of late tuples or invalid records from which on their share is measured. Fewer may be an exception."""
MAX_INVALID_SHARE = 0.01
"""Share of invalid records from which on there is a warning."""
MAX_LATE_SHARE = 0.001
"""Share of late tuples from which on there is a warning, unless another one is given."""
SAMPLED = 2_000
"""Offsets of topic `tuples` that are read to estimate the number of tuples, if there are more."""
STRATA = 10
"""Parts of equal length of each partition, at most. Some offsets of each are read, because the load changes."""
MIN_SAMPLED = 4
"""Offsets of a part that are read at least: of two, one may be the marker of a transaction."""
QUALITY_TOPICS = ("late", "join-late", "dead-letters", "tuples")
"""Topics from which the records are known."""
_TOLERANCES = {"left": "window_s", "right": "sync_delay_s"}
"""Setting of a join, by side, that contains the disorder which its topic may have."""


class LateTuple(msgspec.Struct):
    """Fields of a late tuple, or of a late record of a join, that say by how much it is late."""

    time: int
    watermark: int
    side: str | None = None


class LateSide(NamedTuple):
    """Late records of a side of a join."""

    records: int
    written: int
    """Records of its topic whose Kafka timestamp is in the period. If their event time is, they may be others."""
    missing_ms: int
    """By how much the disorder of the topic exceeds the tolerated one."""

    def has_too_many(self, max_share: float) -> bool:
        """Return whether there are at least MIN_RECORDS, and more than this share of the records of the topic."""
        return self.records >= MIN_RECORDS and self.records > max_share * max(self.written, self.records)


class Invalid(NamedTuple):
    """An invalid record."""

    reason: str
    position: Position
    value: str
    """Beginning of its value, as text."""
    expired: int = 0
    """Number of tuples in partial results whose windows had expired; 0 for a record of a user's topic."""


class Reasons:
    """Counts invalid records by reason, and the tuples that came after their windows had expired."""

    def __init__(self, records: Iterable[Invalid | None] = ()) -> None:
        self._counts: Counter[str] = Counter()
        self._newest: dict[str, Invalid] = {}
        self.expired = self.expired_records = self.records = 0
        for record in records:
            self.add(record)

    def add(self, record: Invalid | None) -> None:
        """Count a record. Others than dead letters have no reason."""
        self.records += 1
        if record is not None and record.expired:
            self.expired += record.expired
            self.expired_records += 1
        elif record is not None:
            self._counts[record.reason] += 1
            self._newest[record.reason] = record

    @property
    def counts(self) -> dict[str, int]:
        """Number of records by reason, the commonest reason first."""
        return dict(self._counts.most_common())

    def commonest(self) -> Invalid | None:
        """Return the newest record with the commonest reason; None if there is none."""
        return self._newest[next(iter(self.counts))] if self._counts else None

    def remedies(self, settings: PipelineSettings) -> list[str]:
        """Return the remedies of the commonest reasons that have one; see `remedy`."""
        shown = [self._newest[reason] for reason in list(self.counts)[:SHOWN_REASONS]]
        found = (remedy(record.reason, record.position.topic, settings) for record in shown)
        return [text for text in found if text is not None]

    def __repr__(self) -> str:
        """Return the counts, as the counts of a run show them in Python."""
        return f"Reasons({self.counts})"

    def __str__(self) -> str:
        """Return the commonest reasons with their counts, and the newest record with the first one."""
        counts, newest = self.counts, self.commonest()
        if newest is None:
            return "none"
        shown = ", ".join(f'"{reason}" ({counts[reason]:,})' for reason in list(counts)[:SHOWN_REASONS])
        others = sum(list(counts.values())[SHOWN_REASONS:])
        value = newest.value or "(empty)"
        return f"{shown}{f' and others ({others:,})' if others else ''}, such as {newest.position}: {value}"


def remedy(reason: str, topic: str, settings: PipelineSettings) -> str | None:
    """Return which setting would change that records of a topic are invalid for this reason; None if there is none."""
    sections = {side.topic: f"join.{name}" for name, side in settings.sides.items()}
    if settings.enrich is not None:
        sections[settings.enrich.topic] = "enrich"
    return remedy_of(reason, sections.get(topic, SPLITTER))


@dataclass(frozen=True)
class DataQuality:
    """Late tuples, invalid records and tuples of expired windows that were committed in a period."""

    late: int = 0
    invalid: int = 0
    """Records of the user's topics."""
    dead_letters: int = 0
    accepted: int = 0
    """Number of the other tuples, estimated from a sample; 0 if there are fewer late and invalid ones than
    MIN_RECORDS."""
    reasons: Reasons = field(default_factory=Reasons)
    """Reasons of the invalid records that were read: all, or the last ones of many."""
    late_tuples: Sequence[LateTuple] = ()
    """The late tuples that were read: all, or the last ones of many."""
    late_of_join: int = 0
    """Late records of a join."""
    late_sides: Mapping[str, LateSide] = field(default_factory=dict)
    """The same by side, of the sides that have any."""

    @property
    def late_share(self) -> float:
        """Share of the late tuples."""
        return self.late / (self.late + self.accepted) if self.late >= MIN_RECORDS else 0.0

    @property
    def invalid_share(self) -> float:
        """Share of the invalid records, where each of the others has one tuple."""
        return self.invalid / (self.invalid + self.late + self.accepted) if self.invalid >= MIN_RECORDS else 0.0


def data_quality(
    offsets: OffsetReader, topics: Mapping[str, str], sides: Mapping[str, JoinSideSettings], since_ms: int
) -> DataQuality:
    """Measure the records that were committed since a time.

    `topics` contains the full names of QUALITY_TOPICS, without those that do not exist. `sides` are those of
    a join. Raises the errors of `read_ranges`.
    """
    late = recent_records(offsets, topics.get("late"), since_ms, late_tuple)
    of_join = recent_records(offsets, topics.get("join-late"), since_ms, late_tuple)
    invalid = recent_records(offsets, topics.get("dead-letters"), since_ms, invalid_record)
    reasons = Reasons(invalid.contents)
    # Of many dead letters, only the last ones are read.
    expired_records = round(invalid.number * reasons.expired_records / max(1, len(invalid.contents)))
    is_measured = max(late.number, invalid.number) >= MIN_RECORDS and "tuples" in topics
    return DataQuality(
        late=late.number,
        invalid=invalid.number - expired_records,
        dead_letters=invalid.number,
        accepted=written_tuples(offsets, topics["tuples"], since_ms) if is_measured else 0,
        reasons=reasons,
        late_tuples=[found for found in late.contents if found is not None],
        late_of_join=of_join.number,
        late_sides=dict(_late_sides(offsets, of_join, sides, since_ms)),
    )


def _late_sides(
    offsets: OffsetReader,
    late: RecentRecords[LateTuple | None],
    sides: Mapping[str, JoinSideSettings],
    since_ms: int,
) -> Iterator[tuple[str, LateSide]]:
    for name, side in sides.items():
        found = [record.watermark - record.time for record in late.contents if record and record.side == name]
        if found:
            # Of many records, only the last ones are read.
            number = round(late.number * len(found) / len(late.contents))
            yield name, LateSide(number, offset_count(offsets.ranges_since(side.topic, since_ms)), max(found))


def late_tuple(_headers: Headers, value: bytes | None) -> LateTuple | None:
    """Return the late tuple of a record with this value; None if it is not one."""
    try:
        return msgspec.json.decode(value or b"", type=LateTuple)
    except msgspec.DecodeError:
        return None


def invalid_record(headers: Headers, value: bytes | None) -> Invalid | None:
    """Return the record of a dead letter, which has these headers and this value; None if it is not one."""
    decoded, value = decode_headers(headers), value or b""
    if decoded is None:
        return None
    position = Position(decoded.topic, int(decoded.partition), int(decoded.offset))
    if decoded.reason == WINDOW_EXPIRED:
        return Invalid(decoded.reason, position, "", expired=_tuples_of_partials(value))
    text = value[:SHOWN_BYTES].decode("utf-8", "replace") + ("..." if len(value) > SHOWN_BYTES else "")
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return Invalid(decoded.reason, position, shown)


def _tuples_of_partials(value: bytes) -> int:
    """Return the number of tuples in partial results; at least 1, also if they cannot be read."""
    try:
        return max(1, int(pc.sum(read_table(value)[LOAD_COLUMN.name]).as_py() or 0))
    except (BadRecordError, KeyError):
        return 1


def warnings(quality: DataQuality, settings: PipelineSettings, max_late_share: float) -> dict[str, str]:
    """Return a line for each share that is too large, by its name, and for `expired` tuples."""
    found = dict(_warnings_of_join(quality, settings, max_late_share))
    if expired := quality.reasons.expired:
        is_part = quality.dead_letters > quality.reasons.records
        found["expired"] = expired_line(expired, settings, is_part=is_part)
    if quality.late_share > max_late_share:
        current_ms = settings.event_time.lateness_ms
        required_s = readable_s(current_ms + increase_ms(quality, settings.event_time_rules(), max_late_share))
        found["late"] = (
            f"{percent(quality.late_share)} of the recent tuples are late and in no result; with "
            f"event_time.allowed_lateness_s: {required_s:.15g} instead of {current_ms / 1000:.15g}, at most "
            f"{percent(max_late_share)} would be late"
        )
    if quality.invalid_share > MAX_INVALID_SHARE:
        # The share is that of the topics of `source`, if each valid record has a tuple. No topic says how many other
        # records a join has read, or a splitter has filtered. Those of an enricher become tuples only later.
        is_known = not (
            settings.join or settings.enrich or filtering_settings(settings) or LIST in str(settings.splitter.key.field)
        )
        share = percent(quality.invalid_share) if is_known else f"{quality.invalid:,}"
        line = f"{share} of the recent records are invalid: {quality.reasons}"
        found["invalid"] = "; ".join([line, *quality.reasons.remedies(settings)])
    return found


def _warnings_of_join(
    quality: DataQuality, settings: PipelineSettings, max_late_share: float
) -> Iterator[tuple[str, str]]:
    join = settings.join
    silence = ", unless their partition was silent for join.idle_timeout_s: then only a longer one helps"
    for name, side in quality.late_sides.items():
        if join is not None and side.has_too_many(max_late_share):
            setting = _TOLERANCES[name]
            current_s: float = getattr(join, setting) or join.apart_s
            required_s = readable_s(round(1000 * current_s) + side.missing_ms)
            line = (
                f"{side.records:,} recent records of join.{name} are late, and take no part in the join; with "
                f"join.{setting}: {required_s:.15g} instead of {current_s:.15g}, none of them would be late"
                f"{silence if join.idle_timeout_s else ''}"
            )
            yield f"late {name}", line


def filtering_settings(settings: PipelineSettings) -> list[str]:
    """Return the settings because of which a valid record may have no tuple."""
    splitter = settings.splitter
    can_filter = {
        "splitter.where": bool(splitter.where),
        "splitter.envelope": splitter.envelope is not None,
        "splitter.python": splitter.python is not None,
        "splitter.key.pattern": splitter.key.pattern is not None,
        "splitter.key.drop_if_contains": bool(splitter.key.drop_if_contains),
        "splitter.tombstones": splitter.tombstones == "skip",
    }
    return [name for name, is_set in can_filter.items() if is_set]


def cause_without_tuples(settings: PipelineSettings) -> str:
    """Return why no valid record has a tuple."""
    return " or ".join(filtering_settings(settings)) or "an empty list in each of them"


def expired_line(tuples: int, settings: PipelineSettings, *, is_part: bool) -> str:
    """Return what it means that tuples came after their windows had expired, and what to do.

    `is_part`: there are further dead letters that were not read.
    """
    retention_s = settings.aggregator.closed_window_retention_s
    at_least = "at least " if is_part else ""
    return (
        f"{at_least}{tuples:,} tuples came after their windows had expired, and are in no result: source partitions "
        f"are further apart than aggregator.closed_window_retention_s, which is {retention_s:.15g}. Raise it, and "
        "count again with `skewless reset --to-start`"
    )


def increase_ms(quality: DataQuality, rules: EventTimeRules, max_late_share: float) -> int:
    """Return by how many ms the allowed lateness is too small for a share of late tuples."""
    times = np.array([found.time for found in quality.late_tuples], dtype=np.int64)
    watermarks = np.array([found.watermark for found in quality.late_tuples], dtype=np.int64)
    missing = np.sort(watermarks - rules.deadlines(times))
    may_be_late = int(max_late_share * (quality.late + quality.accepted) * len(missing) / quality.late)
    return int(missing[-1 - may_be_late]) if may_be_late < len(missing) else 0


def readable_s(ms: int) -> float:
    """Return a time in seconds, rounded up to two digits."""
    unit: int = 10 ** max(0, len(str(ms)) - 2)
    return -(-ms // unit) * unit / 1000


def percent(share: float) -> str:
    """Return a share as a percentage with three digits."""
    return f"{100 * share:.3g} %"


def written_tuples(offsets: OffsetReader, topic: str, since_ms: int) -> int:
    """Return the number of tuples that were written to topic `tuples` since a time, an estimate if there are many."""
    estimate = 0.0
    for part, size in _parts(offsets.ranges_since(topic, since_ms)):
        tuples, sample = Counter[int](), newest_offsets(part, size)
        for partition, messages in read_ranges(offsets.kafka, topic, sample):
            tuples[partition] += sum(tuples_in(message.value()) for message in messages)
        for partition, (begin, end) in part.items():
            estimate += tuples[partition] * (end - begin) / max(1, min(size, end - begin))
    return round(estimate)


def _parts(ranges: OffsetRanges) -> Iterator[tuple[OffsetRanges, int]]:
    """Yield the parts of all ranges, each with the number of offsets of a partition that are read of it."""
    if offset_count(ranges) <= SAMPLED:
        yield ranges, SAMPLED
        return
    parts = max(1, min(STRATA, SAMPLED // (MIN_SAMPLED * len(ranges))))
    size = max(MIN_SAMPLED, SAMPLED // (parts * len(ranges)))
    for part in range(parts):
        yield (
            {
                partition: (begin + (end - begin) * part // parts, begin + (end - begin) * (part + 1) // parts)
                for partition, (begin, end) in ranges.items()
            },
            size,
        )


def tuples_in(value: bytes | None) -> int:
    """Return the number of tuples in a record of topic `tuples`. A report of watermarks has none."""
    try:
        table = read_table(value)
    except BadRecordError:
        return 0
    return pc.sum(table[LOAD_COLUMN.name]).as_py() or 0 if is_rows(table) else table.num_rows
