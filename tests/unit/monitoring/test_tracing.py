"""Trace context from input to output records, and the exported spans."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterable, Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler
from opentelemetry.trace import SpanKind, StatusCode

from helpers.messages import message
from skewless.config.pipeline_settings import PipelineSettings
from skewless.engine.executor import RestoredPartition, StepExecutor
from skewless.engine.message_batch import MessageBatch
from skewless.engine.step import Step
from skewless.errors import ConfigurationError
from skewless.monitoring import tracing
from skewless.monitoring.settings import TracingSettings
from skewless.monitoring.tracing import MAX_LINKS, Tracing, extract_contexts
from skewless.wire.record import Batch, Headers, OutputRecord
from skewless.wire.topic_partition import TopicPartition

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def parent(number: int, *, sampled: bool = True) -> bytes:
    return f"00-{int(TRACE, 16) + number:032x}-{0xB7AD6B7169203331 + number:016x}-0{int(sampled)}".encode()


class Copy(Step):
    """Forwards each record at once, and writes one more at each commit."""

    failing = False

    def assign(self, partition: int, checkpoint: str | None, state: Sequence[tuple[bytes, bytes]]) -> None: ...

    def revoke(self, partition: int) -> None: ...

    def process(self, batch: Batch, now: int) -> Iterable[OutputRecord]:
        for value in batch.values:
            yield OutputRecord("out", value, headers=(("schema", b"s"),))
        if self.failing:
            raise ZeroDivisionError

    def flush(self, now: int) -> Iterable[OutputRecord]:
        return [OutputRecord("out", b"flushed")]

    def checkpoint(self, partition: int) -> str:
        return ""

    def watermark(self, partition: int) -> int | None:
        return None

    def finished(self, partition: int) -> bool:
        return False


SOURCE = TopicPartition("p.in", 0)


class Bench:
    """An executor with tracing, and its outputs."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=ParentBased(sampler))
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.step = Copy()
        self.executor = StepExecutor(self.step)
        self.executor.traced = Tracing(provider, group="p-router", member="p-router-0")
        self.sent: list[OutputRecord] = []
        self.executor.send = self.sent.extend
        self.executor.assignment.begin([SOURCE])
        self.executor.assign({SOURCE: RestoredPartition(0, None)})
        self._next = 0

    def process(self, *headers: Headers) -> None:
        messages = [message(self._next + place, headers=each) for place, each in enumerate(headers)]
        self._next += len(headers)
        batch = MessageBatch(SOURCE, self.executor.assignment.generation, messages)
        self.executor.deliver(batch)
        asyncio.run(self.executor.process(batch))

    def commit(self) -> None:
        self.executor.end_commit(self.executor.begin_commit({}))

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return tuple(self._exporter.get_finished_spans())

    def carried(self) -> list[str]:
        return [value.decode() for output in self.sent for name, value in output.headers if name == "traceparent"]


def context_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-01"


def test_tracing_batch_of_several_traces_continues_the_first_and_links_the_others() -> None:
    bench = Bench()
    bench.process([("traceparent", parent(1))], [], [("traceparent", parent(2))], [("traceparent", parent(1))])
    (span,) = bench.spans
    assert span.parent is not None
    assert span.parent.trace_id == int(TRACE, 16) + 1
    assert [link.context.trace_id for link in span.links] == [int(TRACE, 16) + 2]


def test_tracing_outputs_of_a_batch_carry_its_span_and_their_own_headers() -> None:
    bench = Bench()
    bench.process([("traceparent", parent(1))], [])
    assert bench.carried() == [context_of(bench.spans[0])] * 2
    assert all(output.headers[0] == ("schema", b"s") for output in bench.sent)


def test_tracing_sampled_batch_is_an_exemplar_of_its_duration() -> None:
    bench = Bench()
    bench.process([("traceparent", parent(1))])
    (exemplar,) = bench.executor.statistics.batches.exemplars.values()
    assert exemplar.trace_id == f"{int(TRACE, 16) + 1:032x}"
    assert 0 < exemplar.value == bench.executor.statistics.batches.sum


def test_tracing_batch_that_is_not_sampled_is_no_exemplar() -> None:
    bench = Bench(ALWAYS_OFF)
    bench.process([("traceparent", parent(1, sampled=False))])
    assert bench.executor.statistics.batches.exemplars == {}
    assert bench.executor.statistics.batches.sum > 0


def test_tracing_trace_state_is_carried_with_its_trace() -> None:
    bench = Bench()
    bench.process([("traceparent", parent(1)), ("tracestate", b"vendor=a1,other=b2")])
    bench.commit()
    carried = [value for output in bench.sent for name, value in output.headers if name == "tracestate"]
    assert carried == [b"vendor=a1,other=b2"] * len(bench.carried())
    assert carried


@pytest.mark.parametrize("state", [b"", None, b"\xff", b"no pair"])
def test_tracing_unreadable_trace_state_is_dropped_and_its_trace_continues(state: bytes | None) -> None:
    headers = [("traceparent", parent(1)), ("tracestate", state)]
    (context,) = extract_contexts([headers])
    assert context.trace_id == int(TRACE, 16) + 1
    assert not context.trace_state


def test_tracing_outputs_of_a_commit_link_to_all_batches_since_the_previous_one() -> None:
    bench = Bench()
    bench.process([("traceparent", parent(1))])
    bench.process([("traceparent", parent(2))])
    bench.sent.clear()
    bench.commit()
    first, second, commit = bench.spans
    assert bench.carried() == [context_of(commit)]
    assert commit.parent is not None
    assert (commit.parent, [link.context for link in commit.links]) == (first.context, [second.context])
    bench.sent.clear()
    bench.commit()
    assert (bench.carried(), len(bench.spans)) == ([], 3)


def test_tracing_spans_follow_the_messaging_conventions() -> None:
    bench = Bench()
    bench.process([("traceparent", parent(1))], [])
    bench.commit()
    process, commit = bench.spans
    assert (process.name, process.kind) == ("process p.in", SpanKind.CONSUMER)
    assert process.attributes == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "p.in",
        "messaging.destination.partition.id": "0",
        "messaging.consumer.group.name": "p-router",
        "messaging.client.id": "p-router-0",
        "messaging.kafka.offset": 0,
        "messaging.batch.message_count": 2,
    }
    assert (commit.name, commit.kind) == ("commit", SpanKind.PRODUCER)


def test_tracing_many_traces_have_a_bounded_number_of_links() -> None:
    bench = Bench()
    bench.process(*([("traceparent", parent(number))] for number in range(100)))
    assert len(bench.spans[0].links) == MAX_LINKS
    for number in range(100):
        bench.process([("traceparent", parent(number))])
    bench.commit()
    assert len(bench.spans[-1].links) == MAX_LINKS


@pytest.mark.parametrize(
    "value",
    [
        b"",
        None,
        b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01",
        b"00-" + TRACE.encode() + b"-" + b"0" * 16 + b"-01",
        b"ff-" + TRACE.encode() + b"-b7ad6b7169203331-01",
        b"00-" + TRACE.upper().encode() + b"-b7ad6b7169203331-01",
        b"00-" + TRACE.encode() + b"-b7ad6b7169203331-01\n",
        b"00-" + TRACE.encode() + b"-b7ad6b7169203331-01-more",
        b"\xff" * 55,
        parent(1, sampled=False),
    ],
)
def test_tracing_invalid_or_unsampled_trace_header_is_ignored(value: bytes | None) -> None:
    assert extract_contexts([[("traceparent", value)]]) == []


def test_last_header_of_a_record_with_two_trace_contexts_counts() -> None:
    (context,) = extract_contexts([[("traceparent", parent(1)), ("traceparent", parent(2))]])
    assert context.trace_id == int(TRACE, 16) + 2


def test_trace_context_of_a_later_version_is_read_as_the_first_version() -> None:
    (context,) = extract_contexts([[("traceparent", b"01" + parent(1)[2:])]])
    assert (context.trace_id, context.trace_flags.sampled) == (int(TRACE, 16) + 1, True)


def test_tracing_without_a_sampled_trace_creates_no_span_and_no_header() -> None:
    bench = Bench(ALWAYS_OFF)
    bench.process([])
    bench.commit()
    assert (bench.carried(), bench.spans) == ([], ())
    bench.process([("traceparent", parent(1))])
    assert len(bench.spans) == 1  # an explicit request to trace a record is honoured


def test_tracing_failed_batch_has_a_span_with_error_status() -> None:
    bench = Bench()
    bench.step.failing = True
    bench.process([("traceparent", parent(1))])
    assert bench.spans[0].status.status_code == StatusCode.ERROR
    assert isinstance(bench.executor.failure, ZeroDivisionError)


def test_tracing_without_its_packages_raises_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(ConfigurationError, match=r"with its extra `otel` \(docs/how-to/install\.md\)"):
        tracing.provider_of(TracingSettings(enabled=True), {"pipeline": "p", "stage": "router", "instance": "0"})


def test_tracing_disabled_imports_no_opentelemetry() -> None:
    code = (
        "import skewless.service, skewless.cli.commands.run, sys; print([m for m in sys.modules if 'telemetry' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
    assert not PipelineSettings.model_validate({"name": "p", "source": {"topic": "s"}}).tracing.enabled
