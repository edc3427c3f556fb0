"""A job's output on its way to the server: a bounded buffer, and the pump that empties it.

Whatever a job prints and however slow the server is, memory stays bounded: when the buffer is
full, its middle is left out and one line says how much. `offset` counts what was sent, so a chunk
that is sent twice lands once.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from rota.wire.limits import LOG_BYTES_PER_EXECUTION_MAX
from rota.worker.backoff import delay_s
from rota.worker.link import AwayError, RefusedError

HALF_BYTES = 512 * 1024
"""Kept from before a gap, and as much from after it."""
CHUNK_BYTES_MAX = 256 * 1024
"""Sent at once."""
GATHER_S = 0.1
"""Lines that come one by one are gathered this long, so that each is not a request of its own."""
TAIL_BYTES = 4096
"""The end of the output that goes into the error of a failed job."""
TAIL_LINES = 20
RETRY_CAP_S = 3.0


class LogSink(Protocol):
    """Where output goes."""

    async def send_log(self, execution_id: str, fence: int, offset: int, chunk: bytes) -> None:
        """Raises AwayError to be asked again, RefusedError to be left alone."""
        ...


class LogBuffer:
    """What was printed and is not sent yet: the first part, a gap, the last part."""

    def __init__(self, cap: int = LOG_BYTES_PER_EXECUTION_MAX, half: int = HALF_BYTES) -> None:
        self._half = half
        self._admitted_max = cap - half - 256
        """The last part and the line that names the gap must fit below the cap, too."""
        self._admitted = 0
        self._first = bytearray()
        self._last = bytearray()
        self._dropped = 0
        self._recent = b""
        self._closed = False

    def add(self, data: bytes) -> None:
        """The job printed something."""
        self._recent = (self._recent + data[-TAIL_BYTES:])[-TAIL_BYTES:]
        space = min(self._half - len(self._first), self._admitted_max - self._admitted)
        if not self._last and space > 0:
            self._first += data[:space]
            self._admitted += min(space, len(data))
            data = data[space:]
        self._last += data
        excess = len(self._last) - self._half
        if excess > 0:
            del self._last[:excess]
            self._dropped += excess

    def close(self) -> None:
        """Nothing more will come."""
        self._closed = True

    def take(self, size: int) -> bytes:
        """The next bytes to send; empty if there is nothing to send now."""
        if not self._first and self._last:
            self._shift()
        chunk = bytes(self._first[:size])
        del self._first[:size]
        return chunk

    def tail(self) -> str:
        """The last lines, for people."""
        lines = self._recent.decode("utf-8", "replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])

    def _shift(self) -> None:
        """The last part becomes the first; over the cap only once it is complete."""
        room = self._admitted_max - self._admitted
        full = len(self._last) > room
        if full and not self._closed:
            return
        why = "the log is full" if full else "output came faster than it could be sent"
        if self._dropped:
            self._first += f"\n[rota: {self._dropped} bytes left out here: {why}]\n".encode()
        self._first += self._last
        self._admitted += len(self._first)
        self._last.clear()
        self._dropped = 0


class LogPump:
    """Carries one execution's output to the sink, as it comes."""

    def __init__(self, execution_id: str, fence: int, sink: LogSink) -> None:
        self.buffer = LogBuffer()
        self._execution_id = execution_id
        self._fence = fence
        self._sink = sink
        self._offset = 0
        self._some = asyncio.Event()
        self._ended = asyncio.Event()

    def add(self, data: bytes) -> None:
        """The job printed something."""
        self.buffer.add(data)
        self._some.set()

    def end(self) -> None:
        """The job has ended: what is left goes out at once."""
        self.buffer.close()
        self._ended.set()
        self._some.set()

    async def run(self) -> None:
        """Returns when all is sent after the end, or the server wants no more of it."""
        while True:
            await self._some.wait()
            await self._gather()
            self._some.clear()
            while chunk := self.buffer.take(CHUNK_BYTES_MAX):
                if not await self._send(chunk):
                    return
            if self._ended.is_set():
                return

    async def _gather(self) -> None:
        try:
            async with asyncio.timeout(GATHER_S):
                await self._ended.wait()
        except TimeoutError:
            pass

    async def _send(self, chunk: bytes) -> bool:
        attempt = 0
        while True:
            try:
                await self._sink.send_log(self._execution_id, self._fence, self._offset, chunk)
            except AwayError as away:
                pause = max(away.retry_after_s, delay_s(self._execution_id, attempt, RETRY_CAP_S))
                await asyncio.sleep(pause)
                attempt += 1
            except RefusedError:
                return False
            else:
                self._offset += len(chunk)
                return True
