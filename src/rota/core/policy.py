"""Policy of a cell: the settings for order, backfill, preemption and cell-wide limits, and presets.

The rules themselves are in ready_queue (fair share, strict order), reservations and dispatch
(backfill, preemption).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from rota.core.model import Millis, Record


class OrderKind(StrEnum):
    """Rule for which job goes first."""

    FAIR = "fair"
    """Fair share: tenants by the part of the fleet they used, then queues, then age, length,
    priority."""
    PRIORITY = "priority"
    """Strictly by the queue's priority, the job's priority, then arrival."""
    FIFO = "fifo"
    """By arrival alone."""
    ROUND_ROBIN = "round_robin"
    """Tenants in turn, one job each."""


class BackfillKind(StrEnum):
    """Rule for which jobs may start before a job that does not fit yet (backfill)."""

    NONE = "none"
    """None: the job holds up all others that could use the same workers."""
    EASY = "easy"
    """Those that do not delay the first job that does not fit."""
    CONSERVATIVE = "conservative"
    """Those that delay no job before them."""
    GREEDY = "greedy"
    """Any that fits: nothing is reserved, and a large job may wait for ever."""


class CandidateKind(StrEnum):
    """Order in which backfill tries the jobs behind one that does not fit."""

    ORDER = "order"
    SHORTEST = "shortest"


class Policy(Record, frozen=True):
    """Policy of a cell; the defaults are those of a new cell."""

    order: OrderKind = OrderKind.FAIR
    backfill: BackfillKind = BackfillKind.EASY
    candidates: CandidateKind = CandidateKind.SHORTEST
    beta: float = 10.0
    """Weight of a job's length against its age: jobs are sorted by submit time + beta * length."""
    length_cap_ms: Millis = 24 * 3_600_000
    """A job counts as no longer than this in its sort key."""
    priority_ms: Millis = 36_000
    """The waiting time that one point of priority is worth."""
    half_life_ms: Millis = 24 * 3_600_000
    """After this time, a tenant's usage counts half."""
    preempt_gap: int | None = 100
    """Preemption: a job may evict preemptible ones whose priority is lower by this; None: never."""
    preempt_after_ms: Millis = 10_000
    """How long a job has to wait before it may preempt others."""
    max_running: int | None = None
    """Limit on executions of the whole cell."""
    max_queued: int | None = None
    """Limit on live jobs of the whole cell; submitting more is refused."""


FCFS = Policy(OrderKind.FIFO, BackfillKind.NONE, CandidateKind.ORDER, 0.0, preempt_gap=None)
EASY = Policy(OrderKind.FIFO, BackfillKind.EASY, CandidateKind.ORDER, 0.0, preempt_gap=None)
CONSERVATIVE = Policy(
    OrderKind.FIFO, BackfillKind.CONSERVATIVE, CandidateKind.ORDER, 0.0, preempt_gap=None
)
EASY_SJF = Policy(beta=1e9, length_cap_ms=1 << 40, preempt_gap=None)
"""Length counts so much that age has no weight: shortest first, and long jobs may starve."""
STRICT = Policy(OrderKind.PRIORITY, BackfillKind.GREEDY, CandidateKind.ORDER, 0.0)
DEFAULT = Policy()

PRESETS: Mapping[str, Policy] = {
    "default": DEFAULT,
    "strict": STRICT,
    "fcfs": FCFS,
    "easy": EASY,
    "conservative": CONSERVATIVE,
    "easy-sjf": EASY_SJF,
}
"""Policies by name; those with FIFO order are the textbook's, for comparison."""
