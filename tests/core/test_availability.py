from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.core.entries import FreeCapacities, MachineClass, WorkerEntry
from rota.core.model import ExecutionId, Resources, Worker, WorkerId
from rota.core.reservations.conservative import Availability

CPUS = 4
stays = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(1, CPUS)), max_size=6)


def cpus(count: int) -> Resources:
    return Resources(cpu_milli=1000 * count)


def a_worker(runs: list[tuple[int, int]]) -> WorkerEntry:
    """A worker that runs what takes (until, cpus), as far as it fits."""
    worker = Worker(WorkerId("w"), "w", "s", cpus(CPUS))
    worker_entry = WorkerEntry(worker, MachineClass(1, worker, FreeCapacities()), 1, 0)
    for number, (until, count) in enumerate(runs):
        if worker_entry.free.cpu_milli >= 1000 * count:
            worker_entry.hold(ExecutionId(str(number)), cpus(count), until)
    return worker_entry


def free_at(worker_entry: WorkerEntry, planned_later: list[tuple[int, int, int]], at: int) -> int:
    held = sum(worker_entry.held[x].cpu_milli for until, x in worker_entry.ends if until > at)
    planned = sum(1000 * count for start, end, count in planned_later if start <= at < end)
    return 1000 * CPUS - held - planned


@given(
    runs=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3)), max_size=4),
    before=stays,
    later=stays,
    asked=st.tuples(st.integers(1, 8), st.integers(1, CPUS)),
)
def test_the_earliest_time_is_the_first_from_which_the_needs_always_fit(
    runs: list[tuple[int, int]],
    before: list[tuple[int, int, int]],
    later: list[tuple[int, int, int]],
    asked: tuple[int, int],
) -> None:
    worker_entry = a_worker(runs)
    planned_later: list[tuple[int, int, int]] = []

    def has_room(start: int, length: int, count: int) -> bool:
        moments = range(start, start + length)
        return all(free_at(worker_entry, planned_later, at) >= 1000 * count for at in moments)

    planned = []
    for start, length, count in before:
        if has_room(start, length, count):
            planned_later.append((start, start + length, count))
            planned.append((start, start + length, cpus(count)))
    availability = Availability(worker_entry, 0, planned)
    for start, length, count in later:
        if has_room(start, length, count):
            planned_later.append((start, start + length, count))
            availability.take(start, length, cpus(count))
    length, count = asked
    expected = next(at for at in range(100) if has_room(at, length, count))
    assert availability.earliest(cpus(count), length) == expected
    availability.take(expected, length, cpus(count))
    assert availability.earlier(cpus(count), length, expected) is None
    for start, end, amount in planned:
        availability.give(start, end - start, amount)
    planned_later = planned_later[len(planned) :]
    sooner = next(at for at in range(100) if has_room(at, length, count))
    found = availability.earlier(cpus(count), length, expected)
    assert found == (sooner if sooner < expected else None)
