"""Whichever comes first: the answer, or the end of whoever wants it."""

from __future__ import annotations

import asyncio

import pytest

from rota.api.cancel_on_disconnect import first_of


class Work:
    """Takes until it is told its answer, and knows how it ended."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.begun = asyncio.Event()
        self.ended = ""

    async def run(self) -> str:
        self.begun.set()
        try:
            answer = await self.answer
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise
        self.ended = "answered"
        return answer


async def test_an_answer_comes_through_and_nobody_waits_any_more() -> None:
    work, end = Work(), asyncio.Event()
    waiting = asyncio.create_task(first_of(work.run(), end.wait()))
    await work.begun.wait()
    work.answer.set_result("here")
    assert await waiting == "here"
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_work_that_nobody_wants_is_broken_off_however_many_say_so() -> None:
    work, ends = Work(), [asyncio.Event(), asyncio.Event()]
    waiting = asyncio.create_task(first_of(work.run(), *(end.wait() for end in ends)))
    await work.begun.wait()
    for end in ends:
        end.set()
    assert await waiting is None
    assert work.ended == "cancelled"


async def test_a_cancel_from_outside_is_not_taken_for_an_end() -> None:
    work, end = Work(), asyncio.Event()
    waiting = asyncio.create_task(first_of(work.run(), end.wait()))
    await work.begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert work.ended == "cancelled"


async def test_an_end_that_breaks_is_an_end() -> None:
    async def break_down() -> None:
        raise OSError("gone")

    work = Work()
    assert await first_of(work.run(), break_down()) is None


async def test_work_that_fails_says_why() -> None:
    work, end = Work(), asyncio.Event()
    work.answer.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await first_of(work.run(), end.wait())
