"""Protocol between the agent and its warm children: msgpack behind a length, over two pipes.

`PipeReader` and `PipeWriter` are the child's ends; the agent's are in runners/python_pool.py. Both
processes import this module: keep its imports few.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from rota.wire.groups import PlaceView, RankView

LENGTH = struct.Struct(">I")
FRAME_BYTES_MAX = 16 * 1024 * 1024
"""Upper bound of a frame; a payload, task or result with all that goes with it is far smaller."""
OUTPUT_BYTES_MAX = 64 * 1024
"""Output in one frame; longer text is cut into several."""


class Begin(msgspec.Struct, frozen=True, array_like=True, tag="begin"):
    """Message to a child: run this call."""

    number: int
    task: bytes
    """The `python` task as JSON; `null`: the registered function `name`."""
    payload: bytes
    name: str
    queue: str
    job_id: str
    execution_id: str
    attempt: int
    fence: int
    timeout_s: float | None
    scheduled_at: str
    traceparent: str | None
    array: PlaceView | None = None
    gang: RankView | None = None


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    """Message to a child that runs several calls: end this one."""

    number: int


class ChildHello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """Message of a child that is ready, or will never be."""

    functions: list[tuple[str, bool]]
    """Functions that the app registered, and whether each is asynchronous."""
    problem: str = ""


class Output(msgspec.Struct, frozen=True, array_like=True, tag="output"):
    """Message with output that one of several calls printed."""

    number: int
    data: bytes


class Progress(msgspec.Struct, frozen=True, array_like=True, tag="progress"):
    """Message with a call's progress."""

    number: int
    fraction: float
    message: str


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """Message that a call has ended, with its result or error as JSON."""

    number: int
    succeeded: bool
    document: bytes
    retryable: bool
    asynchronous: bool
    """The function is asynchronous: its next calls may share a child."""
    cpu_s: float
    """Of this call, with processes that it started and waited for; 0 where calls share a
    process."""
    memory_peak: int
    memory: int
    """Memory that the process holds now."""
    delay_ms: int | None = None
    """Delay that the function requested before its retry."""


ToChild: TypeAlias = Begin | Cancel
FromChild: TypeAlias = ChildHello | Output | Progress | Done

_encoder = msgspec.msgpack.Encoder()


class FrameError(Exception):
    """Raised when the other side does not speak this protocol."""


def frame(message: ToChild | FromChild) -> bytes:
    """Encodes a message as a frame."""
    body = _encoder.encode(message)
    return LENGTH.pack(len(body)) + body


class FrameReader:
    """Splits bytes from a pipe into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yields the frames that are complete now. Raises FrameError."""
        self._buffer += data
        place = 0
        while len(self._buffer) >= place + LENGTH.size:
            (size,) = LENGTH.unpack_from(self._buffer, place)
            if size > FRAME_BYTES_MAX:
                raise FrameError(f"a frame of {size} bytes")
            start = place + LENGTH.size
            if len(self._buffer) < start + size:
                break
            yield bytes(self._buffer[start : start + size])
            place = start + size
        del self._buffer[:place]


READ_BYTES = 16 * 1024
"""A call with the usual arguments is far smaller; the rest of a larger one is read at once."""

_to_child = msgspec.msgpack.Decoder(ToChild)


def decode_message(body: bytes) -> ToChild:
    """Decodes one frame from the agent."""
    order: ToChild = _to_child.decode(body)
    return order


class PipeWriter:
    """Sends messages to the agent, from any thread; a slow agent slows the sender down."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self.main_thread_writes = False
        """The main thread is in the middle of a frame: an exception there would tear it."""

    def send(self, message: FromChild) -> None:
        """Returns when the pipe has taken the whole message."""
        main = threading.current_thread() is threading.main_thread()
        left = memoryview(frame(message))
        try:
            self.main_thread_writes = self.main_thread_writes or main
            with self._lock:
                while left:
                    left = left[os.write(self._pipe, left) :]
        finally:
            if main:
                self.main_thread_writes = False


class PipeReader:
    """Reads one message of the agent at a time, and waits for it."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._buffer = b""
        """Bytes read beyond the last message."""

    def read(self) -> ToChild | None:
        """Returns the next message, most often by a single read; None once the agent is gone."""
        if not self._fill(LENGTH.size):
            return None
        end = LENGTH.size + LENGTH.unpack_from(self._buffer)[0]
        if not self._fill(end):
            return None
        body, self._buffer = self._buffer[LENGTH.size : end], self._buffer[end:]
        return decode_message(body)

    def _fill(self, size: int) -> bool:
        """Reads until so many bytes are there; False if they never will be."""
        while len(self._buffer) < size:
            piece = os.read(self._pipe, max(READ_BYTES, size - len(self._buffer)))
            if not piece:
                return False
            self._buffer += piece
        return True
