"""Explanations of why a job waits, and forecasts of its start, from core to wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.api.convert.deadlines import deadline_view
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

_FREE = CauseView("free", "nothing keeps it: it starts next", {})
_TIMES = ("at", "next_at", "until")


def why_view(job: JobRecord, explanation: Explanation) -> WhyView:
    """What keeps a job from running, the nearest cause first."""
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
    """The same with all that is to come."""
    view = why_view(job, outlook.explanation)
    view.estimated_start = estimate_view(outlook.estimate, outlook.accuracy)
    view.would_help = [_remedy_view(one) for one in outlook.remedies]
    if outlook.position is not None:
        view.position = _position_view(outlook.position, outlook.estimate.ahead)
    view.deadline = deadline_view(outlook.deadline)
    return view


def cause_view(cause: Cause) -> CauseView:
    """One cause."""
    return CauseView(cause.code, cause.message, _figures(cause.figures))


def _remedy_view(relief: Remedy) -> ReliefView:
    return ReliefView(relief.code, relief.message, _figures(relief.figures), relief.is_enough)


def _position_view(position: Position, starts_before: int | None) -> PositionView:
    return PositionView(
        position.ahead,
        position.waiting,
        position.is_exact,
        starts_before,
        position.tenants_ahead,
    )


def estimate_view(estimate: Estimate, accuracy: Accuracy | None) -> EstimateView:
    """When, how it was found, and how good that was before."""
    told = None if accuracy is None else AccuracyView(round(accuracy.inside, 3), accuracy.starts)
    return EstimateView(
        from_instant_or_none(estimate.at),
        estimate.method,
        from_instant_or_none(estimate.low),
        from_instant_or_none(estimate.high),
        from_instant(estimate.computed_at),
        estimate.worker_id,
        told,
    )


def _figures(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Instants leave as times that people read; the rest as it is."""
    return {
        name: from_instant(value) if name in _TIMES and isinstance(value, int) else value
        for name, value in figures.items()
    }


# What nobody has submitted


def dry_run_view(outlook: Outlook, ref: str | None, workers: Mapping[WorkerId, str]) -> DryRunView:
    """What would become of a job; `workers` has the names of those that people gave one."""
    estimate, causes = outlook.estimate, [cause_view(one) for one in outlook.explanation.causes]
    where = None if estimate.worker_id is None else workers.get(estimate.worker_id)
    where = where or estimate.worker_id
    because = f", because {causes[0].message}" if causes else ""
    view = DryRunView(
        "unknown",
        f"would wait{because}; nobody can say how long",
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
