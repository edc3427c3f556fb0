"""The child's ends of the two pipes: orders come in over one, words go out over the other."""

from __future__ import annotations

import os
import threading

import msgspec

from rota.worker.child.frames import LENGTH, FromChild, ToChild, frame

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

    def listen(self) -> ToChild | None:
        """The next order; None once the agent is gone."""
        head = self._read(LENGTH.size)
        if head is None:
            return None
        body = self._read(LENGTH.unpack(head)[0])
        return None if body is None else read_order(body)

    def _read(self, size: int) -> bytes | None:
        pieces = b""
        while len(pieces) < size:
            piece = os.read(self._pipe, size - len(pieces))
            if not piece:
                return None
            pieces += piece
        return pieces
