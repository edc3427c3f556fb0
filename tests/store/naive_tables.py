"""Naive projection of the journal into all tables, with what retention may have dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from rota.core.lifecycle import EXECUTION_FINAL, JOB_FINAL
from rota.core.model import ExecutionId, Instant, JobId, JobRecord, ScheduleId, TriggerId
from rota.core.outcome import (
    AnyWrite,
    DropCalendar,
    DropSchedule,
    DropTrigger,
    MoveJob,
    MoveSchedule,
    PutBufferedEvent,
    PutCalendar,
    PutEvent,
    PutExecution,
    PutJob,
    PutOccurrence,
    PutPolicy,
    PutRuntime,
    PutSchedule,
    PutTenant,
    PutTrigger,
    PutTriggerDecision,
    ReleaseBufferedEvents,
)
from rota.core.schedule_model import Calendar, Occurrence, Schedule
from rota.core.trigger_model import (
    AcceptedEvent,
    BufferedEvent,
    Trigger,
    TriggerDecision,
    TriggerDecisionId,
    counted_as,
)
from rota.store.limits import EVENT_AGE_MS, KEY_AGE_MS, TRIGGER_DECISION_AGE_MS
from rota.store.projection.quarantine import REASON
from rota.store.protocol import Direction, QueryStore, Seq, Snapshot
from rota.store.queries import (
    EventQuery,
    ExecutionQuery,
    JobQuery,
    OccurrenceQuery,
    TriggerDecisionQuery,
    id_at,
)
from tests.store.naive import NaiveStore

ALL = 1_000_000
DAY_MS = 24 * 3600 * 1000


class NaiveTables(NaiveStore):
    """Naive tables after all records of the journal, and what may be missing in the real ones."""

    def __init__(self) -> None:
        super().__init__()
        self.seq = Seq(0)
        self.at: Instant = 0
        self.schedules: dict[ScheduleId, Schedule] = {}
        self.calendars: dict[str, Calendar] = {}
        self.occurrences: dict[tuple[ScheduleId, Instant], Occurrence] = {}
        self.decided: Counter[tuple[str, str]] = Counter()
        self.triggers: dict[TriggerId, Trigger] = {}
        self.accepted: dict[str, AcceptedEvent] = {}
        self.decisions: dict[TriggerDecisionId, TriggerDecision] = {}
        self.buffered: dict[TriggerDecisionId, BufferedEvent] = {}
        self.reacted: Counter[str] = Counter()
        self.written: dict[str, Seq] = {}
        """The newest record that put each job or execution as a whole."""
        self.lives: dict[JobId, list[tuple[Seq, JobRecord]]] = {}
        """All that each job has been, with the records that said so."""
        self.old: dict[JobId, Seq] = {}
        """Jobs that retention may have dropped, as of these records."""
        self.old_occurrences: Instant = 0

    def take(self, at: Instant, writes: Sequence[AnyWrite]) -> None:
        """Applies the next record."""
        self.seq, self.at = Seq(self.seq + 1), max(at, self.at)
        for write in writes:
            self.apply(write)
            match write:
                case PutJob():
                    self.written[write.id] = self.seq
                case PutExecution():
                    self.written[write.execution.id] = self.seq
                case _:
                    pass
            if isinstance(write, PutJob | MoveJob) and write.id in self.jobs:
                self.lives.setdefault(write.id, []).append((self.seq, self.jobs[write.id]))

    def _put(self, write: AnyWrite) -> None:
        match write:
            case PutPolicy() | PutTenant() | PutRuntime():
                super()._put(write)
            case PutSchedule():
                self.schedules[write.schedule.id] = write.schedule
            case MoveSchedule() if write.id in self.schedules:
                before = self.schedules[write.id]
                self.schedules[write.id] = replace(before, state=write.state)
            case DropSchedule():
                self.schedules.pop(write.id, None)
            case PutOccurrence(one):
                self.occurrences[one.schedule_id, one.nominal] = one
                self.decided[one.decision.value, one.skip_reason.value] += 1
            case PutCalendar():
                self.calendars[write.calendar.name] = write.calendar
            case DropCalendar():
                self.calendars.pop(write.name, None)
            case _:
                self._react(write)

    def _react(self, write: AnyWrite) -> None:
        match write:
            case PutTrigger():
                self.triggers[write.trigger.id] = write.trigger
            case DropTrigger():
                self.triggers.pop(write.id, None)
            case PutEvent():
                self.accepted[write.event.key] = write.event
                self._count(counted_as(write.event))
            case PutTriggerDecision():
                self.decisions[write.decision.id] = write.decision
                self._count(counted_as(write.decision))
            case PutBufferedEvent():
                self.buffered[write.event.id] = write.event
            case ReleaseBufferedEvents():
                for one in write.ids:
                    self.buffered.pop(one, None)
            case _:
                raise AssertionError(f"a write that no table has: {write}")

    def _count(self, word: str) -> None:
        if word:
            self.reacted[word] += 1

    def drop_before(self, before: Instant, positions: Mapping[JobId, Seq]) -> None:
        """Notes that retention has dropped old jobs, given how far the tables are with each."""
        for job_id, history in self.lives.items():
            known = [job for seq, job in history if seq <= positions[job_id]]
            if known and known[-1].life.state in JOB_FINAL:
                ended = known[-1].life.finished_at or 0
                if ended < before:
                    self.old[job_id] = positions[job_id]
        self.old_occurrences = max(self.old_occurrences, before)

    def may_lack_job(self, job_id: JobId) -> bool:
        """Whether retention may have dropped the job, and nothing has put it again."""
        return self.written[job_id] <= self.old.get(job_id, -1)

    def may_lack_execution(self, execution_id: ExecutionId) -> bool:
        job_id = self.executions[execution_id].job_id
        return self.written[execution_id] <= self.old.get(job_id, -1)


def assert_loaded(snapshot: Snapshot, naive: NaiveTables, kept: int) -> None:
    """Checks that a load brings what the whole journal comes to."""
    spill_queues = naive.spill_queues()
    first = {job.id for jobs in spill_queues.values() for job in jobs[:kept]}
    spilled = {job.id for jobs in spill_queues.values() for job in jobs}
    live = {job.id: job for job in naive.jobs.values() if job.life.state not in JOB_FINAL}
    assert snapshot.seq == naive.seq
    expected = {id_: job for id_, job in live.items() if id_ not in spilled or id_ in first}
    assert {job.id: job for job in snapshot.jobs} == expected
    numbers = [job.spec.arrival_number for job in snapshot.jobs]
    assert numbers == sorted(numbers)
    assert dict(snapshot.spill_counts) == {line: len(jobs) for line, jobs in spill_queues.items()}
    executions = {x.id: x for x in naive.executions.values() if x.state not in EXECUTION_FINAL}
    assert {x.id: x for x in snapshot.executions} == executions
    assert {one.id: one for one in snapshot.workers} == naive.workers
    assert {one.name: one for one in snapshot.queues} == naive.queues
    assert snapshot.settings.policy == naive.policy
    assert {one.name: one for one in snapshot.settings.tenants} == naive.tenants
    runtimes = {(one.tenant, one.name): one for one in snapshot.settings.runtimes}
    assert runtimes == naive.runtimes
    assert snapshot.next_arrival_number == naive.order_next
    _assert_totals(snapshot, naive)
    assert list(snapshot.schedules) == [naive.schedules[one] for one in sorted(naive.schedules)]
    assert {one.name: one for one in snapshot.calendars} == naive.calendars
    assert list(snapshot.triggers) == [naive.triggers[one] for one in sorted(naive.triggers)]
    buffered = sorted(naive.buffered.values(), key=lambda one: (one.at, one.id))
    assert list(snapshot.buffered_events) == buffered


def _assert_totals(snapshot: Snapshot, naive: NaiveTables) -> None:
    totals = snapshot.totals
    assert totals.submitted == naive.submitted
    assert {(q, s): n for q, s, n in totals.finished} == dict(naive.finished)
    assert {(word, why): n for word, why, n in totals.decided} == dict(naive.decided)
    assert dict(totals.reacted) == dict(naive.reacted)


async def assert_tables(
    queries: QueryStore, naive: NaiveTables, quarantined: Sequence[JobId] = ()
) -> None:
    """Checks that the tables have all that must stay, and nothing else.

    Jobs in quarantine have any rows, but are read by their ids as the journal has them.
    """
    jobs = {job.id: job for job in await queries.find_jobs(JobQuery(limit=ALL))}
    there = [job_id for job_id in jobs if job_id not in quarantined]
    assert all(naive.jobs.get(job_id) == jobs[job_id] for job_id in there)
    lacking = [one for one in naive.jobs if one not in jobs and one not in quarantined]
    assert all(naive.may_lack_job(one) for one in lacking)
    executions = {x.id: x for x in await queries.find_executions(ExecutionQuery(limit=ALL))}
    plain = [x for x in executions.values() if x.job_id not in quarantined]
    assert all(naive.executions.get(x.id) == x for x in plain)
    for execution in naive.executions.values():
        if execution.id not in executions and execution.job_id not in quarantined:
            assert naive.may_lack_execution(execution.id)
    await _assert_labels_and_edges(queries, naive, there, quarantined)
    await _assert_quarantined(queries, naive, quarantined)
    await _assert_aged(queries, naive)


async def _assert_labels_and_edges(
    queries: QueryStore, naive: NaiveTables, there: Sequence[JobId], quarantined: Sequence[JobId]
) -> None:
    labels = {label for job in naive.jobs.values() for label in job.spec.labels}
    for label in labels:
        found = await queries.find_jobs(JobQuery(labels=(label,), limit=ALL))
        with_label = [one for one in sorted(there) if label in naive.jobs[one].spec.labels]
        assert sorted(job.id for job in found if job.id not in quarantined) == with_label
    parents = list({edge.parent for edge in naive.edges})
    edges = await queries.edges(parents, Direction.DOWNSTREAM)
    assert sorted(
        (e.parent, e.child, e.when) for e in edges if e.child not in quarantined
    ) == sorted((e.parent, e.child, e.when) for e in naive.edges if e.child in there)


async def _assert_quarantined(
    queries: QueryStore, naive: NaiveTables, quarantined: Sequence[JobId]
) -> None:
    expected = {
        job_id: replace(job, life=replace(job.life, reason=REASON))
        for job_id in quarantined
        if (job := naive.jobs.get(job_id)) is not None
    }
    assert {job.id: job for job in await queries.jobs(quarantined)} == expected
    states = {one.id: one.state for one in await queries.outlines(quarantined)}
    assert states == {job_id: job.life.state for job_id, job in expected.items()}
    for job_id in quarantined:
        of_job = {x.id: x for x in naive.executions.values() if x.job_id == job_id}
        query = ExecutionQuery(job_id=job_id, limit=ALL)
        found = {x.id: x for x in await queries.find_executions(query)}
        assert found.items() <= of_job.items()
        assert all(naive.may_lack_execution(one) for one in of_job if one not in found)
        by_id = await queries.executions(list(of_job))
        assert {x.id: x for x in by_id} == found


async def _assert_aged(queries: QueryStore, naive: NaiveTables) -> None:
    """Checks what is dropped by its own age."""
    for record in naive.keys.values():
        found = await queries.key(record.key)
        assert found == record or (found is None and record.at < naive.at - KEY_AGE_MS)
    for schedule_id in {one for one, _ in naive.occurrences}:
        query = OccurrenceQuery(schedule_id=schedule_id, limit=ALL)
        occurrences = {one.nominal: one for one in await queries.find_occurrences(query)}
        of_schedule = {at: x for (one, at), x in naive.occurrences.items() if one == schedule_id}
        assert occurrences.items() <= of_schedule.items()
        assert all(at < naive.old_occurrences for at in of_schedule.keys() - occurrences.keys())
    events = {one.key: one for one in await queries.find_events(EventQuery(limit=ALL))}
    assert all(naive.accepted[key] == one for key, one in events.items())
    gone = [one for key, one in naive.accepted.items() if key not in events]
    assert all(one.at < naive.at - EVENT_AGE_MS for one in gone)
    decisions = await _all_decisions(queries, {x.trigger_id for x in naive.decisions.values()})
    assert all(naive.decisions[one.id] == one for one in decisions.values())
    old = id_at(naive.at - TRIGGER_DECISION_AGE_MS)
    assert all(one < old for one in naive.decisions if one not in decisions)


async def _all_decisions(
    queries: QueryStore, triggers: Iterable[TriggerId]
) -> dict[TriggerDecisionId, TriggerDecision]:
    found: dict[TriggerDecisionId, TriggerDecision] = {}
    for trigger_id in triggers:
        query = TriggerDecisionQuery(trigger_id=trigger_id, limit=ALL)
        found |= {one.id: one for one in await queries.find_trigger_decisions(query)}
    return found
