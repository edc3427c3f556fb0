"""When jobs will start: the best way of knowing that applies, and how often it was right.

Forward runs go in a thread, one at a time, on a copy: the loop never waits for them. Now and then
some jobs that wait are told a start though nobody asked, so that the record is of all jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from rota.core.commands import NewJob
from rota.core.errors import Refusal
from rota.core.explain.remedies import Remedy
from rota.core.forecast_input import ForecastInput
from rota.core.info_model import Explanation
from rota.core.limits import FORECAST_QUEUE_JOBS
from rota.core.model import Instant, JobId, JobRecord, Millis
from rota.core.outcome import Outcome
from rota.core.scheduler import Scheduler
from rota.engine.calibration import Calibration, with_interval
from rota.engine.estimates import (
    FLUID,
    FORWARD_RUN,
    KNOWN_TIMES,
    NEVER,
    RESERVATION,
    UNKNOWN,
    Estimate,
)
from rota.engine.forward import Budget, ForwardPlan, ForwardRun
from rota.engine.limits import (
    FORWARD_PLAN_FRESH_MS,
    FORWARD_S,
    FORWARD_STATE_MAX,
    SAMPLE_EVERY_MS,
    SAMPLED_JOBS,
)
from rota.engine.ports import Clock

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
