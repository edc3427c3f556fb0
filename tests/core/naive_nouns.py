"""The nouns of the naive model: plain things with plain numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction


@dataclass
class Job:
    """A job, whatever became of it."""

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
    tries: int = 1
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
class Try:
    """The live execution of a job."""

    job: Job
    worker: str
    claimed_at: int
    lease: int
    named: bool = False
    stop_at: int | None = None
    told: bool = False


@dataclass
class Poll:
    """A worker's open call."""

    number: int
    until: int
    room: int
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
    """When it is next looked at whether it is still there."""
    state: str = "online"
    poll: Poll | None = None


@dataclass
class Queue:
    """A line's limits; the rate limit is a bucket of tokens."""

    priority: int = 0
    max_workers: int | None = None
    paused: bool = False
    rate: tuple[int, int] | None = None
    tokens: Fraction = Fraction(0)
    filled_at: int = 0
