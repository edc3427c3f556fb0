"""Jobs that a fold has written: known as long as they live, and as the last window left them."""

from __future__ import annotations

from rota.core.model import JobId, JobState, Life
from rota.core.outcome import AnyWrite, DropJob, MoveJob
from rota.store.projection.bulk_decode import EncodedSpec
from rota.store.projection.known import KnownJobs
from rota.store.projection.known_shelf import ShelfRow
from rota.store.table_changes import JobStanding, project
from tests.store.conformance import put

FIRST, SECOND, THIRD = (JobId(f"job-000{number}") for number in (1, 2, 3))
QUEUED = JobStanding(JobState.QUEUED, 1, "default")


def learn(known: KnownJobs, *writes: AnyWrite) -> None:
    known.learn(project([writes], known.standings((FIRST, SECOND, THIRD))), "1")


def waiting(number: int, line: int = 0) -> AnyWrite:
    return put(number, Life(JobState.QUEUED, line=line))


def test_a_job_is_known_as_the_last_window_left_it() -> None:
    known = KnownJobs(10)
    learn(known, waiting(1), waiting(2))
    learn(known, MoveJob(FIRST, Life(JobState.RUNNING, attempt=1)))
    running = JobStanding(JobState.RUNNING, 1, "default")
    assert known.standings((FIRST, SECOND, THIRD)) == {FIRST: running, SECOND: QUEUED}
    assert [one[0] for one in known.rows((SECOND, THIRD))[0]] == [SECOND]


def test_a_job_that_ended_went_or_is_on_the_shelf_is_not_known() -> None:
    known = KnownJobs(10)
    learn(known, waiting(1), waiting(2), waiting(3))
    learn(known, MoveJob(FIRST, Life(JobState.SUCCEEDED)), DropJob(SECOND), waiting(3, line=7))
    assert known.standings((FIRST, SECOND, THIRD)) == {}


def test_a_job_that_went_and_came_again_in_one_window_is_known_as_it_came() -> None:
    known = KnownJobs(10)
    learn(known, waiting(1))
    learn(known, DropJob(FIRST), put(1, Life(JobState.PENDING), revision=3))
    assert known.standings((FIRST,)) == {FIRST: JobStanding(JobState.PENDING, 1, "default")}
    assert known.rows((FIRST,))[0][0][1].revision == 3


def test_when_there_are_too_many_the_oldest_stay_known_and_may_still_move() -> None:
    known = KnownJobs(1)
    learn(known, waiting(1), waiting(2))
    learn(known, MoveJob(FIRST, Life(JobState.RUNNING)), put(1, Life(JobState.RUNNING)))
    assert list(known.standings((FIRST, SECOND))) == [FIRST]
    learn(known, MoveJob(FIRST, Life(JobState.SUCCEEDED)))
    learn(known, waiting(3))
    assert list(known.standings((FIRST, SECOND, THIRD))) == [THIRD]


def test_a_memory_that_was_thrown_away_knows_nothing() -> None:
    known = KnownJobs(10)
    learn(known, waiting(1))
    known.clear()
    assert known.standings((FIRST,)) == {}


def test_a_job_that_was_read_from_the_shelf_and_started_is_known_as_it_is_stored() -> None:
    known, stored = KnownJobs(10), b"as a newer program has written it"
    learn(known, waiting(1, line=7))
    shelved = JobStanding(JobState.QUEUED, 1, "default", line=7)
    row = ShelfRow(FIRST, put(1).spec, EncodedSpec(len(stored), stored), shelved)
    known.shelf.end(known.shelf.begin(), "1", [row])
    known.shelf.take_up()
    learn(known, MoveJob(FIRST, Life(JobState.RUNNING, attempt=1)))
    assert not known.shelf.known
    assert known.standings((FIRST,)) == {FIRST: JobStanding(JobState.RUNNING, 1, "default")}
    learn(known, MoveJob(FIRST, Life(JobState.QUEUED, attempt=1)))
    assert known.rows((FIRST,)) == ([(FIRST, row.spec, stored)], [])
