"""Runs an HTTP application in this process: the loop, the signals, and uvicorn's part."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import click
import structlog
import uvicorn

from rota.api.connections import BoundedProtocol
from rota.api.door.lobby import Lobby
from rota.api.limits import UNTAKEN_S
from rota.api.waiting import first_of
from rota.cli.start.certificates import Certificate
from rota.cli.start.diary import keep_diary
from rota.cli.start.loops import run_event_loop
from rota.cli.start.up import DoorOptions
from rota.engine.beat import beat
from rota.store.protocol import StoreError

HEADERS_S_MAX = 65
"""An idle connection is closed after this; a little longer than a poll is held."""
SWITCH_S = 0.0005
"""How long one thread may keep the interpreter when another wants it."""
TICK_NUMBERS = 10
"""uvicorn counts ten for each tick here: to itself a tick is a tenth of a second."""
CLOSE_S_MAX = 5
"""How long open answers may take to end when the server stops."""


log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Ticks:
    """Times of a server's clock; the last two in tenths of a second, as uvicorn counts."""

    tick_s: float = 1.0
    """uvicorn's own loop would wake an idle process ten times a second."""
    certificate: int = 100
    """Between two looks whether the certificate was renewed."""
    clients: int = UNTAKEN_S * 10
    """Between two looks for clients that read nothing."""


class EmbeddedServer(uvicorn.Server):
    """Lives in our loop and leaves the signals to us."""

    def __init__(
        self,
        app: object,
        options: DoorOptions,
        lobby: Lobby | None = None,
        *,
        ticks: Ticks | None = None,
    ) -> None:
        self._ticks = Ticks() if ticks is None else ticks
        self._lobby = Lobby() if lobby is None else lobby
        self._turned_away = 0
        self._leaving = asyncio.Event()
        super().__init__(
            uvicorn.Config(
                app,  # type: ignore[arg-type]  # as ASGI has it, which uvicorn spells out
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="off",
                http=partial(BoundedProtocol, lobby=self._lobby),  # type: ignore[arg-type]  # any maker of one will do
                ws="none",
                timeout_keep_alive=HEADERS_S_MAX,
                timeout_graceful_shutdown=CLOSE_S_MAX,
                forwarded_allow_ips=["127.0.0.1", "::1", *options.proxies],
                ssl_certfile=options.tls_cert,
                ssl_keyfile=options.tls_key,
            )
        )

        cert, key = options.tls_cert, options.tls_key
        self._certificate = None if cert is None else Certificate(cert, key)

    @property
    def should_exit(self) -> bool:
        """Whether it is to end; at once, when it is set."""
        return self._leaving.is_set()

    @should_exit.setter
    def should_exit(self, wanted: bool) -> None:
        if wanted:
            self._leaving.set()

    async def main_loop(self) -> None:
        """In the place of uvicorn's, which wakes an idle process ten times a second."""
        await first_of(self._tick_on(), self._leaving.wait())

    async def _tick_on(self) -> None:
        number = 0
        while not await self.on_tick(number):
            await beat(self._ticks.tick_s)
            number += TICK_NUMBERS

    async def on_tick(self, counter: int) -> bool:
        """What uvicorn does for its clock; now and then also a look at what changes slowly."""
        certificate, context = self._certificate, self.config.ssl
        due = counter % self._ticks.certificate == 0
        if due and certificate is not None and context is not None:
            certificate.refresh(context)
        if counter % self._ticks.clients == 0:
            self._look_after_clients()
        return await super().on_tick(counter)

    def _look_after_clients(self) -> None:
        lobby = self._lobby
        lobby.look()
        turned_away = lobby.dismissed + lobby.refused
        # Told here, a few times a minute at most, whatever comes.
        if turned_away > self._turned_away:
            log.warning(
                "connections at their limit: raise --connections-max, or see who holds them",
                limit=lobby.limit,
                closed_while_idle=lobby.dismissed,
                refused=lobby.refused,
            )
        self._turned_away = turned_away

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing to capture."""
        yield


def run_loop(work: Coroutine[Any, Any, int]) -> int:
    """Runs a command that serves, to its end; its trouble is one line."""
    # The store's threads must get their turn soon although the loop is busy; the interpreter's
    # default of 5 ms makes a page of rows take tens of milliseconds under load.
    sys.setswitchinterval(SWITCH_S)
    keep_diary()
    try:
        return run_event_loop(work)
    except (StoreError, OSError) as error:
        raise click.ClickException(str(error)) from error


def on_signal() -> asyncio.Queue[int]:
    """Every SIGINT and SIGTERM from now on, in order."""
    signals: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signals.put_nowait, int(number))
    return signals


async def next_signal(signals: asyncio.Queue[int]) -> None:
    """Returns when the next one has come."""
    await signals.get()


async def until_signal(signals: asyncio.Queue[int], serving: asyncio.Task[None]) -> None:
    """Until a signal comes, or the server ends by itself."""
    told = asyncio.create_task(next_signal(signals))
    await asyncio.wait((told, serving), return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
