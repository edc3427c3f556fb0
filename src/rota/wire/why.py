"""Explanations: why a job waits, what would help, when it will start; and the result of a dry run
of a submission.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from rota.wire.jobs import DeadlineView, Status, Time


class CauseView(msgspec.Struct):
    """One reason why a job does not run."""

    code: str
    message: str
    figures: dict[str, Any]


class ReliefView(msgspec.Struct):
    """A remedy: something that would help a waiting job."""

    code: str
    """The code of the cause that it removes."""
    message: str
    figures: dict[str, Any]
    enough: bool | None
    """Whether the job would then start at the next poll of a worker, tried out with the real rules
    on a copy; null: not tried.
    """


class AccuracyView(msgspec.Struct):
    """Accuracy of earlier estimates."""

    inside: float
    """Share of the last starts that fell into their estimated interval; the aim is 0.8."""
    starts: int
    """Jobs with an estimate that have started since this server became leader."""


class EstimateView(msgspec.Struct):
    """Estimated start of a job, and how it was computed."""

    at: Time | None
    method: str
    """`started`, `known_times`, `reservation`, `forward_run`, `fluid`, `never` or `unknown`."""
    low: Time | None = None
    high: Time | None = None
    """Four of five jobs start between `low` and `high`."""
    computed_at: Time | None = None
    worker_id: str | None = None
    """The worker it would run on."""
    accuracy: AccuracyView | None = None


class PositionView(msgspec.Struct):
    """Position of a job among the waiting jobs."""

    ahead: int
    """Jobs of its own line that go first: same queue, same requirements and, if the policy is fair,
    same tenant.
    """
    waiting: int
    """Jobs that wait in that line."""
    exact: bool
    starts_before: int | None = None
    """Jobs of all lines that are expected to start before it."""
    tenants_ahead: int = 0
    """Tenants that are served first because they have used less."""


class PhaseView(msgspec.Struct):
    """A period in the history of a job."""

    what: Literal["pending", "queued", "running"]
    since: Time
    until: Time | None
    """Null: it has not ended."""
    seconds: float | int
    reason: str | None = None
    """The reason why it waited, or how the execution ended."""
    worker_id: str | None = None


class WhyView(msgspec.Struct):
    """Explanation of why a job is not running yet: the blocking cause first, then the others."""

    job_id: str
    status: Status
    cause: CauseView
    others: list[CauseView]
    estimated_start: EstimateView
    would_help: list[ReliefView] = []
    position: PositionView | None = None
    history: list[PhaseView] = []
    """The newest last; the beginning of a long history is left out."""
    deadline: DeadlineView | None = None


class DryRunView(msgspec.Struct):
    """Result of a dry run: nothing was submitted."""

    verdict: Literal["now", "later", "never", "unknown"]
    message: str
    estimated_start: EstimateView
    causes: list[CauseView] = []
    """Why the job would not start at once."""
    deadline: DeadlineView | None = None
    ref: str | None = None
    """Its `ref` in the batch."""


class DryRunBatchView(msgspec.Struct):
    """Results of a dry run, one for each job in the order given."""

    jobs: list[DryRunView]
