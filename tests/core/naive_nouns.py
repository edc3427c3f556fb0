"""Records of the naive scheduler: plain objects with plain numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction


@dataclass
class Job:
    """A job, live or ended."""

    id: str
    order: int
    queue: str = "default"
    priority: int = 0
    cpu: int = 1_000
    gpu: int = 0
    capabilities: tuple[str, ...] = ()
    after: tuple[tuple[str, str], ...] = ()
    run_at: int | None = None
    expires_at: int | None = None
    key: str | None = None
    limit: int = 1
    max_attempts: int = 1
    delay: int = 1_000
    once: bool = False
    state: str = "pending"
    attempt: int = 0
    fence: int = 0
    losses: int = 0
    lives: int = 1
    due: int | None = None
    unmet: list[tuple[str, str]] = field(default_factory=list)
    why: str = ""

    @property
    def place(self) -> tuple[int, int]:
        return (-self.priority, self.order)


@dataclass
class Execution:
    """The live execution of a job."""

    job: Job
    worker: str
    claimed_at: int
    lease: int
    named: bool = False
    stop_at: int | None = None
    stop_sent: bool = False


@dataclass
class Poll:
    """An open poll of a worker."""

    number: int
    until: int
    free_slots: int
    orders: list[str] = field(default_factory=list)
    answer: bool = False


@dataclass
class Worker:
    """A machine."""

    id: str
    rank: int
    cpu: int
    gpu: int
    capabilities: tuple[str, ...]
    queues: tuple[str, ...] | None
    seen: int
    registered_at: int
    look_at: int
    """When it is checked next whether the worker is still there."""
    state: str = "online"
    poll: Poll | None = None


@dataclass
class Queue:
    """Limits of a queue; the rate limit is a token bucket."""

    priority: int = 0
    max_workers: int | None = None
    paused: bool = False
    rate: tuple[int, int] | None = None
    tokens: Fraction = Fraction(0)
    filled_at: int = 0
