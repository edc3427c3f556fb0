"""What is to become of jobs, for those who ask: of one that waits, or that nobody submitted."""

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
    """Answers what is to come, from the scheduler's memory and a copy that is played forward."""

    def __init__(
        self,
        clock: Clock,
        foretelling: Forecaster,
        look: Callable[[], Awaitable[Scheduler]],
        brain: Callable[[], Scheduler],
    ) -> None:
        self._clock = clock
        self._forecaster = foretelling
        self._wait_history = WaitHistory()
        self._look = look
        """The scheduler, once no turn is under way."""
        self._brain = brain
        """The scheduler as it is; raises UnavailableError where none may be asked."""

    async def outlook(self, job: JobRecord) -> Outlook | None:
        """Of a job that waits; None: memory does not know it, or not as one that waits."""
        scheduler = await self._look()
        now = self._clock.now()
        record = job if job.life.line else None
        explanation = scheduler.why(job.id, now, record)
        if explanation is None or explanation.basis == "running":
            return None
        position = scheduler.position(job.id, record)
        code = explanation.causes[0].code if explanation.causes else "free"
        seen = self._wait_history.note(job.id, code, now)
        reliefs = scheduler.remedies(job.id, explanation.causes, now)
        if reliefs and scheduler.forecast_size() <= TRIED_STATE_MAX:
            picture = scheduler.forecast_input([job.id], now)
            reliefs = await self._forecaster.try_reliefs(picture, job.id, reliefs)
        estimate = await self._forecaster.estimate(scheduler, (job.id, record), explanation)
        return Outlook(
            _without_order(explanation) if _is_now(estimate) else explanation,
            estimate,
            position,
            reliefs,
            self._deadline(job, estimate),
            self._forecaster.calibration.accuracy(),
            seen,
        )

    def _deadline(self, job: JobRecord, estimate: Estimate) -> DeadlineInfo | None:
        """With what is likely: in time even then, in time if all goes as expected, or late."""
        expected = self._brain().deadline(job, estimate.at, self._clock.now())
        if expected is None or expected.status not in ("on_time", "at_risk"):
            return expected
        if estimate.high is None:
            return replace(expected, status="at_risk")
        worst = self._brain().deadline(job, estimate.high, self._clock.now())
        is_safe = worst is not None and worst.slack_ms >= 0
        return replace(expected, status="on_time" if is_safe else "at_risk")

    # Jobs that nobody has submitted

    async def rehearse(self, event: Submit) -> Sequence[Outlook]:
        """What would become of these jobs; raises what they would be refused for."""
        scheduler = await self._look()
        now = self._clock.now()
        scheduler.check_submit(event, now)
        if scheduler.forecast_size() > FORWARD_STATE_MAX:
            raise UnavailableError(
                "too much runs here to try it out at once; submit the job, and ask `why`", 60
            )
        upstream = [d.job_id for new in event.jobs for d in new.spec.dependencies]
        picture = scheduler.forecast_input(upstream, now)
        known = {job.id: None for job in picture.stored.jobs}
        known |= {new.id: None for new in event.jobs}
        ruled_out = _ruled_out(event, known)
        jobs = [_only_waiting_for(new, known) for new in event.jobs if new.id not in ruled_out]
        course = await self._forecaster.rehearse(picture, jobs) if jobs else None
        if isinstance(course, Refusal):
            raise course
        return [self._foreseen(new, course, ruled_out.get(new.id), now) for new in event.jobs]

    def _foreseen(
        self, new: NewJob, course: ForwardPlan | None, refused: Cause | None, now: Instant
    ) -> Outlook:
        job = JobRecord(new.id, new.spec, _FRESH)
        if refused is not None or course is None:
            causes = () if refused is None else (refused,)
            return Outlook(Explanation(causes, None, NEVER), Estimate(None, None, None, NEVER, now))
        calibration = self._forecaster.calibration
        explanation = course.causes.get(new.id, Explanation((), None, ""))
        estimate = _estimate(course, new.id, explanation, calibration, now)
        deadline = self._deadline(job, estimate)
        return Outlook(explanation, estimate, None, (), deadline, calibration.accuracy())


def _is_now(estimate: Estimate) -> bool:
    return estimate.at is not None and estimate.at <= estimate.computed_at


def _without_order(explanation: Explanation) -> Explanation:
    """Of a job that starts as soon as the workers ask: who stands before it does not matter."""
    kept = tuple(cause for cause in explanation.causes if cause.code == MOMENTARY)
    return replace(explanation, causes=kept)


def _estimate(
    course: ForwardPlan, job_id: JobId, why: Explanation, calibration: Calibration, now: Instant
) -> Estimate:
    start = course.starts.get(job_id)
    if start is None:
        if can_never_start(why) or not course.is_spent:
            return Estimate(None, None, None, NEVER if can_never_start(why) else UNKNOWN, now)
        # It starts after all that was played through; by how much, nobody can say yet.
        return Estimate(None, course.until, None, FLUID, now)
    at, worker_id = start
    ahead = list(course.starts).index(job_id)
    if at <= now:
        return Estimate(now, now, now, FORWARD_RUN, now, worker_id, ahead)
    told = with_interval(calibration, FORWARD_RUN, at, now)
    return Estimate(at, told.low, told.high, FORWARD_RUN, now, worker_id, ahead)


def _ruled_out(event: Submit, known: dict[JobId, None]) -> dict[JobId, Cause]:
    """Jobs that would be skipped at once, because of how others have ended."""
    brought = () if event.preloaded is None else (*event.preloaded.upstream, *event.preloaded.jobs)
    ended = {job.id: job.life.state for job in brought if job.id not in known}
    found: dict[JobId, Cause] = {}
    for new in event.jobs:
        for needed in new.spec.dependencies:
            state = ended.get(needed.job_id)
            if state is not None and not accepts(needed.when, state):
                text = f"it would be skipped: job {needed.job_id}, which it waits for, is {state}"
                found[new.id] = Cause("upstream", text, {"job_id": needed.job_id, "status": state})
    return found


def _only_waiting_for(new: NewJob, known: dict[JobId, None]) -> NewJob:
    """Without what has ended as it should: a copy does not know of that."""
    needed = tuple(one for one in new.spec.dependencies if one.job_id in known)
    return replace(new, spec=replace(new.spec, dependencies=needed, task=b"null", payload=b""))
