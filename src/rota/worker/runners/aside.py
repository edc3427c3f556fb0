"""What an execution says beside its report: its log and its progress.

Most executions say little or nothing, so what carries either begins with the first word.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from rota.wire.queues import LimitsView
from rota.wire.workers import OrderView
from rota.worker.logs import LogPump, LogSink
from rota.worker.masking import Secrets
from rota.worker.runners.progress import ProgressSender, ProgressSink

LOG_FLUSH_S = 5.0
"""The report waits this long for the log before it: readers then see the whole log at the end."""
PROGRESS_FLUSH_S = 1.0
"""For the last word on progress; the end of the job says more."""


class OutputSink(LogSink, ProgressSink, Protocol):
    """Where both go."""


class ExecutionOutput:
    """One execution's words to the server."""

    def __init__(
        self,
        order: OrderView,
        sink: OutputSink,
        secrets: Secrets,
        noted: Callable[[str, float, str | None], None],
    ) -> None:
        """`noted` hears of progress, too: the worker's next call carries it."""
        self._order = order
        self._sink = sink
        self._secrets = secrets
        self._on_progress = noted
        self._log: LogPump | None = None
        self._log_task: asyncio.Task[None] | None = None
        self._progress: ProgressSender | None = None
        self._progress_task: asyncio.Task[None] | None = None
        self.unsent_log: asyncio.Task[None] | None = None
        """Still carrying output when all else is over: the server was away."""

    @property
    def crowded(self) -> bool:
        """What was printed last is still to be passed on."""
        return self._log is not None and self._log.crowded

    def printed(self, data: bytes) -> None:
        """A piece of output."""
        if self._log is None:
            order = self._order
            cap = (order.limits or LimitsView()).log_size
            self._log = LogPump(order.execution_id, order.fence, self._sink, self._secrets, cap=cap)
            self._log_task = asyncio.create_task(self._log.run())
        self._log.add(data)

    def progressed(self, fraction: float, message: str | None) -> None:
        """How far it is."""
        order = self._order
        if self._progress is None:
            self._progress = ProgressSender(order.execution_id, order.fence, self._sink)
            self._progress_task = asyncio.create_task(self._progress.run())
        message = message and self._secrets.hide(message)
        self._on_progress(order.execution_id, fraction, message)
        self._progress.update(fraction, message)

    def tail(self) -> str:
        """The last lines of the output, for people."""
        return "" if self._log is None else self._log.buffer.tail()

    async def flush(self, at_once: asyncio.Event) -> None:
        """What was said last goes out before the report, unless nobody wants that any more."""
        if at_once.is_set() or (self._log_task is None and self._progress is None):
            return
        abandoned = asyncio.create_task(at_once.wait())
        teller = self._progress
        last_word = None if teller is None else asyncio.create_task(teller.flush())
        if self._log is not None and self._log_task is not None:
            self._log.end()
            await _either(self._log_task, abandoned, LOG_FLUSH_S)
            if not self._log_task.done():
                self.unsent_log = self._log_task
        if last_word is not None:
            await _either(last_word, abandoned, PROGRESS_FLUSH_S)
            last_word.cancel()
        abandoned.cancel()

    def close(self) -> None:
        """Says no more, but what is left of the log."""
        for task in (self._progress_task, self._log_task):
            if task is not None and task is not self.unsent_log:
                task.cancel()


async def _either(said: asyncio.Task[None], abandoned: asyncio.Task[bool], limit_s: float) -> None:
    await asyncio.wait((said, abandoned), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
