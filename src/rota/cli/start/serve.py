"""Composition root of a server: connects store, engine and API, tracing and local workers, and runs
them until told to stop.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

from rota import __version__
from rota.alerts.conditions import Sampler
from rota.alerts.evaluator import AlertEvaluator
from rota.alerts.notifier import Notifier
from rota.api.app import create_app
from rota.api.cluster.leaderless_submit import SubmittedSpecs
from rota.api.deps import AppDeps, FileStores
from rota.api.metrics import MetricsHistory
from rota.cli.simulation_process import SimulationProcess
from rota.cli.start.access_setup import AccessSetup, announce, open_access, withdraw
from rota.cli.start.cluster import (
    ClusterMembership,
    join_cluster,
    open_durability,
    refuse_duplicate_name,
    trust_of,
)
from rota.cli.start.http_server import (
    EmbeddedServer,
    listen,
    next_signal,
    on_signal,
    open_connection_limit,
    refuse_unprotected,
    run_loop,
    until_signal,
    url_of,
)
from rota.cli.start.storage import (
    check_reachable,
    member_of,
    open_files,
    open_store,
    shown,
    timing_of,
)
from rota.cli.start.up import ServerOptions, UpOptions
from rota.engine.beat import beat
from rota.engine.clock import SystemClock
from rota.engine.durability import DurabilityMonitor
from rota.engine.health import HealthMonitor
from rota.engine.leadership import CellMember
from rota.engine.limits import PULSE_S
from rota.engine.loop import Engine
from rota.engine.metrics import Histogram, Metrics
from rota.engine.retention import Retention, StorageSweep
from rota.processes.background_client import BackgroundClient
from rota.store.protocol import Losses, Store
from rota.store.sqlite.store import SqliteStore
from rota.traces.spans import RecordingPropagator, TraceFollower
from rota.worker.machine import detect

if TYPE_CHECKING:
    from rota.store.postgres.store import PostgresStore
    from rota.traces.otlp import Otlp


MAIN, BACKGROUND = "main", "background"
"""Kinds of a server's processes, as `/metrics` has them."""


class LocalWorkers:
    """Worker processes, each in its own session: Ctrl-C reaches them only through `signal`."""

    def __init__(self, url: str, token: str | None, options: UpOptions) -> None:
        self._url = url
        self._certificate = options.tls_cert
        self._token = token
        self._work = options.data.resolve() / "work"
        self._count = options.workers
        self._options = [] if options.app is None else ["--app", options.app]
        for name in options.env:
            self._options += ["--env", name]
        for place in options.http_allow:
            self._options += ["--http-allow", place]
        self._workers: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        """Starts them all; the machine is shared out evenly."""
        self._work.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._workers = [
            await self._spawn(number, shares(self._work, self._count))
            for number in range(1, self._count + 1)
        ]

    async def _spawn(self, number: int, share: Sequence[str]) -> asyncio.subprocess.Process:
        environment = dict(os.environ)
        if self._token is not None:
            environment["ROTA_TOKEN"] = self._token
        if self._certificate is not None:
            # They talk to this very server: its own certificate is the one to trust.
            environment.setdefault("SSL_CERT_FILE", str(self._certificate.resolve()))
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "rota", "worker",
            "--server", self._url, "--name", f"local-{number}",
            "--work-dir", str(self._work), "--with-parent", *share, *self._options,
            env=environment, stdin=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def signal(self) -> None:
        """Asks them to drain; a second time, to hurry."""
        for worker in self._workers:
            if worker.returncode is None:
                worker.send_signal(signal.SIGTERM)

    async def wait(self) -> None:
        """Waits until all have ended."""
        await asyncio.gather(*(worker.wait() for worker in self._workers))


def shares(work: Path, count: int) -> list[str]:
    """Divides the machine evenly among several workers; one takes all it finds."""
    if count == 1:
        return []
    machine = detect(work)
    return [
        "--cpu", f"{machine.cpu / count:.3f}",
        "--memory", str(machine.memory // count),
        "--storage", str(machine.storage // count),
    ]  # fmt: skip


_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def wants_traces(environment: Mapping[str, str]) -> bool:
    """Whether an exporter or an address is configured, and tracing not disabled."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if exporter and exporter not in ("otlp", "none"):
        raise click.ClickException(
            f"OTEL_TRACES_EXPORTER={exporter} is not known here: otlp, or none"
        )
    return exporter == "otlp" or (
        not exporter and any(environment.get(name) for name in _ENDPOINTS)
    )


@dataclass(frozen=True, slots=True)
class Tracing:
    """Running parts of tracing."""

    otlp: Otlp
    follower: TraceFollower

    def start(self) -> None:
        """Follows the journal from now on."""
        self.follower.start()

    async def stop(self) -> None:
        """Lets go of what was made."""
        await self.follower.stop()
        await asyncio.to_thread(self.otlp.close)


def trace(
    parts: AppDeps, engine: Engine, environment: Mapping[str, str]
) -> tuple[AppDeps, list[Tracing]]:
    """Adds tracing if it is configured; otherwise nothing of the SDK is loaded."""
    if not wants_traces(environment):
        return parts, []
    try:
        from rota.traces.otlp import open_otlp
    except ImportError as error:
        raise click.ClickException(
            f"OTEL_* asks for traces, and {error.name} is not here: pip install 'rota[otel]'"
        ) from error
    otlp = open_otlp(engine.node)
    naming = RecordingPropagator(otlp.samples)
    follower = TraceFollower(engine, engine.journal_notifier, parts.queries, naming, otlp)
    return replace(parts, naming=naming), [Tracing(otlp, follower)]


class BackgroundService(Protocol):
    """Runs beside the engine."""

    def start(self) -> None:
        """Begins once the engine is there."""
        ...

    async def stop(self) -> None:
        """Ends before the engine does."""
        ...


@dataclass(frozen=True, slots=True)
class Storage:
    """Store and files of a server, which outlive it."""

    options: UpOptions | ServerOptions
    store: SqliteStore | PostgresStore
    files: FileStores
    cell: str


@dataclass(frozen=True, slots=True)
class Service:
    """Running server, and what is needed to stop it."""

    url: str
    access: AccessSetup
    membership: ClusterMembership
    server: EmbeddedServer
    engine: Engine
    store: Store
    closing: asyncio.Event
    serving: asyncio.Task[None]
    pulse: asyncio.Task[None]
    background: Sequence[BackgroundService]
    files: FileStores

    async def stop(self) -> None:
        """Lets streams end, answers what waits, and closes the store last.

        Another server that can lead does so at once, and gets what still comes in here.
        """
        self.closing.set()
        for one in self.background:
            await one.stop()
        if self.engine.has_others:
            await self.engine.stop()
        self.server.should_exit = True
        await self.serving
        await self.engine.stop()
        self.pulse.cancel()
        await self.membership.stop()
        await self.access.stop()
        await self.files.spool.close()
        await self.files.blobs.close()
        await self.store.close()


def run_up(options: UpOptions) -> int:
    """Runs `rota up`: a server with workers on one machine."""
    return run_loop(_up(options))


def run_server(options: ServerOptions) -> int:
    """Runs `rota server`: a server without workers of its own."""
    return run_loop(_serve(options))


async def _up(options: UpOptions) -> int:
    service = await start(options)
    workers = LocalWorkers(service.url, service.access.token, options)
    stop = on_signal()
    await workers.start()
    _greet(options, service)
    await until_signal(stop, service.serving)
    click.echo("draining: running jobs may finish; Ctrl-C again stops them now", err=True)
    workers.signal()
    gone = asyncio.create_task(workers.wait())
    while not gone.done():
        hurry = asyncio.create_task(next_signal(stop))
        await asyncio.wait((gone, hurry), return_when=asyncio.FIRST_COMPLETED)
        if hurry.done():
            workers.signal()
        hurry.cancel()
    await service.stop()
    withdraw(options.data)
    return 0


async def _serve(options: ServerOptions) -> int:
    service = await start(options)
    stop = on_signal()
    _greet(options, service)
    await until_signal(stop, service.serving)
    await service.stop()
    withdraw(options.data)
    return 0


async def start(options: UpOptions | ServerOptions) -> Service:
    """Opens the store, loads the engine, and listens."""
    refuse_unprotected(options)
    check_reachable(options)
    listening = listen(options.host, options.port)
    try:
        return await _start(options, listening)
    except BaseException:
        listening.close()
        raise


async def _start(options: UpOptions | ServerOptions, listening: socket.socket) -> Service:
    url = url_of(options, listening)
    member = member_of(options, url)
    storage = await _open_storage(options)
    store = storage.store
    await refuse_duplicate_name(store, member)
    clock = SystemClock()
    durability = await open_durability(options, store)
    engine, figures = await _start_engine(storage, durability, clock, member)
    access = await open_access(options, store, clock)
    await access.start()
    recorder = MetricsHistory(engine, figures)
    limit = open_connection_limit(options)
    alone = replace(
        _parts(storage, figures, access, durability), metrics_history=recorder, connections=limit
    )
    parts, membership = await join_cluster(alone, store, member, await trust_of(options))
    parts, tracing = trace(parts, engine, os.environ)
    cleaners = _cleaners(storage, engine)
    background: list[BackgroundService] = [*cleaners, recorder, parts.alerts, *tracing]
    app = create_app(parts)
    server = EmbeddedServer(app, options, limit)
    serving = asyncio.create_task(server.serve(sockets=[listening]), name="rota-http")
    announce(url, access.token, options.data)
    for one in background:
        one.start()
    return Service(
        url=url,
        access=access,
        membership=membership,
        server=server,
        engine=engine,
        store=store,
        closing=parts.closing,
        serving=serving,
        pulse=asyncio.create_task(_pulse(engine, parts.health), name="rota-pulse"),
        background=background,
        files=storage.files,
    )


async def _start_engine(
    storage: Storage, durability: DurabilityMonitor, clock: SystemClock, member: CellMember
) -> tuple[Engine, LiveEngineMetrics]:
    counts, store = Metrics(), storage.store
    engine = Engine(store, clock, timing_of(storage.options), counts, member)
    await engine.start(SubmittedSpecs(clock))
    return engine, LiveEngineMetrics(counts, engine, store, durability)


async def _open_storage(options: UpOptions | ServerOptions) -> Storage:
    store = await open_store(options)
    files = await open_files(options, store)
    return Storage(options, store, files, await store.name_cell(options.cell))


def _cleaners(storage: Storage, engine: Engine) -> list[BackgroundService]:
    options, files = storage.options, storage.files
    age_ms = options.bundle_retention_ms
    sweep = StorageSweep(files.objects, files.blobs, files.spool, engine, age_ms)
    if options.store is not None:
        return [sweep]  # the background process deletes old work
    leads = partial(_leads, engine)
    return [sweep, Retention(storage.store, engine.clock, leads, options.retention_ms)]


def _leads(engine: Engine) -> bool:
    return engine.standing().leads


async def _pulse(engine: Engine, health: HealthMonitor) -> None:
    while True:
        await beat(PULSE_S)
        engine.pulse()
        health.look()


class LiveEngineMetrics:
    """Counters of the engine for metrics, and the state of store and processes."""

    def __init__(
        self, counts: Metrics, engine: Engine, store: Store, durability: DurabilityMonitor
    ) -> None:
        self.engine = engine
        self._store = store
        self._durability = durability
        self.submitted = counts.submitted
        self.finished = counts.finished
        self.decided = counts.decided
        self.reacted = counts.reacted
        self.deadlines = counts.deadlines
        self.estimates = engine.calibration.outcomes
        self._counts = counts
        self.projection_lag_seconds = engine.projection_lag_s

    def histograms(self) -> Mapping[str, Histogram]:
        """Returns histograms by the names of their metrics, without prefix."""
        errors = self.engine.calibration.errors_s
        return {**self._counts.histograms(), "estimate_error_seconds": errors}

    def quarantined_jobs(self) -> int:
        """Returns jobs whose writes cannot be projected, as far as this server knows."""
        return self._store.journal.projection.quarantined

    def losses(self) -> Losses:
        """Returns what failovers of the database had lost some seconds ago."""
        return self._durability.losses

    def processes(self) -> Mapping[str, int]:
        """Returns the processes of this server that run, by kind."""
        projection = getattr(self._store, "projection", None)
        if not isinstance(projection, BackgroundClient):
            return {MAIN: 1}
        return {MAIN: 1, BACKGROUND: int(projection.pid is not None)}


def _disk_free(data: Path) -> int:
    return shutil.disk_usage(data).free


def _parts(
    storage: Storage, figures: LiveEngineMetrics, access: AccessSetup, durability: DurabilityMonitor
) -> AppDeps:
    engine, store = figures.engine, storage.store
    disk_free = partial(_disk_free, storage.options.data)
    watcher = Sampler(engine, figures, disk_free)
    return AppDeps(
        brain=engine,
        journal=store.journal,
        queries=store.queries,
        logs=store.logs,
        files=storage.files,
        hooks=store.hooks,
        commits=engine.journal_notifier,
        access=access.access,
        audit=access.audit,
        metrics=figures,
        alerts=AlertEvaluator(engine, watcher, store.notes, Notifier(storage.cell)),
        node=engine.node,
        durability=durability,
        health=HealthMonitor(engine, figures.projection_lag_seconds),
        version=__version__,
        started_at=engine.clock.now(),
        disk_free=disk_free,
        cell=storage.cell,
        simulator=SimulationProcess(),
    )


def _greet(options: UpOptions | ServerOptions, service: Service) -> None:
    """Prints what a person needs next; programs read the first line."""
    click.echo(f"Rota {__version__} is up at {service.url}")
    sign_in = service.access.sign_in_path()
    if sign_in is not None:
        click.echo(f"  open     {service.url}{sign_in}  (signs your browser in, once)")
    if options.store is None:
        click.echo(f"  data     {options.data}")
    else:
        click.echo(f"  store    {shown(options.store)}")
        click.echo(f"  node     {service.engine.node}, {_role_text(service.engine)}")
    if options.objects is not None:
        click.echo(f"  objects  {service.files.blobs.where}")
    for warning in service.files.warnings:
        click.echo(f"note: {warning}", err=True)
    if isinstance(options, UpOptions):
        click.echo("  try      rota submit --follow -- echo hello")
        click.echo("Ctrl-C drains and stops.")
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            click.echo("note: jobs will run as root, like this server", err=True)
    else:
        click.echo(f"  workers  rota worker --server {service.url}")
        click.echo("Ctrl-C stops.")
    sys.stdout.flush()


def _role_text(engine: Engine) -> str:
    standing = engine.standing()
    if standing.leads:
        return "leader"
    return f"standby: {standing.leader} leads" if standing.leader else "no leader yet"
