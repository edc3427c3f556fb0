"""Drives the scheduler under virtual time, with perfect workers and an in-memory spill store.

A worker starts its orders at once, runs them exactly as long as the trace says, and reports at that
instant. One instant is one turn: first the ends, then the arrivals, then the decisions.
`core/scheduler.py` decides, as in a server.

Why: docs/decisions/0019-forecasts-and-replays-run-the-scheduler.md.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Protocol

from rota.core.commands import (
    AnyInput,
    Complete,
    Completion,
    MemoryWindow,
    NewJob,
    Poll,
    Refilled,
    Submit,
    Tick,
    Timing,
)
from rota.core.errors import Refusal
from rota.core.model import (
    Dependency,
    Execution,
    ExecutionId,
    ExecutionState,
    Instant,
    JobId,
    JobRecord,
    Life,
    Millis,
    PollId,
    Spec,
    Terms,
    When,
    WorkerId,
)
from rota.core.outcome import AnyWrite, Outcome, PollAnswer, PutJob, Refill
from rota.core.scheduler import Scheduler
from rota.simulate.fleet import FleetPlan
from rota.simulate.limits import IDLE_TICKS_MAX
from rota.simulate.metrics import NOT_YET, JobHistory
from rota.simulate.workload import Work

_HEAD = "00000000-0000-7000-8000-"
_TASK = b'{"kind":"noop"}'


def job_id(place: int) -> JobId:
    """Returns the id of the job at this place in the workload."""
    return JobId(f"{_HEAD}{place:012x}")


def place_of(job: JobId) -> int:
    return int(job[len(_HEAD) :], 16)


def spec_of(terms: Terms, now: Instant, parents: tuple[int, ...] = (), order: int = 0) -> Spec:
    """Makes a job's spec; its task is empty, for the simulation itself knows the run time."""
    if not parents:
        return Spec(terms, _TASK, now, order)
    dependencies = tuple(Dependency(job_id(parent), When.FINISHED) for parent in parents)
    return Spec(terms, _TASK, now, order, dependencies=dependencies)


TRIM_ROWS = 65_536
"""Rows that are dropped at once, at least: each time the rest is moved."""


class _SpillQueue:
    """Spilled jobs of one queue, by arrival, in columns."""

    __slots__ = ("created", "lives", "orders", "places", "terms")

    def __init__(self) -> None:
        self.orders = array("q")
        self.places = array("q")
        self.created = array("q")
        self.terms: list[Terms] = []
        self.lives: list[Life] = []

    def append(self, write: PutJob) -> None:
        self.orders.append(write.spec.arrival_number)
        self.places.append(place_of(write.id))
        self.created.append(write.spec.created_at)
        self.terms.append(write.spec.terms)
        self.lives.append(write.life)

    def record(self, row: int) -> JobRecord:
        spec = spec_of(self.terms[row], self.created[row], order=self.orders[row])
        return JobRecord(job_id(self.places[row]), spec, self.lives[row])

    def forget(self, count: int) -> None:
        del self.orders[:count], self.places[:count], self.created[:count]
        del self.terms[:count], self.lives[:count]


class SpillStore:
    """Spill store in memory: keeps jobs that the scheduler spills, and answers its refills."""

    def __init__(self) -> None:
        self._queues: defaultdict[int, _SpillQueue] = defaultdict(_SpillQueue)

    def __bool__(self) -> bool:
        return bool(self._queues)

    def keep(self, writes: Iterable[AnyWrite]) -> None:
        """Keeps the jobs that a turn's writes spill."""
        for write in writes:
            if isinstance(write, PutJob) and write.life.line:
                self._queues[write.life.line].append(write)

    def answer(self, refill: Refill) -> Refilled:
        """Returns the next jobs of a queue."""
        queue = self._queues[refill.spill_queue]
        begin = bisect_right(queue.orders, refill.after)
        if begin >= TRIM_ROWS and 2 * begin >= len(queue.orders):
            queue.forget(begin)
            begin = 0
        rows = range(begin, min(begin + refill.limit, len(queue.orders)))
        return Refilled(refill=refill, jobs=tuple(queue.record(row) for row in rows))


START: Instant = 1_767_225_600_000
"""Beginning of virtual time, the year 2026; only differences matter."""
FAR_FUTURE_MS: Millis = 1 << 50
"""Beyond any trace: no worker is lost here, so leases and polls need no renewal."""
ORDERS_MAX = 1 << 30


class Stopwatch(Protocol):
    """Measures how long decisions really take."""

    def fine_s(self) -> float:
        """Returns seconds since some moment."""
        ...


class SimulationError(Exception):
    """The simulation cannot go on; the text says why."""


class Simulation:
    """Simulation of one scheduler and its fleet under virtual time."""

    def __init__(
        self,
        plan: FleetPlan,
        setup: Sequence[AnyInput],
        stopwatch: Stopwatch,
        window: MemoryWindow | None = None,
    ) -> None:
        self._window = window or MemoryWindow()
        timing = Timing(lease_ttl_ms=FAR_FUTURE_MS, window=self._window)
        self._scheduler = Scheduler(timing, START)
        self._stopwatch = stopwatch
        self._spilled = SpillStore()
        self._polls = 0
        self._open_polls: dict[PollId, WorkerId] = {}
        """Open polls."""
        self._ends: list[tuple[Instant, int, int, Execution]] = []
        """(end, place, fence, execution), the soonest first; void if it is no longer live."""
        self._live: dict[ExecutionId, Execution] = {}
        self._coming: Iterator[Work] = iter(())
        self._work: Work | None = None
        """The next arrival."""
        self._now = START
        self._waiting = 0
        self._idle_ticks = 0
        self._children: dict[int, list[int]] = {}
        self._unmet: dict[int, int] = {}
        self._next: list[AnyInput] = []
        """Inputs of workers and the spill store for the next turn."""
        self._at_once = False
        """Whether that turn is to come in the same instant."""
        self.job_history = JobHistory()
        registrations = list(plan.registrations())
        self._turn([*setup, *registrations], START)
        self._next += [self._poll(one.worker_id) for one in registrations]

    def run(self, works: Iterable[Work]) -> JobHistory:
        """Runs a workload until all jobs have ended."""
        self.expect(works)
        while self.is_busy:
            self._pass(self._next_instant())
        return self.job_history

    def expect(self, works: Iterable[Work]) -> None:
        """These are to come, in the order of their arrival."""
        self._coming = iter(works)
        self._work = next(self._coming, None)

    def run_until(self, end_ms: Millis) -> None:
        """Lets time pass up to so long after the first arrival."""
        while self.is_busy and (now := self._next_instant()) <= START + end_ms:
            self._pass(now)

    @property
    def is_busy(self) -> bool:
        """Whether anything is to come, waits or runs."""
        return self._work is not None or bool(self._live) or self._waiting > 0

    def _pass(self, now: Instant) -> None:
        """One instant: ends, arrivals, decisions."""
        self._now = now
        self._idle_ticks = 0 if self._live or self._work is not None else self._idle_ticks + 1
        if self._idle_ticks > IDLE_TICKS_MAX:
            raise self._stuck()
        events, self._next = self._next, []
        self._end_what_is_due(events, now)
        self._add_arrivals(events, now)
        self._decide(events, now)

    def _next_instant(self) -> Instant:
        now = START + FAR_FUTURE_MS
        if self._work is not None:
            now = START + self._work.submit_ms
        if self._ends and self._ends[0][0] < now:
            now = self._ends[0][0]
        due = self._scheduler.next_due()
        if due is not None and due < now:
            now = due
        if now < START + FAR_FUTURE_MS:
            return now
        if self._next:
            return self._now  # only these inputs are left
        raise self._stuck()

    def _stuck(self) -> SimulationError:
        left = self.job_history.unstarted()
        return SimulationError(
            f"{len(left):,} jobs never start, though no other job runs: the first of them is"
            f" number {left[0] + 1} of the workload"
        )

    # Arrivals and ends

    def _add_arrivals(self, events: list[AnyInput], now: Instant) -> None:
        arrived: list[NewJob] = []
        while self._work is not None and START + self._work.submit_ms <= now:
            arrived.append(self._arrival(self._work, now))
            self._work = next(self._coming, None)
        if arrived:
            events.append(Submit(jobs=tuple(arrived)))

    def _arrival(self, work: Work, now: Instant) -> NewJob:
        place = self.job_history.arrive(work, now - START)
        if work.parents:
            return self._dependent(work, place, now)
        self._waiting += 1
        return NewJob(id=job_id(place), spec=spec_of(work.terms, now))

    def _dependent(self, work: Work, place: int, now: Instant) -> NewJob:
        unmet = tuple(one for one in work.parents if not self._has_ended(one, now))
        for parent in unmet:
            self._children.setdefault(parent, []).append(place)
        if unmet:
            self._unmet[place] = len(unmet)
        else:
            self._waiting += 1
        return NewJob(id=job_id(place), spec=spec_of(work.terms, now, unmet))

    def _has_ended(self, place: int, now: Instant) -> bool:
        start = self.job_history.start[place]
        return start >= 0 and START + start + self.job_history.run[place] <= now

    def _end_what_is_due(self, events: list[AnyInput], now: Instant) -> None:
        ends = self._ends
        while ends and ends[0][0] <= now:
            _, place, _, execution = heappop(ends)
            if self._live.pop(execution.id, None) is None:
                continue  # it was stopped before its time
            events.append(_report(execution, ExecutionState.SUCCEEDED))
            for child in self._children.pop(place, ()):
                self._release(child, now)

    def _release(self, child: int, now: Instant) -> None:
        self._unmet[child] -= 1
        if not self._unmet[child]:
            del self._unmet[child]
            self.job_history.ready[child] = now - START
            self._waiting += 1

    # Decisions

    def _decide(self, events: Sequence[AnyInput], now: Instant) -> None:
        """Runs one turn, and further ones that it causes at the same instant."""
        self._take_answers(self._turn(events or [Tick()], now), now)
        while self._at_once:
            self._at_once = False
            events, self._next = self._next, []
            self._take_answers(self._turn(events, now), now)
        self.job_history.peak_waiting = max(self.job_history.peak_waiting, self._waiting)

    def _turn(self, events: Sequence[AnyInput], now: Instant) -> Outcome:
        fine_s = self._stopwatch.fine_s
        began = fine_s()
        outcome = self._scheduler.turn(events, now)
        self.job_history.engine_s += fine_s() - began
        for reply in outcome.replies:
            if isinstance(reply, Refusal):
                raise SimulationError(f"the scheduler refused a job: {reply}")
        if self._spilled or self._scheduler.live_jobs() >= self._window.jobs:
            self._spilled.keep(outcome.writes)
        return outcome

    def _take_answers(self, outcome: Outcome, now: Instant) -> None:
        for answer in outcome.answers:
            self._take_orders(answer, now)
        for refill in outcome.refills:
            self._next.append(self._spilled.answer(refill))
            self._at_once = self._at_once or refill.urgent

    def _take_orders(self, answer: PollAnswer, now: Instant) -> None:
        for order in answer.orders:
            self._begin(order.execution, now)
        for execution_id in answer.cancel:
            self._stop(execution_id)
        self._next.append(self._poll(self._open_polls.pop(answer.poll_id)))

    def _begin(self, execution: Execution, now: Instant) -> None:
        place = place_of(execution.job_id)
        self.job_history.begin(place, now - START)
        self._waiting -= 1
        self._live[execution.id] = execution
        heappush(self._ends, (now + self.job_history.run[place], place, execution.fence, execution))

    def _stop(self, execution_id: ExecutionId) -> None:
        """Stops an execution that was preempted (no user cancels here); its job starts again."""
        execution = self._live.pop(execution_id, None)
        if execution is None:
            return
        self.job_history.start[place_of(execution.job_id)] = NOT_YET
        self.job_history.preemptions += 1
        self._waiting += 1
        self._next.append(_report(execution, ExecutionState.CANCELLED))
        self._at_once = True

    def _poll(self, worker: WorkerId) -> Poll:
        """Makes a worker's poll; ends are reported by other inputs."""
        self._polls += 1
        poll_id = PollId(self._polls)
        self._open_polls[poll_id] = worker
        return Poll(
            poll_id=poll_id,
            worker_id=worker,
            max_orders=ORDERS_MAX,
            # Different for each poll, so that the timer of an answered one is not that of another.
            until=START + FAR_FUTURE_MS + self._polls,
        )


def _report(execution: Execution, state: ExecutionState) -> Complete:
    return Complete(
        completion=Completion(execution_id=execution.id, fence=execution.fence, state=state)
    )
