"""Deadlines between wire and core: as submitted, and as shown."""

from __future__ import annotations

from rota.api.limits import INSTANT_MAX
from rota.api.problems import invalid
from rota.core.info_model import DeadlineInfo
from rota.core.lifecycle import JOB_FINAL
from rota.core.model import Instant, JobRecord
from rota.engine.ports import Brain
from rota.wire import formats
from rota.wire.formats import from_instant, from_instant_or_none, number, to_instant
from rota.wire.jobs import DeadlineView, JobSpec, JobView


def finish_by_of(given: formats.Deadline | None, created_at: Instant, field: str) -> Instant | None:
    """The time that is meant; a length counts from when the job is submitted."""
    if given is None:
        return None
    if given.within is not None:
        return created_at + given.within.ms
    assert given.at is not None
    instant = to_instant(given.at)
    if not 0 <= instant <= INSTANT_MAX:
        raise invalid(field, "between the years 1970 and 2200")
    return instant


def check_relative(job: JobSpec, where: str) -> None:
    """What makes jobs again and again cannot name one time for all of them."""
    if job.finish_by is not None and job.finish_by.at is not None:
        raise invalid(where + "finish_by", "how long after each job is made, such as 2h")


def deadline_view(deadline: DeadlineInfo | None) -> DeadlineView | None:
    """As it is shown."""
    if deadline is None:
        return None
    end = deadline.expected_end
    return DeadlineView(
        from_instant(deadline.finish_by),
        deadline.status,  # type: ignore[arg-type]  # the core has the same words
        number(deadline.slack_ms),
        from_instant_or_none(end),
    )


def add_deadline(view: JobView, job: JobRecord, brain: Brain) -> None:
    """How it stands, as far as this server knows."""
    if job.spec.finish_by is None or job.life.state in JOB_FINAL:
        return
    if brain.ready:
        view.deadline = deadline_view(brain.deadline(job))
    else:
        view.deadline = deadline_view(_estimated_deadline(job, brain.clock.now()))


def ended_deadline(job: JobRecord) -> DeadlineView | None:
    """What became of the deadline of a job that has ended."""
    spec, life = job.spec, job.life
    if spec.finish_by is None or life.finished_at is None or life.state not in JOB_FINAL:
        return None
    slack = spec.finish_by - life.finished_at
    verdict = life.deadline or "missed"
    return deadline_view(DeadlineInfo(spec.finish_by, verdict, slack, life.finished_at))


def _estimated_deadline(job: JobRecord, now: Instant) -> DeadlineInfo:
    """By the job alone, on a server that does not decide."""
    spec, life = job.spec, job.life
    assert spec.finish_by is not None
    length = spec.terms.expected_runtime_ms or 0
    end = max(now, (life.started_at or now) + length)
    slack = spec.finish_by - end
    verdict = "late" if slack < 0 else life.deadline or "on_time"
    return DeadlineInfo(spec.finish_by, verdict, slack)
