"""The result of work, or the first future that cancels it."""

from __future__ import annotations

import asyncio

import pytest

from rota.api.cancel_on_disconnect import first_of


class Work:
    """Work that waits for its result, and knows how it ended."""

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


async def test_a_result_is_returned_and_the_other_futures_are_cancelled() -> None:
    work, end = Work(), asyncio.Event()
    waiting = asyncio.create_task(first_of(work.run(), end.wait()))
    await work.begun.wait()
    work.answer.set_result("here")
    assert await waiting == "here"
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_work_is_cancelled_once_however_many_futures_complete() -> None:
    work, ends = Work(), [asyncio.Event(), asyncio.Event()]
    waiting = asyncio.create_task(first_of(work.run(), *(end.wait() for end in ends)))
    await work.begun.wait()
    for end in ends:
        end.set()
    assert await waiting is None
    assert work.ended == "cancelled"


async def test_a_cancel_from_outside_is_raised() -> None:
    work, end = Work(), asyncio.Event()
    waiting = asyncio.create_task(first_of(work.run(), end.wait()))
    await work.begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert work.ended == "cancelled"


async def test_a_future_that_fails_cancels_the_work() -> None:
    async def break_down() -> None:
        raise OSError("gone")

    work = Work()
    assert await first_of(work.run(), break_down()) is None


async def test_an_exception_of_the_work_is_raised() -> None:
    work, end = Work(), asyncio.Event()
    work.answer.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await first_of(work.run(), end.wait())
