"""Background tasks: work that runs beside the turns, from a server's start until its stop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundTask:
    """One task, ended by whoever began it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[None] | None = None

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """From now on."""
        self._task = asyncio.create_task(work, name=self._name)

    async def stop(self) -> None:
        """Wherever it is; returns when it has let go of all that it used."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
