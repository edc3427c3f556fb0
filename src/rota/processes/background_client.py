"""Starts a server's background process, keeps it running, and speaks with it for the store."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import deque
from contextlib import suppress

import structlog
from msgspec.structs import replace

from rota.core.model import Millis
from rota.processes.channel import Channel, ChannelClosedError
from rota.processes.messages import (
    Appended,
    Configure,
    FromBackground,
    Lead,
    LookAgain,
    Ping,
    ShutDown,
    SweepSoon,
    ToBackground,
    Want,
)
from rota.store.limits import STORE_LIMITS, StoreLimits
from rota.store.projection.client import KEEPS_ENDING
from rota.store.protocol import ProjectionStatus, Seq, StoredRecord, TablesBehindError

log = structlog.get_logger("rota.processes")

RESTART_S_MIN = 0.1
"""Pause before the process is started again after it ended by itself."""
RESTART_S_MAX = 5.0
"""The longest such pause."""
_PROGRAM = (
    "import sys; sys.modules['rich'] = None; from rota.processes.background import main; main()"
)
"""structlog loads `rich` where it is installed, for colours that this process never shows: 5 MB."""
SILENT_S = 5.0
"""A process that has not answered for so long is frozen, and is started anew."""
STEADY_S = 10.0
"""A process that ran for so long has not ended because of how it began."""
DYING_RESTARTS = 3
"""Restarts in a row from which the server says that the process keeps ending."""


class BackgroundClient:
    """The background process, as the projection of this server's store."""

    def __init__(
        self,
        store: str,
        lanes: int,
        retention_ms: Millis | None,
        limits: StoreLimits = STORE_LIMITS,
    ) -> None:
        self._settings = Configure(store, lanes, retention_ms)
        self._limits = limits
        self._status = ProjectionStatus()
        self._channel: Channel[FromBackground] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._leads = self._closing = False
        self._appended = Seq(0)
        self._wanted = Seq(0)
        self._waiting: deque[tuple[Seq, asyncio.Future[None]]] = deque()
        self._restarts = 0
        self._began = 0.0
        """When the process was started, by the loop's clock."""
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts the process, and again whenever it ends."""
        await self._spawn()
        self._task = asyncio.create_task(self._run(), name="rota-background-process")

    @property
    def pid(self) -> int | None:
        """The id of the process; None: it is not running."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    # The store's projection

    @property
    def status(self) -> ProjectionStatus:
        """How far the tables are, as the process said last."""
        if self._restarts >= DYING_RESTARTS and not self._is_steady():
            return replace(self._status, trouble=KEEPS_ENDING)
        return self._status

    def _is_steady(self) -> bool:
        """Whether the process has run for so long that it does not keep ending."""
        ran_s = asyncio.get_running_loop().time() - self._began
        return self.pid is not None and ran_s >= STEADY_S

    def lead(self, *, leads: bool) -> None:
        """Says whether this server leads."""
        if leads != self._leads:
            self._leads = leads
            self._send(Lead(leads))

    def note_appended(self, record: StoredRecord, writes: int) -> None:
        """Tells the process of a record that this server has appended."""
        self._appended = record.seq
        channel = self._channel
        # A process that does not keep up reads from the journal what it was not sent.
        if channel is not None and not channel.is_full:
            channel.send(Appended(record, writes))

    async def reached(self, seq: Seq) -> None:
        """Returns when the tables have record `seq`; raises TablesBehindError if that takes too
        long."""
        if self._status.projected >= seq:
            return
        if self._status.trouble:
            raise TablesBehindError(f"the tables cannot follow the journal: {self._status.trouble}")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((seq, waiter))
        if seq > self._wanted:
            self._wanted = seq
            self._send(Want(seq))
        try:
            async with asyncio.timeout(self._limits.projection_wait_s):
                await waiter
        except TimeoutError:
            raise TablesBehindError(
                f"the tables are behind the journal: record {seq} is not in them yet"
            ) from None
        finally:
            with suppress(ValueError):
                self._waiting.remove((seq, waiter))

    def look_again(self) -> None:
        """Says that the quarantine has changed."""
        self._send(LookAgain())

    def sweep_soon(self) -> None:
        """Says that deleted jobs have left logs and files."""
        self._send(SweepSoon())

    async def close(self) -> None:
        """Has the process finish, and waits for it; one that does not end in time is killed."""
        if self._closing:
            return
        self._closing = True
        self._send(ShutDown())
        process = self._process
        if process is not None:
            try:
                async with asyncio.timeout(self._limits.projection_close_s):
                    await process.wait()
            except TimeoutError:
                process.kill()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # The process

    async def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _PROGRAM, str(theirs.fileno()),
                pass_fds=(theirs.fileno(),), stdin=asyncio.subprocess.DEVNULL,
                # Ctrl-C is for the server, which then stops this process in order.
                start_new_session=True,
            )  # fmt: skip
        self._began = asyncio.get_running_loop().time()
        self._channel = await Channel.open(ours, FromBackground)
        self._send(self._settings)
        self._send(Lead(self._leads))
        if self._appended:
            # Also what it was not told of: this one must not wait until a reader comes.
            self._send(Want(max(self._appended, self._wanted)))

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._closing:
            await self._listen()
            if self._closing:
                return
            assert self._process is not None
            code = await self._process.wait()
            if loop.time() - self._began >= STEADY_S:
                self._restarts = 0
            pause_s = min(RESTART_S_MIN * 2**self._restarts, RESTART_S_MAX)
            self._restarts += 1
            log.error("background_process_ended", code=code, starts_again_in_s=pause_s)
            await asyncio.sleep(pause_s)
            try:
                await self._spawn()
            except OSError as error:
                log.error("background_process_not_started", reason=str(error))

    async def _listen(self) -> None:
        """Takes what the process says until it ends; ends one that does not answer any more."""
        channel, process = self._channel, self._process
        assert channel is not None
        assert process is not None
        asked = False
        receiving = asyncio.ensure_future(channel.receive())
        try:
            while True:
                await asyncio.wait({receiving}, timeout=SILENT_S)
                if receiving.done():
                    self._take(receiving.result())
                    receiving, asked = asyncio.ensure_future(channel.receive()), False
                elif asked:
                    log.error("background_process_silent", pid=process.pid, for_s=2 * SILENT_S)
                    process.kill()
                    return
                else:
                    channel.send(Ping())
                    asked = True
        except ChannelClosedError:
            return
        finally:
            receiving.cancel()
            channel.close()

    def _take(self, message: FromBackground) -> None:
        self._status = status = message.status
        for seq, waiter in tuple(self._waiting):
            if waiter.done():
                continue
            if seq <= status.projected:
                waiter.set_result(None)
            elif status.trouble:
                text = f"the tables cannot follow the journal: {status.trouble}"
                waiter.set_exception(TablesBehindError(text))

    def _send(self, message: ToBackground) -> None:
        if self._channel is not None:
            self._channel.send(message)
