"""The sorted lists of the ready queue find the same as a search through all."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from rota.core.entries import OrderKey
from rota.core.limits import LONG_FIFO_GROUP
from rota.core.model import JobId
from rota.core.ready_queue.classes import ClassHeads, HeadEntry
from rota.core.ready_queue.fair_share import MaskedSortedList
from rota.core.ready_queue.merge_queue import FifoGroup, MergeQueue


@dataclass
class Item:
    level: int
    weighted_usage: float
    rank: int
    ready: int = 0


act = st.tuples(
    st.sampled_from(["insert", "remove", "move", "widen", "narrow"]),
    st.integers(0, 39),
    st.integers(0, 9),
    st.integers(1, 15),
)


@given(acts=st.lists(act, max_size=120), mask=st.integers(1, 15))
def test_a_masked_sorted_list_finds_what_a_sorted_list_finds(
    acts: list[tuple[str, int, int, int]], mask: int
) -> None:
    items: MaskedSortedList[Item] = MaskedSortedList(
        block_max=3
    )  # blocks are split and dropped all the time
    all_items = {rank: Item(0, 0.0, rank) for rank in range(40)}
    listed: dict[int, Item] = {}
    for verb, rank, key, bits in acts:
        item = all_items[rank]
        if rank in listed:
            if verb == "remove":
                items.remove(listed.pop(rank))
            elif verb == "widen":
                item.ready |= bits
                items.widen(item)
            elif verb == "narrow":
                item.ready &= bits
            else:
                items.move(item, float(key))
        elif verb == "insert":
            item.level, item.weighted_usage, item.ready = key % 2, float(key), bits
            items.insert(item)
            listed[rank] = item
        in_order = sorted(
            listed.values(), key=lambda one: (one.level, one.weighted_usage, one.rank)
        )
        assert items.first(mask) is next((one for one in in_order if one.ready & mask), None)
        if in_order:
            assert items.before(in_order[-1]) == in_order[:-1]


@dataclass
class Queue:
    bit: int


head_acts = st.tuples(st.booleans(), st.integers(0, 29), st.integers(0, 9))


@given(acts=st.lists(head_acts, max_size=100), mask=st.integers(1, 255))
def test_class_heads_find_what_a_sorted_list_finds(
    acts: list[tuple[bool, int, int]], mask: int
) -> None:
    heads: ClassHeads[Queue] = ClassHeads(block_max=2)  # blocks are split and dropped all the time
    queues = [Queue(1 << number % 8) for number in range(30)]
    listed: dict[int, HeadEntry[Queue]] = {}
    for comes, number, place in acts:
        if number in listed:
            heads.remove(listed.pop(number))
        if comes:
            listed[number] = (place % 3, (place, number, JobId("")), number, queues[number])
            heads.add(listed[number])
        in_order = sorted(listed.values(), key=lambda entry: entry[:3])
        assert list(heads) == in_order
        assert len(heads) == len(in_order)
        assert heads.least() == (in_order[0][0] if in_order else -1)
        assert heads.first(mask) == next((one for one in in_order if one[3].bit & mask), None)


queue_acts = st.tuples(
    st.sampled_from(["add", "add", "add", "many", "drop", "mark", "tidy"]), st.integers(0, 99)
)


@given(acts=st.lists(queue_acts, max_size=150))
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
