"""The child's ends of the two pipes: orders come in over one, words go out over the other."""

from __future__ import annotations

import os
import threading

import msgspec

from rota.worker.child.frames import LENGTH, FromChild, ToChild, frame

READ_BYTES = 16 * 1024
"""A call with the usual arguments is far smaller; of a larger one the rest is read at once."""

_to_child = msgspec.msgpack.Decoder(ToChild)


def read_order(body: bytes) -> ToChild:
    """One frame from the agent."""
    order: ToChild = _to_child.decode(body)
    return order


class Mouth:
    """Says things to the agent, from any thread; a slow agent slows the speaker down."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        self.main_speaks = False
        """The main thread is in the middle of a frame: an exception there would tear it."""

    def say(self, message: FromChild) -> None:
        """Returns when the agent's pipe has it."""
        main = threading.current_thread() is threading.main_thread()
        left = memoryview(frame(message))
        try:
            self.main_speaks = self.main_speaks or main
            with self._lock:
                while left:
                    left = left[os.write(self._pipe, left) :]
        finally:
            if main:
                self.main_speaks = False


class Ear:
    """Waits for one order at a time."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._heard = b""
        """What came behind the last order."""

    def listen(self) -> ToChild | None:
        """The next order; None once the agent is gone. Most come whole, by one read."""
        if not self._hear(LENGTH.size):
            return None
        end = LENGTH.size + LENGTH.unpack_from(self._heard)[0]
        if not self._hear(end):
            return None
        body, self._heard = self._heard[LENGTH.size : end], self._heard[end:]
        return read_order(body)

    def _hear(self, size: int) -> bool:
        """Reads until so much is there; False: it never will be."""
        while len(self._heard) < size:
            piece = os.read(self._pipe, max(READ_BYTES, size - len(self._heard)))
            if not piece:
                return False
            self._heard += piece
        return True
