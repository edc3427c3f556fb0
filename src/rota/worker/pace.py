"""When a worker's next call is due, and how long the server may hold it; pure."""

from __future__ import annotations

from rota.wire.workers import RegisterAnswer
from rota.worker.prefetch import PrefetchedOrders

GATHER_S = 0.04
"""While enough is in hand to go on with, calls are this far apart: each carries the ends of many
short jobs. Whoever waits for such an end waits this much longer at most."""
BEGIN_S = 0.002
"""So long what was just begun has the machine to itself, before the next call: many a function has
ended by then, and the call carries its end. What comes meanwhile waits so much longer at most."""


class PollTiming:
    """The times of one worker's calls."""

    def __init__(self) -> None:
        self.lease_ttl = 15.0
        self.patient = False
        """The server holds calls for work though they carry reports: whoever has just ended a job
        need not call twice to get the next."""
        self._wait_max = 5.0
        self._full_at = float("-inf")
        self._last_call_at = float("-inf")
        """When a call was last sent or answered."""
        self._last_start_at = float("-inf")
        """When an answer last had something begin."""

    def registered(self, answer: RegisterAnswer) -> None:
        """What the server says of leases and polls."""
        self.lease_ttl, self.patient = answer.lease_ttl, answer.patient
        self._wait_max = min(answer.poll_wait_max, self.lease_ttl / 3)
        self._full_at = self._last_call_at = float("-inf")

    def sent(self, now: float, *, full: bool) -> None:
        """A call goes out."""
        self._last_call_at = now
        if full:
            self._full_at = now

    def answered(self, now: float, *, begins: bool) -> None:
        """One came back, and something begins because of it."""
        self._last_call_at = now
        if begins:
            self._last_start_at = now

    def may_overlap(self, now: float) -> bool:
        """Whether a second call may go beside an open one: a full one must never be far."""
        return now < self._full_at + self.lease_ttl / 3

    def rests_until(
        self, prefetched: PrefetchedOrders, *, is_open: bool, owes: int
    ) -> float | None:
        """No call is worth its while before then; None: one may go at once.

        Half of what may be prefetched lasts while a call brings more. While one is on its way for
        that, the last of it has to do.
        """
        if len(prefetched) > (0 if is_open else prefetched.most // 2):
            return self._last_call_at + GATHER_S
        return None if is_open or owes else self._last_start_at + BEGIN_S

    def wait_s(self, now: float, *, held: bool, unheard: bool, draining: bool) -> float:
        """Short while something is held: a frozen server must be noticed well within a lease.

        After a failure none at all: the next server's answer comes at once and renews what is held,
        and if none comes there is time to ask another.
        """
        if held and unheard:
            return 0.0
        if not held:
            wait = 0.0 if draining else self._wait_max
        else:
            wait = min(self._wait_max, self.lease_ttl / 5)
        return max(0.0, min(wait, self._full_at + self.lease_ttl / 3 - now))
