"""Background process of a server: projects the journal, and deletes old finished work.

Its parent gives it one end of a socket pair and tells it what to work on. It ends when its parent
asks for that or is gone. What it does is safe to do in several servers at once.

Why: docs/decisions/0031-projection-in-shards-in-a-process-of-its-own.md.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import suppress

import structlog

from rota.engine.clock import SystemClock
from rota.engine.retention import Retention
from rota.processes.channel import Channel, ChannelClosedError
from rota.processes.event_loop import MemoryUpkeep, run_event_loop
from rota.processes.messages import (
    Appended,
    Configure,
    Lead,
    LookAgain,
    Ping,
    ShutDown,
    Status,
    SweepSoon,
    ToBackground,
    Want,
)
from rota.processes.process_log import set_up_log
from rota.store.limits import STORE_LIMITS
from rota.store.postgres.connect import parse_address
from rota.store.postgres.projector import Projector
from rota.store.protocol import ProjectionStatus, StoreError

log = structlog.get_logger("rota.background")
NICE = 5
"""How much it lets the server's main process go first: it gets a quarter of a processor that both
want."""
START_RETRY_S = 0.5
"""Pause before it asks a database again that it could not reach at its start."""


class BackgroundProcess:
    """Work of one background process, from its configuration to its end."""

    def __init__(self, channel: Channel[ToBackground], settings: Configure) -> None:
        self._channel = channel
        self._projector = Projector(
            parse_address(settings.store, STORE_LIMITS), settings.lanes, self._tell
        )
        self._retention = Retention(
            self._projector, SystemClock(), lambda: self._projector.leads, settings.retention_ms
        )

    async def run(self) -> None:
        """Works until the parent says stop, or is gone."""
        starting = asyncio.create_task(self._start(), name="rota-background-start")
        try:
            while await self._take():
                pass
            await self._retention.stop()
            await self._projector.close()
        except ChannelClosedError:
            # Another server projects the rest; this one must not outlive its parent.
            return
        finally:
            starting.cancel()

    async def _start(self) -> None:
        while True:
            try:
                await self._projector.start()
            except StoreError as error:
                before = self._projector.status
                self._tell(ProjectionStatus(before.projected, before.quarantined, str(error)))
                await asyncio.sleep(START_RETRY_S)
            else:
                self._retention.start()
                return

    async def _take(self) -> bool:
        """Takes the next message; returns whether to go on."""
        match await self._channel.receive():
            case Lead(leads):
                self._projector.lead(leads=leads)
            case Appended(record, writes):
                self._projector.note_appended(record, writes)
            case Want(seq):
                self._projector.want(seq)
            case SweepSoon():
                self._projector.sweep_soon()
            case LookAgain():
                self._projector.look_again()
            case Ping():
                self._tell(self._projector.status)
            case ShutDown():
                return False
            case Configure():
                log.error("configured_twice")
        return True

    def _tell(self, status: ProjectionStatus) -> None:
        self._channel.send(Status(status))


async def _main(end: socket.socket) -> None:
    channel: Channel[ToBackground] = await Channel.open(end, ToBackground)
    with suppress(ChannelClosedError):
        settings = await channel.receive()
        assert isinstance(settings, Configure), "the parent configures first"
        await BackgroundProcess(channel, settings).run()
    channel.close()


def main() -> None:
    """Runs the process; its argument is the descriptor of the socket."""
    set_up_log()
    # Where there are few processors, who decides and answers goes first: tables may lag a little.
    os.nice(NICE)
    structlog.contextvars.bind_contextvars(process="background")
    run_event_loop(_main(socket.socket(fileno=int(sys.argv[1]))), MemoryUpkeep(move=lambda: None))


if __name__ == "__main__":
    main()
