from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.core.entries import OrderKey
from rota.core.limits import LONG_FIFO_GROUP
from rota.core.model import JobId
from rota.core.ready_queue.merge_queue import FifoGroup, MergeQueue

act = st.tuples(
    st.sampled_from(["add", "add", "add", "many", "drop", "mark", "tidy"]), st.integers(0, 99)
)


@given(acts=st.lists(act, max_size=150))
def test_a_merge_queue_has_the_order_of_a_sorted_list(acts: list[tuple[str, int]]) -> None:
    row, expected = MergeQueue(), list[OrderKey]()
    lanes = [FifoGroup(0, ("t", priority, -1, 0)) for priority in range(3)]
    for lane in lanes:
        lane.in_memory = LONG_FIFO_GROUP
    lanes[0].in_memory = 0  # a short one
    for number, (what, chance) in enumerate(acts):
        # Mostly in the order of arrival, as jobs come.
        place = number // 8 + chance // 90 * 50
        entry = (place, number, JobId(f"j{number}"))
        if what == "add":
            row.add(entry, lanes[chance % 3])
            expected.append(entry)
        elif what == "many":
            many = [(place, number, JobId(f"j{number}-{one}")) for one in range(chance % 4 + 1)]
            row.add_run(many, lanes[chance % 3])
            expected += many
        elif what == "mark":
            row.add_spill_marker(entry)
            expected.append(entry)
        elif what == "tidy":
            row.compact(lambda one: one[1] % 3 != 0)
            expected = [one for one in expected if one[1] % 3 != 0]
        elif expected:
            row.drop_first()
            expected.remove(min(expected))
        assert not expected or row.first() == min(expected)
        assert row.size == len(expected)
    assert list(row.in_order()) == sorted(expected)
    assert sorted(row) == sorted(expected)


def test_jobs_that_come_in_order_are_not_in_a_heap() -> None:
    row, lane = MergeQueue(), FifoGroup(0, ("t", 0, -1, 0))
    for number in range(1_000):
        row.add((number, number, JobId(f"j{number}")), lane)
        lane.in_memory += 1
    assert lane.run is not None
    assert len(lane.run) // 3 == 1_000 - LONG_FIFO_GROUP


def test_a_fifo_group_that_became_empty_is_used_again() -> None:
    row, lane = MergeQueue(), FifoGroup(0, ("t", 0, -1, 0))
    lane.in_memory = LONG_FIFO_GROUP
    first, second = (1, 1, JobId("a")), (2, 2, JobId("b"))
    row.add(first, lane)
    row.drop_first()
    row.add(second, lane)
    assert row.first() == second
