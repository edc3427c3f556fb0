"""Pipes from a job to the agent: its output, and its progress."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable
from pathlib import Path

from rota.wire.limits import MESSAGE_CHARS_MAX

READ_BYTES = 64 * 1024
BURST_BYTES = 1024 * 1024
"""Read from one job before it has to wait its turn."""
BURST_S = 0.05
"""How long that turn takes: a job that floods its output is slowed down, not the agent."""
LINE_BYTES_MAX = 4096
"""A longer line is no progress report."""


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
        self._burst = 0
        self._turn: asyncio.TimerHandle | None = None
        self._ended = asyncio.Event()

    def started(self) -> None:
        """The job has its end of it; ours is not needed."""
        os.close(self.write_end)
        self._next_turn()

    async def drained(self, limit_s: float) -> None:
        """Waits until every writer is gone, or for `limit_s`, then closes."""
        if self._ended.is_set():
            return
        # What a pipe still holds is little: it is taken now, however slow its reader is.
        self._crowded = _never
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
        if not self._ended.is_set():
            self._ended.set()
            self._loop.remove_reader(self._read)
            os.close(self._read)
        if self._turn is not None:
            self._turn.cancel()

    def _next_turn(self) -> None:
        if self._crowded():
            self._turn = self._loop.call_later(BURST_S, self._next_turn)
            return
        self._burst = 0
        self._turn = None
        self._loop.add_reader(self._read, self._readable)

    def _readable(self) -> None:
        try:
            data = os.read(self._read, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self.close()
            return
        self._sink(data)
        self._burst += len(data)
        if self._burst >= BURST_BYTES or self._crowded():
            self._loop.remove_reader(self._read)
            self._turn = self._loop.call_later(BURST_S, self._next_turn)


class ProgressPipe:
    """Reads progress lines from a named pipe that the agent keeps open on both sides.

    Open for writing too, so that a job that opens and closes it for each line never ends it.
    """

    def __init__(self, path: Path, sink: Callable[[float, str | None], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._sink = sink
        self._rest = b""
        self._closed = False
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._loop.add_reader(self._pipe, self._readable)

    def close(self) -> None:
        """Takes what is there, and ends."""
        if self._closed:
            return
        self._closed = True
        self._readable()
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)

    def _readable(self) -> None:
        try:
            data = os.read(self._pipe, READ_BYTES)
        except BlockingIOError:
            return
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:LINE_BYTES_MAX]
        for line in reversed(lines):
            if (report := parse_progress(line)) is not None:
                self._sink(*report)
                return  # only the newest matters


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
