"""What the agent and its warm children say to each other: msgpack behind a length, over pipes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from rota.wire.bands import PlaceView, RankView

LENGTH = struct.Struct(">I")
FRAME_BYTES_MAX = 16 * 1024 * 1024
"""A payload, a task or a result with what goes with it is far smaller: more is not our protocol."""
OUTPUT_BYTES_MAX = 64 * 1024
"""Output in one frame; longer text is cut into several."""


class Begin(msgspec.Struct, frozen=True, array_like=True, tag="begin"):
    """To a child: run this."""

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
    """To a child that runs many calls: end this one."""

    number: int


class ChildHello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """A child is ready, or says why it never will be."""

    functions: list[tuple[str, bool]]
    """Those the app has registered, and whether each is asynchronous."""
    problem: str = ""


class Output(msgspec.Struct, frozen=True, array_like=True, tag="output"):
    """What one of many calls printed."""

    number: int
    data: bytes


class Progress(msgspec.Struct, frozen=True, array_like=True, tag="progress"):
    """How far a call is."""

    number: int
    fraction: float
    message: str


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """A call is over: its result or its error, as JSON."""

    number: int
    succeeded: bool
    document: bytes
    retryable: bool
    asynchronous: bool
    """The function is one: the next calls of it may share a child."""
    cpu_s: float
    """Of this call, with what it started and waited for; 0 where calls share a process."""
    memory_peak: int
    memory: int
    """What the process holds now."""
    delay_ms: int | None = None
    """When the function wants to be tried again."""


ToChild: TypeAlias = Begin | Cancel
FromChild: TypeAlias = ChildHello | Output | Progress | Done

_encoder = msgspec.msgpack.Encoder()


class FrameError(Exception):
    """The other side does not speak our protocol."""


def frame(message: ToChild | FromChild) -> bytes:
    """A message as it travels."""
    body = _encoder.encode(message)
    return LENGTH.pack(len(body)) + body


class FrameReader:
    """Cuts what comes in over a pipe into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """More bytes came: the frames that are whole now. Raises FrameError."""
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
