"""State machine of a worker: decides what it holds, starts, stops and reports; pure.

`PollTiming` decides when calls are made. No I/O, no tasks, no clock: facts and the time come in as
arguments, actions go out as values.

Theory of operation. A `lease` call stays open for seconds. When a report falls due meanwhile, a
second call carries it and the server ends the first one; both answers are read, since either may
carry orders. A call is *full* when no other was open when it was sent: only then does it name the
executions held, because only then has every order that was answered also been received. An
overlapping call leaves the list out, which renews what was named before and denies nothing.
Overlapping calls end within a third of the lease after the last full one, so that the next full one
is never far. While enough short work is in hand, calls pause in between (`PollTiming`), and
executions that have ended are reported together.

A prefetched order waits for another one (prefetch.py) and starts when that has ended, whether the
server has heard of the end or not. While it waits it is named, which renews it. Only a full call
that carried every report tells the server that it runs, and only then can it be left unnamed.

A lease is counted from the sending of the call that renewed it; a new order's from the moment of
its grant, which is the sending plus the time the server held the call.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TypeAlias

import msgspec

from rota.wire.formats import Duration
from rota.wire.limits import LEASE_ORDERS_MAX
from rota.wire.workers import (
    CompletedReport,
    HeartbeatAnswer,
    HeartbeatSpec,
    LeaseAnswer,
    LeaseSpec,
    OrderView,
    RegisterAnswer,
    RunningReport,
)
from rota.worker.prefetch import PrefetchedOrders
from rota.worker.reports import PendingReports, StopReason, report_returned, report_stopped


class Start(msgspec.Struct, frozen=True):
    """Action: start this order."""

    order: OrderView


class Stop(msgspec.Struct, frozen=True):
    """Action: end an execution with its grace period, and report it."""

    execution_id: str
    reason: StopReason


class Abandon(msgspec.Struct, frozen=True):
    """Action: end an execution at once, without a report: this worker has lost it."""

    execution_id: str
    why: str


Action: TypeAlias = Start | Stop | Abandon


class LeaseCall(msgspec.Struct, frozen=True):
    """One `lease` call: its content, and what its answer will mean."""

    number: int
    sent_at: float
    named: tuple[str, ...]
    carried: tuple[str, ...]
    spec: LeaseSpec
    known_to_run: tuple[str, ...] = ()
    """Of the executions named: those the server knows to run once it has this call."""


class HeartbeatCall(msgspec.Struct, frozen=True):
    sent_at: float
    named: tuple[str, ...]
    spec: HeartbeatSpec


class Phase(Enum):
    """Phase of an execution that this worker holds."""

    WAITING = 1
    """Granted beyond the concurrency limit by two crossing answers: starts when a slot is free."""
    RUNNING = 2
    STOPPING = 3
    ABANDONED = 4
    PREFETCHED = 5
    """Prefetched: starts when the order that it waits for has ended."""


UNBEGUN = (Phase.WAITING, Phase.PREFETCHED)


class HeldExecution(msgspec.Struct):
    """Order that this worker holds, and its state here."""

    order: OrderView
    deadline: float
    phase: Phase = Phase.WAITING
    confirmed: bool = False
    """The server has heard this worker name it, and knows that it runs."""
    progress: float | None = None
    message: str | None = None
    given_back: bool = False
    """Stopped because the worker leaves: deregistering gives it back, and the attempt does not
    count."""


GATHER_S = 0.04
"""Shortest time between calls while enough work is in hand: each call reports many short jobs. The
end of a job is reported this much later at most."""
BEGIN_S = 0.002
"""Pause after a start before the next call: many a function has ended by then, and the call carries
its report. Other news waits this much longer at most."""


class PollTiming:
    """Timing of one worker's calls."""

    def __init__(self) -> None:
        self.lease_ttl = 15.0
        self.patient = False
        """The server holds calls for work even if they carry reports: a worker that has just ended
        a job need not call twice to get the next."""
        self._wait_max = 5.0
        self._full_at = float("-inf")
        self._last_call_at = float("-inf")
        """When a call was last sent or answered."""
        self._last_start_at = float("-inf")
        """When an answer last caused an execution to start."""

    def registered(self, answer: RegisterAnswer) -> None:
        """Takes over what the server says of leases and polls."""
        self.lease_ttl, self.patient = answer.lease_ttl, answer.patient
        self._wait_max = min(answer.poll_wait_max, self.lease_ttl / 3)
        self._full_at = self._last_call_at = float("-inf")

    def sent(self, now: float, *, full: bool) -> None:
        self._last_call_at = now
        if full:
            self._full_at = now

    def answered(self, now: float, *, begins: bool) -> None:
        """Notes an answer, and whether executions start because of it."""
        self._last_call_at = now
        if begins:
            self._last_start_at = now

    def may_overlap(self, now: float) -> bool:
        """Whether a second call may go beside an open one: a full one must never be far."""
        return now < self._full_at + self.lease_ttl / 3

    def rests_until(
        self, prefetched: PrefetchedOrders, *, is_open: bool, owes: int
    ) -> float | None:
        """Returns until when no call is worth its cost; None: one may go at once.

        Half of the prefetched orders last while a call brings more. While such a call is open, the
        rest has to do.
        """
        if len(prefetched) > (0 if is_open else prefetched.count_max // 2):
            return self._last_call_at + GATHER_S
        return None if is_open or owes else self._last_start_at + BEGIN_S

    def wait_s(self, now: float, *, held: bool, unheard: bool, draining: bool) -> float:
        """How long the server may hold the call.

        Short while anything is held: a frozen server must be noticed well within a lease. Zero
        after a failure: the next server's answer comes at once and renews what is held, and if none
        comes there is time to ask another.
        """
        if held and unheard:
            return 0.0
        if not held:
            wait = 0.0 if draining else self._wait_max
        else:
            wait = min(self._wait_max, self.lease_ttl / 5)
        return max(0.0, min(wait, self._full_at + self.lease_ttl / 3 - now))


LAPSED = "its lease ran out before it could be renewed"
LEASE_MARGIN = 0.05
"""Share of a lease given up at its end: the clocks of two machines do not run at the same speed."""
ENDED_REMEMBERED_MAX = 20_000
"""Ended executions remembered, so that a late second copy of an order does not start one again."""


class Session:
    """State of one worker's conversation with the server: orders held, reports pending, calls
    open."""

    def __init__(self, concurrency: int | None = None, spare: int = 0) -> None:
        self._limit = min(concurrency or LEASE_ORDERS_MAX, LEASE_ORDERS_MAX)
        self._prefetched = PrefetchedOrders(spare)
        self._token: str | None = None
        self._timing = PollTiming()
        self._held: dict[str, HeldExecution] = {}
        self._running = 0
        self._pending = PendingReports()
        # Not a plain dict: finding its first key gets slow when first keys are removed repeatedly.
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._open_calls: dict[int, LeaseCall] = {}
        self._call_count = 0
        self._last_call_failed = False
        """The call that ended last failed: it is not known whether any server can be reached."""
        self._draining = self._stopping_all = False
        self._drain_announced = True

    @property
    def lease_ttl(self) -> float:
        """Seconds a lease lasts, as the server said."""
        return self._timing.lease_ttl

    @property
    def draining(self) -> bool:
        """Whether no new work is wanted."""
        return self._draining

    @property
    def held(self) -> int:
        """Executions that run, wait for a slot, or are being ended."""
        return len(self._held)

    @property
    def pending_reports(self) -> int:
        """Reports that the server has not confirmed yet."""
        return len(self._pending)

    @property
    def drained(self) -> bool:
        """Whether draining is complete: nothing runs, nothing is pending, and no answer is
        outstanding."""
        return self._draining and not (self._held or self._pending or self._open_calls)

    def registered(self, answer: RegisterAnswer) -> None:
        """Starts over under the identity that the server gave."""
        self._token = answer.session
        self._timing.registered(answer)
        self._prefetched.limit_to(answer.spare_max)

    def registration_lost(self, why: str) -> list[Action]:
        """Abandons everything: the server no longer knows this worker."""
        self._open_calls.clear()
        self._pending.all_calls_closed()
        return self._abandon(list(self._held), why)

    # Calls.

    def wants_call(self, now: float) -> bool:
        """Whether a `lease` call should be sent now, beside those that are open."""
        if now < (self.rests_until() or now):
            return False
        if not self._open_calls:
            return True
        urgent = self._pending.unsent > 0 or not self._drain_announced
        return urgent and len(self._open_calls) == 1 and self._timing.may_overlap(now)

    def rests_until(self) -> float | None:
        """End of the pause between calls; None: there is no pause."""
        if self._draining:
            return None
        return self._timing.rests_until(
            self._prefetched, is_open=bool(self._open_calls), owes=self._pending.unsent
        )

    def call(self, now: float) -> LeaseCall:
        """Makes the next `lease` call; it counts as sent at `now`."""
        full = not self._open_calls
        self._timing.sent(now, full=full)
        self._call_count += 1
        self._drain_announced = True
        reports = self._pending.take_batch()
        named = self._live(now) if full else self._confirmed()
        spec = LeaseSpec(
            max=self._free_slots(),
            wait=Duration(round(self._wait_s(now) * 1000)),
            completed=reports,
            executions=[self._running_report(key) for key in named] if full else None,
            session=self._token,
            spare=0 if self._draining else self._prefetched.more_wanted,
            patient=self._timing.patient and bool(reports),
        )
        carried = tuple(report.execution_id for report in reports)
        begun = self._known_to_run(named, all_reported=full and len(carried) == len(self._pending))
        call = LeaseCall(self._call_count, now, tuple(named), carried, spec, begun)
        self._open_calls[call.number] = call
        return call

    def heartbeat(self, now: float) -> HeartbeatCall:
        """Makes a heartbeat for a poll that outlasts the heartbeat interval; it denies nothing
        either."""
        spec = HeartbeatSpec(executions=None, session=self._token)
        return HeartbeatCall(now, tuple(self._confirmed()), spec)

    def _free_slots(self) -> int:
        if self._draining:
            return 0
        held = len(self._held) - len(self._prefetched)
        return max(0, self._limit - held - self._pending.unsent)

    def _wait_s(self, now: float) -> float:
        return self._timing.wait_s(
            now, held=bool(self._held), unheard=self._last_call_failed, draining=self._draining
        )

    def _running_report(self, key: str) -> RunningReport:
        held = self._held[key]
        return RunningReport(key, held.order.fence, held.progress, held.message)

    def _live(self, now: float) -> list[str]:
        return [
            key
            for key, held in self._held.items()
            if held.phase is not Phase.ABANDONED and held.deadline > now
        ]

    def _known_to_run(self, named: Iterable[str], *, all_reported: bool) -> tuple[str, ...]:
        """Lists what the server will know to run; prefetched orders only if it knows of all that
        ended."""
        return tuple(
            key
            for key in named
            if self._held[key].confirmed
            or self._held[key].order.behind is None
            or (all_reported and key not in self._prefetched)
        )

    def _confirmed(self) -> list[str]:
        return [
            key
            for key, held in self._held.items()
            if held.confirmed and held.phase is not Phase.ABANDONED
        ]

    # Answers.

    def answered(self, call: LeaseCall, answer: LeaseAnswer, now: float) -> list[Action]:
        """Takes in the answer of a call: renewed leases, cancels, new orders."""
        if self._open_calls.pop(call.number, None) is None:
            return []
        self._last_call_failed = False
        self._pending.call_accepted()
        for key in call.carried:
            self._forget_report(key)
        self._renew(call.named, call.sent_at)
        for key in call.known_to_run:
            if key in self._held:
                self._held[key].confirmed = True
        granted_at = min(call.sent_at + max(0.0, answer.held_for), now)
        self._prefetched.note_answer(answer.executions)
        for order in answer.executions:
            self._take(order, granted_at, now)
        ends, starts = self._apply_cancels(answer.cancel, answer.lost), self._starts(now)
        self._timing.answered(now, begins=bool(starts))
        return ends + starts

    def heartbeat_answered(self, heartbeat: HeartbeatCall, answer: HeartbeatAnswer) -> list[Action]:
        """Takes in the answer of a heartbeat: renewed leases and cancels."""
        self._renew(heartbeat.named, heartbeat.sent_at)
        return self._apply_cancels(answer.cancel, answer.lost)

    def failed(self, call: LeaseCall) -> None:
        """Notes a call without an answer. The server may have heard it, so its reports stay
        pending."""
        if self._open_calls.pop(call.number, None) is not None:
            self._last_call_failed = True
            self._pending.failed(call.carried)

    def refused(self, call: LeaseCall, detail: str) -> bool:
        """Repairs a call that the server will never accept as it is; False if nothing can be
        repaired."""
        self.failed(call)
        if call.spec.spare and "`spare`" in detail:
            self._prefetched.limit_to(0)  # an older server leads now and does not know the field
            return True
        if call.spec.patient and "`patient`" in detail:
            self._timing.patient = False
            return True
        if not call.carried:
            return False
        given_up = self._pending.isolate_refused(call.carried, detail)
        if given_up is not None:
            self._forget_report(given_up)
        return True

    def _take(self, order: OrderView, granted_at: float, now: float) -> None:
        key = order.execution_id
        if key in self._held or key in self._pending or key in self._ended:
            return
        if now - granted_at > order.lease_expires_in / 2:
            return  # too old to be worth starting: it is never named, so the server takes it back
        deadline = granted_at + order.lease_expires_in * (1 - LEASE_MARGIN)
        held = self._held[key] = HeldExecution(order, deadline)
        if order.behind is not None:
            predecessor = self._prefetched.predecessor(order.behind)
            # An order that this worker does not know yet may still arrive, so unknown is not ended.
            if predecessor not in self._pending and predecessor not in self._ended:
                held.phase = Phase.PREFETCHED
                self._prefetched.add(key, predecessor, now)

    def _renew(self, named: Iterable[str], sent_at: float) -> None:
        deadline = sent_at + self._timing.lease_ttl * (1 - LEASE_MARGIN)
        for key in named:
            held = self._held.get(key)
            if held is not None and held.phase is not Phase.ABANDONED:
                held.deadline = max(held.deadline, deadline)

    def _apply_cancels(self, cancel: Sequence[str], lost: Sequence[str]) -> list[Action]:
        for key in lost:
            self._forget_report(key)
        return [*self._abandon(lost, "the server took it back"), *self._stop(cancel, "cancelled")]

    def _forget_report(self, key: str) -> None:
        if self._pending.forget(key):
            self._remember(key)

    def _remember(self, key: str) -> None:
        self._ended[key] = None
        if len(self._ended) > ENDED_REMEMBERED_MAX:
            self._ended.popitem(last=False)

    # Events on this worker.

    def progressed(self, execution_id: str, progress: float | None, message: str | None) -> None:
        """Notes a job's progress for the next call."""
        held = self._held.get(execution_id)
        if held is not None:
            held.progress, held.message = progress, message

    def ended(self, reports: Sequence[CompletedReport], now: float) -> list[Action]:
        """Notes executions of which nothing is left, and starts what waited for their slots."""
        self._running -= len(reports)
        for report in reports:
            key = report.execution_id
            held = self._held.pop(key)
            if held.phase is Phase.ABANDONED or (held.given_back and report.status != "succeeded"):
                self._remember(key)
            else:
                self._pending.add(report)
            follower = self._prefetched.successor(key)
            if follower is not None:
                self._held[follower].phase = Phase.WAITING
        return self._starts(now)

    def expire(self, now: float) -> list[Action]:
        """Abandons whatever has lost its lease by now; returns prefetched orders that waited too
        long."""
        for key in self._prefetched.overdue(now):
            self._give_back(key)
        late = [key for key, held in self._held.items() if held.deadline <= now]
        return self._abandon(late, LAPSED)

    def deadline(self, execution_id: str) -> float | None:
        """When an execution's lease runs out, as far as is known."""
        held = self._held.get(execution_id)
        return None if held is None else held.deadline

    def lapsed(self, execution_id: str) -> bool:
        """Notes that an execution was ended because its lease ran out, so it is not reported.

        Returns whether that is news.
        """
        held = self._held.get(execution_id)
        if held is None or held.phase is Phase.ABANDONED:
            return False
        held.phase = Phase.ABANDONED
        return True

    def next_deadline(self) -> float | None:
        """When `expire` must be called again at the latest."""
        deadlines = [h.deadline for h in self._held.values() if h.phase is not Phase.ABANDONED]
        late_at = self._prefetched.overdue_at()
        return min(deadlines if late_at is None else [*deadlines, late_at], default=None)

    def drain(self) -> None:
        """Takes no more work: running executions may finish, waiting ones go back."""
        if not self._draining:
            self._draining, self._drain_announced = True, False
            for key in self._prefetched.waiting():
                self._give_back(key)

    def stop_all(self) -> list[Action]:
        """Drains and stops what runs. Only successes are reported: deregistering gives the rest
        back."""
        self.drain()
        self._stopping_all = True
        for held in self._held.values():
            held.given_back = True
        return self._stop(list(self._held), "shutdown")

    def _starts(self, now: float) -> list[Action]:
        starts: list[Action] = []
        if len(self._held) == self._running + len(self._prefetched):
            return starts
        for key, held in list(self._held.items()):
            if held.phase is not Phase.WAITING:
                continue
            if self._stopping_all:
                self._stop([key], "shutdown")
            elif self._running < self._limit and held.deadline > now:
                held.phase = Phase.RUNNING
                self._running += 1
                starts.append(Start(held.order))
        return starts

    def _stop(self, keys: Iterable[str], reason: StopReason) -> list[Action]:
        stops: list[Action] = []
        for key in keys:
            held = self._held.get(key)
            if held is None:
                continue
            if held.phase in UNBEGUN:
                self._drop(key)
                if reason == "shutdown":
                    self._remember(key)
                else:
                    self._pending.add(report_stopped(key, held.order.fence, reason))
            elif held.phase is Phase.RUNNING:
                held.phase = Phase.STOPPING
                stops.append(Stop(key, reason))
        return stops

    def _abandon(self, keys: Iterable[str], why: str) -> list[Action]:
        actions: list[Action] = []
        for key in keys:
            held = self._held.get(key)
            if held is None or held.phase is Phase.ABANDONED:
                continue
            if held.phase in UNBEGUN:
                self._drop(key)
                self._remember(key)
            else:
                held.phase = Phase.ABANDONED
                actions.append(Abandon(key, why))
        return actions

    def _give_back(self, key: str) -> None:
        """Returns an order that has not started: another worker may have a free slot for it."""
        self._pending.add(report_returned(key, self._held[key].order.fence))
        self._drop(key)

    def _drop(self, key: str) -> None:
        """Removes an order that has not started and will not."""
        del self._held[key]
        if key in self._prefetched:
            self._prefetched.drop(key)
