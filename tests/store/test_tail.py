"""Jobs that leave the tail before the rest: however it ends, the tables come to the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.model import ExecutionState, JobId, JobState, Life
from rota.core.outcome import AnyWrite, DropJob, MoveJob, PutJob
from rota.store.projection.known import KnownJobs
from rota.store.projection.tail import Tail
from rota.store.protocol import Seq
from rota.store.table_changes import (
    JobStanding,
    TableChanges,
    jobs_touched,
    project,
    spill_queue_of,
)
from tests.example_counts import examples
from tests.store.conformance import put, run_of
from tests.store.naive import histories

JOB, OTHER = JobId("job-0001"), JobId("job-0002")
RUNNING = Life(JobState.RUNNING, attempt=1)
DONE = Life(JobState.SUCCEEDED, finished_at=9)
Table = Mapping[JobId, JobStanding]
Records = Sequence[Sequence[AnyWrite]]


def after(table: Table, folded: TableChanges) -> dict[JobId, JobStanding]:
    """The rows, once something was written into them."""
    rows = {job_id: row for job_id, row in table.items() if job_id not in folded.dropped}
    for job_id, life in folded.lives.items():
        spec = folded.specs.get(job_id)
        queue = rows[job_id].queue if spec is None else spec.terms.queue
        rows[job_id] = JobStanding(life.state, life.lives, queue, spill_queue_of(life))
    return rows


def figures(written: Iterable[TableChanges]) -> object:
    """All counts of the changes."""
    finished: Counter[tuple[str, str]] = Counter()
    lines: Counter[int] = Counter()
    submitted = 0
    for each in written:
        submitted += each.submitted
        finished.update(each.finished)
        lines.update(each.spill_counts)
    nonzero = [{what: n for what, n in all_.items() if n} for all_ in (finished, lines)]
    return submitted, *nonzero


def possible(records: Records, table: Table) -> Records:
    """Without what no scheduler would write: moves of jobs that are not there, earlier lives."""
    lives = {job_id: row.lives for job_id, row in table.items()}
    kept: list[list[AnyWrite]] = []
    for writes in records:
        kept.append([])
        for write in writes:
            if isinstance(write, DropJob):
                lives.pop(write.id, None)
            elif isinstance(write, PutJob | MoveJob):
                is_new = isinstance(write, PutJob) and write.id not in lives
                if not is_new and write.life.lives < lives.get(write.id, 99):
                    continue
                lives[write.id] = write.life.lives
            kept[-1].append(write)
    return kept


def take(tail: Tail, records: Records, table: Table) -> None:
    """As the store does it."""
    for job_id in tail.strangers(jobs_touched(records)):
        if job_id in table:
            tail.standings[job_id] = table[job_id]
    tail.take_window(records, sum(map(len, records)), lambda: None)


def tail() -> Tail:
    return Tail(KnownJobs(10), Seq(0))


@settings(max_examples=examples(60, 1000), deadline=None)
@given(before=histories, first=histories, second=histories)
def test_whoever_folds_again_after_some_left_comes_to_the_same_tables_and_figures(
    before: Records, first: Records, second: Records
) -> None:
    _leaves_and_comes_to_the_same(before, first, second)


_lives = st.builds(
    Life,
    state=st.sampled_from([JobState.QUEUED, JobState.QUEUED, JobState.RUNNING, JobState.SUCCEEDED]),
    lives=st.sampled_from([1, 1, 1, 2]),
    line=st.sampled_from([0, 7, 8]),
)
_numbers = st.sampled_from([1, 2, 3])
_of_backlogs = st.lists(
    st.lists(
        st.builds(put, _numbers, _lives)
        | st.builds(MoveJob, _numbers.map(lambda number: JobId(f"job-000{number}")), _lives),
        max_size=4,
    ),
    max_size=5,
)


@settings(max_examples=examples(100, 1000), deadline=None)
@given(before=_of_backlogs, first=_of_backlogs, second=_of_backlogs)
def test_so_do_jobs_that_come_back_from_a_shelf(
    before: Records, first: Records, second: Records
) -> None:
    _leaves_and_comes_to_the_same(before, first, second)


def _leaves_and_comes_to_the_same(before: Records, first: Records, second: Records) -> None:
    start = after({}, project(before, {}))
    taken: list[Sequence[AnyWrite]] = []
    table, kept, left = start, tail(), list[TableChanges]()
    for wild in (first, second):
        piece = possible(wild, after(start, project(taken, start)))
        take(kept, piece, table)
        taken += piece
        if not kept.tangled:
            left.append(kept.leave())
            table = after(table, left[-1])
        true = project(taken, start)
        at_once = project(taken, table)
        assert figures([*left, at_once]) == figures([true])
        assert after(table, at_once) == after(start, true)
        one = project(taken[:3], table)
        rest = project(taken[3:], after(table, one))
        assert figures([*left, one, rest]) == figures([true])
        if kept.tangled:
            break  # it takes nothing more: all of it is written at once
    assert figures([*left, kept.changes]) == figures([true])
    assert after(table, kept.changes) == after(start, true)


def test_what_has_ended_leaves_with_its_executions_and_what_lives_stays() -> None:
    kept = tail()
    ended = [MoveJob(JOB, DONE), run_of(1, ExecutionState.SUCCEEDED)]
    take(kept, [[put(1), put(2)], [MoveJob(JOB, RUNNING), run_of(1)], [run_of(2), *ended]], {})
    gone = kept.leave()
    assert (list(gone.specs), list(gone.executions)) == ([JOB], ["execution-0001"])
    assert (list(kept.changes.specs), list(kept.changes.executions)) == (
        [OTHER],
        ["execution-0002"],
    )
    assert (gone.submitted, kept.changes.submitted, kept.jobs) == (1, 1, 1)
    assert not kept.leave().lives


def test_an_end_is_counted_with_its_row_only_if_nothing_in_the_tail_comes_before_it() -> None:
    kept = tail()
    take(kept, [[put(1, DONE), put(2)], [MoveJob(OTHER, DONE)]], {})
    gone = kept.leave()
    assert list(gone.lives) == [JOB, OTHER]
    assert gone.finished == {("default", "succeeded"): 1}
    assert kept.changes.finished == {("default", "succeeded"): 1}


def test_a_job_that_has_a_row_leaves_too_and_is_no_new_submission() -> None:
    kept = tail()
    running = JobStanding(JobState.RUNNING, 1, "bulk")
    take(kept, [[MoveJob(JOB, DONE), put(2), MoveJob(OTHER, DONE)]], {JOB: running})
    gone = kept.leave()
    assert list(gone.lives) == [JOB, OTHER]
    assert (gone.submitted, kept.changes.submitted) == (1, 0)
    assert gone.finished == {("bulk", "succeeded"): 1}


def test_a_job_is_taken_off_the_shelf_with_its_row_and_whoever_still_runs_is_not() -> None:
    kept = tail()
    shelved = JobStanding(JobState.QUEUED, 1, "bulk", line=7)
    started = [MoveJob(JOB, RUNNING), MoveJob(OTHER, RUNNING)]
    take(kept, [started, [MoveJob(JOB, DONE)]], {JOB: shelved, OTHER: shelved})
    assert kept.leave().spill_counts == {7: -1}
    assert kept.changes.spill_counts == {7: -1}
    assert list(kept.changes.lives) == [OTHER]


def test_a_job_that_goes_on_after_it_left_or_is_deleted_ends_the_waiting() -> None:
    kept, again = tail(), Life(JobState.QUEUED, lives=2)
    take(kept, [[put(1), MoveJob(JOB, DONE)]], {})
    table = after({}, kept.leave())
    assert not kept.tangled
    take(kept, [[MoveJob(JOB, again)]], table)
    assert kept.tangled
    deleted = tail()
    take(deleted, [[put(1), DropJob(JOB)]], {})
    assert deleted.tangled
