"""What is told of the time to come: estimates, how they turned out, and all that goes with them."""

from __future__ import annotations

import msgspec

from rota.core.explain.remedies import Remedy
from rota.core.info_model import DeadlineInfo, Explanation, Position
from rota.core.model import Instant, WorkerId

KNOWN_TIMES = "known_times"
RESERVATION = "reservation"
FORWARD_RUN = "forward_run"
FLUID = "fluid"
NEVER = "never"
UNKNOWN = "unknown"


class Accuracy(msgspec.Struct, frozen=True):
    """How often starts fell inside the interval that was given for them."""

    inside: float
    """Of the last of them."""
    starts: int
    """All that were told a start and have started."""


class Estimate(msgspec.Struct, frozen=True):
    """When a job will start. `low` to `high` holds four of five starts, by past experience."""

    at: Instant | None
    low: Instant | None
    high: Instant | None
    method: str
    computed_at: Instant
    worker_id: WorkerId | None = None
    """Where, if all goes as expected."""
    ahead: int | None = None
    """How many jobs start before it, of all lines."""


class ObservedCause(msgspec.Struct, frozen=True):
    """What kept a job waiting, when somebody asked."""

    code: str
    first: Instant
    last: Instant


class Outlook(msgspec.Struct, frozen=True):
    """All that is known of a job that waits, and what is to come of it."""

    explanation: Explanation
    estimate: Estimate
    position: Position | None = None
    reliefs: tuple[Remedy, ...] = ()
    deadline: DeadlineInfo | None = None
    accuracy: Accuracy | None = None
    seen: tuple[ObservedCause, ...] = ()
    """The first causes that others were told before, the newest last."""
