"""Sorted lists with masks of classes find the same as a search through all."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from rota.core.model import JobId
from rota.core.ready_queue.classes import ClassHeads, HeadEntry
from rota.core.ready_queue.fair_share import MaskedSortedList


@dataclass
class Sitter:
    level: int
    weighted_usage: float
    rank: int
    ready: int = 0


act = st.tuples(
    st.sampled_from(["sit", "leave", "move", "widen", "narrow"]),
    st.integers(0, 39),
    st.integers(0, 9),
    st.integers(1, 15),
)


@given(acts=st.lists(act, max_size=120), mask=st.integers(1, 15))
def test_a_masked_sorted_list_finds_what_a_sorted_list_finds(
    acts: list[tuple[str, int, int, int]], mask: int
) -> None:
    ring: MaskedSortedList[Sitter] = MaskedSortedList(
        block_max=3
    )  # blocks are split and dropped all the time
    sitters = {rank: Sitter(0, 0.0, rank) for rank in range(40)}
    seated: dict[int, Sitter] = {}
    for verb, rank, key, bits in acts:
        sitter = sitters[rank]
        if rank in seated:
            if verb == "leave":
                ring.remove(seated.pop(rank))
            elif verb == "widen":
                sitter.ready |= bits
                ring.widen(sitter)
            elif verb == "narrow":
                sitter.ready &= bits
            else:
                ring.move(sitter, float(key))
        elif verb == "sit":
            sitter.level, sitter.weighted_usage, sitter.ready = key % 2, float(key), bits
            ring.insert(sitter)
            seated[rank] = sitter
        line = sorted(seated.values(), key=lambda one: (one.level, one.weighted_usage, one.rank))
        assert ring.first(mask) is next((one for one in line if one.ready & mask), None)
        if line:
            assert ring.before(line[-1]) == line[:-1]


@dataclass
class Standing:
    bit: int


head_acts = st.tuples(st.booleans(), st.integers(0, 29), st.integers(0, 9))


@given(acts=st.lists(head_acts, max_size=100), mask=st.integers(1, 255))
def test_class_heads_find_what_a_sorted_list_finds(
    acts: list[tuple[bool, int, int]], mask: int
) -> None:
    heads: ClassHeads[Standing] = ClassHeads(
        block_max=2
    )  # blocks are split and dropped all the time
    lines = [Standing(1 << number % 8) for number in range(30)]
    seated: dict[int, HeadEntry[Standing]] = {}
    for comes, number, place in acts:
        if number in seated:
            heads.remove(seated.pop(number))
        if comes:
            seated[number] = (place % 3, (place, number, JobId("")), number, lines[number])
            heads.add(seated[number])
        in_order = sorted(seated.values(), key=lambda seat: seat[:3])
        assert list(heads) == in_order
        assert len(heads) == len(in_order)
        assert heads.least() == (in_order[0][0] if in_order else -1)
        assert heads.first(mask) == next((one for one in in_order if one[3].bit & mask), None)
