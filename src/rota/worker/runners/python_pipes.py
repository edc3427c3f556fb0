"""The agent's ends of a warm child's pipes: orders to it, its words, and what it prints."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable

import msgspec

from rota.worker.child.frames import FrameReader, FromChild, ToChild, frame

READ_BYTES = 256 * 1024
BURST_BYTES = 1024 * 1024
"""Read from one child before it has to wait its turn."""
BURST_S = 0.02
"""How long that turn takes: a function that floods its output is slowed down, not the agent."""

_from_child = msgspec.msgpack.Decoder(FromChild)


class MessagePipe:
    """Sends at once what the pipe takes, and the rest when it takes more."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.child_end, self._pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        self._rest: deque[memoryview] = deque()
        self._is_full = False
        self._closed = False

    def send(self, order: ToChild) -> None:
        """A child that is gone hears nothing; its end says so."""
        if self._closed:
            return
        self._rest.append(memoryview(frame(order)))
        if len(self._rest) == 1:
            self._write()

    def close(self) -> None:
        """The child sees it, and leaves."""
        if not self._closed:
            self._closed = True
            self._loop.remove_writer(self._pipe)
            os.close(self._pipe)

    def _write(self) -> None:
        try:
            while self._rest:
                data = self._rest[0]
                sent = os.write(self._pipe, data)
                if sent == len(data):
                    self._rest.popleft()
                else:
                    self._rest[0] = data[sent:]
        except BlockingIOError:
            self._is_full = True
            self._loop.add_writer(self._pipe, self._write)
        except BrokenPipeError:
            self.close()
        else:
            if self._is_full:
                self._is_full = False
                self._loop.remove_writer(self._pipe)


class ThrottledPipe:
    """One pipe from a child, read as it fills; a flood has to wait its turn.

    `crowded` says when what was read cannot be passed on yet.
    """

    def __init__(self, sink: Callable[[bytes], None], crowded: Callable[[], bool]) -> None:
        self._loop = asyncio.get_running_loop()
        self._sink = sink
        self._crowded = crowded
        self._pipe, self.child_end = os.pipe()
        os.set_blocking(self._pipe, False)
        self._burst = 0
        self._turn: asyncio.TimerHandle | None = None
        self._closed = False
        self._next_turn()

    def drain(self) -> None:
        """Takes all that is in the pipe now."""
        while not self._closed and self._take():
            pass

    def close(self) -> None:
        """Reads no more."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._pipe)
            os.close(self._pipe)
        if self._turn is not None:
            self._turn.cancel()

    def _next_turn(self) -> None:
        self._burst, self._turn = 0, None
        if self._crowded():
            self._turn = self._loop.call_later(BURST_S, self._next_turn)
            return
        self._loop.add_reader(self._pipe, self._readable)

    def _readable(self) -> None:
        self._take()
        if not self._closed and (self._burst >= BURST_BYTES or self._crowded()):
            self._loop.remove_reader(self._pipe)
            self._turn = self._loop.call_later(BURST_S, self._next_turn)

    def _take(self) -> bool:
        """Whether there may be more."""
        try:
            data = os.read(self._pipe, READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        self._burst += len(data)
        self._sink(data)
        return True


class ChildMessageReader:
    """Cuts what a child says into its words."""

    def __init__(self) -> None:
        self._frames = FrameReader()

    def messages(self, data: bytes) -> list[FromChild]:
        """Raises FrameError or MsgspecError if that is not our child speaking."""
        return [_from_child.decode(body) for body in self._frames.feed(data)]
