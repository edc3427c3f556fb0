"""A TCP proxy that can cut connections, drop bytes one way or both, or delay them.

Delaying or dropping packets in the kernel needs root and is not available everywhere; this proxy
needs neither. It runs in a thread of its own, so that a busy test does not slow it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

PIECE = 64 * 1024
LINGER_NOT = struct.pack("ii", 1, 0)
"""A close then sends RST instead of FIN, and forgets what was not sent."""


class Mode(StrEnum):
    PASS = "pass"
    CUT = "cut"
    """Connections are reset, and new ones too, as soon as they are made."""
    HOLE = "hole"
    """Connections stay, and new ones are taken; nothing comes out at the other end."""
    DEAF = "deaf"
    """What the client says arrives; the answers do not."""


@dataclass(slots=True)
class ProxiedConnection:
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter | None = None

    def reset(self) -> None:
        for end in (self.client, self.server):
            if end is not None:
                reset(end)

    def close(self) -> None:
        """Closes the connection after all written bytes."""
        for end in (self.client, self.server):
            if end is not None:
                end.close()


class Proxy:
    """Forwards connections from `port` to one of `targets` in turn.

    With several targets it is a simple load balancer, which skips targets that refuse connections.
    """

    def __init__(self, *targets: int, port: int = 0) -> None:
        self.targets = targets
        self._turn = 0
        self.mode = Mode.PASS
        self.delay_s = 0.0
        self.swallowed = 0
        """Bytes that went into a hole, ever: what shows that it hurt somebody."""
        self.resets = 0
        """Connections that were cut, ever."""
        self._passing: dict[int, ProxiedConnection] = {}
        self._opened = threading.Event()
        self._healed: asyncio.Event | None = None
        self._loop = asyncio.new_event_loop()
        self._door = socket.create_server(("127.0.0.1", port), reuse_port=False)
        self.port = int(self._door.getsockname()[1])
        self._thread = threading.Thread(target=self._run, name=f"proxy-{self.port}", daemon=True)
        self._thread.start()
        self._opened.wait()

    # From the test's thread

    def become(self, mode: Mode, delay_s: float = 0.0) -> None:
        self._do(lambda: self._become(mode, delay_s))

    def heal(self) -> None:
        """Ends the fault.

        Bytes that were dropped are missing from their streams, so these connections are reset.
        """
        self.become(Mode.PASS)

    @property
    def open(self) -> int:
        return len(self._passing)

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    # In its own thread

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._healed = asyncio.Event()
        self._healed.set()
        server = await asyncio.start_server(self._accept, sock=self._door)
        self._opened.set()
        await self._stop.wait()
        server.close()
        self._reset_all()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _do(self, change: Callable[[], None]) -> None:
        done = threading.Event()

        def run() -> None:
            change()
            done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait()

    def _become(self, mode: Mode, delay_s: float) -> None:
        assert self._healed is not None
        if mode is Mode.CUT or self.mode in (Mode.HOLE, Mode.DEAF):
            self._reset_all()
        self.mode, self.delay_s = mode, delay_s
        if mode is Mode.PASS:
            self._healed.set()
        else:
            self._healed.clear()

    def _reset_all(self) -> None:
        self.resets += len(self._passing)
        for passing in list(self._passing.values()):
            passing.reset()
        self._passing.clear()

    async def _accept(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        passing = ProxiedConnection(client)
        self._passing[id(passing)] = passing
        try:
            if self.mode is Mode.CUT:
                self.resets += 1
                passing.reset()
                return
            assert self._healed is not None
            if self.mode is not Mode.PASS:
                # Nobody answers, not even with a refusal, until it is healed and all is reset.
                await self._healed.wait()
                return
            await self._join(reader, passing)
        except (OSError, asyncio.CancelledError):
            # The task's top: it ends quietly with its connection, or when the proxy closes.
            passing.reset()
        finally:
            self._passing.pop(id(passing), None)
            passing.close()

    async def _join(self, reader: asyncio.StreamReader, passing: ProxiedConnection) -> None:
        answers, server = await self._reach()
        passing.server = server
        async with asyncio.TaskGroup() as both:
            both.create_task(self._pump(reader, server, (Mode.HOLE,)))
            both.create_task(self._pump(answers, passing.client, (Mode.HOLE, Mode.DEAF)))

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        refused: OSError = ConnectionRefusedError("nobody is behind this proxy")
        for _ in self.targets:
            self._turn += 1
            target = self.targets[self._turn % len(self.targets)]
            try:
                return await asyncio.open_connection("127.0.0.1", target)
            except OSError as error:
                refused = error
        raise refused

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, lost: tuple[Mode, ...]
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(PIECE):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if self.mode in lost:
                    self.swallowed += len(piece)
                    continue
                sink.write(piece)
                await sink.drain()
        with contextlib.suppress(OSError):
            if sink.can_write_eof():
                sink.write_eof()


def reset(end: asyncio.StreamWriter) -> None:
    """Resets a connection, so that the other side's next write fails."""
    plain = end.get_extra_info("socket")
    if plain is not None and plain.fileno() >= 0:
        with contextlib.suppress(OSError):
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
    end.transport.abort()
