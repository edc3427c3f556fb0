"""Job logs on their way to the server: masked, bounded, sent by a pump.

The bytes sent form one text that only grows: the beginning of the output as it is printed; then, if
there was more than may be kept, one line that says how much was left out, and the newest part,
which is sent when the job has ended. `offset` counts the bytes sent, so a chunk that is sent twice
is stored once.

Memory stays bounded, however much a job prints and however slow the server is. Output that comes
faster than the server takes it blocks the reader (`backlogged`) and so the job, as long as the
server answers at all. While the server is away the job goes on, and output that does not fit is
left out.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from rota.sdk.backoff import delay_s
from rota.wire.limits import JOB_LOG_BYTES
from rota.worker.masking import NO_SECRETS, Secrets, StreamMasking
from rota.worker.server_client import AwayError, RefusedError

WAITING_BYTES = 1024 * 1024
"""Printed and not sent yet."""
NEWEST_BYTES = 1024 * 1024
"""End of a long output: about ten thousand lines."""
NOTES_BYTES = 512
"""Reserved for the lines that this module adds."""
CHUNK_BYTES_MAX = 256 * 1024
"""Sent in one request."""
GATHER_S = 0.1
"""Lines printed within this time go into one request."""
SEEK_BYTES = 4096
"""After a gap the text continues with a whole line, if one begins within this many bytes."""
TAIL_BYTES = 4096
"""End of the output, quoted in the error of a failed job."""
TAIL_LINES = 20
SLOW_SEND_S = 2.0
"""A server that takes longer than this for a chunk no longer blocks the job."""
RETRY_CAP_S = 3.0


class LogSink(Protocol):
    """Receiver of log chunks."""

    async def send_log(self, execution_id: str, fence: int, offset: int, chunk: bytes) -> None:
        """Raises AwayError if the chunk should be sent again, RefusedError if it should not."""
        ...


class LogBuffer:
    """Output that is not sent yet: the next bytes, perhaps a gap, and the newest bytes."""

    def __init__(self, cap: int = JOB_LOG_BYTES, waiting: int = WAITING_BYTES) -> None:
        self._newest_max = min(NEWEST_BYTES, cap // 4)
        self._head_max = max(0, cap - self._newest_max - NOTES_BYTES)
        self._waiting_max = waiting
        self._head = 0
        """Bytes sent or about to be; more than `_head_max` only at the end."""
        self._next = bytearray()
        self._newest = bytearray()
        self._left_out = 0
        """Bytes dropped between the two."""
        self._line_open = False
        self._full_noted = False
        self._tail = b""
        self._closed = False

    @property
    def backlogged(self) -> bool:
        """Whether more output now would be dropped although the log has space for it."""
        return self._head < self._head_max and len(self._next) >= self._waiting_max

    def add(self, data: bytes) -> None:
        self._tail = (self._tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
        self._newest += data
        if not self._left_out:
            self._move(min(self._waiting_max - len(self._next), self._head_max - self._head))
        excess = len(self._newest) - self._newest_max
        if excess > 0:
            del self._newest[:excess]
            self._left_out += excess

    def close(self) -> None:
        """Ends the output: no `add` follows."""
        self._closed = True

    def take(self, size: int) -> bytes:
        """Removes and returns the next bytes to send; empty if there is nothing to send now."""
        if not self._next:
            self._refill()
        chunk = bytes(self._next[:size])
        del self._next[:size]
        return chunk

    def tail(self) -> str:
        """Returns the last lines, for an error message."""
        lines = self._tail.decode("utf-8", "replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])

    def _refill(self) -> None:
        free = self._head_max - self._head
        if free <= 0 and self._left_out and not self._full_noted:
            self._full_noted = True
            self._add_note("the log is full: its end follows when the job has ended")
        if self._closed:
            free = len(self._newest)
        elif free <= 0 or not self._newest:
            return
        if self._left_out:
            self._name_gap()
        self._move(free)

    def _move(self, size: int) -> None:
        if size > 0:
            self._go_next(self._newest[:size])
            del self._newest[:size]

    def _name_gap(self) -> None:
        self._seek_line()
        slow = "" if self._full_noted else ": they came faster than the server took them"
        self._add_note(f"{self._left_out:,} bytes left out{slow}")
        self._left_out = 0

    def _seek_line(self) -> None:
        """Drops bytes until the text continues with a line, or at least with a character."""
        skip = self._newest.find(b"\n", 0, SEEK_BYTES) + 1
        while not skip and self._newest[:1] and self._newest[0] & 0xC0 == 0x80:
            del self._newest[0]
            self._left_out += 1
        if skip < len(self._newest):
            del self._newest[:skip]
            self._left_out += skip

    def _add_note(self, text: str) -> None:
        before = "\n" if self._line_open else ""
        self._go_next(f"{before}[… {text} …]\n".encode())

    def _go_next(self, data: bytes | bytearray) -> None:
        if data:
            self._next += data
            self._head += len(data)
            self._line_open = data[-1:] != b"\n"


class LogPump:
    """Sends one execution's output to the sink as it is printed."""

    def __init__(
        self,
        execution_id: str,
        fence: int,
        sink: LogSink,
        secrets: Secrets = NO_SECRETS,
        *,
        cap: int = JOB_LOG_BYTES,
    ) -> None:
        self.buffer = LogBuffer(cap)
        self._execution_id = execution_id
        self._fence = fence
        self._sink = sink
        self._masking = StreamMasking(secrets)
        self._offset = 0
        self._sent_at: float | None = None
        """When the chunk in flight was sent; None if none is."""
        self._away = False
        self._has_more = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def backlogged(self) -> bool:
        """Whether the reader of the job's output should wait: the server is behind, but takes
        it."""
        if self._away or not self.buffer.backlogged:
            return False
        now = asyncio.get_running_loop().time()
        return self._sent_at is None or now - self._sent_at < SLOW_SEND_S

    def add(self, data: bytes) -> None:
        self.buffer.add(self._masking.add(data))
        self._has_more.set()

    def end(self) -> None:
        """Ends the output; what is left is sent at once."""
        self.buffer.add(self._masking.end())
        self.buffer.close()
        self._ended.set()
        self._has_more.set()

    async def run(self) -> None:
        """Returns when everything is sent after the end, or when the server refuses the log."""
        while True:
            await self._has_more.wait()
            await self._gather()
            self._has_more.clear()
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
            self._sent_at = asyncio.get_running_loop().time()
            try:
                await self._sink.send_log(self._execution_id, self._fence, self._offset, chunk)
            except AwayError as away:
                self._away = True
                pause = max(away.retry_after_s, delay_s(self._execution_id, attempt, RETRY_CAP_S))
                await asyncio.sleep(pause)
                attempt += 1
            except RefusedError:
                self._away = True
                return False
            else:
                self._away = False
                self._sent_at = None
                self._offset += len(chunk)
                return True
