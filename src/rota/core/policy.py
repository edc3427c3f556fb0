"""Policy of a cell: by which rules its jobs are ordered, held back, reserved for and preempted.

Only the settings and their presets are here. Each rule has a file of its own: fair share and
strict order (ready_queue), reservations, backfill scheduling and preemption (dispatch).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from rota.core.model import Millis, Record


class OrderKind(StrEnum):
    """Who goes first."""

    FAIR = "fair"
    """Tenants by their share of the fleet, then queues, then age, length and priority."""
    PRIORITY = "priority"
    """Strictly by the queue's priority, the job's, then arrival."""
    FIFO = "fifo"
    """By arrival alone."""
    ROUND_ROBIN = "round_robin"
    """Tenants in turn, one job each."""


class BackfillKind(StrEnum):
    """Who may pass a job that does not fit yet."""

    NONE = "none"
    """Nobody: it holds up all who could use the same workers."""
    EASY = "easy"
    """Whoever does not delay the first job that does not fit."""
    CONSERVATIVE = "conservative"
    """Whoever delays none of those before it."""
    GREEDY = "greedy"
    """Whoever fits: nothing is reserved, and a large job may wait for ever."""


class CandidateKind(StrEnum):
    """In which order the jobs behind one that does not fit are tried."""

    ORDER = "order"
    SHORTEST = "shortest"


class Policy(Record, frozen=True):
    """How a cell decides; the defaults are what a new cell has."""

    order: OrderKind = OrderKind.FAIR
    backfill: BackfillKind = BackfillKind.EASY
    candidates: CandidateKind = CandidateKind.SHORTEST
    beta: float = 10.0
    """How much longer a job waits for being long: its place is submit + beta times its length."""
    length_cap_ms: Millis = 24 * 3_600_000
    """A job counts as no longer than this in its place."""
    priority_ms: Millis = 36_000
    """The waiting time that one point of priority is worth."""
    half_life_ms: Millis = 24 * 3_600_000
    """After this long, what a tenant used counts half."""
    preempt_gap: int | None = 100
    """A job may evict preemptible ones of a priority lower by so much; None: nobody is evicted."""
    preempt_after_ms: Millis = 10_000
    """How long it has waited before it may."""
    max_running: int | None = None
    """Executions of the whole cell at once."""
    max_queued: int | None = None
    """Live jobs of the whole cell; more are refused."""


FCFS = Policy(OrderKind.FIFO, BackfillKind.NONE, CandidateKind.ORDER, 0.0, preempt_gap=None)
EASY = Policy(OrderKind.FIFO, BackfillKind.EASY, CandidateKind.ORDER, 0.0, preempt_gap=None)
CONSERVATIVE = Policy(
    OrderKind.FIFO, BackfillKind.CONSERVATIVE, CandidateKind.ORDER, 0.0, preempt_gap=None
)
EASY_SJF = Policy(beta=1e9, length_cap_ms=1 << 40, preempt_gap=None)
"""So much for length that age counts for nothing: shortest first, and long jobs may starve."""
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
"""Policies with a name; those with fifo order are the textbook's, to compare with."""
