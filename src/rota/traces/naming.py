"""Names the span of a run, for the job to hang its own spans below. Decides who is traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rota.core.model import JobId
from rota.wire.traces import TraceParent, parse_traceparent, part_span_id, trace_id_of

Sampler = Callable[[str], bool]
"""Whether a trace of this id, which begins here, is to be recorded."""


class TracePropagator(Protocol):
    """What a job gets as TRACEPARENT."""

    def for_execution(self, job_id: JobId, fence: int, given: str) -> str | None:
        """`given` is what came with the job; None: it gets none."""
        ...


class PassThroughPropagator:
    """Nothing is recorded here: jobs hang below whoever submitted them."""

    def for_execution(self, job_id: JobId, fence: int, given: str) -> str | None:
        """As it came."""
        return given or None


PASS_THROUGH = PassThroughPropagator()


class RecordingPropagator:
    """Every run has a span of its own, in the caller's trace or in one that the job begins."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def for_execution(self, job_id: JobId, fence: int, given: str) -> str | None:
        """The run's own span."""
        root = self.root(job_id, given)
        return str(root._replace(span_id=part_span_id(job_id, "run", fence)))

    def root(self, job_id: JobId, given: str) -> TraceParent:
        """The trace that a job is in, and the caller's span; its id is empty if there is none."""
        caller = parse_traceparent(given) if given else None
        if caller is not None:
            return caller
        trace_id = trace_id_of(job_id)
        return TraceParent(trace_id, "", self._sampler(trace_id))
