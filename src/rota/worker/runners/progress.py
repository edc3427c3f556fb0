"""Tells the server how far a job is: the first word at once, then at most one a second."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

from rota.wire.executions import ProgressSpec
from rota.worker.link import AwayError, RefusedError

PROGRESS_INTERVAL_S = 1.0
"""The server stores no more than one a second."""


class ProgressSink(Protocol):
    """Where progress goes."""

    async def send_progress(self, execution_id: str, record: ProgressSpec) -> None:
        """Raises AwayError or RefusedError; the next lease call carries it too."""
        ...


class ProgressSender:
    """The newest word of one job, until it is told."""

    def __init__(self, execution_id: str, fence: int, sink: ProgressSink) -> None:
        self._execution_id = execution_id
        self._fence = fence
        self._sink = sink
        self._newest: ProgressSpec | None = None
        self._has_more = asyncio.Event()

    def update(self, progress: float, message: str | None) -> None:
        """The job said something."""
        self._newest = ProgressSpec(progress, message, self._fence)
        self._has_more.set()

    async def run(self) -> None:
        """Goes on until it is cancelled."""
        while True:
            await self._has_more.wait()
            await self.flush()
            await asyncio.sleep(PROGRESS_INTERVAL_S)

    async def flush(self) -> None:
        """Sends what is not told yet."""
        record, self._newest = self._newest, None
        self._has_more.clear()
        if record is not None:
            with contextlib.suppress(AwayError, RefusedError):
                await self._sink.send_progress(self._execution_id, record)
