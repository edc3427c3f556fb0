"""What a function can say and ask while it runs, and the trace that it goes on in."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from opentelemetry.sdk.trace import TracerProvider

from rota.sdk import Cancelled, Context, current_context
from rota.sdk.clock import SystemClock
from rota.sdk.context import ContextInfo, current_traceparent
from rota.sdk.fencing import StaleError, check_written


class Kept:
    """What a context said."""

    def __init__(self) -> None:
        self.progress: list[tuple[float, str]] = []
        self.log = ""

    def report_progress(self, fraction: float, message: str) -> None:
        self.progress.append((fraction, message))

    def write_log(self, text: str) -> None:
        self.log += text


class Stopped(SystemClock):
    """A clock at one moment."""

    def now_ms(self) -> int:
        return 1_000_000


def make(kept: Kept | None = None, job_id: str = "j", deadline_s: float | None = None) -> Context:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=deadline_s or 0)
    info = ContextInfo(
        job_id=job_id, execution_id="e", fence=3, deadline=moment if deadline_s else None
    )
    return Context(info, kept or Kept(), clock=Stopped())


def test_progress_and_log_reach_the_transport_in_order() -> None:
    kept = Kept()
    context = make(kept)
    context.progress(0.25, "a quarter")
    context.progress(1)
    context.log("line")
    context.log("line with its end\n")
    assert kept.progress == [(0.25, "a quarter"), (1.0, "")]
    assert kept.log == "line\nline with its end\n"


@pytest.mark.parametrize("fraction", [-0.1, 1.5, float("nan")])
def test_progress_outside_of_0_to_1_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        make().progress(fraction)


def test_a_message_is_cut_to_what_the_server_takes() -> None:
    kept = Kept()
    make(kept).progress(0.5, "x" * 5000)
    assert len(kept.progress[0][1]) == 1000


def test_the_time_left_counts_to_the_deadline_and_not_below_nothing() -> None:
    assert make(deadline_s=1030).remaining_s == 30
    assert make(deadline_s=900).remaining_s == 0
    assert make().remaining_s is None


def test_a_function_that_checks_for_cancellation_learns_of_it() -> None:
    context = make()
    context.raise_if_cancelled()
    assert not context.wait_cancelled(0)
    context.cancel()
    assert context.cancelled
    assert context.wait_cancelled(60)
    with pytest.raises(Cancelled):
        context.raise_if_cancelled()


def test_code_that_catches_every_error_does_not_catch_a_cancellation() -> None:
    context = make()
    context.cancel()
    with pytest.raises(Cancelled), suppress(Exception):
        context.raise_if_cancelled()


def test_the_context_is_found_inside_a_job_only() -> None:
    context = make()
    with context.active():
        assert current_context() is context
    with pytest.raises(LookupError, match="no job is running here"):
        current_context()


def test_a_stale_write_ends_the_execution_for_good() -> None:
    context = make()
    check_written(1, context)
    with pytest.raises(StaleError, match="fence 3"):
        check_written(0, context)
    with context.active(), pytest.raises(StaleError):
        check_written(0)


GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = GIVEN.replace("b7ad", "0000")


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
    with Context(info, Kept()).active():
        assert current_traceparent() == GIVEN


def test_the_current_span_goes_before_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEPARENT", OTHER)
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("t")
    with tracer.start_as_current_span("s") as span:
        context = span.get_span_context()
        traceparent = current_traceparent()
    assert traceparent == f"00-{context.trace_id:032x}-{context.span_id:016x}-01"
