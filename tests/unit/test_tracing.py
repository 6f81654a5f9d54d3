"""Trace context from what is read to what is written, and spans that tell of it."""

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

from skewless.errors import ConfigurationError
from skewless.records import Batch, Headers, Output
from skewless.settings import PipelineSettings, TracingSettings
from skewless.step import Step
from skewless.transport.batch import MessageBatch
from skewless.transport.session import Session, Taken
from skewless.watch import tracing
from skewless.watch.tracing import MOST_LINKS, Tracing, parents_of

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def parent(number: int, *, sampled: bool = True) -> bytes:
    return f"00-{int(TRACE, 16) + number:032x}-{0xB7AD6B7169203331 + number:016x}-0{int(sampled)}".encode()


class Message:
    """As much of a confluent_kafka.Message as a batch asks for."""

    def __init__(self, offset: int, headers: Headers) -> None:
        self._offset = offset
        self._headers = headers

    def offset(self) -> int:
        return self._offset

    def leader_epoch(self) -> None:
        return None

    def value(self) -> bytes:
        return b"x"

    def headers(self) -> Headers:
        return self._headers


class Copy(Step):
    """Gives each record on at once, and one more at each commit."""

    failing = False

    def assign(self, partition: int, position: str | None, state: Sequence[tuple[bytes, bytes]]) -> None: ...

    def revoke(self, partition: int) -> None: ...

    def process(self, batch: Batch, now: int) -> Iterable[Output]:
        for value in batch.values:
            yield Output("out", value, headers=(("schema", b"s"),))
        if self.failing:
            raise ZeroDivisionError

    def flush(self, now: int) -> Iterable[Output]:
        return [Output("out", b"flushed")]

    def position(self, partition: int) -> str:
        return ""

    def watermark(self, partition: int) -> int | None:
        return None

    def finished(self, partition: int) -> bool:
        return False


class Bench:
    """A session that is traced, and what it sent."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=ParentBased(sampler))
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.step = Copy()
        self.session = Session(self.step)
        self.session.traced = Tracing(provider, topic="p.in", group="p-router", member="p-router-0")
        self.sent: list[Output] = []
        self.session.send = self.sent.extend
        self.session.assign({0: Taken(0, None)})
        self._next = 0

    def process(self, *headers: Headers) -> None:
        messages = [Message(self._next + place, each) for place, each in enumerate(headers)]
        self._next += len(headers)
        batch = MessageBatch(0, self.session.generation, messages)
        self.session.hand(batch)
        asyncio.run(self.session.process(batch))

    def commit(self) -> None:
        self.session.committed(self.session.prepare({}))

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return tuple(self._exporter.get_finished_spans())

    def carried(self) -> list[str]:
        return [value.decode() for output in self.sent for name, value in output.headers if name == "traceparent"]


def context_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-01"


def test_a_span_goes_on_with_the_first_trace_of_its_batch_and_links_to_the_others() -> None:
    bench = Bench()
    bench.process([("traceparent", parent(1))], [], [("traceparent", parent(2))], [("traceparent", parent(1))])
    (span,) = bench.spans
    assert span.parent is not None
    assert span.parent.trace_id == int(TRACE, 16) + 1
    assert [link.context.trace_id for link in span.links] == [int(TRACE, 16) + 2]


def test_what_a_batch_gives_carries_its_span_beside_its_own_headers() -> None:
    bench = Bench()
    bench.process([("traceparent", parent(1))], [])
    assert bench.carried() == [context_of(bench.spans[0])] * 2
    assert all(output.headers[0] == ("schema", b"s") for output in bench.sent)


def test_the_state_of_a_trace_goes_with_it() -> None:
    bench = Bench()
    bench.process([("traceparent", parent(1)), ("tracestate", b"vendor=a1,other=b2")])
    bench.commit()
    carried = [value for output in bench.sent for name, value in output.headers if name == "tracestate"]
    assert carried == [b"vendor=a1,other=b2"] * len(bench.carried())
    assert carried


@pytest.mark.parametrize("state", [b"", None, b"\xff", b"no pair"])
def test_a_state_that_cannot_be_read_is_dropped_and_its_trace_goes_on(state: bytes | None) -> None:
    headers = [("traceparent", parent(1)), ("tracestate", state)]
    (context,) = parents_of([headers])
    assert context.trace_id == int(TRACE, 16) + 1
    assert not context.trace_state


def test_what_a_commit_adds_comes_of_all_batches_since_the_last_one() -> None:
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


def test_spans_speak_the_conventions_of_messaging() -> None:
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


def test_links_are_bounded() -> None:
    bench = Bench()
    bench.process(*([("traceparent", parent(number))] for number in range(100)))
    assert len(bench.spans[0].links) == MOST_LINKS
    for number in range(100):
        bench.process([("traceparent", parent(number))])
    bench.commit()
    assert len(bench.spans[-1].links) == MOST_LINKS


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
def test_a_header_that_is_no_trace_or_of_one_that_nobody_records_is_passed_over(value: bytes | None) -> None:
    assert parents_of([[("traceparent", value)]]) == []


def test_where_no_trace_is_begun_nothing_is_carried_and_no_span_made() -> None:
    bench = Bench(ALWAYS_OFF)
    bench.process([])
    bench.commit()
    assert (bench.carried(), bench.spans) == ([], ())
    bench.process([("traceparent", parent(1))])
    assert len(bench.spans) == 1  # who asked for its record to be traced is heard


def test_a_batch_that_fails_says_so() -> None:
    bench = Bench()
    bench.step.failing = True
    bench.process([("traceparent", parent(1))])
    assert bench.spans[0].status.status_code == StatusCode.ERROR
    assert isinstance(bench.session.failure, ZeroDivisionError)


def test_without_its_packages_tracing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'skewless\[otel\]'"):
        tracing.provider_of(TracingSettings(enabled=True), {"pipeline": "p", "stage": "router", "instance": "0"})


def test_off_it_does_not_even_import_opentelemetry() -> None:
    code = "import skewless.runner, skewless.commands.run, sys; print([m for m in sys.modules if 'telemetry' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"
    assert not PipelineSettings.model_validate({"name": "p", "source": {"topic": "s"}}).tracing.enabled
