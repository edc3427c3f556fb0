"""Answers forecasts: of a waiting job, or of jobs that are not submitted yet (a dry run)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from rota.core.commands import NewJob, Submit
from rota.core.dependency_graph import accepts
from rota.core.errors import Refusal
from rota.core.explain.remedies import MOMENTARY
from rota.core.info_model import Cause, DeadlineInfo, Explanation
from rota.core.model import Instant, JobId, JobRecord, JobState, Life
from rota.core.scheduler import Scheduler
from rota.engine.forecast import (
    Calibration,
    Forecaster,
    ForwardPlan,
    WaitHistory,
    can_never_start,
    with_interval,
)
from rota.engine.limits import FORWARD_STATE_MAX, TRIED_STATE_MAX
from rota.engine.ports import (
    FLUID,
    FORWARD_RUN,
    NEVER,
    UNKNOWN,
    Clock,
    Estimate,
    Outlook,
    UnavailableError,
)

_FRESH = Life(JobState.PENDING)


class Outlooks:
    """Answers forecasts from the scheduler's memory, and from forward runs on a copy of it."""

    def __init__(
        self,
        clock: Clock,
        forecaster: Forecaster,
        look: Callable[[], Awaitable[Scheduler]],
        scheduler: Callable[[], Scheduler],
    ) -> None:
        self._clock = clock
        self._forecaster = forecaster
        self._wait_history = WaitHistory()
        self._look = look
        """Returns the scheduler, once no turn is under way."""
        self._scheduler = scheduler
        """Returns the scheduler at once; raises UnavailableError while this server is not ready."""

    async def outlook(self, job: JobRecord) -> Outlook | None:
        """Forecasts a waiting job; None: it is not waiting."""
        scheduler = await self._look()
        now = self._clock.now()
        record = job if job.life.line else None
        explanation = scheduler.why(job.id, now, record)
        if explanation is None or explanation.basis == "running":
            return None
        position = scheduler.position(job.id, record)
        code = explanation.causes[0].code if explanation.causes else "free"
        seen = self._wait_history.note(job.id, code, now)
        remedies = scheduler.remedies(job.id, explanation.causes, now)
        if remedies and scheduler.forecast_size() <= TRIED_STATE_MAX:
            inputs = scheduler.forecast_input([job.id], now)
            remedies = await self._forecaster.try_remedies(inputs, job.id, remedies)
        estimate = await self._forecaster.estimate(scheduler, (job.id, record), explanation)
        return Outlook(
            _without_order(explanation) if _is_now(estimate) else explanation,
            estimate,
            position,
            remedies,
            self._deadline(job, estimate),
            self._forecaster.calibration.accuracy(),
            seen,
        )

    def _deadline(self, job: JobRecord, estimate: Estimate) -> DeadlineInfo | None:
        """Compares a job with its deadline: it is safe only if its latest likely start is."""
        expected = self._scheduler().deadline(job, estimate.at, self._clock.now())
        if expected is None or expected.status not in ("on_time", "at_risk"):
            return expected
        if estimate.high is None:
            return replace(expected, status="at_risk")
        worst = self._scheduler().deadline(job, estimate.high, self._clock.now())
        is_safe = worst is not None and worst.slack_ms >= 0
        return replace(expected, status="on_time" if is_safe else "at_risk")

    # Jobs that are not submitted

    async def rehearse(self, event: Submit) -> Sequence[Outlook]:
        """Forecasts jobs as if they were submitted now; raises the refusal they would meet."""
        scheduler = await self._look()
        now = self._clock.now()
        scheduler.check_submit(event, now)
        if scheduler.forecast_size() > FORWARD_STATE_MAX:
            raise UnavailableError(
                "too many jobs run here for a dry run; submit the job, and ask `why`", 60
            )
        upstream = [d.job_id for new in event.jobs for d in new.spec.dependencies]
        inputs = scheduler.forecast_input(upstream, now)
        known = {job.id: None for job in inputs.stored.jobs}
        known |= {new.id: None for new in event.jobs}
        ruled_out = _ruled_out(event, known)
        jobs = [_only_waiting_for(new, known) for new in event.jobs if new.id not in ruled_out]
        plan = await self._forecaster.rehearse(inputs, jobs) if jobs else None
        if isinstance(plan, Refusal):
            raise plan
        return [self._forecast(new, plan, ruled_out.get(new.id), now) for new in event.jobs]

    def _forecast(
        self, new: NewJob, plan: ForwardPlan | None, refused: Cause | None, now: Instant
    ) -> Outlook:
        job = JobRecord(new.id, new.spec, _FRESH)
        if refused is not None or plan is None:
            causes = () if refused is None else (refused,)
            return Outlook(Explanation(causes, None, NEVER), Estimate(None, None, None, NEVER, now))
        calibration = self._forecaster.calibration
        explanation = plan.causes.get(new.id, Explanation((), None, ""))
        estimate = _estimate(plan, new.id, explanation, calibration, now)
        deadline = self._deadline(job, estimate)
        return Outlook(explanation, estimate, None, (), deadline, calibration.accuracy())


def _is_now(estimate: Estimate) -> bool:
    return estimate.at is not None and estimate.at <= estimate.computed_at


def _without_order(explanation: Explanation) -> Explanation:
    """Drops causes that do not matter for a job that starts as soon as the workers ask."""
    kept = tuple(cause for cause in explanation.causes if cause.code == MOMENTARY)
    return replace(explanation, causes=kept)


def _estimate(
    plan: ForwardPlan, job_id: JobId, why: Explanation, calibration: Calibration, now: Instant
) -> Estimate:
    start = plan.starts.get(job_id)
    if start is None:
        if can_never_start(why) or not plan.is_spent:
            return Estimate(None, None, None, NEVER if can_never_start(why) else UNKNOWN, now)
        # It starts after the end of the forward run; by how much is unknown.
        return Estimate(None, plan.until, None, FLUID, now)
    at, worker_id = start
    ahead = list(plan.starts).index(job_id)
    if at <= now:
        return Estimate(now, now, now, FORWARD_RUN, now, worker_id, ahead)
    given = with_interval(calibration, FORWARD_RUN, at, now)
    return Estimate(at, given.low, given.high, FORWARD_RUN, now, worker_id, ahead)


def _ruled_out(event: Submit, known: dict[JobId, None]) -> dict[JobId, Cause]:
    """Finds jobs that would be skipped at once, because of how their dependencies ended."""
    loaded = () if event.preloaded is None else (*event.preloaded.upstream, *event.preloaded.jobs)
    ended = {job.id: job.life.state for job in loaded if job.id not in known}
    found: dict[JobId, Cause] = {}
    for new in event.jobs:
        for needed in new.spec.dependencies:
            state = ended.get(needed.job_id)
            if state is not None and not accepts(needed.when, state):
                text = f"it would be skipped: job {needed.job_id}, which it waits for, is {state}"
                found[new.id] = Cause("upstream", text, {"job_id": needed.job_id, "status": state})
    return found


def _only_waiting_for(new: NewJob, known: dict[JobId, None]) -> NewJob:
    """Drops dependencies that have ended well: the copy does not hold them."""
    needed = tuple(one for one in new.spec.dependencies if one.job_id in known)
    return replace(new, spec=replace(new.spec, dependencies=needed, task=b"null", payload=b""))
