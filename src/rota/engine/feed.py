"""Tells watchers how far the journal has come; what is in it they read themselves."""

from __future__ import annotations

import asyncio


class JournalNotifier:
    """The newest committed position. A slow watcher costs nothing: it only waits for a number."""

    def __init__(self) -> None:
        self.seq = 0
        self._watchers: list[asyncio.Future[None]] = []

    def publish(self, seq: int) -> None:
        """The journal has come to `seq`."""
        self.seq = seq
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)

    async def wait_beyond(self, seq: int) -> int:
        """The newest position, once it is larger than `seq`."""
        while self.seq <= seq:
            watcher: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watchers.append(watcher)
            await watcher
        return self.seq
