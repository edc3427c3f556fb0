"""A place that is kept for a job that does not fit yet: on which worker, and from when."""

from __future__ import annotations

from typing import TypeAlias

from rota.core.model import Instant, JobId, Millis, Resources, WorkerId
from rota.core.order.party import JobClass
from rota.core.resources import fits, minus

ReservedPlace: TypeAlias = tuple[WorkerId, Instant, Resources]
"""(worker, when, how much it will have free then)."""


class Reservation:
    """A place for the first job of a class."""

    __slots__ = (
        "_left_at_first",
        "at",
        "copies",
        "free",
        "job_class",
        "job_id",
        "left",
        "stamp",
        "worker_id",
    )

    def __init__(self, place: ReservedPlace, job_class: JobClass, job_id: JobId) -> None:
        self.worker_id, self.at, self.free = place
        self.job_class = job_class
        self.job_id = job_id
        self.stamp = -1
        """The worker's, when this was computed."""
        self.left = self._left_at_first = minus(self.free, job_class.needs.resources)
        """What the reserved job leaves of the worker at that time, and what of that others leave
        who start in this pass."""
        self.copies = 1
        """How many members of a gang are to be there; the room given is without all but one."""

    def reset(self) -> None:
        """In another pass: whoever started there before is held by the worker, or has ended."""
        self.left = self._left_at_first

    def admits(self, needs: Resources, estimate: Millis, now: Instant) -> bool:
        """Whether a job that starts there now will not be in the way."""
        return now + estimate <= self.at or fits(needs, self.left)

    def take(self, needs: Resources, estimate: Millis, now: Instant) -> None:
        """A job starts there now; if it stays beyond the time, less is spare."""
        if now + estimate > self.at:
            self.left = minus(self.left, needs)
