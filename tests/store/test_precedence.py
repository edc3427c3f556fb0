"""The projection lets the loop that decides go first, and no wait lasts for ever because of it."""

from __future__ import annotations

import asyncio
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.store.limits import PRECEDENCE_ROUNDS, StoreLimits
from rota.store.projection.precedence import Precedence, in_slices
from rota.store.projection.watermark import Watermark
from rota.store.protocol import Seq

A_MOMENT_S = 0.05
LONG_S = 30.0
PATIENT = StoreLimits(fold_gives_way_s=LONG_S)
"""A fold that would wait for the loop as long as it takes."""


@pytest.fixture
def watermark() -> Watermark:
    return Watermark(Seq(0), Seq(1))


def giving_way(precedence: Precedence) -> threading.Thread:
    thread = threading.Thread(target=precedence.give_way, daemon=True)
    thread.start()
    return thread


async def test_the_fold_waits_while_the_loop_is_at_something_and_no_longer(
    watermark: Watermark,
) -> None:
    going_first = Precedence(watermark, PATIENT)
    going_first.claim()
    fold = giving_way(going_first)
    fold.join(A_MOMENT_S)
    assert fold.is_alive()
    await asyncio.to_thread(fold.join, LONG_S / 2)
    assert not fold.is_alive()


async def test_a_turn_that_comes_right_after_another_is_waited_for_as_well(
    watermark: Watermark,
) -> None:
    going_first = Precedence(watermark, PATIENT)
    for _ in range(3 * PRECEDENCE_ROUNDS):
        going_first.claim()
        await asyncio.sleep(0)
    fold = giving_way(going_first)
    fold.join(A_MOMENT_S)
    assert fold.is_alive()
    await asyncio.to_thread(fold.join, LONG_S / 2)
    assert not fold.is_alive()


async def test_a_fold_that_a_reader_waits_for_gives_way_to_nobody(watermark: Watermark) -> None:
    going_first = Precedence(watermark, PATIENT)
    watermark.reached(Seq(1))
    going_first.claim()
    fold = giving_way(going_first)
    fold.join(LONG_S / 2)
    assert not fold.is_alive()


async def test_a_loop_that_stands_still_does_not_keep_the_fold_for_ever(
    watermark: Watermark,
) -> None:
    going_first = Precedence(watermark, StoreLimits(fold_gives_way_s=A_MOMENT_S))
    going_first.claim()
    going_first.give_way()  # in the loop itself, which therefore gets no further


async def test_the_loop_does_not_wait_for_a_fold_that_is_just_looking(watermark: Watermark) -> None:
    going_first = Precedence(watermark, PATIENT)
    with going_first._claimed:
        going_first.claim()
    going_first.claim()
    fold = giving_way(going_first)
    fold.join(A_MOMENT_S)
    assert fold.is_alive()
    await asyncio.to_thread(fold.join, LONG_S / 2)


@given(st.lists(st.lists(st.integers())), st.integers(1, 7))
def test_slices_leave_nothing_out_and_each_is_given_way_before(
    parts: list[list[int]], size: int
) -> None:
    ways = 0

    def give_way() -> None:
        nonlocal ways
        ways += 1

    taken: list[int] = []
    for number, piece in enumerate(in_slices(parts, size, give_way), 1):
        assert ways == number
        assert 0 < len(piece) <= size
        taken += piece
    assert taken == [one for part in parts for one in part]
