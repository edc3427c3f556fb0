"""Conversion of explanations why a job waits, and of forecasts of its start, from core to wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.api.convert.jobs import deadline_view
from rota.core.explain.remedies import Remedy
from rota.core.info_model import Cause, Explanation, Position
from rota.core.model import JobRecord, WorkerId
from rota.engine.ports import NEVER, Accuracy, Estimate, Outlook
from rota.wire.formats import from_instant, from_instant_or_none
from rota.wire.why import (
    AccuracyView,
    CauseView,
    DryRunView,
    EstimateView,
    PositionView,
    ReliefView,
    WhyView,
)

_FREE = CauseView("free", "nothing prevents it from starting: it starts next", {})
_TIMES = ("at", "next_at", "until")


def why_view(job: JobRecord, explanation: Explanation) -> WhyView:
    """Converts an explanation; the nearest cause comes first."""
    causes = [cause_view(one) for one in explanation.causes]
    return WhyView(
        job_id=job.id,
        status=job.life.state.value,
        cause=causes[0] if causes else _FREE,
        others=causes[1:],
        estimated_start=EstimateView(
            from_instant_or_none(explanation.estimated_start), explanation.method
        ),
    )


def forecast_view(job: JobRecord, outlook: Outlook) -> WhyView:
    """Converts an explanation with position, estimated start, remedies and deadline."""
    view = why_view(job, outlook.explanation)
    view.estimated_start = estimate_view(outlook.estimate, outlook.accuracy)
    view.would_help = [_remedy_view(one) for one in outlook.remedies]
    if outlook.position is not None:
        view.position = _position_view(outlook.position, outlook.estimate.ahead)
    view.deadline = deadline_view(outlook.deadline)
    return view


def cause_view(cause: Cause) -> CauseView:
    return CauseView(cause.code, cause.message, _figures(cause.figures))


def _remedy_view(relief: Remedy) -> ReliefView:
    return ReliefView(relief.code, relief.message, _figures(relief.figures), relief.is_enough)


def _position_view(position: Position, starts_before: int | None) -> PositionView:
    return PositionView(
        position.ahead, position.waiting, position.is_exact, starts_before, position.tenants_ahead
    )


def estimate_view(estimate: Estimate, accuracy: Accuracy | None) -> EstimateView:
    """Converts an estimated start, with its method and its past accuracy."""
    accuracy_view = (
        None if accuracy is None else AccuracyView(round(accuracy.inside, 3), accuracy.starts)
    )
    return EstimateView(
        from_instant_or_none(estimate.at),
        estimate.method,
        from_instant_or_none(estimate.low),
        from_instant_or_none(estimate.high),
        from_instant(estimate.computed_at),
        estimate.worker_id,
        accuracy_view,
    )


def _figures(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Converts instants to RFC 3339; all other figures stay."""
    return {
        name: from_instant(value) if name in _TIMES and isinstance(value, int) else value
        for name, value in figures.items()
    }


def dry_run_view(outlook: Outlook, ref: str | None, workers: Mapping[WorkerId, str]) -> DryRunView:
    """Says what would become of a job if it were submitted; `workers` has names by id."""
    estimate, causes = outlook.estimate, [cause_view(one) for one in outlook.explanation.causes]
    where = None if estimate.worker_id is None else workers.get(estimate.worker_id)
    where = where or estimate.worker_id
    because = f", because {causes[0].message}" if causes else ""
    view = DryRunView(
        "unknown",
        f"would wait{because}; how long is unknown",
        estimate_view(estimate, outlook.accuracy),
        causes,
        deadline_view(outlook.deadline),
        ref,
    )
    if estimate.method == NEVER:
        view.verdict, view.message = "never", f"would never start{because}"
    elif estimate.at is not None and estimate.at <= estimate.computed_at:
        view.verdict, view.message = "now", f"would start now on {where}"
    elif estimate.at is not None:
        view.verdict = "later"
        view.message = f"would start at about {from_instant(estimate.at)} on {where}{because}"
    return view
