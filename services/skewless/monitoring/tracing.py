"""OpenTelemetry spans of batches and commits, and W3C trace context in input and output records. Disabled by default.

The records of a batch may belong to several traces. The span of the batch continues the trace of the first record and
links to the others, at most `MAX_LINKS`. Output records carry the context of the span. The output of a commit, such as
the partials of a worker, results from all batches since the last commit: the span of the commit continues and links
the spans of these batches in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from skewless.engine.executor import Send
from skewless.engine.message_batch import MessageBatch
from skewless.engine.stage_runtime import StageRuntime
from skewless.errors import ConfigurationError, how_to_add
from skewless.monitoring.settings import TracingSettings
from skewless.version import VERSION
from skewless.wire.record import Headers, OutputRecord

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, SpanContext, SpanKind, Tracer

PARENT, STATE = "traceparent", "tracestate"
MAX_LINKS = 32
EXPORT_S = 5.0
PARENT_BYTES = 55
"""Length of a `traceparent` (https://www.w3.org/TR/trace-context/#traceparent-header)."""
SAMPLED_FLAGS = frozenset(b"13579bdf")
"""Last character of the `traceparent` of a sampled trace."""


class Tracing:
    """Traces one stage of a pipeline; `group` and `member` are the names in Kafka."""

    def __init__(self, provider: TracerProvider, *, group: str, member: str) -> None:
        from opentelemetry.trace import SpanKind

        self._tracer: Tracer = provider.get_tracer("skewless", VERSION)
        self._consumer, self._producer = SpanKind.CONSUMER, SpanKind.PRODUCER
        self._common = {
            "messaging.system": "kafka",
            "messaging.consumer.group.name": group,
            "messaging.client.id": member,
        }
        self._batches_since_commit: list[SpanContext] = []
        self.trace_id: str | None = None
        """Trace of the last batch; see `BatchTracer`."""

    def batch(self, batch: MessageBatch, outputs: Iterable[OutputRecord], send: Send) -> None:
        """Send the outputs of a batch within a span. The span includes the step's work, because outputs are lazy."""
        attributes: dict[str, str | int] = {
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": batch.topic,
            "messaging.destination.partition.id": str(batch.partition),
            "messaging.kafka.offset": batch.offsets[0],
            "messaging.batch.message_count": len(batch.messages),
        }
        parents = extract_contexts(batch.headers)
        with self._span(f"process {batch.topic}", self._consumer, parents, attributes) as span:
            send(inject_context(outputs, span))
            context = span.get_span_context()
            self.trace_id = f"{context.trace_id:032x}" if context.trace_flags.sampled else None
            if context.trace_flags.sampled and len(self._batches_since_commit) <= MAX_LINKS:
                self._batches_since_commit.append(context)

    def commit(self, outputs: Iterable[OutputRecord], send: Send) -> None:
        """Send the outputs of a commit, within a span if a batch since the last commit was traced."""
        parents, self._batches_since_commit = self._batches_since_commit, []
        if not parents:
            send(outputs)
            return
        attributes = {"messaging.operation.name": "commit", "messaging.operation.type": "send"}
        with self._span("commit", self._producer, parents, attributes) as span:
            send(inject_context(outputs, span))

    @contextmanager
    def _span(
        self, name: str, kind: SpanKind, parents: Sequence[SpanContext], attributes: Mapping[str, str | int]
    ) -> Iterator[Span]:
        """Start a span as child of the first parent, with links to the others."""
        from opentelemetry import trace
        from opentelemetry.context import Context

        parent = trace.set_span_in_context(trace.NonRecordingSpan(parents[0])) if parents else Context()
        links = [trace.Link(context) for context in parents[1:]]
        with self._tracer.start_as_current_span(name, parent, kind, {**self._common, **attributes}, links) as span:
            yield span


@contextmanager
def traced(settings: TracingSettings, runtime: StageRuntime, identity: Mapping[str, str]) -> Iterator[None]:
    """Trace a stage until the end of the block, if tracing is enabled; `identity` holds pipeline, stage and instance.

    Raises ConfigurationError if OpenTelemetry is not installed.
    """
    if not settings.enabled:
        yield
        return
    provider = provider_of(settings, identity)
    runtime.executor.traced = Tracing(provider, group=runtime.group, member=runtime.group_instance_id)
    try:
        yield
    finally:
        provider.shutdown()


def extract_contexts(headers: Iterable[Headers]) -> list[SpanContext]:
    """Return the distinct sampled contexts of records in their order, at most one parent and `MAX_LINKS` links."""
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    propagator = TraceContextTextMapPropagator()
    contexts: dict[bytes, SpanContext] = {}
    for record_headers in headers:
        parent = _last_value(record_headers, PARENT)
        # Without this check, the propagator would parse the header of every record that is not sampled.
        if parent in contexts or len(parent) != PARENT_BYTES or parent[-1] not in SAMPLED_FLAGS:
            continue
        carrier = {PARENT: parent.decode(errors="replace")}
        if state := _last_value(record_headers, STATE):
            carrier[STATE] = state.decode(errors="replace")
        context = trace.get_current_span(propagator.extract(carrier)).get_span_context()
        if context.is_valid:
            contexts[parent] = context
            if len(contexts) > MAX_LINKS:
                break
    return list(contexts.values())


def _last_value(headers: Headers, header: str) -> bytes:
    return next((value or b"" for name, value in reversed(headers) if name == header), b"")


def inject_context(outputs: Iterable[OutputRecord], span: Span) -> Iterable[OutputRecord]:
    """Add the context of a span to the headers of records, if the span is sampled."""
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if not span.get_span_context().trace_flags.sampled:
        return outputs
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier, trace.set_span_in_context(span))
    headers = [(header, value.encode()) for header, value in carrier.items()]
    return (msgspec.structs.replace(output, headers=(*output.headers, *headers)) for output in outputs)


def provider_of(settings: TracingSettings, identity: Mapping[str, str]) -> TracerProvider:
    """Return a tracer provider that exports spans by OTLP; ConfigurationError if OpenTelemetry is not installed."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError as error:
        raise ConfigurationError(
            f"tracing.enabled needs OpenTelemetry ({error.name} is missing): {how_to_add('otel')}"
        ) from error
    resource = Resource.create(
        {
            "service.namespace": identity["pipeline"],
            "service.name": f"skewless-{identity['stage']}",
            "service.instance.id": identity["instance"],
            "service.version": VERSION,
        }
    )
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(settings.sample_ratio)), resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(settings.endpoint, timeout=EXPORT_S)))
    return provider
