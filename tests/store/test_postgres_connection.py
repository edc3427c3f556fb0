"""Turns of callers on a shared connection, without a database."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from rota.store.postgres.connect import Connection, DedicatedConnection, parse_address
from rota.store.protocol import StoreError


class Wire:
    """A connection that knows nothing but how to be broken off."""

    def __init__(self) -> None:
        self.is_broken = False

    def is_closed(self) -> bool:
        return self.is_broken

    def terminate(self) -> None:
        self.is_broken = True


class WiredConnection(DedicatedConnection):
    """Dedicated connection that gets its driver's connection from the test."""

    def __init__(self) -> None:
        super().__init__(parse_address("postgresql://rota@nowhere/rota"), "test", 0.2, {})
        self.wire = Wire()

    async def connected(self) -> Connection:
        return cast("Connection", self.wire)


@pytest.fixture
def line() -> WiredConnection:
    return WiredConnection()


async def test_callers_use_a_connection_in_the_order_in_which_they_came(
    line: WiredConnection,
) -> None:
    seen: list[int] = []

    async def use(number: int) -> int:
        async def work(_: Any) -> int:
            seen.append(number)
            await asyncio.sleep(0)
            return number

        return await (line.write if number % 2 else line.read)(work)

    async def come(number: int) -> int:
        for _ in range(number):
            await asyncio.sleep(0)  # also in the moment between one's leaving and the next one's
        return await use(number)

    answers = await asyncio.gather(*(come(number) for number in range(30)))
    assert answers == seen == list(range(30))


async def test_a_caller_that_waits_too_long_hears_that_nothing_was_done(
    line: WiredConnection,
) -> None:
    await line._turn.acquire()
    done: list[bool] = []

    async def work(_: Any) -> None:
        done.append(True)

    with pytest.raises(StoreError, match="nothing was done"):
        await line.write(work)
    line._turn.release()
    await line.write(work)
    assert done == [True]


async def test_work_that_takes_too_long_is_broken_off_and_not_cancelled(
    line: WiredConnection,
) -> None:
    go_on, ends = asyncio.Event(), []

    async def work(_: Any) -> None:
        try:
            await go_on.wait()
            ends.append("by itself")
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    with pytest.raises(StoreError):
        await line.write(work)
    assert line.wire.is_broken
    caller = asyncio.create_task(line.write(work))
    await asyncio.sleep(0.01)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    go_on.set()
    await asyncio.sleep(0.01)
    assert ends == ["by itself", "by itself"]
