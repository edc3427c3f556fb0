"""Explanations: why a job waits, what would help, when it will start; and what a submission would
come to.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from rota.wire.jobs import DeadlineView, Status, Time


class CauseView(msgspec.Struct):
    """One thing that keeps a job from running."""

    code: str
    message: str
    figures: dict[str, Any]


class ReliefView(msgspec.Struct):
    """Something that would help."""

    code: str
    """The code of the cause that it lifts."""
    message: str
    figures: dict[str, Any]
    enough: bool | None
    """Whether it would then start as soon as the workers ask, by the real rules on a copy; null:
    that was not tried."""


class AccuracyView(msgspec.Struct):
    """How estimates have turned out."""

    inside: float
    """The share of the last starts that fell into the interval that was told; meant to be 0.8."""
    starts: int
    """Jobs that were told a start and have started, since the server came to lead."""


class EstimateView(msgspec.Struct):
    """When it may start, and how that was found."""

    at: Time | None
    method: str
    """`started`, `known_times`, `reservation`, `forward_run`, `fluid`, `never` or `unknown`."""
    low: Time | None = None
    high: Time | None = None
    """Four of five starts fall between the two."""
    computed_at: Time | None = None
    worker_id: str | None = None
    """Where, if all goes as expected."""
    accuracy: AccuracyView | None = None


class PositionView(msgspec.Struct):
    """Where it stands among those that wait."""

    ahead: int
    """Jobs of its own line that go before it: same queue, same needs and, if fair, same tenant."""
    waiting: int
    """Jobs in that line."""
    exact: bool
    starts_before: int | None = None
    """Jobs of all lines that start before it, if all goes as expected."""
    tenants_ahead: int = 0
    """Tenants whose turn is before its own, by what they have had."""


class PhaseView(msgspec.Struct):
    """A stretch of a job's life."""

    what: Literal["pending", "queued", "running"]
    since: Time
    until: Time | None
    """None: it lasts."""
    seconds: float | int
    reason: str | None = None
    """What it waited for, or how the try ended."""
    worker_id: str | None = None


class WhyView(msgspec.Struct):
    """Why a job is not running yet: the one blocking cause first, the others after it."""

    job_id: str
    status: Status
    cause: CauseView
    others: list[CauseView]
    estimated_start: EstimateView
    would_help: list[ReliefView] = []
    position: PositionView | None = None
    history: list[PhaseView] = []
    """The newest last; the beginning of a long one is left out."""
    deadline: DeadlineView | None = None


class DryRunView(msgspec.Struct):
    """What would become of a job. Nothing was submitted."""

    verdict: Literal["now", "later", "never", "unknown"]
    message: str
    estimated_start: EstimateView
    causes: list[CauseView] = []
    """Why it would not start at once."""
    deadline: DeadlineView | None = None
    ref: str | None = None
    """Its name in the batch."""


class DryRunBatchView(msgspec.Struct):
    """What would become of each job, in the order given."""

    jobs: list[DryRunView]
