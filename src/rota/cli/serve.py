"""The composition root: puts store, engine and api together and runs them until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import uvicorn

from rota import __version__
from rota.api.app import Parts, create_app
from rota.api.auth import LOOPBACK_HOSTS, Access, digest
from rota.api.connections import BoundedProtocol
from rota.cli.crew import Crew
from rota.cli.diary import keep_diary
from rota.cli.identity import announce, first_token, withdraw
from rota.cli.up import ServerOptions, UpOptions
from rota.core.inputs import Timing
from rota.engine.clock import SystemClock
from rota.engine.loop import Engine
from rota.engine.observe import Counts
from rota.store.protocol import Store, StoreError
from rota.store.sqlite import open_sqlite
from rota.wire.limits import LOG_BYTES_PER_EXECUTION_MAX

HEADERS_S_MAX = 65
"""An idle connection is closed after this; a little longer than a poll is held."""
SWITCH_S = 0.0005
"""How long one thread may keep the interpreter when another wants it."""
CLOSE_S_MAX = 5
"""How long open answers may take to end when the server stops."""


class EmbeddedServer(uvicorn.Server):
    """Lives in our loop and leaves the signals to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing to capture."""
        yield


@dataclass(frozen=True, slots=True)
class Service:
    """A running server and what is needed to end it."""

    url: str
    sign_in: str | None
    token: str | None
    server: EmbeddedServer
    engine: Engine
    store: Store
    closing: asyncio.Event
    serving: asyncio.Task[None]

    async def stop(self) -> None:
        """Lets streams end, answers what waits, and closes the store last."""
        self.closing.set()
        self.server.should_exit = True
        await self.serving
        await self.engine.stop()
        await self.store.close()


def run_up(options: UpOptions) -> int:
    """`rota up`: everything on one machine."""
    return _run(_up(options))


def run_server(options: ServerOptions) -> int:
    """`rota server`: a server without workers of its own."""
    return _run(_serve(options))


def _run(work: object) -> int:
    # The store's threads must get their turn soon although the loop is busy; the interpreter's
    # default of 5 ms makes a page of rows take tens of milliseconds under load.
    sys.setswitchinterval(SWITCH_S)
    keep_diary()
    loop_factory = None
    with contextlib.suppress(ImportError):
        import uvloop

        loop_factory = uvloop.new_event_loop
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(work)  # type: ignore[arg-type]  # a coroutine of ours
    except (StoreError, OSError) as error:
        raise click.ClickException(str(error)) from error


async def _up(options: UpOptions) -> int:
    service = await start(options)
    crew = Crew(service.url, service.token, options)
    stop = _on_signal()
    await crew.start()
    _greet(options, service)
    await _until(stop, service)
    click.echo("draining: running jobs may finish; Ctrl-C again stops them now", err=True)
    crew.signal()
    gone = asyncio.create_task(crew.wait())
    while not gone.done():
        hurry = asyncio.create_task(_next(stop))
        await asyncio.wait((gone, hurry), return_when=asyncio.FIRST_COMPLETED)
        if hurry.done():
            crew.signal()
        hurry.cancel()
    await service.stop()
    withdraw(options.data)
    return 0


async def _serve(options: ServerOptions) -> int:
    service = await start(options)
    stop = _on_signal()
    _greet(options, service)
    await _until(stop, service)
    await service.stop()
    withdraw(options.data)
    return 0


def _on_signal() -> asyncio.Queue[int]:
    """Every SIGINT and SIGTERM from now on, in order."""
    signals: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signals.put_nowait, int(number))
    return signals


async def _next(signals: asyncio.Queue[int]) -> None:
    await signals.get()


async def _until(signals: asyncio.Queue[int], service: Service) -> None:
    """Until a signal comes, or the server ends by itself."""
    told = asyncio.create_task(_next(signals))
    await asyncio.wait((told, service.serving), return_when=asyncio.FIRST_COMPLETED)
    told.cancel()


async def start(options: UpOptions | ServerOptions) -> Service:
    """Opens the store, loads the engine, and listens."""
    refuse_open_door(options)
    listening = _listen(options.host, options.port)
    store = open_sqlite(options.data, log_bytes_max=LOG_BYTES_PER_EXECUTION_MAX)
    clock = SystemClock()
    timing = Timing(lease_ttl_ms=options.lease_ttl_ms)
    node = options.node or socket.gethostname()
    counts = Counts()
    engine = Engine(store.ledger, clock, timing, counts, node)
    await engine.start()
    token = first_token(options.data) if options.auth else None
    access = Access(
        token_digests=() if token is None else (digest(token),),
        no_auth=token is None,
        hosts=tuple(dict.fromkeys((*LOOPBACK_HOSTS, options.host, *options.names))),
        secure_cookies=options.tls_cert is not None,
    )
    closing = asyncio.Event()
    figures = Figures(counts, engine)
    app = create_app(_parts(figures, store, access, closing, options.data))
    server = EmbeddedServer(_uvicorn(app, options))
    serving = asyncio.create_task(server.serve(sockets=[listening]), name="rota-http")
    scheme = "http" if options.tls_cert is None else "https"
    name = options.names[0] if options.names else _host_text(options.host)
    url = f"{scheme}://{name}:{listening.getsockname()[1]}"
    announce(url, token, options.data)
    sign_in = None if token is None else f"{url}/?token={access.codes.issue()}"
    return Service(url, sign_in, token, server, engine, store, closing, serving)


class Figures:
    """What the engine counted, with how far the tables are behind it."""

    def __init__(self, counts: Counts, engine: Engine) -> None:
        self.engine = engine
        self.submitted = counts.submitted
        self.finished = counts.finished
        self.decided = counts.decided
        self.reacted = counts.reacted
        self.histograms = counts.histograms
        self.fold_lag_seconds = engine.fold_lag_s


def _parts(
    figures: Figures, store: Store, access: Access, closing: asyncio.Event, data: Path
) -> Parts:
    engine = figures.engine
    return Parts(
        brain=engine,
        catalog=store.catalog,
        logs=store.logs,
        artifacts=store.artifacts,
        hooks=store.hooks,
        feed=engine.feed,
        access=access,
        figures=figures,
        node=engine.node,
        durability="single",
        version=__version__,
        started_at=engine.clock.now(),
        disk_free=lambda: shutil.disk_usage(data).free,
        closing=closing,
    )


def _uvicorn(app: object, options: UpOptions | ServerOptions) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]  # Starlette is one of its kinds
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        http=BoundedProtocol,
        timeout_keep_alive=HEADERS_S_MAX,
        timeout_graceful_shutdown=CLOSE_S_MAX,
        ssl_certfile=options.tls_cert,
        ssl_keyfile=options.tls_key,
    )


def _listen(host: str, port: int) -> socket.socket:
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


def refuse_open_door(options: UpOptions | ServerOptions) -> None:
    """A job API is remote execution: beyond this machine only with TLS, or an explicit word."""
    if is_loopback(options.host):
        return
    if not options.auth:
        raise click.ClickException("--no-auth is allowed on loopback only")
    if options.tls_cert is None and not options.insecure:
        raise click.ClickException(
            f"listening on {options.host} would send tokens and jobs in the clear: give"
            " --tls-cert and --tls-key, or say --insecure if something in front does TLS"
        )


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


def _greet(options: UpOptions | ServerOptions, service: Service) -> None:
    """What a person needs next; programs read the first line."""
    click.echo(f"Rota {__version__} is up at {service.url}")
    if service.sign_in is not None:
        click.echo(f"  page     {service.sign_in}  (signs your browser in, once)")
    click.echo(f"  data     {options.data}")
    click.echo("  try      rota submit --wait -- echo hello")
    click.echo("Ctrl-C drains and stops.")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        click.echo("note: running as root, and so will the jobs", err=True)
    sys.stdout.flush()
