"""Parties: those between whom an order chooses, and the lines of jobs that each of them has."""

from __future__ import annotations

from rota.core.cells import LineKey, QueueCell
from rota.core.lanes import Lane, LaneKey
from rota.core.model import Millis, Needs

EVERY_CLASS = -1
"""All bits: nothing is ruled out."""


class JobClass:
    """Jobs that a worker has room for or not, all alike: one queue, the same needs."""

    __slots__ = (
        "bit",
        "cursor",
        "index",
        "lanes",
        "lines",
        "needs",
        "offers",
        "queue",
        "share",
        "share_of",
        "shelved",
        "waiting",
    )

    def __init__(self, index: int, queue: QueueCell, needs: Needs) -> None:
        self.index = index
        self.bit = 1 << index
        self.queue = queue
        self.needs = needs
        self.waiting = 0
        """Jobs in line."""
        self.shelved = 0
        """Jobs that are on the shelf."""
        self.lanes: dict[LaneKey, Lane] = {}
        """Those with jobs in line or on the shelf."""
        self.lines: dict[int, Line] = {}
        """By number: one for each party that has jobs of the class."""
        self.offers: list[tuple[int, int, int, str, int]] = []
        """Workers that may fit, best first; kept by placement.py."""
        self.cursor = -1
        """How far placement.py has read the log of opened workers for this class."""
        self.share = 0.0
        """The part of the fleet that one job takes, of what it takes the most of."""
        self.share_of: object = None
        """The fleet's capacity for which that was computed."""


class Line:
    """The jobs of one class and one party, in order."""

    __slots__ = (
        "estimate",
        "first",
        "heap",
        "is_mixed",
        "job_class",
        "number",
        "shelved",
        "short",
        "tenant",
        "waiting",
    )

    def __init__(self, number: int, job_class: JobClass, tenant: str) -> None:
        self.number = number
        self.job_class = job_class
        self.tenant = tenant
        """One of the tenants whose jobs are in it: that of the first job that came."""
        self.heap: list[LineKey] = []
        self.first: LineKey | None = None
        """The head of the line; None: to be looked up again."""
        self.waiting = 0
        """Jobs in line; the heap may hold more entries than that, stale ones."""
        self.shelved = 0
        """Jobs that are on the shelf."""
        self.estimate: Millis = 0
        """How long its jobs are expected to run, if it is the same for all of them."""
        self.is_mixed = False
        """Whether it is not."""
        self.short: list[tuple[Millis, LineKey]] | None = None
        """The jobs by expected length; None: to be made when somebody asks for short ones."""


class Party:
    """Lines that are served as one: no rule of the order tells them apart but their heads."""

    __slots__ = ("allowed", "lines", "ready", "waiting")

    def __init__(self) -> None:
        self.lines: dict[int, Line] = {}
        """By number of class."""
        self.waiting = 0
        """Bits of the classes with jobs in line or on the shelf."""
        self.allowed = EVERY_CLASS
        """Bits of the classes that quotas leave room for."""
        self.ready = 0
        """Bits of the classes that may go: waiting and allowed."""
