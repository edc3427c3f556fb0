"""Exports spans with the OpenTelemetry SDK, as the standard OTEL_* variables say.

It is imported only where they enable tracing: other servers do not load the SDK.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from rota import __version__
from rota.traces.limits import FLUSH_MS, SPANS_QUEUED_MAX
from rota.traces.spans import Span, SpanRole

_KINDS = {
    SpanRole.PRODUCER: SpanKind.PRODUCER,
    SpanRole.INTERNAL: SpanKind.INTERNAL,
    SpanRole.CONSUMER: SpanKind.CONSUMER,
}
_SCOPE = InstrumentationScope("rota", __version__)
_NS_PER_MS = 1_000_000


class Otlp:
    """Passes spans to a processor of the SDK, which sends them in a thread of its own."""

    def __init__(self, processor: SpanProcessor, node: str) -> None:
        own = Resource(
            {
                "service.name": "rota",
                "service.version": __version__,
                "service.instance.id": node,
            }
        )
        # Attributes of the environment replace these.
        self._resource = own.merge(OTELResourceDetector().detect())
        self._sampler = TracerProvider(shutdown_on_exit=False).sampler
        self._processor = processor

    def samples(self, trace_id: str) -> bool:
        """Whether OTEL_TRACES_SAMPLER records a trace that begins with a job."""
        result = self._sampler.should_sample(None, int(trace_id, 16), "job")
        return result.decision is Decision.RECORD_AND_SAMPLE

    def export(self, spans: Iterable[Span]) -> None:
        """Queues spans for export."""
        for span in spans:
            self._processor.on_end(self._readable(span))

    def close(self) -> None:
        """Waits for queued spans, but not for long."""
        self._processor.force_flush(FLUSH_MS)
        self._processor.shutdown()

    def _readable(self, span: Span) -> ReadableSpan:
        parent = _context(span.trace_id, span.parent_id) if span.parent_id else None
        code = StatusCode.ERROR if span.bad else StatusCode.OK if span.good else StatusCode.UNSET
        return ReadableSpan(
            name=span.name,
            context=_context(span.trace_id, span.span_id),
            parent=parent,
            resource=self._resource,
            attributes=dict(span.attributes),
            links=[
                Link(_context(one.trace_id, one.span_id), {"rota.link": one.why})
                for one in span.links
            ],
            kind=_KINDS[span.role],
            status=Status(code, span.reason if span.bad else None),
            start_time=span.start * _NS_PER_MS,
            end_time=span.end * _NS_PER_MS,
            instrumentation_scope=_SCOPE,
        )


def _context(trace_id: str, span_id: str) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=flags)


def open_otlp(node: str) -> Otlp:
    """Opens an exporter over HTTP to the endpoint of OTEL_EXPORTER_OTLP_*."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # The SDK's default of 2,048 is what a few hundred jobs make.
    queued = None if os.environ.get("OTEL_BSP_MAX_QUEUE_SIZE") else SPANS_QUEUED_MAX
    return Otlp(BatchSpanProcessor(OTLPSpanExporter(), max_queue_size=queued), node)
