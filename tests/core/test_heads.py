from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.model import JobId
from rota.core.order import heads as heads_module
from rota.core.order.heads import Heads, Seat


@dataclass
class Standing:
    bit: int


act = st.tuples(st.booleans(), st.integers(0, 29), st.integers(0, 9))


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> Iterator[None]:
    """Blocks are split and dropped all the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heads_module, "BLOCK_MAX", 2)
        yield


@given(acts=st.lists(act, max_size=100), mask=st.integers(1, 255))
def test_heads_in_blocks_find_whom_a_sorted_list_finds(
    acts: list[tuple[bool, int, int]], mask: int
) -> None:
    heads: Heads[Standing] = Heads()
    lines = [Standing(1 << number % 8) for number in range(30)]
    seated: dict[int, Seat[Standing]] = {}
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
