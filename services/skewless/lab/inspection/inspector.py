"""Inspector: measures a topic from batches of its records, in bounded memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from skewless.algorithms.grouping import KeyBatch
from skewless.config.pipeline_settings import EventTimeSettings
from skewless.errors import ConfigurationError
from skewless.lab.inspection.field_roles import (
    MIN_KEY_SHARE,
    NEAR_MS,
    TimeField,
    UnreadTime,
    are_objects,
    encoding_of,
    envelope_times,
    groups_nothing,
    key_fields,
    time_fields,
    unread_time_of_lines,
    unread_times,
)
from skewless.lab.inspection.format_detection import detect, detect_envelope, detect_in
from skewless.lab.inspection.key_profile import EncodedKeys, KeyProfile
from skewless.lab.inspection.load_comparison import LoadComparison
from skewless.lab.inspection.registered_records import ids_of, of_registry, read_with, with_ids, without_registry
from skewless.lab.inspection.sizes import Sizes
from skewless.lab.inspection.time_profile import TimeProfile
from skewless.parsing.field_settings import FieldRef, LimitSettings
from skewless.parsing.formats.base import DetectedFormat, ParsedBatch
from skewless.parsing.formats.schema_format import SchemaFormatSettings
from skewless.parsing.record_parser import RecordParser
from skewless.parsing.settings import ParsingSettings
from skewless.parsing.source_records import SourceRecords, last_header
from skewless.parsing.validation import NO_TIME, TOO_FAR_AHEAD
from skewless.schema_registry.schema import KEY_HEADER
from skewless.schema_registry.settings import RegistrySettings
from skewless.times import LAST_INSTANT
from skewless.wire.record import Headers

RECORD_KEY = "record key"
"""Name of the key of the Kafka record among the candidates."""
LINE = "whole line"
"""Name of the whole record among the candidates, for the format text."""
KAFKA_TIME = "Kafka timestamp"
MAX_AHEAD_MS = round(EventTimeSettings.model_fields["max_ahead_s"].default * 1000)
UNORDERED_MS = 3_600_000
"""Records are not in the order of a time if half of them are older than one before them by more than this."""
DETECTION_RECORDS = 1_000
"""Records from which the format and the fields are detected."""
MAX_DETECTION_BYTES = 65_536
"""Longer values are not used to detect the format, unless all are."""
LONG_RECORDS = 50
CANDIDATE_RECORDS = 100_000
"""Records from which candidates are measured that are not the chosen key."""
KEY_COUNTERS = 262_144
"""Counters of the chosen key. Its counts are exact up to so many distinct keys."""
CANDIDATE_COUNTERS = 8_192
"""The same for the other candidates."""
SAMPLED_KEYS = 16_384
"""Keys of each candidate with which the number of distinct keys is estimated if they are more than its counters."""


class _Candidate:
    """A possible key: where it is read, and the profile of its values."""

    def __init__(
        self, name: str, settings: dict[str, Any] | None, counters: int, registry: RegistrySettings | None
    ) -> None:
        self.name = name
        self.settings = settings
        """Value of `splitter`; None for record keys that a pipeline cannot read."""
        # Record keys are measured without the values: keys of records without a value or time are counted, too. But
        # such records are invalid.
        measured = {"key": settings["key"]} if settings and name == RECORD_KEY else settings
        self.parser = _parser(measured, registry) if measured else None
        self.profile = KeyProfile(counters, SAMPLED_KEYS)
        self.records = 0
        self.invalid: Counter[str] = Counter()
        self.oldest = 0
        self.oldest_invalid: Counter[str] = Counter()
        """The same of the first records of the topic."""

    def parse(self, records: SourceRecords) -> ParsedBatch:
        """Return the tuples of records."""
        self.records += len(records.values)
        parsed = _by_record_key(records) if self.parser is None else self.parser.parse(records)
        self.invalid.update(reason for _, reason in parsed.invalid)
        return parsed

    def add_invalid(self, parsed: ParsedBatch, timed: ParsedBatch, limit_ms: int) -> None:
        """Count the records of a batch whose time is invalid or above a limit. `timed` has the times of the records."""
        rows = {row for row, _ in parsed.invalid}
        if timed is not parsed:
            others = {row: reason for row, reason in timed.invalid if row not in rows}
            self.invalid.update(others.values())
            rows |= others.keys()
        ahead = set(np.flatnonzero(timed.times > limit_ms).tolist()) - rows
        if ahead:
            self.invalid[TOO_FAR_AHEAD] += len(ahead)

    def to_json(self) -> dict[str, Any]:
        """Return the measures of this key."""
        return {
            "name": self.name,
            "splitter": self.settings,
            "records": self.records,
            "invalid": _most_common(self.invalid),
            "invalid_share": self.invalid.total() / max(1, self.records),
            "oldest": {"records": self.oldest, "invalid": _most_common(self.oldest_invalid)},
            **self.profile.to_json(),
        }


class Inspector:
    """Measures the records of a topic. The first batch decides the format and the candidates for key and time."""

    def __init__(
        self, first: Sequence[SourceRecords], key: str | None, registry: RegistrySettings | None = None
    ) -> None:
        self._registry = registry
        self._ids = ids_of(value for records in first for value in with_ids(records))
        registered = None
        if registry is not None and self._ids:
            registered = read_with(registry, first, self._ids)
        readable = first if registered is None else registered.records
        self._envelope = detect_envelope(_sample(readable))
        content = self._opened(readable)
        values = [value for value, _ in _sample(content)]
        detected = detect(values) if self._envelope is None else detect_in(self._envelope, values)
        if registered is not None:
            detected = of_registry(detected, registered)
        elif self._ids and detected.settings != {"name": "json"}:
            detected = without_registry(self._ids)
        self.detected = detected
        self._times = {KAFKA_TIME: TimeProfile()}
        self._sizes, self._key_sizes = Sizes(), Sizes()
        self._records: Counter[int] = Counter()
        self._null_values = self._null_keys = 0
        self._spans: dict[int, tuple[int, int]] = {}
        self._clock_limit_ms = time.time_ns() // 1_000_000 + MAX_AHEAD_MS
        self._time_fields = self._likely_first(self._without_ids(time_fields(self.detected), first), first)
        if self._envelope is not None:
            of_envelope = envelope_times(self._envelope, self.detected, content)
            self._time_fields = of_envelope + [field for field in self._time_fields if field not in of_envelope]
        around_ms = [time.time_ns() / 1e6, float(np.median(np.concatenate([records.timestamps for records in first])))]
        self._unread_times = unread_times(self.detected, around_ms)
        if self.detected.settings == {"name": "text"} and (example := unread_time_of_lines(values)):
            self._unread_times = {"the line": UnreadTime(example, {})}
        self._candidates = self._find_candidates(first, content, key)
        self._time_parser = self._create_time_parser()
        self._limit_ms = self._latest_time(first)
        self._loads = LoadComparison(SAMPLED_KEYS)

    def add(self, records: SourceRecords) -> None:
        """Measure the next records of a partition, in offset order."""
        partition, timestamps = records.partition, records.timestamps
        self._records[partition] += len(records.values)
        self._null_values += sum(value is None for value in records.values)
        self._null_keys += sum(key is None for key in records.keys)
        self._sizes.add(records.values)
        self._key_sizes.add(records.keys)
        self._times[KAFKA_TIME].add(partition, timestamps[timestamps <= self._limit_ms])
        first, last = self._spans.get(partition, (int(timestamps.min()), int(timestamps.max())))
        self._spans[partition] = min(first, int(timestamps.min())), max(last, int(timestamps.max()))
        for index, candidate in enumerate(self._candidates):
            if index and candidate.records >= CANDIDATE_RECORDS:
                continue
            parsed = candidate.parse(records)
            keys = EncodedKeys.of(parsed.keys)
            kept = candidate.profile.add(keys)
            timed = parsed
            if candidate.name == RECORD_KEY and self._time_parser is not None:
                timed = self._time_parser.parse(records)
            candidate.add_invalid(parsed, timed, self._clock_limit_ms)
            if index == 0:
                self._add_times(partition, timed)
                self._add_loads(parsed, keys, kept)
        if not self._candidates and self._time_parser is not None:
            self._add_times(partition, self._time_parser.parse(records))

    def report(self, partitions: Iterable[int] = ()) -> dict[str, Any]:
        """Return all measures as JSON. `partitions` are those of the topic, also the ones without records."""
        records = self._records.total()
        by_partition = {partition: self._records[partition] for partition in sorted({*partitions, *self._records})}
        counts = np.array(list(by_partition.values()))
        rates = [
            self._records[partition] * 1000 / (last - first)
            for partition, (first, last) in self._spans.items()
            if last > first
        ]
        return {
            "records": records,
            "format": {
                "description": self.detected.description,
                "splitter_format": self.detected.settings,
                "other_share": self.detected.other_share,
                "kinds": self.detected.kinds,
                "advice": self.detected.advice,
            },
            "null_value_share": self._null_values / max(1, records),
            "null_key_share": self._null_keys / max(1, records),
            "value_sizes": self._sizes.to_json(),
            "key_sizes": self._key_sizes.to_json(),
            "records_per_s": sum(rates) if rates else None,
            "partitions": {
                "max_over_avg": float(counts.max() / counts.mean()) if records else 1.0,
                "records": {str(partition): count for partition, count in by_partition.items()},
            },
            "keys": [candidate.to_json() for candidate in self._candidates],
            "has_registered_keys": self._has_registered_keys,
            "times": [
                {"name": name, **self._time_setting(name), **profile.to_json()}
                for name, profile in self._times.items()
                if profile.records
            ],
            "other_times": [field.name for field in self._time_fields[1:]],
            "unread_times": [
                {"name": str(name), "example": found.example, "kinds": found.kinds}
                for name, found in self._unread_times.items()
            ],
            "loads": self._loads.to_json() if self._candidates and self._candidates[0].profile.tuples else [],
        }

    def _opened(self, first: Sequence[SourceRecords]) -> Sequence[SourceRecords]:
        if self._envelope is None:
            return first
        header = [self._envelope.event_time]
        return [self._envelope.open(records, LimitSettings(), header).records for records in first]

    def _find_candidates(
        self, first: Sequence[SourceRecords], content: Sequence[SourceRecords], key: str | None
    ) -> list[_Candidate]:
        """Return the candidates: the chosen key first, then the record key, then the most likely fields.

        Candidates that group nothing, and record keys that are objects, come last. `content` are the first records
        without their envelope.
        """
        record_keys = [value for records in first for value in records.keys]
        present = [value for value in record_keys if value is not None]
        # A key in the wire format may have the size of an integer. One with its schema in a header may look like text.
        of_headers = any(last_header(headers, KEY_HEADER) for records in first for headers in records.headers)
        self._has_registered_keys = of_headers or bool(self._ids and ids_of(present))
        self._encoding = None if self._has_registered_keys else encoding_of(present)
        has_record_keys = bool(present) and len(present) >= MIN_KEY_SHARE * len(record_keys)
        found: dict[FieldRef, bool] = {}
        if has_record_keys and not self._has_registered_keys:
            # Keys that are many repeat rarely in the first records, so one of them that repeats is not unique. A
            # tombstone repeats the key of another record, also a unique one.
            missing_share = 1 - len(present) / len(record_keys)
            pairs = (pair for records in first for pair in zip(records.keys, records.values, strict=True))
            of_values = [record_key for record_key, value in pairs if record_key is not None and value is not None]
            is_unlikely = groups_nothing(len(set(of_values)), len(of_values), missing_share, unique=1.0)
            found[RECORD_KEY] = is_unlikely or are_objects(present)
        found |= key_fields(self.detected, self._time_fields, self._unread_times)
        if self.detected.settings == {"name": "text"}:
            lines = [value for value, _ in _sample(content)]
            found[LINE] = groups_nothing(len(set(lines)), len(lines), 0.0)
        names = sorted(found, key=found.__getitem__)
        if key == RECORD_KEY and not present:
            raise ConfigurationError(f"--key: no record has a key; fields: {self._field_names()}")
        if key is not None:
            by_name = {str(field.reference): field.reference for field in self.detected.fields}
            chosen = by_name.get(key, int(key) if key.isdecimal() else key)
            names = [chosen, *(name for name in names if name != chosen)]
        candidates: list[_Candidate] = []
        for name in names:
            counters = CANDIDATE_COUNTERS if candidates else KEY_COUNTERS
            candidates.append(_Candidate(str(name), self._splitter(name), counters, self._registry))
        if key is not None:
            self._require_values(candidates[0], first)
        return candidates

    def _splitter(self, name: FieldRef) -> dict[str, Any] | None:
        """Return the value of `splitter` that reads this key; None for record keys in an unknown encoding.

        Raises ConfigurationError if the format has no such field.
        """
        if name == RECORD_KEY and self._encoding is None:
            return None
        if self.detected.settings is None and name != RECORD_KEY:
            raise ConfigurationError(f"--key: {name}: the values are {self.detected.description}, without fields")
        settings: dict[str, Any] = {}
        if self.detected.settings is not None:
            settings["format"] = self.detected.settings
        if self._envelope is not None:
            settings["envelope"] = self._envelope.name
        if name == RECORD_KEY:
            settings["key"] = {"from": "record_key"} | (
                {} if self._encoding == "utf8" else {"encoding": self._encoding}
            )
        elif name != LINE:
            settings["key"] = {"field": name}
        if self._time_fields:
            settings["time"] = self._time_fields[0].settings
        try:
            ParsingSettings.model_validate(settings)
        except ValidationError:
            known = ", ".join(str(field.reference) for field in self.detected.fields) or LINE
            raise ConfigurationError(f"--key: no field {name} in the records; fields: {known}") from None
        return settings

    def _require_values(self, candidate: _Candidate, first: Sequence[SourceRecords]) -> None:
        known = {str(field.reference) for field in self.detected.fields} | {RECORD_KEY, LINE}
        if candidate.name in known:
            return
        if not any(candidate.parse(records).keys for records in first):
            raise ConfigurationError(f"--key: no record has a field {candidate.name}; fields: {self._field_names()}")
        candidate.records = 0
        candidate.invalid.clear()

    def _field_names(self) -> str:
        return ", ".join(str(field.reference) for field in self.detected.fields) or "none"

    def _create_time_parser(self) -> RecordParser | None:
        """Return a parser that reads the time; None if there is no time, or if it is read with each key."""
        is_read = bool(self._candidates) and all(candidate.name != RECORD_KEY for candidate in self._candidates)
        if not self._time_fields or is_read:
            return None
        return self._time_reader(self._time_fields[0])

    def _time_reader(self, field: TimeField) -> RecordParser:
        """Return a parser that reads a time."""
        read = {"format": self.detected.settings, "envelope": self._envelope and self._envelope.name}
        # Each record has the key `partition`, so only the time can make it invalid.
        return _parser({**read, "key": {"from": "partition"}, "time": field.settings}, self._registry)

    def _without_ids(self, fields: list[TimeField], first: Sequence[SourceRecords]) -> list[TimeField]:
        """Return the fields without those in ns that are far from all other times of their records, and from the clock.

        Ids of 64 bits that begin with the time at which they were made have the size of times in ns. But they advance
        at another rate, from another epoch.
        """

        def times_of(field: TimeField) -> NDArray[np.float64]:
            parser = self._time_reader(field)
            return np.concatenate([_times_or_nan(parser.parse(records)) for records in first])

        in_ns = [field for field in fields if field.unit == "ns"]
        if not in_ns:
            return fields
        others = [np.array([time.time_ns() / 1e6]), np.concatenate([records.timestamps for records in first])]
        others += [times_of(field) for field in fields if field not in in_ns]
        ids = [field for field in in_ns if not _is_any_near(times_of(field), others)]
        return [field for field in fields if field not in ids]

    def _likely_first(self, fields: list[TimeField], first: Sequence[SourceRecords]) -> list[TimeField]:
        """Return the fields that can be the event time, the most likely one first, otherwise in their order.

        Event times are not ahead of the clock, as an expiry is, and records are roughly in their order, which they are
        not by a date of birth.
        """

        def is_unlikely(field: TimeField) -> tuple[bool, bool]:
            parser = self._time_reader(field)
            by_batch = [_valid_times(parser.parse(records)) for records in first]
            times = np.concatenate(by_batch)
            if not len(times):
                return True, True
            disorder = np.concatenate([np.maximum.accumulate(part) - part for part in by_batch])
            is_ahead = 2 * np.count_nonzero(times > self._clock_limit_ms) > len(times)
            return bool(is_ahead), bool(np.median(disorder) > UNORDERED_MS)

        return sorted(fields, key=is_unlikely) if len(fields) > 1 else fields

    def _latest_time(self, first: Sequence[SourceRecords]) -> int:
        """Return the time above which stages refuse records; the largest one if that refuses most of the first ones.

        A time far ahead makes all later records of its partition look late.
        """
        times = np.concatenate([self._event_times(records) for records in first])
        is_ahead = 2 * np.count_nonzero(times > self._clock_limit_ms) > len(times)
        return LAST_INSTANT if is_ahead else self._clock_limit_ms

    def _event_times(self, records: SourceRecords) -> NDArray[np.int64]:
        if not self._time_fields:
            return records.timestamps
        parser = self._time_parser or self._candidates[0].parser
        return _valid_times(parser.parse(records)) if parser is not None else records.timestamps

    def oldest_ms(self, batches: Iterable[SourceRecords]) -> int | None:
        """Measure the first records of the topic, which are not in the sample.

        Returns the smallest event time of the measured records, and of these batches of the first ones of the topic.

        Returns None if a partition has first records and none of them has a time: they may be of any age. A line with
        the names of columns, or a few records without a time, hide no older ones.
        """
        *_, profile = self._times.values()
        oldest: dict[int, int | None] = {-1: profile.first_ms}
        reader = self._time_reader(self._time_fields[0]) if self._time_fields else None
        for records in batches:
            for candidate in self._candidates:
                if candidate.parser is not None:
                    candidate.oldest += len(records.values)
                    candidate.oldest_invalid.update(reason for _, reason in candidate.parser.parse(records).invalid)
            # A record without a time of Kafka has -1.
            of_kafka = records.timestamps[records.timestamps >= 0]
            times = of_kafka if reader is None else _valid_times(reader.parse(records))
            known = [] if (found := oldest.get(records.partition)) is None else [found]
            oldest[records.partition] = min([*known, *times.tolist()], default=None)
        found_ms = [time_ms for time_ms in oldest.values() if time_ms is not None]
        return min(found_ms) if len(found_ms) == len(oldest) else None

    def _add_times(self, partition: int, parsed: ParsedBatch) -> None:
        if not self._time_fields:
            return
        times = _valid_times(parsed)
        name = self._time_fields[0].name
        self._times.setdefault(name, TimeProfile()).add(partition, times[times <= self._limit_ms])

    def _time_setting(self, name: str) -> Mapping[str, Any]:
        by_name = {field.name: field for field in self._time_fields}
        return by_name[name].settings if name in by_name else {"field": None, "unit": None}

    def _add_loads(self, parsed: ParsedBatch, keys: EncodedKeys, kept: NDArray[np.int64] | None) -> None:
        if kept is not None:
            self._loads.keep(kept)
        if len(keys.codes):
            sampled = self._candidates[0].profile.sample.indices_of(keys.hashes)
            self._loads.add(KeyBatch(keys.names, keys.codes, parsed.times[parsed.records]), sampled)


def _most_common(invalid: Counter[str]) -> list[dict[str, Any]]:
    return [{"reason": reason, "records": count} for reason, count in invalid.most_common(5)]


def _valid_times(parsed: ParsedBatch) -> NDArray[np.int64]:
    times: NDArray[np.int64] = parsed.times[_has_time(parsed)]
    return times


def _times_or_nan(parsed: ParsedBatch) -> NDArray[np.float64]:
    return np.where(_has_time(parsed), parsed.times, np.nan)


def _has_time(parsed: ParsedBatch) -> NDArray[np.bool_]:
    valid: NDArray[np.bool_] = parsed.times != NO_TIME
    valid[[index for index, _ in parsed.invalid]] = False
    return valid


def _is_any_near(times: NDArray[np.float64], others: Iterable[NDArray[Any]]) -> bool:
    """Return whether most times, apart from nan, are near those of one of the others."""
    needed = np.count_nonzero(np.isfinite(times)) / 2
    return any(np.count_nonzero(np.abs(times - other) <= NEAR_MS) > needed for other in others)


def _parser(splitter: Mapping[str, Any], registry: RegistrySettings | None) -> RecordParser:
    settings = ParsingSettings.model_validate(splitter)
    settings.format.bind(registry)
    if isinstance(settings.format, SchemaFormatSettings):
        settings.format.silence()
    return RecordParser(settings)


def _sample(first: Iterable[SourceRecords]) -> list[tuple[bytes | None, Headers]]:
    """Return values and headers of records, evenly spaced, for the detection of format and envelope.

    They are records with short values, or a few of the long ones if no value is short.
    """
    found = [record for records in first for record in zip(records.values, records.headers, strict=True)]
    found = found[:: max(1, len(found) // DETECTION_RECORDS)]
    short = [record for record in found if record[0] is None or len(record[0]) <= MAX_DETECTION_BYTES]
    return short if any(value is not None for value, _ in short) else found[:LONG_RECORDS]


def _by_record_key(records: SourceRecords) -> ParsedBatch:
    """Return a tuple for each record, with the key of the Kafka record, in hexadecimal digits if it is not text."""
    keys, rows, invalid = [], [], []
    for row, key in enumerate(records.keys):
        if key is None:
            invalid.append((row, "record key is missing"))
            continue
        try:
            keys.append(key.decode())
        except UnicodeDecodeError:
            keys.append(key.hex())
        rows.append(row)
    return ParsedBatch(keys, {}, np.array(rows, dtype=np.int32), records.timestamps, invalid)


__all__ = ["KAFKA_TIME", "LINE", "RECORD_KEY", "DetectedFormat", "Inspector"]
