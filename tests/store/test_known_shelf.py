"""Rows of the shelf that were read: known as they are stored, or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.model import JobId, JobState, Life
from rota.core.outcome import DropJob, MoveJob
from rota.store.projection.bulk_decode import EncodedSpec
from rota.store.projection.known_shelf import FOLDS_MAX, ROW_BYTES, KnownShelf, ShelfRow
from rota.store.table_changes import JobStanding, TableChanges, project
from tests.store.naive import spec

FIRST, SECOND, THIRD = IDS = [JobId(f"job-000{number}") for number in (1, 2, 3)]
STANDING = JobStanding(JobState.QUEUED, 1, "default", 7)
NOTHING = TableChanges()


def rows(job_ids: Sequence[JobId] = IDS) -> list[ShelfRow]:
    form = EncodedSpec(len(b"stored"), b"stored")
    return [ShelfRow(job_id, spec(), form, STANDING) for job_id in job_ids]


def moved(*job_ids: JobId) -> TableChanges:
    moves = [MoveJob(job_id, Life(JobState.RUNNING)) for job_id in job_ids]
    return project([moves], dict.fromkeys(IDS, STANDING))


def known(shelf: KnownShelf) -> list[JobId]:
    shelf.take_up()
    return list(shelf.known)


def shelf_after(stamp: str = "1", most_bytes: int = 10_000) -> KnownShelf:
    """One whose process has folded."""
    shelf = KnownShelf(most_bytes)
    shelf.learn(NOTHING, stamp)
    return shelf


def test_what_was_read_is_known_until_it_moves_or_goes() -> None:
    shelf = shelf_after("1")
    shelf.end(shelf.begin(), "1", rows())
    assert known(shelf) == IDS
    assert list(shelf.known.values()) == rows()
    shelf.learn(moved(FIRST), "2")
    shelf.learn(project([[DropJob(THIRD)]], {THIRD: STANDING}), "3")
    assert known(shelf) == [SECOND]


def test_what_a_fold_has_written_since_the_read_saw_the_tables_is_not_taken_up() -> None:
    shelf = shelf_after("1")
    reading = shelf.begin()
    shelf.learn(moved(FIRST), "2")
    shelf.end(reading, "1", rows())
    shelf.learn(project([[DropJob(SECOND)]], {SECOND: STANDING}), "3")
    assert known(shelf) == [THIRD]


def test_what_a_fold_had_written_when_the_read_saw_the_tables_does_not_matter() -> None:
    shelf = shelf_after("1")
    reading = shelf.begin()
    shelf.learn(moved(FIRST), "2")
    shelf.end(reading, "2", rows([FIRST, SECOND]))
    assert known(shelf) == [FIRST, SECOND], "the first came back to the shelf in that fold"


def test_a_fold_that_is_committed_may_be_seen_before_its_process_hears_of_that() -> None:
    shelf = shelf_after("1")
    reading = shelf.begin()
    shelf.end(reading, "2", rows([SECOND]))
    shelf.learn(moved(FIRST), "2")
    assert known(shelf) == [SECOND]


def test_a_read_that_saw_the_fold_of_another_server_or_an_old_primary_is_not_believed() -> None:
    shelf = shelf_after("1")
    shelf.learn(NOTHING, "2")
    shelf.end(shelf.begin(), "1", rows([FIRST]))
    shelf.end(shelf.begin(), "99", rows([SECOND]))
    assert known(shelf) == []


def test_before_this_process_has_folded_no_read_is_believed() -> None:
    shelf = KnownShelf(10_000)
    shelf.end(shelf.begin(), "", rows())
    assert known(shelf) == []


def test_when_all_is_forgotten_so_are_the_reads_under_way() -> None:
    shelf = shelf_after("1")
    shelf.end(shelf.begin(), "1", rows([FIRST]))
    assert known(shelf) == [FIRST]
    shelf.end(shelf.begin(), "1", rows([SECOND]))
    reading = shelf.begin()
    shelf.clear()
    shelf.learn(NOTHING, "1")
    shelf.end(reading, "1", rows([THIRD]))
    assert known(shelf) == []


def test_a_read_that_failed_leaves_nothing_behind() -> None:
    shelf = shelf_after("1")
    reading = shelf.begin()
    shelf.give_up(reading)
    shelf.clear()
    shelf.give_up(reading)
    assert known(shelf) == []


def test_a_read_that_takes_as_long_as_many_folds_is_not_waited_for() -> None:
    shelf = shelf_after("0")
    reading = shelf.begin()
    for stamp in range(1, FOLDS_MAX + 2):
        shelf.learn(NOTHING, str(stamp))
    assert len(reading.folds) == FOLDS_MAX
    shelf.end(reading, "1", rows())
    assert known(shelf) == []


def test_where_there_are_too_many_the_first_stay_and_make_room_when_they_move() -> None:
    shelf = shelf_after("1", most_bytes=2 * (ROW_BYTES + len(b"stored")))
    shelf.end(shelf.begin(), "1", rows())
    assert known(shelf) == [FIRST, SECOND]
    shelf.learn(moved(FIRST), "2")
    shelf.end(shelf.begin(), "2", rows([SECOND, THIRD]))
    assert known(shelf) == [SECOND, THIRD]


def test_reads_that_no_fold_takes_up_are_bounded_together() -> None:
    shelf = shelf_after("1", most_bytes=2 * (ROW_BYTES + len(b"stored")))
    shelf.end(shelf.begin(), "1", rows([FIRST]))
    other = shelf.begin()
    shelf.end(other, "1", rows([SECOND, THIRD]))
    assert other.rows == rows([SECOND]), "there is room for two in all"
    assert known(shelf) == [FIRST, SECOND]
