"""Common moments of periodic work: when waiting tasks continue, and which continue together."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.engine.beat import beat, next_beat
from tests.simtest.clock import VirtualLoop


def test_tasks_of_one_interval_continue_at_the_same_moments_whenever_they_began() -> None:
    loop = VirtualLoop()
    woke: dict[str, list[float]] = {}

    async def go_on(name: str, every_s: float, begins_s: float) -> None:
        await asyncio.sleep(begins_s)
        woke[name] = []
        while loop.time() < 10:
            await beat(every_s)
            woke[name].append(round(loop.time(), 6))
            await asyncio.sleep(0.01)  # what it does takes a moment

    async def live() -> None:
        await asyncio.gather(
            go_on("early", 0.5, 0.0), go_on("late", 0.5, 0.2), go_on("slow", 2.0, 1.3)
        )

    loop.run_until_complete(live())
    loop.close()
    assert woke["early"] == [0.5 * number for number in range(1, 21)]
    assert woke["late"] == woke["early"]
    assert woke["slow"] == [2.0, 4.0, 6.0, 8.0, 10.0]


@given(
    now=st.floats(0, 1e7, allow_nan=False),
    every=st.sampled_from([0.01, 0.5, 0.75, 1.0, 2.0, 5.0]),
)
def test_the_next_moment_is_near_and_is_not_the_one_that_has_just_been(
    now: float, every: float
) -> None:
    at = next_beat(now, every)
    assert at / every == pytest.approx(round(at / every), abs=1e-6)
    assert now < at <= now + every * 1.125 + 1e-6
    assert at <= now + every + 0.021
    # A timer that fires a moment early does not make a moment come twice.
    assert next_beat(at - min(every / 10, 0.015), every) > at + every / 2


@given(now=st.floats(0, 1e7, allow_nan=False))
def test_a_moment_of_a_long_interval_is_also_one_of_a_short_interval(now: float) -> None:
    at = next_beat(now, 2.0)
    assert next_beat(at - 0.3, 0.5) == at
