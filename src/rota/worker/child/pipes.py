"""The child's ends of the two pipes: orders come in over one, words go out over the other."""

from __future__ import annotations

import os
import threading

import msgspec

from rota.worker.child.frames import LENGTH, FromChild, ToChild, frame

READ_BYTES = 16 * 1024
"""A call with the usual arguments is far smaller; of a larger one the rest is read at once."""

_to_child = msgspec.msgpack.Decoder(ToChild)


def decode_message(body: bytes) -> ToChild:
    """One frame from the agent."""
    order: ToChild = _to_child.decode(body)
    return order


class PipeWriter:
    """Says things to the agent, from any thread; a slow agent slows the speaker down."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self.main_thread_writes = False
        """The main thread is in the middle of a frame: an exception there would tear it."""

    def send(self, message: FromChild) -> None:
        """Returns when the agent's pipe has it."""
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
    """Waits for one order at a time."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._buffer = b""
        """What came behind the last order."""

    def read(self) -> ToChild | None:
        """The next order; None once the agent is gone. Most come whole, by one read."""
        if not self._fill(LENGTH.size):
            return None
        end = LENGTH.size + LENGTH.unpack_from(self._buffer)[0]
        if not self._fill(end):
            return None
        body, self._buffer = self._buffer[LENGTH.size : end], self._buffer[end:]
        return decode_message(body)

    def _fill(self, size: int) -> bool:
        """Reads until so much is there; False: it never will be."""
        while len(self._buffer) < size:
            piece = os.read(self._pipe, max(READ_BYTES, size - len(self._buffer)))
            if not piece:
                return False
            self._buffer += piece
        return True
