"""Output and progress of an execution, from the pipes of its processes to the server.

Pipes read what a job prints and the progress it writes; `ExecutionOutput` passes both on, the log
by the pump of worker/logs.py. Most executions print little or nothing, so either is set up at its
first byte.
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
"""Read from one job before it has to wait its turn."""
BURST_S = 0.05
"""How long that turn takes: a job that floods its output is slowed down, not the agent."""
LISTEN_S = 0.02
"""Before output is looked for. Most short jobs have ended by then: what they printed is read in one
piece, and nothing is set up to hear of it. It is sent no later: lines are gathered for longer."""
LINE_BYTES_MAX = 4096
"""A longer line is no progress report."""


ProgressCallback: TypeAlias = Callable[[float, str | None], None]


def _never() -> bool:
    return False


class OutputPipe:
    """Reads what a job prints; stdout and stderr share it, so their order is kept."""

    def __init__(self, sink: Callable[[bytes], None], crowded: Callable[[], bool] = _never) -> None:
        self._loop = asyncio.get_running_loop()
        self._sink = sink
        self._crowded = crowded
        """More had better not be read now."""
        self._read, self.write_end = os.pipe()
        os.set_blocking(self._read, False)
        self._is_ours = True
        """The end to write to is open here as well, so that a job's last breath wakes nobody: how
        it ended is told a moment later, and the rest of its output is read then."""
        self._burst = 0
        self._turn: asyncio.TimerHandle | None = None
        self._is_watched = False
        self._ended = asyncio.Event()

    def started(self) -> None:
        """The job has its end of it."""
        self._turn = self._loop.call_later(LISTEN_S, self._next_turn)

    async def drain(self, limit_s: float) -> None:
        """Waits until every writer is gone, or for `limit_s`, then closes."""
        if self._ended.is_set():
            return
        self._close_write_end()
        # What a pipe still holds is little: it is taken now, however slow its reader is.
        self._crowded = _never
        taken = 0
        while taken < BURST_BYTES and (more := self._take()):
            taken += more
        if self._ended.is_set():
            return
        if self._turn is not None:
            self._turn.cancel()
            self._next_turn()
        try:
            async with asyncio.timeout(limit_s):
                await self._ended.wait()
        except TimeoutError:
            self.close()

    def close(self) -> None:
        """Reads no more."""
        self._close_write_end()
        if not self._ended.is_set():
            self._ended.set()
            self._unwatch()
            os.close(self._read)
        if self._turn is not None:
            self._turn.cancel()

    def _next_turn(self) -> None:
        if self._crowded():
            self._turn = self._loop.call_later(BURST_S, self._next_turn)
            return
        self._burst = 0
        self._turn = None
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
        if self._burst >= BURST_BYTES or self._crowded():
            self._unwatch()
            self._turn = self._loop.call_later(BURST_S, self._next_turn)

    def _take(self) -> int:
        """What is there now; how many bytes. Where nobody can write any more it closes."""
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
    """Reads progress lines from a named pipe that the agent keeps open on both sides.

    Open for writing too, so that a job that opens and closes it for each line never ends it. It
    serves one job after the other, as the folder does in which it is.
    """

    def __init__(self, path: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._sink: ProgressCallback | None = None
        self._rest = b""
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._loop.add_reader(self._pipe, self._readable)

    def listen(self, sink: ProgressCallback) -> None:
        """A job begins, whose progress `sink` hears of."""
        self._sink = sink

    def stop_listening(self) -> None:
        """The job is over, and all its processes: takes what is there, and passes on no more.

        All of it, however large a job has made the pipe: the next one must not be told of it.
        """
        while self._take():
            pass
        self._sink, self._rest = None, b""

    def close(self) -> None:
        """Its folder goes."""
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)

    def _readable(self) -> None:
        self._take()

    def _take(self) -> bool:
        """What is there now; whether there was anything."""
        try:
            data = os.read(self._pipe, READ_BYTES)
        except BlockingIOError:
            return False
        if self._sink is None:
            return True  # of a job that is over
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:LINE_BYTES_MAX]
        for line in reversed(lines):
            if (report := parse_progress(line)) is not None:
                self._sink(*report)
                break  # only the newest matters
        return True


def parse_progress(line: bytes) -> tuple[float, str | None] | None:
    """A line such as `0.4 message`; None if it is none."""
    number, _, message = line.decode("utf-8", "replace").strip().partition(" ")
    try:
        value = float(number)
    except ValueError:
        return None
    if not math.isfinite(value) or not 0 <= value <= 1:
        return None
    return value, message.strip()[:MESSAGE_CHARS_MAX] or None


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
