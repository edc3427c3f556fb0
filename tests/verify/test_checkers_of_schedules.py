"""Checkers of schedules and limits on journals that break a promise in one place."""

from __future__ import annotations

from msgspec.structs import replace

from rota.core.model import (
    Concurrency,
    Execution,
    ExecutionId,
    ExecutionState,
    JobId,
    JobState,
    Life,
    Needs,
    Origin,
    Resources,
    RetryPolicy,
    ScheduleId,
    Spec,
    Terms,
    WorkerId,
)
from rota.core.outcome import (
    AnyWrite,
    MoveSchedule,
    PutExecution,
    PutJob,
    PutOccurrence,
    PutSchedule,
)
from rota.core.schedule_model import (
    Occurrence,
    OccurrenceDecision,
    Schedule,
    ScheduleDefinition,
    ScheduleState,
    Timetable,
)
from rota.store.protocol import Epoch, JournalRecord, Seq
from rota.verify.checkers import judge
from rota.verify.history import History

EVERY = 1_000
TERMS = Terms("j", "default", "default", 0, Needs(Resources(cpu_milli=1)), RetryPolicy())
SPEC = Spec(TERMS, task=b"{}", created_at=0)
S = ScheduleId("s")
SCHEDULE = Schedule(
    S,
    ScheduleDefinition("s", Timetable(interval_ms=EVERY), SPEC),
    ScheduleState(watermark=0),
    created_at=0,
    updated_at=0,
)


def fired(at: int, job: str) -> list[AnyWrite]:
    """Writes what a leader writes when it decides an instant."""
    spec = replace(SPEC, origin=Origin(S, at))
    return [
        PutJob(JobId(job), spec, Life(JobState.QUEUED)),
        PutOccurrence(
            Occurrence(S, at, OccurrenceDecision.FIRED, decided_at=at, job_id=JobId(job))
        ),
        MoveSchedule(S, ScheduleState(watermark=at)),
    ]


def broken(promise: str, *bodies: list[AnyWrite]) -> list[str]:
    journal = [
        JournalRecord(Seq(place), Epoch(1), place, writes, bytes(16))
        for place, writes in enumerate(bodies, start=1)
    ]
    return [verdict.violation.message for verdict in judge(History(journal=journal), (promise,))]


def schedules(*bodies: list[AnyWrite]) -> list[str]:
    return broken("schedules_fire_once", [PutSchedule(SCHEDULE)], *bodies)


def test_instants_decided_one_after_the_other_keep_the_promise() -> None:
    assert schedules(fired(EVERY, "a"), fired(2 * EVERY, "b"), fired(3 * EVERY, "c")) == []


def test_instants_that_share_a_record_keep_the_promise() -> None:
    missed = Occurrence(S, 2 * EVERY, OccurrenceDecision.SKIPPED, decided_at=9, until=4 * EVERY)
    assert schedules(fired(EVERY, "a"), [PutOccurrence(missed)], fired(5 * EVERY, "b")) == []


def test_an_instant_that_creates_two_jobs_is_found() -> None:
    found = schedules(fired(EVERY, "a"), fired(EVERY, "b"))
    assert "record 3: schedule s made two jobs at 1000" in found
    assert "schedule s made 2 jobs for 1000" in found


def test_an_instant_without_a_decision_is_found() -> None:
    assert schedules(fired(EVERY, "a"), fired(3 * EVERY, "c")) == [
        "schedule s has no record of its instant 2000"
    ]


def test_a_watermark_that_goes_back_is_found() -> None:
    back: list[AnyWrite] = [MoveSchedule(S, ScheduleState(watermark=EVERY))]
    found = schedules(fired(EVERY, "a"), fired(2 * EVERY, "b"), back)
    assert "record 4: schedule s went back to 1000" in found


def keyed(job: str, state: ExecutionState, fence: int = 1) -> list[AnyWrite]:
    """Writes a job of the key `k` with limit 1, and an execution of it."""
    spec = replace(SPEC, concurrency=Concurrency("k"))
    execution = Execution(
        ExecutionId(f"{job}{fence}"), JobId(job), WorkerId("w"), 1, fence, state, claimed_at=0
    )
    return [PutJob(JobId(job), spec, Life(JobState.RUNNING)), PutExecution(execution)]


def test_jobs_of_a_key_that_run_one_after_the_other_are_within_its_limit() -> None:
    over = [*keyed("a", ExecutionState.SUCCEEDED), *keyed("b", ExecutionState.CLAIMED)]
    assert broken("within_limits", keyed("a", ExecutionState.RUNNING), over) == []


def test_two_jobs_of_a_key_that_run_at_once_are_found() -> None:
    bodies = (keyed("a", ExecutionState.RUNNING), keyed("b", ExecutionState.CLAIMED))
    assert broken("within_limits", *bodies) == [
        "record 2: 2 jobs of key k run at once, its limit is 1"
    ]
