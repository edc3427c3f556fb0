"""Lets readers look at memory between two turns, when it holds only what is durable."""

from __future__ import annotations

import asyncio


class Lookers:
    """Makes readers wait while a turn is under way; they read before the next one begins."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Waits until the turn under way has ended."""
        looker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(looker)
        await looker

    async def let_look(self) -> None:
        """Lets waiting readers read now."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for looker in waiting:
                if not looker.done():
                    looker.set_result(None)
            await asyncio.sleep(0)
