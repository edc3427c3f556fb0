"""The HTTP server of this process: socket, TLS certificate and its renewal, connection limit,
signals, uvicorn.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import structlog
import uvicorn

from rota.api.cancel_on_disconnect import first_of
from rota.api.http_protocol import BoundedProtocol
from rota.api.limits import CONNECTIONS_MAX, FILES_RESERVED, STALL_CHECK_S
from rota.api.throttling import ConnectionLimit
from rota.cli.start.up import HttpOptions
from rota.engine.beat import beat
from rota.processes.event_loop import run_event_loop
from rota.processes.process_log import set_up_log
from rota.store.protocol import StoreError


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        hint = "another server? take another with --port" if port else "is the address right?"
        raise click.ClickException(
            f"cannot listen on {host}:{port}: {error.strerror} ({hint})"
        ) from (error)
    listening.listen(1024)
    listening.setblocking(False)  # noqa: FBT003  (the standard library's signature)
    return listening


def refuse_unprotected(options: HttpOptions) -> None:
    """Refuses to serve beyond this machine without TLS, unless --insecure is given."""
    if is_loopback(options.host):
        return
    if not options.auth:
        raise click.ClickException("--no-auth is allowed on loopback only")
    if options.tls_cert is None and not options.insecure:
        raise click.ClickException(
            f"listening on {options.host} would send tokens and jobs in the clear: give"
            " --tls-cert and --tls-key, or say --insecure if something in front does TLS"
        )


def is_everywhere(host: str) -> bool:
    """Whether a host stands for all addresses of this machine."""
    return host in ("0.0.0.0", "::", "")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_text(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def url_of(options: HttpOptions, listening: socket.socket) -> str:
    """Returns the address for people and workers."""
    scheme = "http" if options.tls_cert is None else "https"
    name = options.names[0] if options.names else _host_text(options.host)
    return f"{scheme}://{name}:{listening.getsockname()[1]}"


def open_connection_limit(options: HttpOptions) -> ConnectionLimit:
    """Limits connections to what was asked for, or what the system allows.

    A process that may open no more files can still be connected to, but cannot serve a log or a
    file any more: so its connections end first.
    """
    allowed = _raise_file_limit((options.connections_max or CONNECTIONS_MAX) + FILES_RESERVED)
    free = allowed - FILES_RESERVED
    if options.connections_max is not None and free < options.connections_max:
        raise click.ClickException(
            f"--connections-max {options.connections_max} needs a limit of"
            f" {options.connections_max + FILES_RESERVED} open files, and here it is {allowed}:"
            " raise it (ulimit -Hn, or LimitNOFILE= of the service)"
        )
    return ConnectionLimit(max(1, min(free, options.connections_max or CONNECTIONS_MAX)))


def _raise_file_limit(wanted: int) -> int:
    """Raises the limit of open files as far as it may, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (ValueError, OSError):  # some systems have further limits
        return soft
    return allowed


log = structlog.get_logger(__name__)


class Certificate:
    """Certificate and key in two files, reloaded when they change."""

    def __init__(self, cert: Path, key: Path | None) -> None:
        self._cert = cert
        self._key = key
        self._seen = self._look()

    def refresh(self, context: ssl.SSLContext) -> None:
        """Loads the files again if they changed; what cannot be used leaves the old in place.

        A renewal replaces one file after the other, so a pair that does not fit is
        tried again at the next change.
        """
        now = self._look()
        if now == self._seen or None in now:
            return
        self._seen = now
        try:
            # Tried on another context first: what does not fit would leave half of itself behind.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._cert, self._key)
            context.load_cert_chain(self._cert, self._key)
        except (OSError, ssl.SSLError) as error:
            log.warning(
                "cannot load the new certificate; the old one stays in use", cause=str(error)
            )
            return
        log.info("loaded a new certificate", certificate=str(self._cert))

    def _look(self) -> tuple[int | None, ...]:
        files = [file for file in (self._cert, self._key) if file is not None]
        return tuple(_changed_at(file) for file in files)


def _changed_at(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None  # just being replaced


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
    clients: int = STALL_CHECK_S * 10
    """Between two looks for clients that read nothing."""


class EmbeddedServer(uvicorn.Server):
    """Lives in our loop and leaves the signals to us."""

    def __init__(
        self,
        app: object,
        options: HttpOptions,
        limit: ConnectionLimit | None = None,
        *,
        ticks: Ticks | None = None,
    ) -> None:
        self._ticks = Ticks() if ticks is None else ticks
        self._connection_limit = ConnectionLimit() if limit is None else limit
        self._closed_count = 0
        self._stopping = asyncio.Event()
        super().__init__(
            uvicorn.Config(
                app,  # type: ignore[arg-type]  # as ASGI has it, which uvicorn spells out
                log_config=None,
                access_log=False,
                server_header=False,
                lifespan="off",
                http=partial(BoundedProtocol, connections=self._connection_limit),  # type: ignore[arg-type]  # any maker of one will do
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
        return self._stopping.is_set()

    @should_exit.setter
    def should_exit(self, wanted: bool) -> None:
        if wanted:
            self._stopping.set()

    async def main_loop(self) -> None:
        """Replaces uvicorn's, which wakes an idle process ten times a second."""
        await first_of(self._tick_on(), self._stopping.wait())

    async def _tick_on(self) -> None:
        number = 0
        while not await self.on_tick(number):
            await beat(self._ticks.tick_s)
            number += TICK_NUMBERS

    async def on_tick(self, counter: int) -> bool:
        """Updates uvicorn's clock; now and then checks the certificate and slow clients."""
        certificate, context = self._certificate, self.config.ssl
        due = counter % self._ticks.certificate == 0
        if due and certificate is not None and context is not None:
            certificate.refresh(context)
        if counter % self._ticks.clients == 0:
            self._check_connections()
        return await super().on_tick(counter)

    def _check_connections(self) -> None:
        limit = self._connection_limit
        limit.close_stalled()
        closed = limit.evicted + limit.refused
        # Logged a few times a minute at most, however many are closed.
        if closed > self._closed_count:
            log.warning(
                "connections at their limit: raise --connections-max, or find the clients",
                limit=limit.limit,
                closed_while_idle=limit.evicted,
                refused=limit.refused,
            )
        self._closed_count = closed

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Captures none: the commands handle signals."""
        yield


def run_loop(work: Coroutine[Any, Any, int]) -> int:
    """Runs a command that serves, to its end; its errors are one line."""
    # The store's threads must get their turn soon although the loop is busy; the interpreter's
    # default of 5 ms makes a page of rows take tens of milliseconds under load.
    sys.setswitchinterval(SWITCH_S)
    set_up_log()
    try:
        return run_event_loop(work)
    except (StoreError, OSError) as error:
        raise click.ClickException(str(error)) from error


def on_signal() -> asyncio.Queue[int]:
    """Queues every SIGINT and SIGTERM from now on."""
    signals: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signals.put_nowait, int(number))
    return signals


async def next_signal(signals: asyncio.Queue[int]) -> None:
    """Returns when the next one has come."""
    await signals.get()


async def until_signal(signals: asyncio.Queue[int], serving: asyncio.Task[None]) -> None:
    """Waits for a signal, or for the end of the server."""
    signalled = asyncio.create_task(next_signal(signals))
    await asyncio.wait((signalled, serving), return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
