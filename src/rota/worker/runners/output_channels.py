"""Output and progress of an execution, from the pipes of its processes to the server.

The pipes read what a job prints and the progress it writes; `ExecutionOutput` passes both on, the
log by the pump of worker/logs.py. Most executions print little or nothing, so either is set up at
its first byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

from rota.wire.limits import MESSAGE_CHARS_MAX
from rota.wire.queues import LimitsView
from rota.wire.workers import OrderView, ProgressSpec
from rota.worker.logs import LogPump, LogSink
from rota.worker.masking import Secrets
from rota.worker.server_client import AwayError, RefusedError

READ_BYTES = 64 * 1024
BURST_BYTES = 1024 * 1024
"""Read from one job before its pipe is paused."""
BURST_S = 0.05
"""Length of that pause: a job that floods its output is slowed down, not the agent."""
LISTEN_S = 0.02
"""Delay before output is first read. Most short jobs have ended by then: their output is read in
one piece, without a reader in the event loop. It is sent no later: lines are gathered for
longer."""
LINE_BYTES_MAX = 4096
"""A longer line is no progress report."""


ProgressCallback: TypeAlias = Callable[[float, str | None], None]


def _never() -> bool:
    return False


class OutputPipe:
    """Pipe that a job prints to; stdout and stderr share it, so their order is kept."""

    def __init__(
        self, sink: Callable[[bytes], None], backlogged: Callable[[], bool] = _never
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._sink = sink
        self._backlogged = backlogged
        """Whether reading more should wait."""
        self._read, self.write_end = os.pipe()
        os.set_blocking(self._read, False)
        self._is_ours = True
        """The write end stays open here too, so that a job's exit does not wake the reader: the
        report of its end follows at once, and the rest of its output is read then."""
        self._burst = 0
        self._resume_timer: asyncio.TimerHandle | None = None
        self._is_watched = False
        self._ended = asyncio.Event()

    def started(self) -> None:
        """Starts reading: the job has its own copy of the write end."""
        self._resume_timer = self._loop.call_later(LISTEN_S, self._resume)

    async def drain(self, limit_s: float) -> None:
        """Reads until every writer is gone, or for `limit_s`, then closes."""
        if self._ended.is_set():
            return
        self._close_write_end()
        # A pipe holds little, so the rest is read now, however slow the server is.
        self._backlogged = _never
        taken = 0
        while taken < BURST_BYTES and (more := self._take()):
            taken += more
        if self._ended.is_set():
            return
        if self._resume_timer is not None:
            self._resume_timer.cancel()
            self._resume()
        try:
            async with asyncio.timeout(limit_s):
                await self._ended.wait()
        except TimeoutError:
            self.close()

    def close(self) -> None:
        self._close_write_end()
        if not self._ended.is_set():
            self._ended.set()
            self._unwatch()
            os.close(self._read)
        if self._resume_timer is not None:
            self._resume_timer.cancel()

    def _resume(self) -> None:
        if self._backlogged():
            self._resume_timer = self._loop.call_later(BURST_S, self._resume)
            return
        self._burst = 0
        self._resume_timer = None
        self._is_watched = True
        self._loop.add_reader(self._read, self._readable)

    def _unwatch(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._loop.remove_reader(self._read)

    def _close_write_end(self) -> None:
        if self._is_ours:
            self._is_ours = False
            os.close(self.write_end)

    def _readable(self) -> None:
        self._burst += self._take()
        if self._ended.is_set():
            return
        if self._burst >= BURST_BYTES or self._backlogged():
            self._unwatch()
            self._resume_timer = self._loop.call_later(BURST_S, self._resume)

    def _take(self) -> int:
        """Reads what is there, and returns how many bytes; closes when no writer is left."""
        try:
            data = os.read(self._read, READ_BYTES)
        except BlockingIOError:
            return 0
        if data:
            self._sink(data)
        else:
            self.close()
        return len(data)


class ProgressPipe:
    """Named pipe for progress lines, which the agent keeps open for reading and writing.

    Writing too, so that a job that opens and closes it for each line never ends it. It serves one
    job after the other, as its folder does.
    """

    def __init__(self, path: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._sink: ProgressCallback | None = None
        self._rest = b""
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._loop.add_reader(self._pipe, self._readable)

    def listen(self, sink: ProgressCallback) -> None:
        """Sends the progress of a job that begins to `sink`."""
        self._sink = sink

    def stop_listening(self) -> None:
        """Discards what is in the pipe after a job has ended with all its processes.

        It discards all of it, however large a job has made the pipe: the next job must not report
        it.
        """
        while self._take():
            pass
        self._sink, self._rest = None, b""

    def close(self) -> None:
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)

    def _readable(self) -> None:
        self._take()

    def _take(self) -> bool:
        """Reads what is there, and returns whether there was anything."""
        try:
            data = os.read(self._pipe, READ_BYTES)
        except BlockingIOError:
            return False
        if self._sink is None:
            return True  # left by a job that has ended
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:LINE_BYTES_MAX]
        for line in reversed(lines):
            if (report := parse_progress(line)) is not None:
                self._sink(*report)
                break  # only the newest matters
        return True


def parse_progress(line: bytes) -> tuple[float, str | None] | None:
    """Parses a line such as `0.4 message`; None if it is no progress."""
    number, _, message = line.decode("utf-8", "replace").strip().partition(" ")
    try:
        value = float(number)
    except ValueError:
        return None
    if not math.isfinite(value) or not 0 <= value <= 1:
        return None
    return value, message.strip()[:MESSAGE_CHARS_MAX] or None


PROGRESS_INTERVAL_S = 1.0
"""The server stores one report a second at most."""


class ProgressSink(Protocol):
    """Receiver of progress."""

    async def send_progress(self, execution_id: str, record: ProgressSpec) -> None:
        """Raises AwayError or RefusedError; the next lease call carries the progress too."""
        ...


class ProgressSender:
    """Sends the newest progress of one job, at most once a second."""

    def __init__(self, execution_id: str, fence: int, sink: ProgressSink) -> None:
        self._execution_id = execution_id
        self._fence = fence
        self._sink = sink
        self._newest: ProgressSpec | None = None
        self._has_more = asyncio.Event()

    def update(self, progress: float, message: str | None) -> None:
        self._newest = ProgressSpec(progress, message, self._fence)
        self._has_more.set()

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            await self._has_more.wait()
            await self.flush()
            await asyncio.sleep(PROGRESS_INTERVAL_S)

    async def flush(self) -> None:
        """Sends what is not sent yet."""
        record, self._newest = self._newest, None
        self._has_more.clear()
        if record is not None:
            with contextlib.suppress(AwayError, RefusedError):
                await self._sink.send_progress(self._execution_id, record)


LOG_FLUSH_S = 5.0
"""How long the report waits for the log before it: readers then see the whole log at the end."""
PROGRESS_FLUSH_S = 1.0
"""How long the report waits for the last progress; the end of the job says more."""


class OutputSink(LogSink, ProgressSink, Protocol):
    """Receiver of logs and progress."""


class ExecutionOutput:
    """Sends the output and progress of one execution to the server."""

    def __init__(
        self,
        order: OrderView,
        sink: OutputSink,
        secrets: Secrets,
        on_progress: Callable[[str, float, str | None], None],
    ) -> None:
        """Sets it up; `on_progress` gets the progress too, for the worker's next call."""
        self._order = order
        self._sink = sink
        self._secrets = secrets
        self._on_progress = on_progress
        self._log: LogPump | None = None
        self._log_task: asyncio.Task[None] | None = None
        self._progress: ProgressSender | None = None
        self._progress_task: asyncio.Task[None] | None = None
        self.unsent_log: asyncio.Task[None] | None = None
        """Task that still sends output when all else has ended: the server was away."""

    @property
    def backlogged(self) -> bool:
        """Whether output read before is still to be sent."""
        return self._log is not None and self._log.backlogged

    def printed(self, data: bytes) -> None:
        if self._log is None:
            order = self._order
            cap = (order.limits or LimitsView()).log_size
            self._log = LogPump(order.execution_id, order.fence, self._sink, self._secrets, cap=cap)
            self._log_task = asyncio.create_task(self._log.run())
        self._log.add(data)

    def progressed(self, fraction: float, message: str | None) -> None:
        order = self._order
        if self._progress is None:
            self._progress = ProgressSender(order.execution_id, order.fence, self._sink)
            self._progress_task = asyncio.create_task(self._progress.run())
        message = message and self._secrets.hide(message)
        self._on_progress(order.execution_id, fraction, message)
        self._progress.update(fraction, message)

    def tail(self) -> str:
        """Returns the last lines of the output, for an error message."""
        return "" if self._log is None else self._log.buffer.tail()

    async def flush(self, at_once: asyncio.Event) -> None:
        """Sends the last output before the report, unless `at_once` says that nobody wants it."""
        if at_once.is_set() or (self._log_task is None and self._progress is None):
            return
        abandoned = asyncio.create_task(at_once.wait())
        sender = self._progress
        last_progress = None if sender is None else asyncio.create_task(sender.flush())
        if self._log is not None and self._log_task is not None:
            self._log.end()
            await _either(self._log_task, abandoned, LOG_FLUSH_S)
            if not self._log_task.done():
                self.unsent_log = self._log_task
        if last_progress is not None:
            await _either(last_progress, abandoned, PROGRESS_FLUSH_S)
            last_progress.cancel()
        abandoned.cancel()

    def close(self) -> None:
        """Stops sending, except for what is left of the log."""
        for task in (self._progress_task, self._log_task):
            if task is not None and task is not self.unsent_log:
                task.cancel()


async def _either(sent: asyncio.Task[None], abandoned: asyncio.Task[bool], limit_s: float) -> None:
    await asyncio.wait((sent, abandoned), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
