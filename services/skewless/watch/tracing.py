"""Spans of batches and commits, and W3C trace context from what is read to what is written. Off unless asked for.

A batch has as many parents as its records have traces. Its span goes on with the trace of the first and links to the
others, `MOST_LINKS` of them at most; records that it makes carry the span's context. What a commit writes, such as a
worker's deltas, comes of all batches since the last commit: its span does the same with theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from skewless import __version__
from skewless.errors import ConfigurationError
from skewless.records import Headers, Output
from skewless.settings import PipelineSettings, TracingSettings
from skewless.transport.app import Wiring
from skewless.transport.batch import MessageBatch
from skewless.transport.session import Send

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, SpanContext, SpanKind, Tracer

PARENT, STATE = "traceparent", "tracestate"
MOST_LINKS = 32
EXPORT_S = 5.0
SAMPLED = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f][13579bdf]")
"""https://www.w3.org/TR/trace-context/#traceparent-header; a trace that nobody records need not be carried on."""


class Tracing:
    """Traces one stage of a pipeline; `topic`, `group` and `member` as Kafka knows them."""

    def __init__(self, provider: TracerProvider, *, topic: str, group: str, member: str) -> None:
        from opentelemetry.trace import SpanKind

        self._tracer: Tracer = provider.get_tracer("skewless", __version__)
        self._consumer, self._producer = SpanKind.CONSUMER, SpanKind.PRODUCER
        self._topic = topic
        self._common = {
            "messaging.system": "kafka",
            "messaging.consumer.group.name": group,
            "messaging.client.id": member,
        }
        self._since: list[SpanContext] = []

    def batch(self, batch: MessageBatch, outputs: Iterable[Output], send: Send) -> None:
        """Send what a batch gives; the step works while it is sent."""
        about: dict[str, str | int] = {
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": self._topic,
            "messaging.destination.partition.id": str(batch.partition),
            "messaging.kafka.offset": batch.offsets[0],
            "messaging.batch.message_count": len(batch.messages),
        }
        with self._span(f"process {self._topic}", self._consumer, parents_of(batch.headers), about) as span:
            send(carrying(outputs, span))
            context = span.get_span_context()
            if context.trace_flags.sampled and len(self._since) <= MOST_LINKS:
                self._since.append(context)

    def commit(self, outputs: Iterable[Output], send: Send) -> None:
        """Send what a commit adds; without a traced batch since the last one there is nothing to trace."""
        parents, self._since = self._since, []
        if not parents:
            send(outputs)
            return
        about = {"messaging.operation.name": "commit", "messaging.operation.type": "send"}
        with self._span("commit", self._producer, parents, about) as span:
            send(carrying(outputs, span))

    @contextmanager
    def _span(
        self, name: str, kind: SpanKind, parents: Sequence[SpanContext], about: Mapping[str, str | int]
    ) -> Iterator[Span]:
        from opentelemetry import trace
        from opentelemetry.context import Context

        first = trace.set_span_in_context(trace.NonRecordingSpan(parents[0])) if parents else Context()
        links = [trace.Link(context) for context in parents[1:]]
        with self._tracer.start_as_current_span(name, first, kind, {**self._common, **about}, links) as span:
            yield span


@contextmanager
def traced(settings: PipelineSettings, wiring: Wiring, who: Mapping[str, str]) -> Iterator[None]:
    """Trace a stage while the block runs, if the settings say so; `who` names pipeline, stage and instance.

    Raises ConfigurationError where OpenTelemetry is missing.
    """
    if not settings.tracing.enabled:
        yield
        return
    provider = provider_of(settings.tracing, who)
    wiring.session.traced = Tracing(provider, topic=wiring.topic, group=wiring.group, member=wiring.member)
    try:
        yield
    finally:
        provider.shutdown()


def parents_of(headers: Iterable[Headers]) -> list[SpanContext]:
    """Read the distinct contexts that records carry, in their order, not more than a span is to have."""
    from opentelemetry.trace import SpanContext, TraceFlags, TraceState

    found: dict[bytes, SpanContext] = {}
    for record in headers:
        value = _last(record, PARENT)
        if value in found or not (match := SAMPLED.fullmatch(value)):
            continue
        context = SpanContext(
            int(match[1], 16),
            int(match[2], 16),
            is_remote=True,
            trace_flags=TraceFlags(1),
            trace_state=TraceState.from_header([_last(record, STATE).decode(errors="replace")]),
        )
        if context.is_valid:
            found[value] = context
            if len(found) > MOST_LINKS:
                break
    return list(found.values())


def _last(headers: Headers, wanted: str) -> bytes:
    return next((value or b"" for name, value in reversed(headers) if name == wanted), b"")


def carrying(outputs: Iterable[Output], span: Span) -> Iterable[Output]:
    """Let records carry the context of a span, if it is recorded."""
    context = span.get_span_context()
    if not context.trace_flags.sampled:
        return outputs
    headers = [(PARENT, f"00-{context.trace_id:032x}-{context.span_id:016x}-01".encode())]
    if context.trace_state:
        headers.append((STATE, context.trace_state.to_header().encode()))
    return (msgspec.structs.replace(output, headers=(*output.headers, *headers)) for output in outputs)


def provider_of(settings: TracingSettings, who: Mapping[str, str]) -> TracerProvider:
    """Set up OpenTelemetry, spans going out by OTLP; ConfigurationError where it is missing."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError as error:
        raise ConfigurationError(
            f"tracing.enabled needs OpenTelemetry ({error.name} is missing): pip install 'skewless[otel]'"
        ) from error
    resource = Resource.create(
        {
            "service.namespace": who["pipeline"],
            "service.name": f"skewless-{who['stage']}",
            "service.instance.id": who["instance"],
            "service.version": __version__,
        }
    )
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(settings.sample_ratio)), resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(settings.endpoint, timeout=EXPORT_S)))
    return provider
