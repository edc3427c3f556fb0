"""Checkers on journals that must fail, each broken in one place, and on a good one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec
import pytest

from rota.core.model import (
    Execution,
    ExecutionId,
    ExecutionState,
    JobId,
    JobState,
    Life,
    Needs,
    Resources,
    RetryPolicy,
    Semantics,
    Spec,
    Terms,
    Worker,
    WorkerId,
)
from rota.core.outcome import AnyWrite, MoveJob, PutExecution, PutJob, PutWorker
from rota.store.protocol import Epoch, JournalRecord, Seq
from rota.verify.checkers import judge
from rota.verify.history import History, ObservedJob

Change: TypeAlias = Callable[[list[JournalRecord]], None]

CAPACITY = Resources(cpu_milli=1_000, memory=100)
SPEC = Spec(
    Terms("j", "default", "default", 0, Needs(Resources(cpu_milli=1_000)), RetryPolicy()),
    task=b"{}",
    created_at=0,
)
ONCE = msgspec.structs.replace(
    SPEC, terms=msgspec.structs.replace(SPEC.terms, semantics=Semantics.AT_MOST_ONCE)
)
OF_JOURNALS = (
    "one_leader",
    "legal_moves",
    "one_lease",
    "fences_grow",
    "at_most_once",
    "leased_before_run",
    "within_capacity",
    "within_limits",
    "tables_equal_journal",
)
TABLES = {"a": "succeeded", "b": "running"}


def broken_journal(records: list[JournalRecord], shown: dict[str, str]) -> list[str]:
    """Returns the violations in a journal, and in tables that show `shown`."""
    jobs = [ObservedJob(job_id, job_id, status) for job_id, status in shown.items()]
    verdicts = judge(History(journal=records, jobs=jobs), OF_JOURNALS)
    return [verdict.violation.message for verdict in verdicts]


def put(job_id: str, state: JobState, fence: int = 0, spec: Spec = SPEC) -> PutJob:
    return PutJob(JobId(job_id), spec, Life(state, fence=fence))


def move(job_id: str, state: JobState, fence: int = 1) -> MoveJob:
    return MoveJob(JobId(job_id), Life(state, fence=fence))


def run(name: str, fence: int, state: ExecutionState, worker: str = "w") -> PutExecution:
    """Writes an execution of the job whose name begins its own."""
    execution = ExecutionId(name)
    return PutExecution(
        Execution(execution, JobId(name[0]), WorkerId(worker), 1, fence, state, claimed_at=0)
    )


def journal(*bodies: tuple[int, list[AnyWrite]]) -> list[JournalRecord]:
    return [
        JournalRecord(Seq(place), Epoch(epoch), 1_000 * place, writes, bytes(16))
        for place, (epoch, writes) in enumerate(bodies, start=1)
    ]


def good_journal() -> list[JournalRecord]:
    """Makes a job that was lost under the first leader and run again under the second."""
    return journal(
        (1, [PutWorker(Worker(WorkerId("w"), "w", "s", CAPACITY)), put("a", JobState.QUEUED)]),
        (1, [move("a", JobState.RUNNING), run("a1", 1, ExecutionState.CLAIMED)]),
        (1, [put("b", JobState.QUEUED, spec=ONCE)]),
        (2, []),
        (2, [run("a1", 1, ExecutionState.LOST), move("a", JobState.QUEUED)]),
        (2, [move("a", JobState.RUNNING, 2), run("a2", 2, ExecutionState.RUNNING)]),
        (2, [run("a2", 2, ExecutionState.SUCCEEDED), move("a", JobState.SUCCEEDED, 2)]),
        (2, [move("b", JobState.RUNNING), run("b1", 1, ExecutionState.CLAIMED)]),
    )


def prefetched(
    name: str, behind: str, state: ExecutionState = ExecutionState.CLAIMED
) -> PutExecution:
    """Writes an execution that is prefetched behind another."""
    write = run(name, 1, state)
    execution = msgspec.structs.replace(write.execution, behind=ExecutionId(behind))
    return PutExecution(execution)


def test_a_prefetched_execution_uses_no_resources() -> None:
    records = good_journal()
    with_record(put("c", JobState.RUNNING, 1), prefetched("c1", "b1"))(records)
    assert broken_journal(records, {**TABLES, "c": "running"}) == []


def test_a_good_journal_keeps_every_promise() -> None:
    assert broken_journal(good_journal(), TABLES) == []


def with_record(*writes: AnyWrite, epoch: int = 2) -> Change:
    """Adds one more record."""
    return lambda records: records.append(
        JournalRecord(Seq(len(records) + 1), Epoch(epoch), 9_000, list(writes), bytes(16))
    )


def without(place: int) -> Change:
    def change(records: list[JournalRecord]) -> None:
        del records[place]

    return change


def both(*changes: Change) -> Change:
    def change(records: list[JournalRecord]) -> None:
        for one in changes:
            one(records)

    return change


BAD: dict[str, tuple[Change, str]] = {
    "a gap": (without(3), "record 5 follows 3"),
    "an old leader": (with_record(epoch=1), "record 9 is of epoch 1, after 2"),
    "out of a final state": (
        with_record(move("a", JobState.QUEUED, 2)),
        "job a went from succeeded to queued",
    ),
    "an illegal move": (
        both(with_record(move("b", JobState.CANCELLING)), with_record(move("b", JobState.FAILED))),
        "job b went from cancelling to failed",
    ),
    "a fence that falls": (
        with_record(move("b", JobState.RUNNING, 0)),
        "job b went from fence 1 back to 0",
    ),
    "a fence given twice": (
        with_record(
            run("b1", 1, ExecutionState.LOST),
            run("b2", 1, ExecutionState.CLAIMED),
        ),
        "job b was given fence 1 after 1",
    ),
    "a dead execution lives": (
        with_record(run("a2", 2, ExecutionState.RUNNING)),
        "execution a2 went from succeeded to running",
    ),
    "two leases": (
        with_record(run("b2", 2, ExecutionState.CLAIMED)),
        "job b has 2 leases at once",
    ),
    "a run without a lease": (
        with_record(run("b1", 1, ExecutionState.LOST)),
        "job b is running with 0 leases",
    ),
    "a lease without a run": (
        with_record(move("b", JobState.QUEUED)),
        "job b is queued with 1 leases",
    ),
    "over capacity": (
        with_record(
            put("c", JobState.RUNNING, 1),
            run("c1", 1, ExecutionState.CLAIMED),
        ),
        "worker w has 1000 cpu and its executions 2000",
    ),
    "a prefetched execution that does not wait": (
        with_record(put("c", JobState.RUNNING, 1), prefetched("c1", "b1", ExecutionState.RUNNING)),
        "worker w has 1000 cpu and its executions 2000",
    ),
    "two prefetched for one place": (
        both(
            with_record(put("c", JobState.RUNNING, 1), prefetched("c1", "b1")),
            with_record(put("d", JobState.RUNNING, 1), prefetched("d1", "b1")),
            with_record(run("b1", 1, ExecutionState.FAILED), move("b", JobState.FAILED)),
        ),
        "worker w has 1000 cpu and its executions 2000",
    ),
    "an unknown worker": (
        with_record(
            put("c", JobState.RUNNING, 1),
            run("c1", 1, ExecutionState.CLAIMED, worker="x"),
        ),
        "worker x has executions",
    ),
    "an unknown job": (
        with_record(run("z1", 1, ExecutionState.CLAIMED)),
        "job z, which was not submitted",
    ),
    "started twice": (
        with_record(
            run("b1", 1, ExecutionState.LOST),
            move("b", JobState.RUNNING, 2),
            run("b2", 2, ExecutionState.CLAIMED),
        ),
        "job b may start once and has 2 executions",
    ),
    "a lost job": (
        with_record(put("c", JobState.QUEUED)),
        "job c is queued by the journal and missing by the tables",
    ),
    "tables behind": (
        with_record(run("b1", 1, ExecutionState.FAILED), move("b", JobState.FAILED)),
        "job b is failed by the journal and running by the tables",
    ),
    "a job from nowhere": (
        both(without(7), without(2)),
        "job b is in the tables and not in the journal",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_journal_that_breaks_a_promise_is_found(name: str) -> None:
    break_it, sentence = BAD[name]
    records = good_journal()
    break_it(records)
    broken = broken_journal(records, TABLES)
    assert any(sentence in one for one in broken), broken
