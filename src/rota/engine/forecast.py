"""Forecasts when waiting jobs will start: forward runs, the calibration of their intervals, and
the history of causes.

A forward run plays the scheduler itself on a copy, under virtual time, in a thread; it assumes
perfect workers, expected run times and no new jobs. Calibration compares estimates with real
starts and widens or narrows intervals. Now and then jobs are forecast though nobody asked, so
that the record is of all jobs.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from math import exp, log

import msgspec
from msgspec.structs import replace

from rota.core.commands import (
    AnyInput,
    Complete,
    Completion,
    NewJob,
    Poll,
    Register,
    Submit,
    Tick,
    Timing,
)
from rota.core.errors import Refusal
from rota.core.explain.remedies import Remedy
from rota.core.forecast_input import ForecastInput
from rota.core.info_model import Explanation
from rota.core.limits import EXPLAINED_MAX, FORECAST_QUEUE_JOBS
from rota.core.model import (
    Execution,
    ExecutionId,
    ExecutionState,
    Instant,
    JobId,
    JobRecord,
    Millis,
    PollId,
    WorkerId,
    WorkerState,
)
from rota.core.outcome import Outcome, PollAnswer
from rota.core.scheduler import Scheduler
from rota.engine.limits import (
    ERRORS_KEPT,
    ESTIMATES_KEPT,
    FORWARD_PLAN_FRESH_MS,
    FORWARD_S,
    FORWARD_STARTS_MAX,
    FORWARD_STATE_MAX,
    FORWARD_TURNS_MAX,
    SAMPLE_EVERY_MS,
    SAMPLED_JOBS,
    WAIT_CAUSES_EACH,
    WAIT_HISTORIES_KEPT,
)
from rota.engine.metrics import Histogram
from rota.engine.ports import (
    FLUID,
    FORWARD_RUN,
    KNOWN_TIMES,
    NEVER,
    RESERVATION,
    UNKNOWN,
    Accuracy,
    Clock,
    Estimate,
    ObservedCause,
)

AIMED_AT = 0.8
"""The share of starts that an interval is to hold."""
_FLAT_MS = 10_000
"""Shorter waits are alike: whether it is one second or two does not matter to a ratio."""
_STEP = log(4)
"""Waits that differ by less than this factor have errors alike."""
_FEW = 20
_PRIOR = (log(0.25), log(2.5))
"""Before anything is known: jobs end earlier than they say, and others come and pass."""
_PATIENCE = 0.02
_MISSES = (0.02, 0.3)
ERROR_SECONDS = (-86_400, -14_400, -3_600, -900, -300, -60, -10, -1, 0, 1, 10, 60)
ERROR_SECONDS_LATE = (300, 900, 3_600, 14_400, 86_400)


class GivenEstimate(msgspec.Struct, frozen=True):
    """An estimate that was given."""

    made_at: Instant
    at: Instant
    low: Instant
    high: Instant
    method: str


class Calibration:
    """Errors of the past, and what follows from them."""

    def __init__(self) -> None:
        self._open: dict[JobId, GivenEstimate] = {}
        self._errors: dict[tuple[str, int], deque[float]] = {}
        self._all: deque[float] = deque(maxlen=ERRORS_KEPT)
        self._miss = 1 - AIMED_AT
        self._recent: deque[bool] = deque(maxlen=ERRORS_KEPT)
        self.errors_s = Histogram((*ERROR_SECONDS, *ERROR_SECONDS_LATE))
        """Real minus estimated start, in seconds."""
        self.starts = 0
        self.inside = 0

    @property
    def is_waiting(self) -> bool:
        """Whether any estimate is yet to come true."""
        return bool(self._open)

    def interval(self, method: str, wait: Millis) -> tuple[Millis, Millis]:
        """The shortest and the longest wait that are likely where `wait` is expected."""
        errors = self._errors.get((method, _size(wait)), ())
        if len(errors) < _FEW:
            errors = self._all
        low, high = _PRIOR if len(errors) < _FEW else _quantiles(errors, self._miss)
        flat = wait + _FLAT_MS
        # What is expected is always among what is likely.
        shortest = min(wait, max(0, int(flat * exp(low)) - _FLAT_MS))
        return shortest, max(wait, int(flat * exp(high)) - _FLAT_MS)

    def note_estimate(self, job_id: JobId, estimate: GivenEstimate) -> None:
        """Somebody was told; the first word counts, or else waiting would make it better."""
        if job_id not in self._open:
            if len(self._open) >= ESTIMATES_KEPT:
                del self._open[next(iter(self._open))]
            self._open[job_id] = estimate

    def started(self, job_ids: Iterable[JobId], now: Instant) -> None:
        """These jobs start now."""
        for job_id in job_ids:
            estimate = self._open.pop(job_id, None)
            if estimate is not None:
                self._judge(estimate, now)

    def _judge(self, estimate: GivenEstimate, now: Instant) -> None:
        is_inside = estimate.low <= now <= estimate.high
        self.starts += 1
        self.inside += is_inside
        self._recent.append(is_inside)
        expected = estimate.at - estimate.made_at
        real = max(0, now - estimate.made_at)
        error = log((real + _FLAT_MS) / (expected + _FLAT_MS))
        kept = self._errors.setdefault(
            (estimate.method, _size(expected)), deque(maxlen=ERRORS_KEPT)
        )
        kept.append(error)
        self._all.append(error)
        wrong = (AIMED_AT - 1) + (0.0 if is_inside else 1.0)
        self._miss = min(_MISSES[1], max(_MISSES[0], self._miss - _PATIENCE * wrong))
        self.errors_s.note((now - estimate.at) / 1000)

    def accuracy(self) -> Accuracy | None:
        """Of late; None: no estimate has come true yet."""
        if not self._recent:
            return None
        return Accuracy(sum(self._recent) / len(self._recent), self.starts)

    def outcomes(self) -> Mapping[str, int]:
        """Starts inside and outside the interval, since the beginning."""
        return {"inside": self.inside, "outside": self.starts - self.inside}


def with_interval(
    calibration: Calibration, method: str, at: Instant, now: Instant
) -> GivenEstimate:
    """An estimate with the interval that its kind deserves."""
    low, high = calibration.interval(method, max(0, at - now))
    return GivenEstimate(now, at, now + low, now + high, method)


def _size(wait: Millis) -> int:
    return int(log((wait + _FLAT_MS) / _FLAT_MS) / _STEP)


def _quantiles(errors: Iterable[float], miss: float) -> tuple[float, float]:
    """What cuts off half of the misses on either side; the more careful neighbour where between."""
    ordered = sorted(errors)
    last = len(ordered) - 1
    low = int((len(ordered) + 1) * miss / 2) - 1
    return ordered[max(0, low)], ordered[min(last, last - low)]


FAR_FUTURE_MS: Millis = 1 << 50
"""No lease ends and no poll is given up within a forward run."""
_ORDERS_MAX = 1 << 30


class ForwardPlan(msgspec.Struct, frozen=True):
    """How it would go on."""

    starts: Mapping[JobId, tuple[Instant, WorkerId]]
    """Each job's first start, in the order of starting."""
    until: Instant
    """How far time went."""
    is_spent: bool
    """Whether it was cut short: those without a start may have one later."""
    causes: Mapping[JobId, Explanation] = {}
    """Why those that were asked for did not start at once."""


class Budget(msgspec.Struct, frozen=True):
    """How much a forward run may cost."""

    clock: Clock
    seconds: float
    starts: int = FORWARD_STARTS_MAX


class ForwardRun:
    """One run on one copy."""

    def __init__(self, picture: ForecastInput, budget: Budget) -> None:
        self._budget = budget
        self._until_s = budget.clock.fine_s() + budget.seconds
        self._now = picture.taken_at
        timing = Timing(lease_ttl_ms=FAR_FUTURE_MS)
        self._scheduler = Scheduler(timing, self._now)
        self._scheduler.restore(picture.stored, self._now)
        self._polls = 0
        self._asking: dict[PollId, WorkerId] = {}
        self._live: dict[ExecutionId, Execution] = {}
        self._ends: list[tuple[Instant, ExecutionId]] = []
        self._starts: dict[JobId, tuple[Instant, WorkerId]] = {}
        self._next: list[AnyInput] = []
        """What workers say in the next turn: that they ask for work can wait for its time."""
        self._at_once = False
        """Whether that turn is to come in the same instant."""
        for execution in picture.stored.executions:
            self._follow(execution)
        for worker in picture.stored.workers:
            if worker.state is WorkerState.ONLINE:
                self._next.append(self._poll(worker.id))

    def submit(self, jobs: Sequence[NewJob]) -> Refusal | None:
        """These come too, now, before anybody else decides; answers why they are not taken."""
        outcome = self._scheduler.turn([Submit(jobs=tuple(jobs))], self._now)
        reply = outcome.replies[0]
        return reply if isinstance(reply, Refusal) else None

    def change(self, events: Sequence[AnyInput]) -> None:
        """This happens first; a worker that comes asks for work."""
        asking = [self._poll(one.worker_id) for one in events if isinstance(one, Register)]
        self._next = [*events, *self._next, *asking]

    def starts_now(self, job_id: JobId) -> bool:
        """Whether the job starts as soon as the workers ask."""
        self._turn({})
        return job_id in self._starts

    def play(self, wanted: Sequence[JobId]) -> ForwardPlan:
        """Until all of these have started, nothing more happens, or the budget is spent."""
        missing = dict.fromkeys(wanted)
        self._turn(missing)
        causes = self._explain(list(missing)[:EXPLAINED_MAX])
        for _ in range(FORWARD_TURNS_MAX):
            if (wanted and not missing) or not self._pass_time():
                return ForwardPlan(self._starts, self._now, is_spent=False, causes=causes)
            if len(self._starts) >= self._budget.starts or self._is_late():
                break
            self._turn(missing)
        return ForwardPlan(self._starts, self._now, is_spent=True, causes=causes)

    def _explain(self, job_ids: Sequence[JobId]) -> dict[JobId, Explanation]:
        found = ((job_id, self._scheduler.why(job_id, self._now)) for job_id in job_ids)
        return {job_id: why for job_id, why in found if why is not None}

    def _is_late(self) -> bool:
        return self._budget.clock.fine_s() > self._until_s

    def _pass_time(self) -> bool:
        """On to the next instant at which something happens; False: there is none."""
        if self._at_once:
            self._at_once = False
            return True
        due = self._scheduler.next_due()
        instants = [self._ends[0][0]] if self._ends else []
        if due is not None and due < self._now + FAR_FUTURE_MS // 2:
            instants.append(due)
        if not instants:
            return bool(self._next)
        self._now = max(self._now, min(instants))
        return True

    def _turn(self, missing: dict[JobId, None]) -> None:
        events, self._next = self._next, []
        while self._ends and self._ends[0][0] <= self._now:
            _, execution_id = heappop(self._ends)
            execution = self._live.pop(execution_id, None)
            if execution is not None:
                events.append(_report(execution, ExecutionState.SUCCEEDED))
        for answer in self._scheduler.turn(events or [Tick()], self._now).answers:
            self._obey(answer, missing)

    def _obey(self, answer: PollAnswer, missing: dict[JobId, None]) -> None:
        worker_id = self._asking.pop(answer.poll_id, None)
        for order in answer.orders:
            self._note_start(order.execution.job_id, order.execution.worker_id, missing)
            if order.group is not None:
                band_id = JobId(order.group.group_id)
                self._note_start(band_id, order.execution.worker_id, missing)
            self._follow(order.execution)
        for execution_id in answer.cancel:
            stopped = self._live.pop(execution_id, None)
            if stopped is not None:
                self._next.append(_report(stopped, ExecutionState.CANCELLED))
                self._at_once = True
        if worker_id is not None:
            self._next.append(self._poll(worker_id))

    def _note_start(self, job_id: JobId, worker_id: WorkerId, missing: dict[JobId, None]) -> None:
        """The job starts there; an array or gang with the first of its members."""
        self._starts.setdefault(job_id, (self._now, worker_id))
        missing.pop(job_id, None)

    def _follow(self, execution: Execution) -> None:
        self._live[execution.id] = execution
        end = self._scheduler.expected_end(execution.id)
        heappush(self._ends, (self._now if end is None else end, execution.id))

    def _poll(self, worker_id: WorkerId) -> Poll:
        self._polls += 1
        poll_id = PollId(self._polls)
        self._asking[poll_id] = worker_id
        until = self._now + FAR_FUTURE_MS + self._polls
        return Poll(poll_id=poll_id, worker_id=worker_id, max_orders=_ORDERS_MAX, until=until)


def _report(execution: Execution, state: ExecutionState) -> Complete:
    return Complete(
        completion=Completion(execution_id=execution.id, fence=execution.fence, state=state)
    )


_NEEDS_OPERATOR = ("queue_paused", "no_workers", "no_function", "workers_away")
"""Causes that no run of what is there can lift."""


def can_never_start(explanation: Explanation) -> bool:
    """Whether no worker that is known could ever run it, or not all of it at once."""
    return any(
        cause.code == "impossible"
        or (cause.code == "gang" and cause.figures["capacity"] < cause.figures["size"])
        for cause in explanation.causes
    )


class Forecaster:
    """Estimates for those who ask, and the record of those that came true."""

    def __init__(self, clock: Clock, look: Callable[[], Awaitable[Scheduler]]) -> None:
        self.calibration = Calibration()
        self._clock = clock
        self._look = look
        """The scheduler, at a moment when it says no more than what is durable."""
        self._one_at_a_time = asyncio.Lock()
        self._last: tuple[Millis, Instant, ForwardPlan] | None = None
        """(when by the steady clock, when by the wall clock, what it came to)."""
        self._sampled_at = clock.steady()
        self._sampling: asyncio.Task[None] | None = None

    # Asking

    async def estimate(
        self,
        scheduler: Scheduler,
        job: tuple[JobId, JobRecord | None],
        explanation: Explanation,
    ) -> Estimate:
        """When a job that waits will start; it is remembered, to be compared with the truth."""
        now, codes = self._clock.now(), [cause.code for cause in explanation.causes]
        if can_never_start(explanation):
            return Estimate(None, None, None, NEVER, now)
        if any(code in _NEEDS_OPERATOR for code in codes):
            return Estimate(None, None, None, UNKNOWN, now)
        found = await self._forecast(scheduler, job, explanation)
        self._remember(job[0], found)
        return found

    async def _forecast(
        self,
        scheduler: Scheduler,
        job: tuple[JobId, JobRecord | None],
        explanation: Explanation,
    ) -> Estimate:
        now, (job_id, record) = self._clock.now(), job
        at = explanation.estimated_start
        if explanation.basis == RESERVATION and at is not None:
            return self._likely(RESERVATION, max(now, at), now)
        fluid = scheduler.fluid_start(job_id, record, now)
        position = scheduler.position(job_id, record)
        is_near = position is None or position.ahead < FORECAST_QUEUE_JOBS
        if record is None and is_near and scheduler.forecast_size() <= FORWARD_STATE_MAX:
            computed_at, course = await self._forward_plan(job_id)
            start = course.starts.get(job_id)
            if start is not None:
                return self._from_plan(course, job_id, computed_at, explanation)
            if not course.is_spent:
                return Estimate(None, None, None, UNKNOWN, computed_at)
        if fluid is None:
            return Estimate(None, None, None, UNKNOWN, now)
        return self._likely(FLUID, fluid, now)

    def _from_plan(
        self, course: ForwardPlan, job_id: JobId, computed_at: Instant, explanation: Explanation
    ) -> Estimate:
        at, worker_id = course.starts[job_id]
        ahead = list(course.starts).index(job_id)
        times = (cause.figures.get("at") for cause in explanation.causes)
        if at == max((time for time in times if isinstance(time, int)), default=None):
            return Estimate(at, at, at, KNOWN_TIMES, computed_at, worker_id, ahead)
        told = with_interval(self.calibration, FORWARD_RUN, at, computed_at)
        return Estimate(at, told.low, told.high, FORWARD_RUN, computed_at, worker_id, ahead)

    def _likely(self, method: str, at: Instant, now: Instant) -> Estimate:
        told = with_interval(self.calibration, method, at, now)
        return Estimate(at, told.low, told.high, method, now)

    def _remember(self, job_id: JobId, found: Estimate) -> None:
        if found.at is not None and found.at > found.computed_at and found.method != KNOWN_TIMES:
            told = with_interval(self.calibration, found.method, found.at, found.computed_at)
            self.calibration.note_estimate(job_id, told)

    # Playing

    async def _forward_plan(self, job_id: JobId) -> tuple[Instant, ForwardPlan]:
        """A run that is a moment old will do, if it came as far as this job."""
        is_busy = self._one_at_a_time.locked()
        async with self._one_at_a_time:
            if self._last is not None:
                made, computed_at, course = self._last
                fresh = self._clock.steady() - made <= FORWARD_PLAN_FRESH_MS
                if fresh and job_id in course.starts:
                    return computed_at, course
            scheduler = await self._look()
            now = self._clock.now()
            picture = scheduler.forecast_input([job_id], now)
            # Where several ask at once, one run is played for all of them.
            wanted = [] if is_busy else [job_id]
            course = await asyncio.to_thread(self._play, picture, wanted)
            self._last = (self._clock.steady(), now, course)
            return now, course

    def _play(self, picture: ForecastInput, wanted: Sequence[JobId]) -> ForwardPlan:
        return ForwardRun(picture, Budget(self._clock, FORWARD_S)).play(wanted)

    async def try_reliefs(
        self, picture: ForecastInput, job_id: JobId, reliefs: Sequence[Remedy]
    ) -> tuple[Remedy, ...]:
        """What would help, and whether each alone is enough: tried on a copy, one after another."""
        async with self._one_at_a_time:
            return await asyncio.to_thread(self._try_all, picture, job_id, reliefs)

    def _try_all(
        self, picture: ForecastInput, job_id: JobId, reliefs: Sequence[Remedy]
    ) -> tuple[Remedy, ...]:
        until_s = self._clock.fine_s() + FORWARD_S
        found: list[Remedy] = []
        for relief in reliefs:
            if relief.change and self._clock.fine_s() < until_s:
                run = ForwardRun(picture, Budget(self._clock, FORWARD_S))
                run.change(relief.change)
                found.append(replace(relief, is_enough=run.starts_now(job_id)))
            else:
                found.append(relief)
        return tuple(found)

    async def rehearse(
        self, picture: ForecastInput, jobs: Sequence[NewJob]
    ) -> ForwardPlan | Refusal:
        """How it would go on if these jobs came now."""
        async with self._one_at_a_time:
            return await asyncio.to_thread(self._play_with, picture, jobs)

    def _play_with(self, picture: ForecastInput, jobs: Sequence[NewJob]) -> ForwardPlan | Refusal:
        run = ForwardRun(picture, Budget(self._clock, FORWARD_S))
        refusal = run.submit(jobs)
        return run.play([new.id for new in jobs]) if refusal is None else refusal

    # The record

    def observe_turn(self, outcome: Outcome, scheduler: Scheduler, now: Instant) -> None:
        """A turn is durable: what it starts was foretold, or not."""
        if self.calibration.is_waiting:
            self.calibration.started(
                (order.execution.job_id for answer in outcome.answers for order in answer.orders),
                now,
            )
        if self._clock.steady() - self._sampled_at >= SAMPLE_EVERY_MS:
            self._sampled_at = self._clock.steady()
            is_free = self._sampling is None or self._sampling.done()
            if is_free and scheduler.forecast_size() <= FORWARD_STATE_MAX:
                sampling = self._sample(scheduler.forecast_input((), now))
                self._sampling = asyncio.create_task(sampling, name="rota-estimates")

    async def _sample(self, picture: ForecastInput) -> None:
        async with self._one_at_a_time:
            course = await asyncio.to_thread(self._play, picture, ())
        now = picture.taken_at
        later = [(job_id, at) for job_id, (at, _) in course.starts.items() if at > now]
        for job_id, at in later[:: max(1, len(later) // SAMPLED_JOBS)]:
            told = with_interval(self.calibration, FORWARD_RUN, at, now)
            self.calibration.note_estimate(job_id, told)

    async def close(self) -> None:
        """What is under way is let end: it is short."""
        if self._sampling is not None:
            await asyncio.wait((self._sampling,))
            self._sampling = None


class WaitHistory:
    """The last few first causes of the jobs that were asked about last."""

    def __init__(self) -> None:
        self._seen: OrderedDict[JobId, list[ObservedCause]] = OrderedDict()

    def note(self, job_id: JobId, code: str, now: Instant) -> tuple[ObservedCause, ...]:
        """It waits for this now; answers all that is remembered."""
        spells = self._seen.setdefault(job_id, [])
        self._seen.move_to_end(job_id)
        if spells and spells[-1].code == code:
            spells[-1] = replace(spells[-1], last=now)
        else:
            spells.append(ObservedCause(code, now, now))
            del spells[:-WAIT_CAUSES_EACH]
        if len(self._seen) > WAIT_HISTORIES_KEPT:
            self._seen.popitem(last=False)
        return tuple(spells)
