from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from rota.core.model import JobId
from rota.core.order.heads import ClassHeads, HeadEntry


@dataclass
class Standing:
    bit: int


head_acts = st.tuples(st.booleans(), st.integers(0, 29), st.integers(0, 9))


@given(acts=st.lists(head_acts, max_size=100), mask=st.integers(1, 255))
def test_heads_in_blocks_find_whom_a_sorted_list_finds(
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
