"""Looking at jobs that may have left memory, through the records that an input brings along."""

from __future__ import annotations

from rota.core.errors import NotFound, StalePreload
from rota.core.inputs import Preloaded
from rota.core.life.shelving import recall
from rota.core.lifecycle import JOB_FINAL
from rota.core.memory.cells import JobEntry
from rota.core.model import Instant, JobId, JobRecord, JobState
from rota.core.tables import SchedulerState


class JobLookup:
    """Live jobs first, then what the tables said; refuses what may have changed since."""

    def __init__(
        self, t: SchedulerState, recall: Preloaded | None, now: Instant, *, is_still: bool = False
    ) -> None:
        self._t = t
        self._is_read_only = is_still
        """Only looks: what is on the shelf stays there."""
        self._now = now
        self._at = now if recall is None else recall.at
        brought = () if recall is None else (*recall.upstream, *recall.jobs)
        self._records = {job.id: job for job in brought}

    def live(self, job_id: JobId) -> JobEntry | None:
        """The job in memory; one on the shelf is brought back. None: it is not live."""
        cell = self._t.jobs.get(job_id)
        record = self._records.get(job_id)
        if cell is not None or record is None or not record.life.line or self._is_read_only:
            return cell
        if self._t.recently_finished.is_stale(self._at, self._now):
            raise StalePreload(f"it was too long ago that job {job_id} was read")
        return recall(self._t, record, self._now)

    def state(self, job_id: JobId) -> JobState | None:
        """The state of a job wherever it is; None if there is no such job."""
        cell = self.live(job_id)
        if cell is not None:
            return cell.life.state
        # Where jobs end by the thousand, those that a caller read of are never all up to date.
        just_now = self._t.recently_finished.final_state(job_id)
        if just_now is not None:
            return just_now
        record = self._records.get(job_id)
        if self._is_read_only and record is not None and record.life.line:
            return record.life.state
        record = self.ended(job_id)
        return None if record is None else record.life.state

    def ended(self, job_id: JobId) -> JobRecord | None:
        """A job that is not live, as the tables have it."""
        record = self._records.get(job_id)
        left_at = self._t.recently_finished.departed_at(job_id)
        if left_at is not None and left_at >= self._at:
            raise StalePreload(f"job {job_id} has just ended")
        if record is None:
            return None
        if record.life.state not in JOB_FINAL or self._t.recently_finished.is_stale(
            self._at, self._now
        ):
            raise StalePreload(f"job {job_id} has changed since it was read")
        return record

    def require_ended(self, job_id: JobId) -> JobRecord:
        """A job that is not live, or the refusal."""
        record = self.ended(job_id)
        if record is None:
            raise NotFound("job", job_id)
        return record
