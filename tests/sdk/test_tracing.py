"""Which trace a call is made part of."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider

from rota.sdk.context import Context, ContextInfo, current_traceparent

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = GIVEN.replace("b7ad", "0000")


class Silent:
    """Takes what a function says, and keeps nothing."""

    def report_progress(self, fraction: float, message: str) -> None: ...
    def write_log(self, text: str) -> None: ...


def test_without_any_trace_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACEPARENT", raising=False)
    assert current_traceparent() is None


def test_a_program_that_a_job_runs_goes_on_in_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", GIVEN)
    assert current_traceparent() == GIVEN
    monkeypatch.setenv("TRACEPARENT", "nonsense")
    assert current_traceparent() is None


def test_a_function_goes_on_in_the_trace_of_its_own_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", OTHER)
    info = ContextInfo(job_id="j", execution_id="e", traceparent=GIVEN)
    with Context(info, Silent()).active():
        assert current_traceparent() == GIVEN


def test_the_current_span_goes_before_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", OTHER)
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("t")
    with tracer.start_as_current_span("s") as span:
        context = span.get_span_context()
        traceparent = current_traceparent()
    assert traceparent == f"00-{context.trace_id:032x}-{context.span_id:016x}-01"
