"""Finds the trace that the caller is in, so that what it asks for becomes part of it."""

from __future__ import annotations

import os
import sys
from typing import Any

from rota.sdk.context import current_or_none
from rota.wire.traces import TraceParent, parse_traceparent


def current_traceparent() -> str | None:
    """OpenTelemetry's current span; else the job's that this runs in; else the environment's.

    OpenTelemetry is never loaded for it: a program that has no span has not imported it either.
    """
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is not None:
        found = api.get_current_span().get_span_context()
        if found.is_valid:
            sampled = bool(found.trace_flags & 1)
            return str(TraceParent(f"{found.trace_id:032x}", f"{found.span_id:016x}", sampled))
    job = current_or_none()
    given = os.environ.get("TRACEPARENT") if job is None else job.info.traceparent
    return given if given and parse_traceparent(given) else None
