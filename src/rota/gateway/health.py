"""How the servers of a cell are, as far as has been observed; and what to do with one that died.

A server is up until it is seen to fail. Who waits for an answer of one that goes down is not kept
waiting: that is what makes a frozen cell as quick to answer for as a dead one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from rota.gateway.limits import FAILURES_MAX
from rota.wire.cells import cell_tag


class Closable(Protocol):
    """An answer that is still being read."""

    def close(self) -> None:
        """Ends it at once: its reader gets an error."""
        ...


class Server:
    """One server of a cell."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.up = True
        self.ready = False
        """Its last probe said that it can accept and schedule."""
        self.why = ""
        """Why it counts as down."""
        self.is_of_other_cell = False
        """It says that it is of another cell."""
        self._failures = 0
        self._waiting: dict[asyncio.Timeout, None] = {}
        self._reading: dict[Closable, None] = {}

    def answered(self) -> None:
        """It said something."""
        self._failures = 0
        self.up, self.why = True, ""

    def failed(self, why: str, *, refused: bool = False) -> None:
        """It did not; where nobody listens, once is enough."""
        self._failures += 1
        self.ready = False
        if refused or self._failures >= FAILURES_MAX:
            self.mark_down(why)

    def mark_down(self, why: str) -> None:
        """It counts as down, and whoever waits for it is told."""
        self.up, self.ready, self.why = False, False, why
        now = asyncio.get_running_loop().time()
        for deadline in self._waiting:
            if not deadline.expired():
                deadline.reschedule(now)
        for answer in list(self._reading):
            answer.close()

    @asynccontextmanager
    async def waited_for(self, seconds: float) -> AsyncIterator[None]:
        """TimeoutError when the time is over or the server goes down."""
        async with asyncio.timeout(seconds) as deadline:
            self._waiting[deadline] = None
            try:
                yield
            finally:
                del self._waiting[deadline]

    def being_read(self, answer: Closable) -> None:
        """From now on its end is this answer's end."""
        self._reading[answer] = None

    def was_read(self, answer: Closable) -> None:
        """It has ended by itself."""
        self._reading.pop(answer, None)


class Cell:
    """One cell and its servers."""

    def __init__(self, name: str, urls: Sequence[str]) -> None:
        self.name = name
        self.tag = cell_tag(name)
        self.servers = [Server(url) for url in urls]

    @property
    def up(self) -> bool:
        """Whether anybody there may answer."""
        return any(server.up for server in self.servers)

    @property
    def ready(self) -> bool:
        """Whether somebody there can accept and schedule."""
        return any(server.ready for server in self.servers)

    @property
    def why(self) -> str:
        """Why it counts as down."""
        return "; ".join(dict.fromkeys(server.why for server in self.servers if server.why))

    def candidates(self) -> list[Server]:
        """Those worth asking, the ready ones first; else in the order they were named."""
        found = [server for server in self.servers if server.up]
        return sorted(found, key=lambda server: not server.ready)
