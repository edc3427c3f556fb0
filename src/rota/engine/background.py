"""Background tasks: work that runs beside the turns, from a server's start until its stop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundTask:
    """Runs one task beside the turns, until its owner stops it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[None] | None = None

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.create_task(work, name=self._name)

    async def stop(self) -> None:
        """Cancels the task and waits until it has released all that it used."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
