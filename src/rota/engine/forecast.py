"""Forecasts when waiting jobs will start: forward runs, calibration of intervals, and the history
of causes.

A forward run runs the scheduler itself on a copy, under virtual time, in a thread; it assumes
perfect workers, expected run times and no new jobs. Calibration compares estimates with real starts
and widens or narrows intervals. Some jobs are sampled without a question, so that the calibration
is not only of those that users ask about.
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
"""Share of starts that an interval is to hold."""
_FLAT_MS = 10_000
"""Added to both waits of a ratio: one second instead of two is no error by half."""
_STEP = log(4)
"""Waits that differ by less than this factor share their errors."""
_FEW = 20
"""Errors that are too few to make an interval of."""
_PRIOR = (log(0.25), log(2.5))
"""Interval before any error is known: jobs end earlier than they declare, and others overtake."""
_ADAPTATION = 0.02
"""How much one start changes the share of misses that intervals are made for."""
_MISSES = (0.02, 0.3)
"""Bounds of that share."""
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
    """Calibration of estimates: learns from past errors how wide an interval must be."""

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
        """Whether there are estimates of jobs that have not started."""
        return bool(self._open)

    def interval(self, method: str, wait: Millis) -> tuple[Millis, Millis]:
        """Returns the shortest and the longest likely wait when `wait` is expected."""
        errors = self._errors.get((method, _size(wait)), ())
        if len(errors) < _FEW:
            errors = self._all
        low, high = _PRIOR if len(errors) < _FEW else _quantiles(errors, self._miss)
        flat = wait + _FLAT_MS
        # The expected wait is always inside the interval.
        shortest = min(wait, max(0, int(flat * exp(low)) - _FLAT_MS))
        return shortest, max(wait, int(flat * exp(high)) - _FLAT_MS)

    def note_estimate(self, job_id: JobId, estimate: GivenEstimate) -> None:
        """Keeps an estimate until its job starts.

        The first one of a job counts: later ones are better only because time has passed.
        """
        if job_id not in self._open:
            if len(self._open) >= ESTIMATES_KEPT:
                del self._open[next(iter(self._open))]
            self._open[job_id] = estimate

    def started(self, job_ids: Iterable[JobId], now: Instant) -> None:
        """Compares the estimates of jobs that start now."""
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
        self._miss = min(_MISSES[1], max(_MISSES[0], self._miss - _ADAPTATION * wrong))
        self.errors_s.note((now - estimate.at) / 1000)

    def accuracy(self) -> Accuracy | None:
        """Returns the accuracy of the newest estimates; None: no such job has started yet."""
        if not self._recent:
            return None
        return Accuracy(sum(self._recent) / len(self._recent), self.starts)

    def outcomes(self) -> Mapping[str, int]:
        """Returns starts inside and outside the interval, since the server's start."""
        return {"inside": self.inside, "outside": self.starts - self.inside}


def with_interval(
    calibration: Calibration, method: str, at: Instant, now: Instant
) -> GivenEstimate:
    """Makes an estimate with the interval for its method."""
    low, high = calibration.interval(method, max(0, at - now))
    return GivenEstimate(now, at, now + low, now + high, method)


def _size(wait: Millis) -> int:
    return int(log((wait + _FLAT_MS) / _FLAT_MS) / _STEP)


def _quantiles(errors: Iterable[float], miss: float) -> tuple[float, float]:
    """Returns quantiles that cut off half of `miss` on either side; rounds to a wider interval."""
    ordered = sorted(errors)
    last = len(ordered) - 1
    low = int((len(ordered) + 1) * miss / 2) - 1
    return ordered[max(0, low)], ordered[min(last, last - low)]


FAR_FUTURE_MS: Millis = 1 << 50
"""So long that no lease ends and no poll times out within a forward run."""
_ORDERS_MAX = 1 << 30


class ForwardPlan(msgspec.Struct, frozen=True):
    """Result of a forward run: which jobs start when and where."""

    starts: Mapping[JobId, tuple[Instant, WorkerId]]
    """Each job's first start, in the order of starting."""
    until: Instant
    """The virtual time at its end."""
    is_spent: bool
    """Whether its budget was spent: jobs without a start here may start later."""
    causes: Mapping[JobId, Explanation] = {}
    """Why wanted jobs did not start at once."""


class Budget(msgspec.Struct, frozen=True):
    """Limits of one forward run."""

    clock: Clock
    seconds: float
    starts: int = FORWARD_STARTS_MAX


class ForwardRun:
    """Runs the scheduler forward on a copy, under virtual time."""

    def __init__(self, inputs: ForecastInput, budget: Budget) -> None:
        self._budget = budget
        self._until_s = budget.clock.fine_s() + budget.seconds
        self._now = inputs.taken_at
        timing = Timing(lease_ttl_ms=FAR_FUTURE_MS)
        self._scheduler = Scheduler(timing, self._now)
        self._scheduler.restore(inputs.stored, self._now)
        self._polls = 0
        self._open_polls: dict[PollId, WorkerId] = {}
        self._live: dict[ExecutionId, Execution] = {}
        self._ends: list[tuple[Instant, ExecutionId]] = []
        self._starts: dict[JobId, tuple[Instant, WorkerId]] = {}
        self._next: list[AnyInput] = []
        """Inputs of the next turn."""
        self._at_once = False
        """Whether the next turn comes at the same instant: polls alone can wait."""
        for execution in inputs.stored.executions:
            self._follow(execution)
        for worker in inputs.stored.workers:
            if worker.state is WorkerState.ONLINE:
                self._next.append(self._poll(worker.id))

    def submit(self, jobs: Sequence[NewJob]) -> Refusal | None:
        """Submits jobs before the first turn; returns the refusal, if they are refused."""
        outcome = self._scheduler.turn([Submit(jobs=tuple(jobs))], self._now)
        reply = outcome.replies[0]
        return reply if isinstance(reply, Refusal) else None

    def change(self, events: Sequence[AnyInput]) -> None:
        """Puts inputs before all others; workers that register also poll."""
        polls = [self._poll(one.worker_id) for one in events if isinstance(one, Register)]
        self._next = [*events, *self._next, *polls]

    def starts_now(self, job_id: JobId) -> bool:
        """Whether the job starts in the first turn, as soon as the workers poll."""
        self._turn({})
        return job_id in self._starts

    def play(self, wanted: Sequence[JobId]) -> ForwardPlan:
        """Runs until all wanted jobs have started, nothing more happens, or the budget is spent."""
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
        """Moves time to the next instant at which something happens; False: there is none."""
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
            self._take_answer(answer, missing)

    def _take_answer(self, answer: PollAnswer, missing: dict[JobId, None]) -> None:
        worker_id = self._open_polls.pop(answer.poll_id, None)
        for order in answer.orders:
            self._note_start(order.execution.job_id, order.execution.worker_id, missing)
            if order.group is not None:
                group_id = JobId(order.group.group_id)
                self._note_start(group_id, order.execution.worker_id, missing)
            self._follow(order.execution)
        for execution_id in answer.cancel:
            stopped = self._live.pop(execution_id, None)
            if stopped is not None:
                self._next.append(_report(stopped, ExecutionState.CANCELLED))
                self._at_once = True
        if worker_id is not None:
            self._next.append(self._poll(worker_id))

    def _note_start(self, job_id: JobId, worker_id: WorkerId, missing: dict[JobId, None]) -> None:
        """Notes a job's first start; an array or gang starts with its first member."""
        self._starts.setdefault(job_id, (self._now, worker_id))
        missing.pop(job_id, None)

    def _follow(self, execution: Execution) -> None:
        self._live[execution.id] = execution
        end = self._scheduler.expected_end(execution.id)
        heappush(self._ends, (self._now if end is None else end, execution.id))

    def _poll(self, worker_id: WorkerId) -> Poll:
        self._polls += 1
        poll_id = PollId(self._polls)
        self._open_polls[poll_id] = worker_id
        until = self._now + FAR_FUTURE_MS + self._polls
        return Poll(poll_id=poll_id, worker_id=worker_id, max_orders=_ORDERS_MAX, until=until)


def _report(execution: Execution, state: ExecutionState) -> Complete:
    return Complete(
        completion=Completion(execution_id=execution.id, fence=execution.fence, state=state)
    )


_NEEDS_OPERATOR = ("queue_paused", "no_workers", "no_function", "workers_away")
"""Causes that need an operator: no forward run can lift them."""


def can_never_start(explanation: Explanation) -> bool:
    """Whether no known worker could ever run the job, or the workers not all of a gang at once."""
    return any(
        cause.code == "impossible"
        or (cause.code == "gang" and cause.figures["capacity"] < cause.figures["size"])
        for cause in explanation.causes
    )


class Forecaster:
    """Estimates starts of waiting jobs, and compares earlier estimates with real starts."""

    def __init__(self, clock: Clock, look: Callable[[], Awaitable[Scheduler]]) -> None:
        self.calibration = Calibration()
        self._clock = clock
        self._look = look
        """Returns the scheduler, at a moment when its memory holds only what is durable."""
        self._one_at_a_time = asyncio.Lock()
        self._last: tuple[Millis, Instant, ForwardPlan] | None = None
        """The newest forward run: (steady clock, wall clock, result)."""
        self._sampled_at = clock.steady()
        self._sample_task: asyncio.Task[None] | None = None

    # Estimates

    async def estimate(
        self,
        scheduler: Scheduler,
        job: tuple[JobId, JobRecord | None],
        explanation: Explanation,
    ) -> Estimate:
        """Estimates when a waiting job will start; keeps the estimate for the calibration."""
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
            computed_at, plan = await self._forward_plan(job_id)
            start = plan.starts.get(job_id)
            if start is not None:
                return self._from_plan(plan, job_id, computed_at, explanation)
            if not plan.is_spent:
                return Estimate(None, None, None, UNKNOWN, computed_at)
        if fluid is None:
            return Estimate(None, None, None, UNKNOWN, now)
        return self._likely(FLUID, fluid, now)

    def _from_plan(
        self, plan: ForwardPlan, job_id: JobId, computed_at: Instant, explanation: Explanation
    ) -> Estimate:
        at, worker_id = plan.starts[job_id]
        ahead = list(plan.starts).index(job_id)
        times = (cause.figures.get("at") for cause in explanation.causes)
        if at == max((time for time in times if isinstance(time, int)), default=None):
            return Estimate(at, at, at, KNOWN_TIMES, computed_at, worker_id, ahead)
        given = with_interval(self.calibration, FORWARD_RUN, at, computed_at)
        return Estimate(at, given.low, given.high, FORWARD_RUN, computed_at, worker_id, ahead)

    def _likely(self, method: str, at: Instant, now: Instant) -> Estimate:
        given = with_interval(self.calibration, method, at, now)
        return Estimate(at, given.low, given.high, method, now)

    def _remember(self, job_id: JobId, found: Estimate) -> None:
        if found.at is not None and found.at > found.computed_at and found.method != KNOWN_TIMES:
            given = with_interval(self.calibration, found.method, found.at, found.computed_at)
            self.calibration.note_estimate(job_id, given)

    # Forward runs

    async def _forward_plan(self, job_id: JobId) -> tuple[Instant, ForwardPlan]:
        """Returns a forward run; a fresh one is used again if it came as far as this job."""
        is_busy = self._one_at_a_time.locked()
        async with self._one_at_a_time:
            if self._last is not None:
                made, computed_at, plan = self._last
                fresh = self._clock.steady() - made <= FORWARD_PLAN_FRESH_MS
                if fresh and job_id in plan.starts:
                    return computed_at, plan
            scheduler = await self._look()
            now = self._clock.now()
            inputs = scheduler.forecast_input([job_id], now)
            # Where several callers wait, one run without a wanted job answers all of them.
            wanted = [] if is_busy else [job_id]
            plan = await asyncio.to_thread(self._play, inputs, wanted)
            self._last = (self._clock.steady(), now, plan)
            return now, plan

    def _play(self, inputs: ForecastInput, wanted: Sequence[JobId]) -> ForwardPlan:
        return ForwardRun(inputs, Budget(self._clock, FORWARD_S)).play(wanted)

    async def try_remedies(
        self, inputs: ForecastInput, job_id: JobId, remedies: Sequence[Remedy]
    ) -> tuple[Remedy, ...]:
        """Tries each remedy alone on a copy; returns all with whether one is enough."""
        async with self._one_at_a_time:
            return await asyncio.to_thread(self._try_all, inputs, job_id, remedies)

    def _try_all(
        self, inputs: ForecastInput, job_id: JobId, remedies: Sequence[Remedy]
    ) -> tuple[Remedy, ...]:
        until_s = self._clock.fine_s() + FORWARD_S
        found: list[Remedy] = []
        for remedy in remedies:
            if remedy.change and self._clock.fine_s() < until_s:
                run = ForwardRun(inputs, Budget(self._clock, FORWARD_S))
                run.change(remedy.change)
                found.append(replace(remedy, is_enough=run.starts_now(job_id)))
            else:
                found.append(remedy)
        return tuple(found)

    async def rehearse(
        self, inputs: ForecastInput, jobs: Sequence[NewJob]
    ) -> ForwardPlan | Refusal:
        """Runs forward as if these jobs were submitted now."""
        async with self._one_at_a_time:
            return await asyncio.to_thread(self._play_with, inputs, jobs)

    def _play_with(self, inputs: ForecastInput, jobs: Sequence[NewJob]) -> ForwardPlan | Refusal:
        run = ForwardRun(inputs, Budget(self._clock, FORWARD_S))
        refusal = run.submit(jobs)
        return run.play([new.id for new in jobs]) if refusal is None else refusal

    # Calibration

    def observe_turn(self, outcome: Outcome, scheduler: Scheduler, now: Instant) -> None:
        """Compares estimates with the starts of a durable turn; samples new ones now and then."""
        if self.calibration.is_waiting:
            self.calibration.started(
                (order.execution.job_id for answer in outcome.answers for order in answer.orders),
                now,
            )
        if self._clock.steady() - self._sampled_at >= SAMPLE_EVERY_MS:
            self._sampled_at = self._clock.steady()
            is_free = self._sample_task is None or self._sample_task.done()
            if is_free and scheduler.forecast_size() <= FORWARD_STATE_MAX:
                sampling = self._sample(scheduler.forecast_input((), now))
                self._sample_task = asyncio.create_task(sampling, name="rota-estimates")

    async def _sample(self, inputs: ForecastInput) -> None:
        async with self._one_at_a_time:
            plan = await asyncio.to_thread(self._play, inputs, ())
        now = inputs.taken_at
        later = [(job_id, at) for job_id, (at, _) in plan.starts.items() if at > now]
        for job_id, at in later[:: max(1, len(later) // SAMPLED_JOBS)]:
            given = with_interval(self.calibration, FORWARD_RUN, at, now)
            self.calibration.note_estimate(job_id, given)

    async def close(self) -> None:
        """Waits for a sample that is under way: it is short."""
        if self._sample_task is not None:
            await asyncio.wait((self._sample_task,))
            self._sample_task = None


class WaitHistory:
    """History of causes: remembers what jobs waited for when users asked."""

    def __init__(self) -> None:
        self._seen: OrderedDict[JobId, list[ObservedCause]] = OrderedDict()

    def note(self, job_id: JobId, code: str, now: Instant) -> tuple[ObservedCause, ...]:
        """Adds the present cause of a job; returns all that are remembered."""
        causes = self._seen.setdefault(job_id, [])
        self._seen.move_to_end(job_id)
        if causes and causes[-1].code == code:
            causes[-1] = replace(causes[-1], last=now)
        else:
            causes.append(ObservedCause(code, now, now))
            del causes[:-WAIT_CAUSES_EACH]
        if len(self._seen) > WAIT_HISTORIES_KEPT:
            self._seen.popitem(last=False)
        return tuple(causes)
