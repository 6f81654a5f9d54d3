"""Reads the dead letters of a pipeline, and replays invalid records, each at most once per target topic.

A replay writes the invalid record itself, from the position that its dead letter names, with all of its headers. In the
same transaction it writes the record's position to the compacted topic `<pipeline>.replays`. All replays of a
pipeline share a transactional id, so a second one fences the first, and then reads what the first has committed. So no
crash and no concurrent replay writes a record twice.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from skewless import topology
from skewless.config.pipeline_settings import PipelineSettings
from skewless.config.topic_plan import require_topic, topic_spec
from skewless.errors import BrokerError, ConfigurationError, TransactionAbortedError
from skewless.kafka.admin.client import Admin
from skewless.kafka.consumer.offsets import OffsetReader
from skewless.kafka.consumer.topic_reader import read_compacted, read_ranges
from skewless.kafka.producer.transactional import TransactionalProducer
from skewless.wire.dead_letters import DeadLetterHeaders
from skewless.wire.record import Headers, OutputRecord
from skewless.wire.replays import Replay, read_replay_key, replay_record

REPLAYS = topology.topic("replays")
ATTEMPT_HEADER = "__skewless.replay.attempt"
"""Header of a replayed record: how often it was replayed. A record that fails again still has it."""
MAX_ATTEMPTS = 3
BATCH = 500
"""Records of a transaction."""
MAX_GAP = 50_000
"""Offsets between two records that are read over. Beyond it, a new read begins."""


class Position(NamedTuple):
    """Coordinates of a record."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        """Return the coordinates as text, as the commands print and accept them."""
        return f"{self.topic}/{self.partition}/{self.offset}"


class DeadLetter(NamedTuple):
    """A dead letter, and the coordinates of the invalid record."""

    partition: int
    offset: int
    origin: Position
    headers: DeadLetterHeaders
    key: bytes | None
    value: bytes | None

    @property
    def reason(self) -> str:
        """Reason why the record is invalid."""
        return self.headers.reason

    @property
    def traceback(self) -> str | None:
        """Traceback of the function of `splitter.python`, if it failed for the record."""
        return None if self.headers.traceback is UNSET else self.headers.traceback

    def is_of(self, record: Original) -> bool:
        """Return whether a record has the key and the value of the dead letter, which may be cut off."""
        return _is_cut(self.key, record.key, self.headers.key_bytes) and _is_cut(
            self.value, record.value, self.headers.value_bytes
        )

    @property
    def is_whole(self) -> bool:
        """Whether the dead letter contains the whole key and value."""
        return self.headers.value_bytes is UNSET and self.headers.key_bytes is UNSET


class Original(NamedTuple):
    """An invalid record as it is in its topic."""

    key: bytes | None
    value: bytes | None
    timestamp: int | None
    headers: Headers

    @property
    def attempts(self) -> int:
        """Number of replays that led to this record. No replay allows a foreign value of the header."""
        found = dict(self.headers).get(ATTEMPT_HEADER, b"0") or b""
        # Python refuses to convert thousands of digits.
        return int(found) if found.isdigit() and len(found) < 10 else sys.maxsize


def _is_cut(part: bytes | None, whole: bytes | None, size: str | UnsetType) -> bool:
    """Return whether a part is the beginning of a key or value of this size. Without a size, it is all of it."""
    if size is UNSET or part is None or whole is None:
        return part == whole
    return len(whole) == int(size) and whole.startswith(part)


@dataclass
class ReplayReport:
    """Numbers of dead letters by what a replay did, or would do, with them."""

    replayed: int = 0
    already_replayed: int = 0
    gone: int = 0
    """The record is no longer in its topic: it was deleted, or another one has its offset in a topic created again."""
    other_topics: Counter[str] = field(default_factory=Counter)
    """The record is not in the topic that is replayed: numbers by topic."""
    exhausted: int = 0
    """The record was replayed too often: the loop guard."""
    by_reason: Counter[str] = field(default_factory=Counter)
    """Replayed ones by reason."""


def read_dead_letters(settings: PipelineSettings, reasons: Sequence[str] = ()) -> Iterator[DeadLetter]:
    """Yield the committed dead letters with one of the reasons (none: any), in the order of their offsets.

    A record without the headers of a dead letter is left out: another program wrote it.
    """
    require_topic(settings, "dead-letters")
    topic = settings.topic("dead-letters")
    ranges = OffsetReader(settings.kafka).ranges(topic)
    for partition, messages in read_ranges(settings.kafka, topic, ranges):
        for message in messages:
            headers = decode_headers(message.headers() or ())
            if headers is not None and (not reasons or headers.reason in reasons):
                origin = Position(headers.topic, int(headers.partition), int(headers.offset))
                yield DeadLetter(partition, message.offset() or 0, origin, headers, message.key(), message.value())


def decode_headers(headers: Headers) -> DeadLetterHeaders | None:
    """Return the headers of a dead letter; None if they are not those of one."""
    texts = {name: value.decode("utf-8", "replace") for name, value in headers if value is not None}
    try:
        return msgspec.convert(texts, DeadLetterHeaders)
    except msgspec.ValidationError:
        return None


def replay(  # noqa: PLR0913 - passed by name
    settings: PipelineSettings,
    letters: Iterable[DeadLetter],
    *,
    origin: str,
    target: str,
    max_attempts: int = MAX_ATTEMPTS,
    dry_run: bool = False,
) -> ReplayReport:
    """Write the invalid records of topic `origin` to topic `target`, those that were not yet.

    Raises BrokerError if the target does not exist, if the broker refuses, or if another replay fences this one. What
    was committed before stays, and a repeated replay continues after it.
    """
    partition_counts = Admin(settings.kafka).partition_counts()
    if target not in partition_counts:
        Admin(settings.kafka).check_visible([target])
        raise BrokerError(f"topic {target} does not exist at {settings.kafka.bootstrap_servers}: create it")
    if target not in settings.user_topics.values() and target in settings.own_topics:
        raise ConfigurationError(f"--to: {target} is a topic of the pipeline itself, name another one")
    report = ReplayReport()
    letters = _letters_from(letters, origin, report)
    if dry_run:
        done = _replayed_positions(settings, target) if settings.topic(REPLAYS.name) in partition_counts else set()
        while batch := list(islice(letters, BATCH)):
            _records_to_replay(settings, batch, done, max_attempts, report)
        return report
    _create_replays(settings)
    producer = TransactionalProducer(
        settings.kafka, settings.transport, lambda name: name, f"{settings.group('dead-letters')}-replay"
    )
    try:
        producer.open(settings.kafka.connect_timeout_s)
        done = _replayed_positions(settings, target)  # after `open`, which ends the transaction of an earlier replay
        while batch := list(islice(letters, BATCH)):
            chosen = _records_to_replay(settings, batch, done, max_attempts, report)
            if chosen:
                producer.send(_outputs(settings, target, partition_counts[target], chosen))
                producer.commit({})
    except TransactionAbortedError as error:
        raise BrokerError(f"the replay was interrupted: {error}; run it again, it continues where it ended") from None
    finally:
        producer.close()
    return report


def _create_replays(settings: PipelineSettings) -> None:
    """Create the topic of replays if it is missing, because an earlier version has created the topics."""
    admin, spec = Admin(settings.kafka), topic_spec(REPLAYS, settings, source_partitions=1)
    if spec.name not in admin.partition_counts():
        admin.create(spec.name, spec.partitions, spec.replication_factor, spec.options, spec.optional)
        admin.wait_for_leaders({spec.name: spec.partitions})


def _replayed_positions(settings: PipelineSettings, target: str) -> set[Position]:
    """Return the positions of the records that were replayed to a topic."""
    found = set()
    for key, _ in read_compacted(settings.kafka, settings.topic(REPLAYS.name), 0, lambda _key: False):
        to, topic, partition, offset = read_replay_key(key)
        if to == target:
            found.add(Position(topic, partition, offset))
    return found


def _letters_from(letters: Iterable[DeadLetter], topic: str, report: ReplayReport) -> Iterator[DeadLetter]:
    """Yield the dead letters with records of a topic, and count the others in the report."""
    for letter in letters:
        if letter.origin.topic == topic:
            yield letter
        else:
            report.other_topics[letter.origin.topic] += 1


def _records_to_replay(
    settings: PipelineSettings,
    batch: Sequence[DeadLetter],
    done: set[Position],
    max_attempts: int,
    report: ReplayReport,
) -> list[tuple[Position, Original, str]]:
    """Return the records of one topic to replay with their reasons, add them to `done`, and count all in the report."""
    wanted: dict[Position, DeadLetter] = {}
    for letter in batch:
        if letter.origin in done or letter.origin in wanted:
            report.already_replayed += 1
        if letter.origin not in done:
            wanted[letter.origin] = letter  # the newest one, if the topic was created again
    chosen = []
    originals = read_positions(settings, batch[0].origin.topic, wanted)
    for position, letter in wanted.items():
        original = originals.get(position)
        if original is None or not letter.is_of(original):
            report.gone += 1
        elif original.attempts >= max_attempts:
            report.exhausted += 1
        else:
            chosen.append((position, original, letter.reason))
            report.replayed += 1
            report.by_reason[letter.reason] += 1
            done.add(position)
    return chosen


def _outputs(
    settings: PipelineSettings, target: str, partitions: int, chosen: Sequence[tuple[Position, Original, str]]
) -> Iterator[OutputRecord]:
    """Yield each record, followed by its position for the topic of replays."""
    for position, original, reason in chosen:
        headers = [(name, value) for name, value in original.headers if name != ATTEMPT_HEADER]
        headers.append((ATTEMPT_HEADER, str(original.attempts + 1).encode()))
        partition = position.partition if position.partition < partitions else None
        # Kafka takes headers without a value; stages write none, so the type of their headers excludes them.
        yield OutputRecord(target, original.value, original.key, partition, original.timestamp, headers)  # type: ignore[arg-type]
        made = Replay(reason, original.attempts + 1)
        yield replay_record(settings.topic(REPLAYS.name), target, str(position), made)


def read_positions(settings: PipelineSettings, topic: str, wanted: Iterable[Position]) -> Mapping[Position, Original]:
    """Return the records at these positions of a topic, without those that were deleted."""
    retained = OffsetReader(settings.kafka).ranges(topic)
    offsets: dict[int, set[int]] = {}
    for position in wanted:
        begin, end = retained.get(position.partition, (0, 0))
        if position.topic == topic and begin <= position.offset < end:
            offsets.setdefault(position.partition, set()).add(position.offset)
    runs = {partition: list(offset_runs(sorted(found))) for partition, found in offsets.items()}
    records = {}
    for index in range(max(map(len, runs.values()), default=0)):
        ranges = {partition: parts[index] for partition, parts in runs.items() if index < len(parts)}
        for partition, messages in read_ranges(settings.kafka, topic, ranges):
            for message in messages:
                if message.offset() in offsets[partition]:
                    kind, time = message.timestamp()
                    records[Position(topic, partition, message.offset())] = Original(
                        message.key(), message.value(), time if kind else None, message.headers() or ()
                    )
    return records


def offset_runs(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges (end exclusive) that contain the offsets, which are ascending, without long gaps."""
    first = 0
    for index, offset in enumerate(offsets, start=1):
        if index == len(offsets) or offsets[index] - offset > MAX_GAP:
            yield offsets[first], offset + 1
            first = index
