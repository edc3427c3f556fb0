"""The virtual loop: time jumps, clocks run unevenly, and frozen machines wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.simtest.clock import Machine, MachineClock, StalledError, VirtualLoop


def live(loop: VirtualLoop, work: Coroutine[Any, Any, Any]) -> Any:
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


def test_hours_of_virtual_time_pass_at_once() -> None:
    loop = VirtualLoop()
    live(loop, asyncio.sleep(7_200))
    assert loop.true_s == pytest.approx(7_200)


def test_a_fast_clock_wakes_its_machine_early() -> None:
    loop = VirtualLoop()
    fast = Machine("fast", rate=1.25)
    woke: list[tuple[float, float]] = []

    async def sleep() -> None:
        await asyncio.sleep(10.0)
        woke.append((loop.true_s, MachineClock(fast, loop).fine_s()))

    async def both() -> None:
        await fast.spawn(sleep())

    live(loop, both())
    assert [pytest.approx(moments) for moments in woke] == [(8.0, 10.0)]


def test_a_frozen_machine_goes_on_when_it_thaws() -> None:
    loop = VirtualLoop()
    box = Machine("box")
    ticks: list[float] = []

    async def tick() -> None:
        while len(ticks) < 3:
            await asyncio.sleep(1.0)
            ticks.append(round(loop.true_s, 3))

    async def freeze_between() -> None:
        ticking = box.spawn(tick())
        await asyncio.sleep(1.5)
        loop.freeze(box)
        await asyncio.sleep(10.0)
        loop.thaw(box)
        await ticking

    live(loop, freeze_between())
    assert ticks == [1.0, 11.5, 12.5]


def test_a_dead_machine_does_not_interact_with_the_outside() -> None:
    loop = VirtualLoop()
    box = Machine("box")
    written: list[str] = []

    async def speak() -> None:
        try:
            await asyncio.sleep(5.0)
        finally:
            box.step()
            written.append("a last word")

    async def kill() -> None:
        box.spawn(speak())
        await asyncio.sleep(1.0)
        box.alive = False
        box.end_tasks()
        await asyncio.sleep(10.0)

    live(loop, kill())
    assert written == []


def test_a_loop_without_any_timer_raises() -> None:
    loop = VirtualLoop()

    async def wait_in_vain() -> None:
        await loop.create_future()

    with pytest.raises(StalledError):
        loop.run_until_complete(wait_in_vain())
    loop.close()


def test_a_loop_kept_busy_without_time_passing_raises() -> None:
    loop = VirtualLoop()

    async def turn_in_circles() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(StalledError, match="busy at"):
        loop.run_until_complete(turn_in_circles())
    loop.close()


def test_a_call_for_a_thread_runs_in_the_loop() -> None:
    assert live(VirtualLoop(), asyncio.to_thread(sum, [1, 2])) == 3
