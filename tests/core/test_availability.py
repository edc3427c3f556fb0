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
    """It runs what takes (until, cpus), as long as there is room."""
    worker = Worker(WorkerId("w"), "w", "s", cpus(CPUS))
    cell = WorkerEntry(worker, MachineClass(1, worker, FreeCapacities()), 1, 0)
    for number, (until, count) in enumerate(runs):
        if cell.free.cpu_milli >= 1000 * count:
            cell.hold(ExecutionId(str(number)), cpus(count), until)
    return cell


def free_at(cell: WorkerEntry, taken: list[tuple[int, int, int]], at: int) -> int:
    held = sum(cell.held[x].cpu_milli for until, x in cell.ends if until > at)
    planned = sum(1000 * count for start, end, count in taken if start <= at < end)
    return 1000 * CPUS - held - planned


@given(
    runs=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 3)), max_size=4),
    before=stays,
    later=stays,
    asked=st.tuples(st.integers(1, 8), st.integers(1, CPUS)),
)
def test_the_earliest_time_is_the_first_at_which_every_moment_has_room(
    runs: list[tuple[int, int]],
    before: list[tuple[int, int, int]],
    later: list[tuple[int, int, int]],
    asked: tuple[int, int],
) -> None:
    cell = a_worker(runs)
    taken: list[tuple[int, int, int]] = []

    def has_room(start: int, length: int, count: int) -> bool:
        moments = range(start, start + length)
        return all(free_at(cell, taken, at) >= 1000 * count for at in moments)

    planned = []
    for start, length, count in before:
        if has_room(start, length, count):
            taken.append((start, start + length, count))
            planned.append((start, start + length, cpus(count)))
    profile = Availability(cell, 0, planned)
    for start, length, count in later:
        if has_room(start, length, count):
            taken.append((start, start + length, count))
            profile.take(start, length, cpus(count))
    length, count = asked
    expected = next(at for at in range(100) if has_room(at, length, count))
    assert profile.earliest(cpus(count), length) == expected
    profile.take(expected, length, cpus(count))
    assert profile.earlier(cpus(count), length, expected) is None
    for start, end, amount in planned:
        profile.give(start, end - start, amount)
    taken = taken[len(planned) :]
    sooner = next(at for at in range(100) if has_room(at, length, count))
    found = profile.earlier(cpus(count), length, expected)
    assert found == (sooner if sooner < expected else None)
