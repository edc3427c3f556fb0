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
    queue, expected = MergeQueue(), list[OrderKey]()
    groups = [FifoGroup(0, ("t", priority, -1, 0)) for priority in range(3)]
    for group in groups:
        group.in_memory = LONG_FIFO_GROUP
    groups[0].in_memory = 0  # a short one
    for number, (what, chance) in enumerate(acts):
        # Mostly in the order of arrival, as jobs come.
        place = number // 8 + chance // 90 * 50
        entry = (place, number, JobId(f"j{number}"))
        if what == "add":
            queue.add(entry, groups[chance % 3])
            expected.append(entry)
        elif what == "many":
            many = [(place, number, JobId(f"j{number}-{one}")) for one in range(chance % 4 + 1)]
            queue.add_run(many, groups[chance % 3])
            expected += many
        elif what == "mark":
            queue.add_spill_marker(entry)
            expected.append(entry)
        elif what == "tidy":
            queue.compact(lambda one: one[1] % 3 != 0)
            expected = [one for one in expected if one[1] % 3 != 0]
        elif expected:
            queue.drop_first()
            expected.remove(min(expected))
        assert not expected or queue.first() == min(expected)
        assert queue.size == len(expected)
    assert list(queue.in_order()) == sorted(expected)
    assert sorted(queue) == sorted(expected)


def test_jobs_that_come_in_order_are_not_in_a_heap() -> None:
    queue, group = MergeQueue(), FifoGroup(0, ("t", 0, -1, 0))
    for number in range(1_000):
        queue.add((number, number, JobId(f"j{number}")), group)
        group.in_memory += 1
    assert group.run is not None
    assert len(group.run) // 3 == 1_000 - LONG_FIFO_GROUP


def test_a_fifo_group_that_became_empty_is_used_again() -> None:
    queue, group = MergeQueue(), FifoGroup(0, ("t", 0, -1, 0))
    group.in_memory = LONG_FIFO_GROUP
    first, second = (1, 1, JobId("a")), (2, 2, JobId("b"))
    queue.add(first, group)
    queue.drop_first()
    queue.add(second, group)
    assert queue.first() == second
