"""Projection alone: the table changes of a window of the journal."""

from __future__ import annotations

from rota.core.model import ExecutionState, JobId, JobState, Life
from rota.core.outcome import AnyWrite, DropJob, MoveJob
from rota.store.projection.shards import jobs_looked_up
from rota.store.table_changes import JobStanding, TableChanges, project
from tests.store.conformance import put, run_of

JOB = JobId("job-0001")
DONE = Life(JobState.SUCCEEDED, finished_at=9)
RUNNING = Life(JobState.RUNNING, attempt=1)


def changes(*records: list[AnyWrite], before: JobStanding | None = None) -> TableChanges:
    return project(records, {} if before is None else {JOB: before})


def test_a_whole_life_in_one_window_is_one_row_in_its_final_state() -> None:
    result = changes(
        [put(1)],
        [MoveJob(JOB, RUNNING), run_of(1)],
        [MoveJob(JOB, DONE), run_of(1, ExecutionState.SUCCEEDED)],
    )
    assert list(result.specs) == [JOB]
    assert result.lives == {JOB: DONE}
    assert list(result.moves) == []
    assert [x.state for x in result.executions.values()] == [ExecutionState.SUCCEEDED]
    assert (result.submitted, result.finished) == (1, {("default", "succeeded"): 1})


def test_a_job_of_an_earlier_window_is_only_moved() -> None:
    before = JobStanding(JobState.RUNNING, 1, "bulk")
    result = changes([MoveJob(JOB, DONE)], before=before)
    assert list(result.moves) == [(JOB, DONE)]
    assert (result.specs, result.submitted) == ({}, 0)
    assert result.finished == {("bulk", "succeeded"): 1}


def test_an_update_is_no_new_submission() -> None:
    result = changes([put(1, revision=1)], before=JobStanding(JobState.QUEUED, 1, "default"))
    assert (list(result.specs), result.submitted) == ([JOB], 0)


def test_a_final_job_written_again_is_not_counted_again() -> None:
    result = changes([MoveJob(JOB, DONE)], before=JobStanding(JobState.SUCCEEDED, 1, "default"))
    assert result.finished == {}


def test_a_job_that_came_and_went_leaves_nothing_but_its_count() -> None:
    result = changes([put(1)], [run_of(1)], [DropJob(JOB)])
    assert (result.specs, result.lives, result.executions) == ({}, {}, {})
    assert list(result.dropped) == [JOB]
    assert result.leftovers == ["execution-0001"]
    assert (result.submitted, result.next_arrival_number) == (1, 2)


def test_only_jobs_put_or_moved_need_their_standing() -> None:
    records: list[list[AnyWrite]] = [[put(1), run_of(2)], [MoveJob(JOB, DONE), DropJob(JOB)]]
    assert jobs_looked_up(records) == [JOB]
