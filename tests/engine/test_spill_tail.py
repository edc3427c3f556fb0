"""Newest records over what the tables have of spill queues: together they are the queues now."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from rota.core.model import JobId, JobRecord, JobState, Life
from rota.core.outcome import AnyWrite, DropJob, MoveJob, PutJob, Refill
from rota.engine.refills import SpillTail
from rota.store.projection.shards import shard_of
from rota.store.protocol import Seq, SpilledJobs
from tests.store.naive import spec

SHARDS = 4
QUEUES = (7, 8)
RUNNING, DONE = Life(JobState.RUNNING), Life(JobState.CANCELLED, finished_at=1)


def put(number: int, line: int) -> PutJob:
    life = Life(JobState.QUEUED, line=line)
    return PutJob(JobId(f"job-{number:02}"), spec(number), life)


_numbers = st.integers(0, 11)
_jobs = _numbers.map(lambda number: JobId(f"job-{number:02}"))
_writes: st.SearchStrategy[AnyWrite] = st.one_of(
    st.builds(put, _numbers, st.sampled_from((*QUEUES, 7, 7, 0))),
    st.builds(MoveJob, _jobs, st.sampled_from((RUNNING, DONE))),
    st.builds(DropJob, _jobs),
)
Records = list[list[AnyWrite]]
_records = st.lists(st.lists(_writes, max_size=4), max_size=10)


def queue_after(writes: Sequence[AnyWrite], wanted: Refill) -> list[JobRecord]:
    """The jobs of a spill queue, when these writes are all there are."""
    spilled: dict[JobId, JobRecord] = {}
    for write in writes:
        spilled.pop(write.id, None)  # type: ignore[union-attr]
        if isinstance(write, PutJob) and write.life.line == wanted.spill_queue:
            spilled[write.id] = JobRecord(write.id, write.spec, write.life)
    jobs = sorted(spilled.values(), key=lambda job: job.spec.arrival_number)
    return [job for job in jobs if job.spec.arrival_number > wanted.after]


def tables_at(records: Records, positions: Sequence[Seq], wanted: Refill) -> list[JobRecord]:
    """What a read brings while each shard is somewhere else."""
    projected = [
        write
        for seq, writes in enumerate(records, 1)
        for write in writes
        if seq <= positions[shard_of(write.id, SHARDS)]  # type: ignore[union-attr]
    ]
    return queue_after(projected, wanted)[: wanted.limit]


@given(
    _records,
    st.lists(st.integers(0, 10), min_size=SHARDS, max_size=SHARDS),
    st.sampled_from(QUEUES),
    st.integers(-1, 10),
    st.integers(1, 4),
)
def test_what_is_read_and_the_newest_records_are_the_next_jobs_of_the_queue(
    records: Records, behind: list[int], line: int, after: int, limit: int
) -> None:
    positions = [Seq(max(0, len(records) - one)) for one in behind]
    wanted = Refill(line, after, limit, 1)
    read = tables_at(records, positions, wanted)
    tail = SpillTail()
    for seq, writes in enumerate(records, 1):
        tail.note(Seq(seq), writes)
    tail.forget(min(positions))
    found = tail.complete(wanted, read, SpilledJobs([tuple(read)], positions))
    queue = queue_after([write for writes in records for write in writes], wanted)
    assert found == queue[: len(found)]
    # Only a read that was cut short leaves some out, and those come with the next one.
    assert len(found) == min(limit, len(queue)) or len(read) == limit


def test_nothing_is_left_of_what_was_cleared() -> None:
    tail = SpillTail()
    tail.note(Seq(1), [put(1, 7)])
    tail.clear()
    assert tail.complete(Refill(7, -1, 9, 1), [], SpilledJobs([()], [Seq(0)] * SHARDS)) == []
