"""Estimates the bytes of a pipeline's topics: its own steps process generated tuples of a few commits in memory.

The rate is steady and the keys are equally frequent, so there are as many different keys in a commit as there can be.
Bytes are those of one replica before compression. What needs more time than the generated commits have (compaction,
closed windows, retention, the statistics of a run with all keys) is computed from their records and the load.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from skewless import topology
from skewless.algorithms.join.held_records import BLOCK_OFFSETS, Records, records_of
from skewless.algorithms.partials import to_partials
from skewless.algorithms.watermark import MAX_WATERMARK, WatermarkState
from skewless.algorithms.windowing.window import CHUNK_ROWS, COMPACTION_THRESHOLD
from skewless.config.pipeline_settings import PipelineSettings
from skewless.errors import ConfigurationError
from skewless.in_memory import InMemoryPipeline
from skewless.kafka.admin.topics import TopicSpec
from skewless.stages.enricher.settings import EnrichSettings
from skewless.stages.join.settings import JoinSettings
from skewless.stages.observer.run_statistics import RunStatistics
from skewless.stages.observer.step import RUN_KEY, SAVE_INTERVAL_MS, UNSAVED_BYTES
from skewless.wire.columns import read_table
from skewless.wire.headers import read_time_header, report_of, schema_header, watermark_records
from skewless.wire.join_changelog import Block, block_record
from skewless.wire.joined import joined_records, unmatched_records
from skewless.wire.record import OutputRecord
from skewless.wire.timed_records import timed_records

SOURCE = "source"
"""Source topic of the pipeline in memory."""
START_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z: event time of the first tuple."""
MAX_COMMITS = 8
MAX_TUPLES = 400_000
"""Maximum tuples of one commit, and of all generated commits except the second one."""
RANKS = "top-candidates", "ranker-changelog", "top"
"""Topics of the ranks of a window."""
TEXT_BYTES = 12
DISTINCT_VALUES = 1_000
"""Number of different values, and length of those that are texts."""
FRAME_BYTES = 10
"""Bytes of a record in Kafka's format in addition to key, value and headers: lengths, and distances of offset and
time."""
SEGMENT_BYTES, SEGMENT_S = 2**30, 7 * 86_400
"""Kafka's defaults of segment.bytes and segment.ms."""


@dataclass(frozen=True)
class Load:
    """What a pipeline has to process."""

    records_per_s: float
    """Records of the source with one tuple each, and of each side of a join."""
    record_bytes: int
    """Mean size of a record that is joined, or to which fields of tables are added."""
    keys: int
    """Number of different keys."""
    key_bytes: int

    def distinct_keys(self, seconds: float) -> float:
        """Return the expected number of different keys in a time."""
        return self.keys * -math.expm1(-self.records_per_s * seconds / self.keys)


@dataclass(frozen=True)
class TopicSize:
    """Estimated bytes of one replica of a topic."""

    name: str
    """Name in the topology."""
    bytes_per_s: float | None
    """None: the number of its records does not follow from the rate."""
    kept_bytes: float | None
    """Bytes that are kept at most. None: they grow without a limit, or are unknown."""


class _WriteRate(NamedTuple):
    """Bytes that stages write to a topic."""

    per_s: float
    state: float = 0.0
    """Bytes of the last record of each key of a compacted topic."""
    new_state_per_s: float = 0.0
    """Bytes per second by which they grow, because keys are never deleted."""


def topic_sizes(settings: PipelineSettings, specs: Sequence[TopicSpec], load: Load) -> list[TopicSize]:
    """Return the sizes of all topics of the pipeline, in data order. `specs` are the topics."""
    by_name = {spec.name: spec for spec in specs}
    of_topology = {topic.name: by_name[settings.topic(topic.name)] for topic in topology.needed_topics(settings)}
    written: dict[str, _WriteRate] = {}
    if settings.join is not None:
        written |= _joined(settings.join, of_topology, settings.transport.commit_interval_s, load)
    if settings.source is not None:
        written |= _aggregated(settings, of_topology, load)
    if settings.enrich is not None:
        written["enriched"] = _enriched(settings.enrich, load)
    return [_topic_size(name, spec, written.get(name)) for name, spec in of_topology.items()]


def _topic_size(name: str, spec: TopicSpec, written: _WriteRate | None) -> TopicSize:
    if written is None:
        return TopicSize(name, None, None)
    retention_ms, retention_bytes = (_number(name, spec, f"retention.{unit}", -1) for unit in ("ms", "bytes"))
    retention_s = retention_ms / 1000 if retention_ms >= 0 else math.inf
    segment_s = _number(name, spec, "segment.ms", SEGMENT_S * 1000) / 1000
    segment_bytes = _number(name, spec, "segment.bytes", SEGMENT_BYTES)
    # Kafka neither compacts nor deletes the segment that it writes.
    active = min(spec.partitions * segment_bytes, written.per_s * segment_s)
    policy = spec.options["cleanup.policy"]
    if "compact" in policy:
        state = written.state
        if written.new_state_per_s:
            state += written.new_state_per_s * (retention_s + segment_s)
        clean_share = 1 - _number(name, spec, "min.cleanable.dirty.ratio", 0.5)
        kept = active + (state / clean_share if clean_share > 0 else math.inf)
    else:
        kept = active + written.per_s * retention_s
    if "delete" in policy and retention_bytes >= 0:
        kept = min(kept, spec.partitions * (retention_bytes + segment_bytes))
    return TopicSize(name, written.per_s, kept if math.isfinite(kept) else None)


def _number(topic: str, spec: TopicSpec, option: str, default: float) -> float:
    """Return the value of an option of a topic. Raises ConfigurationError if it is not a number."""
    text = spec.options.get(option, default)
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"topics.options.{topic}.{option}: {text!r} is not a number") from None


# Aggregation


@dataclass(slots=True)
class _Sums:
    """Sums over the records of a topic."""

    bytes: int = 0
    rows: int = 0
    """Rows of the tables in changelog records, otherwise records."""

    def add(self, records: Iterable[OutputRecord]) -> None:
        """Count records."""
        for record in records:
            self.bytes += _bytes(record)
            is_chunk = record.topic.endswith("-changelog") and record.value is not None and b"/" in (record.key or b"")
            self.rows += read_table(record.value).num_rows if is_chunk else 1


def _aggregated(settings: PipelineSettings, specs: Mapping[str, TopicSpec], load: Load) -> dict[str, _WriteRate]:
    """Return what the stages of the aggregation write."""
    local_s = (settings.splitter.local.window_ms or 0) / 1000
    interval_s = max(settings.transport.commit_interval_s, local_s, 1 / load.records_per_s)
    interval_s = min(interval_s, MAX_TUPLES / load.records_per_s)
    source_partitions = specs["tuples"].partitions
    pipeline = InMemoryPipeline(_simplified(settings, specs), {SOURCE: source_partitions})
    tuples_per_commit = round(load.records_per_s * interval_s)
    commits = max(2, min(MAX_COMMITS, MAX_TUPLES // tuples_per_commit))
    generator = _TupleGenerator(settings, source_partitions, load)
    sums: defaultdict[str, _Sums] = defaultdict(_Sums)
    run = RunStatistics()
    for number in range(commits):
        now = START_MS + round((number + 1) * interval_s * 1000)
        tuples = list(generator.records(tuples_per_commit, now))
        sums["tuples"].add(tuples)
        for topic, records in pipeline.process(tuples, now).items():
            sums[topic].add(records)
            saved = [record.value for record in records if record.key == RUN_KEY and record.value is not None]
            run = RunStatistics.load(saved[-1]) if saved else run
    seconds = commits * interval_s
    windows = _window_span(settings, interval_s, load)
    snapshots = sums["router-state"]
    state_bytes = snapshots.bytes / max(1, snapshots.rows)
    routers = min(source_partitions, max(1, settings.replicas.of("router")))
    of_routers = routers * state_bytes
    snapshot_s = max(settings.router.snapshot_interval_s, interval_s)
    ended = dict.fromkeys(range(specs["worker-input"].partitions), WatermarkState(MAX_WATERMARK))
    partials = watermark_records(specs["partials"].name, range(specs["partials"].partitions), ended)
    ticks = list(map(_bytes, pipeline.process(partials, START_MS + round(seconds * 1000))["distribution"]))
    # A key that several workers have is several rows.
    bytes_per_key = sums["partials"].bytes / (commits * load.distinct_keys(interval_s))
    return {
        **{topic: _WriteRate(sums[topic].bytes / seconds) for topic in ("tuples", "worker-input", "partials")},
        "router-state": _WriteRate(of_routers / snapshot_s, of_routers),
        "aggregator-changelog": windows.changelog(sums["aggregator-changelog"], seconds),
        "aggregates": _results(settings, windows, sums["aggregates"]),
        "observer-changelog": _saved_ticks(
            settings, load, sums["partials"].bytes / seconds, bytes_per_key, _run_bytes(run, load, seconds)
        ),
        "distribution": _WriteRate(sum(ticks) / max(1, len(ticks)) / settings.observer.tick_s),
        **_ranks(settings, windows, {topic: sums[topic].bytes / commits for topic in RANKS}),
    }


def _simplified(settings: PipelineSettings, specs: Mapping[str, TopicSpec]) -> PipelineSettings:
    """Return the settings with one source topic, and with a result for each change: so each result can be measured."""
    aggregator = settings.aggregator.model_copy(update={"emit": "updates", "having": {}, "emit_interval_s": 0.0})
    source = settings.aggregated.model_copy(update={"topic": SOURCE, "topics": None})
    parts = {"aggregator": aggregator, "source": source, "join": None, "enrich": None}
    return settings.with_max_workers(specs["worker-input"].partitions).model_copy(update=parts)


class _TupleGenerator:
    """Generates the records of topic `tuples`."""

    def __init__(self, settings: PipelineSettings, source_partitions: int, load: Load) -> None:
        self._settings = settings
        self._partitions = source_partitions
        self._topic = settings.topic("tuples")
        self._load = load
        self._random = np.random.default_rng(1)
        self._format = settings.tuple_format
        self._lateness_ms = settings.event_time_rules().lateness_ms
        self._texts = pa.array([f"{number:0{TEXT_BYTES}d}" for number in range(DISTINCT_VALUES)])

    def records(self, count: int, now: int) -> Iterator[OutputRecord]:
        """Yield the records of a commit with this number of tuples, all with the event time `now`."""
        for partition, indices in enumerate(np.array_split(np.arange(count), self._partitions)):
            if len(indices):
                yield from self._records(partition, self._tuples(len(indices), now), now)

    def _tuples(self, count: int, now: int) -> pa.RecordBatch:
        keys, key_of = np.unique(self._random.integers(0, self._load.keys, count), return_inverse=True)
        texts = pa.array([self._key(number) for number in keys.tolist()], pa.string())
        drawn = self._random.integers(0, DISTINCT_VALUES, count)
        values = {
            value.name: pa.array(drawn * 10**value.decimals)
            if value.kind == "number"
            else self._texts.take(pa.array(drawn)).dictionary_encode()
            for value in self._settings.values
        }
        indices = pa.array(key_of.astype(np.int32))
        return self._format.batch(pa.DictionaryArray.from_arrays(indices, texts), values, np.full(count, now))

    def _key(self, number: int) -> str:
        parts = self._settings.splitter.key.parts
        if not parts:
            return f"{number:0{self._load.key_bytes}d}"
        other_parts = [""] * (len(parts) - 1)
        digits = max(1, self._load.key_bytes - len(msgspec.json.encode(["", *other_parts])))
        return msgspec.json.encode([f"{number:0{digits}d}", *other_parts]).decode()

    def _records(self, partition: int, tuples: pa.RecordBatch, now: int) -> Iterator[OutputRecord]:
        report = report_of({partition: WatermarkState(now - self._lateness_ms)})
        local = self._settings.splitter.local
        if local.mode == "none":
            headers = [schema_header(self._format.columns_name), *report, *read_time_header(now)]
            yield from self._format.records(self._topic, partition, tuples, headers)
            return
        pane_ms = local.window_ms or self._settings.pane_ms
        rows = to_partials([tuples], pane_ms, self._settings.wire_columns)
        row_format = self._settings.row_format(pane_ms)
        headers = [*report, *read_time_header(now)]
        yield from row_format.records(self._topic, partition, row_format.from_partials(rows), headers)


@dataclass(frozen=True, slots=True)
class _Span:
    """Windows whose rows are in a changelog."""

    length_s: float
    overlap: int
    closed_s: float
    """Time for which closed ones are kept."""
    interval_s: float
    """Time between two commits."""
    load: Load

    @property
    def step_s(self) -> float:
        """Time between the starts of two of them."""
        return self.length_s / self.overlap

    @property
    def kept(self) -> float:
        """Number of windows whose rows are kept."""
        return self.overlap + self.closed_s / self.step_s

    def emit_s(self, emit_interval_s: float) -> float:
        """Return the time between two updates of a window."""
        return min(self.length_s, max(self.interval_s, emit_interval_s))

    def changelog(self, sums: _Sums, seconds: float) -> _WriteRate:
        """Return what is written to the changelog, given the sums of some seconds without compaction."""
        if not sums.rows:
            return _WriteRate(0.0)
        row_bytes = sums.bytes / sums.rows
        rows = self.load.distinct_keys(self.length_s)
        changed_rows = self.load.distinct_keys(self.interval_s)
        commits = max(COMPACTION_THRESHOLD, rows / (changed_rows + CHUNK_ROWS))
        per_s = sums.bytes / seconds
        if commits * self.interval_s <= self.length_s:
            per_s += self.overlap * rows * row_bytes / (commits * self.interval_s)
        rows_of_changes = changed_rows * min(commits, self.length_s / self.interval_s)
        return _WriteRate(per_s, state=self.kept * (rows + rows_of_changes) * row_bytes)


def _run_bytes(run: RunStatistics, load: Load, seconds: float) -> int:
    """Return the bytes of the statistics of a run with all keys, given those of the first seconds of the run."""
    unseen = min(MAX_TUPLES, round(load.keys - load.distinct_keys(seconds)))
    keys = pa.chunked_array([np.arange(unseen).astype(str)], pa.string())
    # Each of these keys has one worker: more of them would not enlarge the record of so many keys.
    run.add(keys, keys, np.zeros(0, np.int64), np.zeros(0, np.int64), START_MS)
    return _bytes(OutputRecord("observer-changelog", run.save(), RUN_KEY))


def _saved_ticks(
    settings: PipelineSettings, load: Load, partials_per_s: float, bytes_per_key: float, run_bytes: float
) -> _WriteRate:
    """Return what the observer writes to its changelog. `bytes_per_key` are those of a key's rows in a commit."""
    tick_s = settings.observer.tick_s
    # The observer learns in a commit that a tick has ended.
    open_s = settings.event_time.lateness_ms / 1000 + settings.transport.commit_interval_s
    save_s = min(SAVE_INTERVAL_MS / 1000, UNSAVED_BYTES / partials_per_s)
    saves = math.ceil(tick_s / save_s) - 1
    # At the end of a tick, only the rows of those that have begun since are written.
    keys = saves * load.distinct_keys(save_s) + load.distinct_keys(min(tick_s, open_s))
    kept_ticks = open_s / tick_s + (saves > 0)
    return _WriteRate(
        ((saves + 1) * run_bytes + keys * bytes_per_key) / tick_s,
        state=run_bytes + kept_ticks * load.distinct_keys(tick_s) * bytes_per_key,
    )


def _window_span(settings: PipelineSettings, interval_s: float, load: Load) -> _Span:
    windows, aggregator = settings.aggregator.windows, settings.aggregator
    return _Span(aggregator.window_ms / 1000, windows.overlap, aggregator.closed_window_retention_s, interval_s, load)


def _results(settings: PipelineSettings, span: _Span, sums: _Sums) -> _WriteRate:
    """Return what is written to `aggregates`, given the sums of results."""
    load, result_bytes = span.load, sums.bytes / max(1, sums.rows)
    last_per_s = load.distinct_keys(span.length_s) / span.step_s * result_bytes
    if settings.aggregator.emit == "final":
        return _WriteRate(last_per_s, new_state_per_s=last_per_s)
    emit_s = span.emit_s(settings.aggregator.emit_interval_s)
    updates_per_s = span.overlap * load.distinct_keys(emit_s) / emit_s
    return _WriteRate(max(updates_per_s * result_bytes, last_per_s), new_state_per_s=last_per_s)


def _ranks(settings: PipelineSettings, span: _Span, written: Mapping[str, float]) -> dict[str, _WriteRate]:
    """Return what is written about ranks, given the bytes of each topic if all ranks of all open windows change."""
    aggregator = settings.aggregator
    emit_s = span.length_s if aggregator.emit == "final" else span.emit_s(aggregator.emit_interval_s)
    state = written["ranker-changelog"] / span.overlap * span.kept
    return {
        "top-candidates": _WriteRate(written["top-candidates"] / emit_s),
        "ranker-changelog": _WriteRate(written["ranker-changelog"] / emit_s, state=state),
        "top": _WriteRate(written["top"] / emit_s, new_state_per_s=written["top"] / span.length_s),
    }


# Enrichment


def _enriched(enrich: EnrichSettings, load: Load) -> _WriteRate:
    """Return what is written if each record has a row in each table."""
    field_bytes = sum(1 + len(name) + TEXT_BYTES for table in enrich.tables for name in table.fields)
    return _WriteRate(load.records_per_s * (FRAME_BYTES + load.key_bytes + load.record_bytes + field_bytes))


# Join


def _joined(
    join: JoinSettings, specs: Mapping[str, TopicSpec], commit_interval_s: float, load: Load
) -> dict[str, _WriteRate]:
    """Return what is written if each left record has a partner, and also if none has one: one of both is the limit."""
    record = _record_of(load)
    one = np.zeros(1, dtype=np.int32)
    partitions = specs["joined"].partitions
    records: dict[str, Iterator[OutputRecord]] = {
        **{topic: timed_records(topic, 0, record, one) for topic in ("left-records", "right-records")},
        "joined": joined_records(0, record, record, left_is_json=True, right_is_json=True),
        **{topic: unmatched_records(topic, 0, record, is_json=True) for topic in ("unmatched-left", "unmatched-right")},
    }
    rules = join.rules()
    held = load.records_per_s * rules.retention_ms / 1000 / partitions
    added = load.records_per_s * commit_interval_s / partitions
    bitmap = bytes(BLOCK_OFFSETS // 8)
    (block_bytes,) = map(_bytes, [block_record(0, Block("right", 2**31, 1, bitmap, bitmap))])
    blocks, changed = (2 * partitions * (1 + size / BLOCK_OFFSETS) for size in (held, held + added))
    return {
        **{
            topic: _WriteRate(load.records_per_s * sum(map(_bytes, of_topic)))
            for topic, of_topic in records.items()
            if topic in specs
        },
        "join-changelog": _WriteRate(changed * block_bytes / commit_interval_s, state=blocks * block_bytes),
    }


def _record_of(load: Load) -> Records:
    """Return a record of a joined topic. The value is JSON."""
    value = msgspec.json.encode("x" * max(0, load.record_bytes - 2))
    return records_of(["0" * load.key_bytes], np.array([START_MS]), np.zeros(1, dtype=np.int64), [value])


def _bytes(record: OutputRecord) -> int:
    """Return the bytes of a record in the log."""
    headers = itertools.chain.from_iterable((name.encode(), value) for name, value in record.headers)
    return FRAME_BYTES + sum(1 + len(text) for text in headers) + len(record.key or b"") + len(record.value or b"")
