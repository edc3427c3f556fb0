"""Live part of the tables in memory, brought up to date by journal records. No I/O.

A load reads the tables and replays here what the journal has beyond them, so it never waits for the
projection. A follower keeps one and reads on, so that it can lead at once: its state equals what a
load would bring, as long as no job is spilled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TypeVar

from msgspec.structs import replace

from rota.core.lifecycle import EXECUTION_FINAL, JOB_FINAL
from rota.core.model import (
    Execution,
    ExecutionId,
    JobId,
    JobRecord,
    JobState,
    ScheduleId,
    Spec,
    TriggerId,
)
from rota.core.outcome import AnyWrite, MoveJob, PutJob
from rota.core.schedule_model import Calendar, Schedule
from rota.core.trigger_model import BufferedEvent, Trigger, TriggerDecisionId
from rota.store.projection.shards import jobs_looked_up
from rota.store.protocol import Head, JournalRecord, Seq, Snapshot, StoreError, Totals
from rota.store.table_changes import (
    JobStanding,
    TableChanges,
    project,
    spill_queue_of,
    standing_of,
)

K = TypeVar("K")
V = TypeVar("V")


class LiveSchedules:
    """Schedules, calendars, triggers and buffered events."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self._schedules: dict[ScheduleId, Schedule] = {}
        self._calendars: dict[str, Calendar] = {}
        self._triggers: dict[TriggerId, Trigger] = {}
        self._buffered: dict[TriggerDecisionId, BufferedEvent] = {}
        self._decided: dict[tuple[str, str], int] = {}
        self._reacted: dict[str, int] = {}
        if snapshot is not None:
            self._schedules |= {one.id: one for one in snapshot.schedules}
            self._calendars |= {one.name: one for one in snapshot.calendars}
            self._triggers |= {one.id: one for one in snapshot.triggers}
            self._buffered |= {one.id: one for one in snapshot.buffered_events}
            self._decided |= {(word, why): n for word, why, n in snapshot.totals.decided}
            self._reacted |= dict(snapshot.totals.reacted)

    def apply(self, changes: TableChanges) -> None:
        """Applies what a window of records came to."""
        for schedule_id, state in changes.schedule_states.items():
            if schedule_id in self._schedules:
                moved = replace(self._schedules[schedule_id], state=state)
                self._schedules[schedule_id] = moved
        _put(self._schedules, changes.schedules)
        _put(self._calendars, changes.calendars)
        _put(self._triggers, changes.events.triggers)
        _put(self._buffered, changes.events.buffered)
        _add(self._decided, changes.decided)
        _add(self._reacted, changes.events.reacted)

    def complete(self, snapshot: Snapshot) -> Snapshot:
        """Returns the snapshot of all else, with these in it."""
        totals: Totals = replace(
            snapshot.totals,
            decided=tuple((word, why, n) for (word, why), n in self._decided.items()),
            reacted=tuple(self._reacted.items()),
        )
        return replace(
            snapshot,
            totals=totals,
            schedules=[self._schedules[one] for one in sorted(self._schedules)],
            calendars=[self._calendars[name] for name in sorted(self._calendars)],
            triggers=[self._triggers[one] for one in sorted(self._triggers)],
            buffered_events=sorted(self._buffered.values(), key=lambda one: (one.at, one.id)),
        )


def _put(there: dict[K, V], changed: dict[K, V | None]) -> None:
    for key, value in changed.items():
        if value is None:
            there.pop(key, None)
        else:
            there[key] = value


def _add(counts: dict[K, int], more: dict[K, int]) -> None:
    for word, count in more.items():
        counts[word] = counts.get(word, 0) + count


class JournalGapError(StoreError):
    """Raised when the next record is no longer kept: everything must be loaded again."""


_by_arrival = attrgetter("spec.arrival_number")


class LiveState:
    """All that is live, as of a position of the journal."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.head = snapshot.head
        self.is_partial = bool(snapshot.spill_counts)
        """Whether jobs are spilled, which this state does not have."""
        self.touched: dict[JobId, None] = {}
        """Jobs that were replayed: their rows in the tables are no longer right."""
        self.spill_counts = dict(snapshot.spill_counts)
        self._fence_floor = snapshot.fence_floor
        self._jobs = {job.id: job for job in snapshot.jobs}
        self._executions = {execution.id: execution for execution in snapshot.executions}
        self._executions_of: dict[JobId, dict[ExecutionId, None]] = {}
        for execution in snapshot.executions:
            self._note(execution)
        self._workers = {worker.id: worker for worker in snapshot.workers}
        self._queues = {queue.name: queue for queue in snapshot.queues}
        self._schedules = LiveSchedules(snapshot)
        self._settings = snapshot.settings
        self._damaged = snapshot.damaged
        self._next_arrival_number = snapshot.next_arrival_number
        self._submitted = snapshot.totals.submitted
        self._finished = {(queue, state): n for queue, state, n in snapshot.totals.finished}

    def unknown(self, records: Iterable[JournalRecord]) -> list[JobId]:
        """Returns jobs that these records move and that are not live here: mostly they are
        retried."""
        put: dict[JobId, None] = {}
        missing: dict[JobId, None] = {}
        for record in records:
            for write in record.writes:
                if isinstance(write, PutJob):
                    put[write.id] = None
                elif (
                    isinstance(write, MoveJob)
                    and write.id not in self._jobs
                    and write.id not in put
                ):
                    missing[write.id] = None
        return list(missing)

    @property
    def seq(self) -> Seq:
        """The newest record in it."""
        return self.head.seq

    def apply(self, records: Sequence[JournalRecord], looked_up: Iterable[JobRecord] = ()) -> None:
        """Takes the next records; `looked_up` are those of the unknown jobs that exist."""
        if not records:
            return
        if records[0].seq != self.seq + 1:
            raise JournalGapError(f"the journal's records after {self.seq} are gone")
        specs = {job.id: job.spec for job in looked_up}
        standings = self._standings([record.writes for record in records], specs)
        self._take(project((record.writes for record in records), standings), specs)
        self.head = records[-1].head

    def lacks(self, job_ids: Iterable[JobId]) -> list[JobId]:
        """Returns those of these jobs that are not live here: the tables may have them."""
        return [job_id for job_id in job_ids if job_id not in self._jobs]

    def replay(
        self, due: Sequence[Sequence[AnyWrite]], stored: Iterable[JobRecord], head: Head
    ) -> None:
        """Takes the writes that the tables lack, up to `head`.

        `stored` are those of the lacking jobs that the tables have, ended and spilled ones too.
        """
        rows = {job.id: job for job in (*stored, *self._jobs.values())}
        standings = {
            job_id: standing_of(rows[job_id]) for job_id in jobs_looked_up(due) if job_id in rows
        }
        changes = project(due, standings)
        self.touched = {**changes.dropped, **dict.fromkeys(changes.lives)}
        _add(self.spill_counts, changes.spill_counts)
        self._take(changes, {job_id: rows[job_id].spec for job_id in standings})
        self.head = head

    def spilled(self) -> list[JobRecord]:
        """Returns the spilled jobs that replayed records put, in order of arrival."""
        return sorted(
            (job for job in self._jobs.values() if spill_queue_of(job.life)), key=_by_arrival
        )

    def snapshot(
        self, spilled: Iterable[JobRecord] | None = None, tail: Sequence[JournalRecord] = ()
    ) -> Snapshot:
        """Returns what a load brings at this position of the journal.

        `spilled` are the first jobs of each spill queue, in place of those that were replayed;
        `tail` are the replayed records.
        """
        jobs: Iterable[JobRecord] = self._jobs.values()
        if spilled is not None:
            jobs = (*(job for job in jobs if not spill_queue_of(job.life)), *spilled)
        plain = Snapshot(
            head=self.head,
            # Nearly in order already: Python's sort makes use of that.
            jobs=sorted(jobs, key=_by_arrival),
            executions=[self._executions[key] for key in sorted(self._executions)],
            workers=[self._workers[key] for key in sorted(self._workers)],
            queues=[self._queues[name] for name in sorted(self._queues)],
            settings=self._settings,
            damaged=self._damaged,
            next_arrival_number=self._next_arrival_number,
            totals=Totals(
                self._submitted,
                tuple((queue, state, n) for (queue, state), n in self._finished.items()),
            ),
            spill_counts=[(line, n) for line, n in sorted(self.spill_counts.items()) if n],
            fence_floor=self._fence_floor,
            tail=tail if any(self.spill_counts.values()) else (),
        )
        return self._schedules.complete(plain)

    def _standings(
        self, batches: Iterable[Sequence[AnyWrite]], specs: dict[JobId, Spec]
    ) -> dict[JobId, JobStanding]:
        """Returns the standings of jobs before these writes; of those not live the write implies
        it.

        A job that is not live has ended, unless it is new. Its next write moves it once more, or
        puts it in a new life.
        """
        standings: dict[JobId, JobStanding] = {}
        seen: dict[JobId, None] = {}
        for writes in batches:
            for write in writes:
                if not isinstance(write, PutJob | MoveJob) or write.id in seen:
                    continue
                seen[write.id] = None
                if known := self._jobs.get(write.id):
                    standings[write.id] = standing_of(known)
                elif isinstance(write, PutJob):
                    # Nothing but a new life puts a job that has ended.
                    if write.life.lives > 1:
                        standings[write.id] = _ended(write.life.lives - 1, write.spec)
                elif write.id in specs:
                    standings[write.id] = _ended(write.life.lives, specs[write.id])
        return standings

    def _take(self, changes: TableChanges, looked_up: dict[JobId, Spec]) -> None:
        for job_id in changes.dropped:
            self._jobs.pop(job_id, None)
            for execution_id in self._executions_of.pop(job_id, ()):
                del self._executions[execution_id]
        for job_id, life in changes.lives.items():
            spec = changes.specs.get(job_id)
            if spec is None:
                known = self._jobs.get(job_id)
                spec = looked_up[job_id] if known is None else known.spec
            self._set(JobRecord(job_id, spec, life))
        for execution in changes.executions.values():
            self._set_execution(execution)
        self._queues |= changes.queues
        self._settings = self._settings.after(changes)
        for worker_id, worker in changes.workers.items():
            if worker is None:
                self._workers.pop(worker_id, None)
            else:
                self._workers[worker_id] = worker
        self._submitted += changes.submitted
        for ended, count in changes.finished.items():
            self._finished[ended] = self._finished.get(ended, 0) + count
        self._next_arrival_number = max(self._next_arrival_number, changes.next_arrival_number)
        self._schedules.apply(changes)

    def _set(self, job: JobRecord) -> None:
        if spill_queue_of(job.life):
            self.is_partial = True
        if job.life.state in JOB_FINAL:
            self._jobs.pop(job.id, None)
        else:
            self._jobs[job.id] = job

    def _set_execution(self, execution: Execution) -> None:
        if execution.state not in EXECUTION_FINAL:
            self._executions[execution.id] = execution
            self._note(execution)
        elif self._executions.pop(execution.id, None) is not None:
            siblings = self._executions_of[execution.job_id]
            del siblings[execution.id]
            if not siblings:
                del self._executions_of[execution.job_id]

    def _note(self, execution: Execution) -> None:
        self._executions_of.setdefault(execution.job_id, {})[execution.id] = None


def _ended(lives: int, spec: Spec) -> JobStanding:
    """Returns the standing of a job that ended in the life with this number."""
    return JobStanding(JobState.FAILED, lives, spec.terms.queue)
