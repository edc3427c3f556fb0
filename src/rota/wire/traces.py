"""Traces: the W3C trace context of a job, and the ids of its spans.

Span ids are digests of their subject, so that a server, a worker and a program in another language
give a span the same id without exchanging it.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?\Z")
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
SAMPLED = 1


class TraceParent(NamedTuple):
    """A parent span: the `traceparent` that a call carries."""

    trace_id: str
    span_id: str
    sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{int(self.sampled):02x}"


def parse_traceparent(text: str) -> TraceParent | None:
    """Parses a `traceparent`; None if it is not valid, which is ignored as the standard demands."""
    found = _TRACEPARENT.match(text.strip()[:256])
    if found is None:
        return None
    version, trace_id, span_id, flags = found.groups()
    if version == "ff" or trace_id == _NO_TRACE or span_id == _NO_SPAN:
        return None
    if version == "00" and len(text.strip()) != 55:
        return None
    return TraceParent(trace_id, span_id, bool(int(flags, 16) & SAMPLED))


def trace_id_of(job_id: str) -> str:
    """Id of the trace of a job that was submitted without one."""
    return _digest(f"trace/{job_id}", 16)


def job_span_id(job_id: str) -> str:
    """Id of a job's span, from its submission to its end."""
    return _digest(f"job/{job_id}", 8)


def part_span_id(job_id: str, part: str, fence: int = 0) -> str:
    """Id of the span of a part of a job: `submit`, or `wait` and `run` of one of its executions."""
    return _digest(f"{part}/{job_id}/{fence}", 8)


def run_traceparent(job_id: str, fence: int) -> str:
    """Parent span for the spans of one execution, in the trace that its job began.

    It is sampled: nobody has decided against it, and the spans of the program would be dropped
    otherwise.
    """
    return str(TraceParent(trace_id_of(job_id), part_span_id(job_id, "run", fence), sampled=True))


def _digest(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()
