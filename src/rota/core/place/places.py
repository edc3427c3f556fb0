"""A place that is kept for a job that does not fit yet: on which worker, and from when."""

from __future__ import annotations

from typing import TypeAlias

from rota.core.model import Instant, JobId, Millis, Resources, WorkerId
from rota.core.order.party import JobClass
from rota.core.resources import fits, minus

Place: TypeAlias = tuple[WorkerId, Instant, Resources]
"""(worker, when, how much it will have free then)."""


class Reservation:
    """A place for the first job of a class."""

    __slots__ = (
        "_left",
        "at",
        "copies",
        "job_class",
        "job_id",
        "room",
        "spare",
        "stamp",
        "worker_id",
    )

    def __init__(self, place: Place, job_class: JobClass, job_id: JobId) -> None:
        self.worker_id, self.at, self.room = place
        self.job_class = job_class
        self.job_id = job_id
        self.stamp = -1
        """The worker's, when this was computed."""
        self.spare = self._left = minus(self.room, job_class.needs.resources)
        """What the reserved job leaves of the worker at that time, and what of that others leave
        who start in this pass."""
        self.copies = 1
        """How many members of a gang are to be there; the room given is without all but one."""

    def begin_anew(self) -> None:
        """In another pass: whoever started there before is held by the worker, or has ended."""
        self.spare = self._left

    def admits(self, needs: Resources, estimate: Millis, now: Instant) -> bool:
        """Whether a job that starts there now will not be in the way."""
        return now + estimate <= self.at or fits(needs, self.spare)

    def take(self, needs: Resources, estimate: Millis, now: Instant) -> None:
        """A job starts there now; if it stays beyond the time, less is spare."""
        if now + estimate > self.at:
            self.spare = minus(self.spare, needs)
