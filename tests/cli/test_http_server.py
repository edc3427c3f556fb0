"""The HTTP server within our loop: how it ends, and how often it wakes."""

from __future__ import annotations

import asyncio

from rota.cli.start.http_server import EmbeddedServer, Ticks, listen
from rota.cli.start.up import HttpOptions
from tests.engine.rig import until


async def nothing(scope: object, receive: object, send: object) -> None:
    """An application that answers nobody."""


class Ticking(EmbeddedServer):
    """Counts what its clock does."""

    def __init__(self, tick_s: float) -> None:
        options = HttpOptions(host="127.0.0.1", port=0)
        super().__init__(nothing, options, ticks=Ticks(tick_s=tick_s))
        self.ticks: list[int] = []

    async def on_tick(self, counter: int) -> bool:
        self.ticks.append(counter)
        return await super().on_tick(counter)


async def test_a_server_that_is_told_to_end_does_so_without_waiting_for_its_clock() -> None:
    server = Ticking(3600.0)
    serving = asyncio.create_task(server.serve(sockets=[listen("127.0.0.1", 0)]))
    await until(lambda: bool(server.ticks))
    assert not server.should_exit
    server.should_exit = True
    await asyncio.wait_for(serving, 5)
    assert server.ticks == [0]


async def test_its_clock_counts_tenths_of_a_second_with_one_tick_for_ten() -> None:
    server = Ticking(0.01)
    serving = asyncio.create_task(server.serve(sockets=[listen("127.0.0.1", 0)]))
    await until(lambda: len(server.ticks) > 3)
    assert server.ticks[:4] == [0, 10, 20, 30]
    assert server.server_state.default_headers[0][0] == b"date"
    server.should_exit = True
    await asyncio.wait_for(serving, 5)
