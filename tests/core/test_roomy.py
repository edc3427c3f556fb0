from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.core.memory.cells import MachineClass, WorkerEntry
from rota.core.memory.rooms import FreeCapacities, FreeCapacity
from rota.core.model import Worker, WorkerId
from rota.core.place.roomy import FreeIndex, first_allowed
from tests.core.asking import resources

WORKERS = 6


def fleet_of_one_kind() -> list[WorkerEntry]:
    worker = Worker(WorkerId("w"), "w", "s", resources(cpu=8))
    machine = MachineClass(1, worker, FreeCapacities())
    return [WorkerEntry(worker, machine, rank, 0) for rank in range(WORKERS)]


@given(st.lists(st.tuples(st.integers(0, WORKERS - 1), st.integers(0, 3)), max_size=60))
def test_each_worker_is_listed_once_with_the_room_it_has_and_by_rank(
    acts: list[tuple[int, int]],
) -> None:
    cells, roomy = fleet_of_one_kind(), FreeIndex()
    expected: dict[int, FreeCapacity] = {}
    for rank, cpu in acts:
        cell, worker_id = cells[rank], WorkerId(f"w{rank}")
        if cpu:
            cell.set_free(resources(cpu=cpu))
            roomy.put(worker_id, cell)
            expected[rank] = cell.free_capacity
        else:
            roomy.drop(worker_id)
            expected.pop(rank, None)
        listed = {room: [entry[0] for entry in row] for room, row in roomy.by_free_capacity.items()}
        rooms = dict.fromkeys(expected.values())
        assert listed == {
            room: sorted(rank for rank, its in expected.items() if its is room) for room in rooms
        }


def test_of_equally_good_workers_the_first_that_may_be_used_is_taken() -> None:
    cells, roomy = fleet_of_one_kind(), FreeIndex()
    for cell in reversed(cells):
        roomy.put(WorkerId(f"w{cell.rank}"), cell)
    (row,) = roomy.by_free_capacity.values()
    assert row[0][1] is cells[0]
    found = first_allowed(row, lambda cell: cell.rank >= 2)
    assert found is not None
    assert found[1] is cells[2]
    assert first_allowed(row, lambda cell: False) is None
