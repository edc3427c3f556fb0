"""Runs a worker agent: builds its parts, handles signals, writes the agent's own log, shuts down.

The command line calls `run_worker`. The log goes to stderr, as text on a terminal and as JSON
elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import structlog
from structlog.typing import FilteringBoundLogger

from rota.sdk.servers import Servers
from rota.wire.formats import ByteSize
from rota.wire.jobs import BUNDLE_CAPABILITY, CONTAINER_CAPABILITY, FUNCTION_CAPABILITY
from rota.wire.limits import LEASE_ORDERS_MAX
from rota.wire.workers import RegisterSpec, ResourcesSpec
from rota.worker.clock import BootClock
from rota.worker.executor import Executor, RunnerDeps
from rota.worker.machine import GpuAllocator, Machine, detect, gpu_indices, gpu_numbers
from rota.worker.metrics import DoorError, MetricsDoor
from rota.worker.run_loop import SILENCE_S, FatalError, PollLoop, RunLoop
from rota.worker.runners.bundles import CACHE_BYTES, BundleCache, BundleStaging
from rota.worker.runners.containers import ENGINES, EngineChoice, find_engine
from rota.worker.runners.http_call import AddressPolicy, HttpSessions
from rota.worker.runners.process import RunnerContext
from rota.worker.runners.python_pool import AppError, ChildSettings, PythonPool
from rota.worker.runners.workspace import (
    AgentWorkspace,
    FolderPool,
    UnusableError,
    default_work_dir,
    inherited_environment,
)
from rota.worker.server_client import HttpTransport, ServerClient, Uplink
from rota.worker.session import Session
from rota.worker.supervisor.client import Isolation, Supervisor, SupervisorError

INFO = 20


def open_agent_log(stream: TextIO | None = None) -> FilteringBoundLogger:
    """Makes a logger for this agent alone; nothing global is configured."""
    target = stream or sys.stderr
    chosen = os.environ.get("ROTA_LOG_FORMAT", "auto")
    draw = (
        structlog.dev.ConsoleRenderer(colors=target.isatty())
        if chosen == "text" or (chosen == "auto" and target.isatty())
        else structlog.processors.JSONRenderer()
    )
    logger: FilteringBoundLogger = structlog.wrap_logger(
        structlog.PrintLogger(target),
        wrapper_class=structlog.make_filtering_bound_logger(INFO),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            draw,
        ],
    )
    return logger


EXIT_FAILED = 1
FOLDERS_KEPT = 64
"""Clean execution folders kept for the next jobs."""
SPARE_PER_SLOT = 32
"""Prefetched orders for each execution slot. This is twice as many short jobs as start and end
during one call: half of them end before the next call goes out."""
LOGS_S = 5.0
"""How long a leaving worker waits for output that is still being sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceOverrides:
    """Resources that the operator states for this worker; None: as detected on the machine."""

    cpu: float | None = None
    memory: int | None = None
    """Bytes."""
    storage: int | None = None
    """Bytes."""
    gpu: float | None = None
    custom: dict[str, float] = field(default_factory=dict)


def _host_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Configuration of one worker, fixed at its start."""

    servers: Sequence[str]
    """Base URLs of the servers of one cell; the next one is asked when one does not answer."""
    follow_leader: bool = True
    """Whether to call the leader that a server names, even if it is not in `servers`."""
    silence_s: float = SILENCE_S
    """How much longer than the requested wait a server may stay silent before another one is
    asked."""
    token: str | None = None
    name: str = field(default_factory=_host_name)
    resources: ResourceOverrides = field(default_factory=ResourceOverrides)
    capabilities: Sequence[str] = ()
    """Added to the detected ones: platform and processor type."""
    queues: Sequence[str] | None = None
    """None: all queues."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Added to `host`, which is this machine's name unless it is set here."""
    only: Sequence[str] = ()
    """Reserves the worker for jobs that request or tolerate one of these resources or
    capabilities."""
    concurrency: int | None = None
    """Executions at once; None: as many as the resources allow."""
    spare: int | None = None
    """Short jobs to prefetch beside those that run; None: `SPARE_PER_SLOT` for each slot."""
    work_dir: Path | None = None
    """Where executions get their folders; None: a folder of this user below the temporary
    folder."""
    grace_s: float = 5.0
    """Seconds between SIGTERM and SIGKILL."""
    app: str | None = None
    """`package.module:app`, whose functions can be called here; None: only `python` tasks."""
    http_allow: Sequence[str] = ()
    """Names, addresses and networks that `http` tasks may reach although they are private."""
    mask: Sequence[str] = ()
    """Variables whose values are masked in logs, added to those whose names look secret."""
    env: Sequence[str] = ()
    """Variables of the agent's environment that jobs inherit too."""
    bundle_cache: int = CACHE_BYTES
    """Size limit of this machine's bundle cache, in bytes."""
    containers: EngineChoice = "auto"
    """Engine that runs containers; `auto` takes podman or docker, whichever is found first."""
    container_options: Sequence[str] = ()
    """Added to the command line of every container."""
    metrics: tuple[str, int] | None = None
    """Address of the metrics endpoint; None: no endpoint."""
    isolation: Isolation = "auto"
    """`auto`: each job runs in a PID namespace where the kernel permits it."""


async def run_worker(config: WorkerConfig) -> int:
    """Runs until a signal has drained the worker (returns 0) or until it cannot go on (returns
    1)."""
    log = open_agent_log()
    try:
        agent = Agent(config, log)
    except UnusableError as error:
        log.error("the worker cannot start", why=str(error))
        return EXIT_FAILED
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    for number in numbers:
        loop.add_signal_handler(number, agent.request_stop)
    try:
        return await agent.run()
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


class Agent:
    """One worker: its session, poll loop, executor and supervisor."""

    def __init__(self, config: WorkerConfig, log: FilteringBoundLogger) -> None:
        self._config = config
        self._log = log
        self._clock = BootClock()
        spare = SPARE_PER_SLOT * _slots(config) if config.spare is None else config.spare
        self._session = Session(config.concurrency, min(spare, LEASE_ORDERS_MAX))
        work_dir = config.work_dir or default_work_dir()
        self._workspace = AgentWorkspace(work_dir)
        servers = Servers(config.servers, follow=config.follow_leader)
        self._client = ServerClient(servers, HttpTransport(config.token), self._clock)
        self._poll_loop = PollLoop(
            self._session, self._client, self._clock, log, silence_s=config.silence_s
        )
        self._supervisor = Supervisor(config.isolation)
        self._engine = find_engine(config.containers, config.container_options)
        uplink = Uplink(self._client)
        cache = BundleCache(work_dir / "bundles", uplink, config.bundle_cache)
        context = RunnerContext(
            workspace=self._workspace.path,
            folders=FolderPool(self._workspace.path, FOLDERS_KEPT),
            worker=config.name,
            mask=config.mask,
            grace_s=config.grace_s,
            sink=uplink,
            supervisor=self._supervisor,
            devices=GpuAllocator(gpu_numbers(gpu_indices(), config.resources.gpu)),
            on_progress=self._session.progressed,
            deadline=self._session.deadline,
            bundles=BundleStaging(cache, self._supervisor),
            engine=self._engine,
            env=inherited_environment(config.env),
        )
        self._python_pool = PythonPool(_child_settings(config, context))
        self._http_sessions = HttpSessions(AddressPolicy(config.http_allow))
        deps = RunnerDeps(context, self._python_pool, self._http_sessions)
        self._executor = Executor(self._session, deps, log, self._poll_loop.wake, self._clock)
        self._run_loop = RunLoop(self._session, self._poll_loop, self._executor, self._clock, log)
        self.metrics_server = MetricsDoor(config.metrics, self._executor)
        self._drain_call: asyncio.Task[None] | None = None

    def request_stop(self) -> None:
        """Drains at the first call: takes no more work, lets jobs finish. Stops all jobs at the
        second."""
        if not self._session.draining:
            self._log.info("draining; a second signal stops the jobs", running=self._session.held)
            self._session.drain()
            self._drain_call = asyncio.create_task(self._poll_loop.drain())
        else:
            self._log.warning("stopping all jobs", running=self._session.held)
            self._executor.carry_out(self._session.stop_all())
        self._poll_loop.wake()

    async def run(self) -> int:
        """Runs to the end and leaves no process and no folder behind."""
        if os.geteuid() == 0:
            self._log.warning("the worker and its jobs run as root: start it as another user")
        for name in self._config.env:
            if name not in os.environ:
                self._log.warning("a variable named by --env is not set", variable=name)
        if self._engine is None and self._config.containers in ENGINES:
            engine = self._config.containers
            self._log.warning("containers cannot run here", why=f"`{engine} ps` fails")
        try:
            # A background task that fails ends the agent: without them leases are not watched.
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work) for work in self._background()]
                code = await self._work_or_log_why()
                for task in tasks:
                    task.cancel()
            return code
        finally:
            await self._close()

    def _background(self) -> list[Coroutine[Any, Any, None]]:
        return [
            self._run_loop.watch(),
            self._supervisor.watch(),
            self._poll_loop.send_heartbeats(self._executor),
        ]

    async def _work_or_log_why(self) -> int:
        try:
            await self.metrics_server.open()
            await self._await_supervisor()
            await self._work()
        except (FatalError, SupervisorError, AppError, DoorError) as error:
            self._log.error("the worker stops", why=str(error))
            return EXIT_FAILED
        return EXIT_FAILED if self._session.pending_reports else 0

    async def _await_supervisor(self) -> None:
        hello = await self._supervisor.hello
        limits = {"memory": hello.memory, "processes": hello.processes}
        if hello.isolation == "namespace":
            self._log.info("jobs run in PID namespaces", **limits)
        else:
            self._log.info("jobs run without PID namespaces", why=hello.why, **limits)

    async def _work(self) -> None:
        spec = registration(self._config, detect(self._workspace.path))
        functions = await self._python_pool.open()
        spec.capabilities += [FUNCTION_CAPABILITY + name for name in functions]
        spec.capabilities += [BUNDLE_CAPABILITY] + [CONTAINER_CAPABILITY] * bool(self._engine)
        if await self._run_loop.work(spec, self._finish_up):
            self._log_departure()

    async def _finish_up(self) -> None:
        await self._executor.wait_for_logs(LOGS_S)
        if self._drain_call is not None:
            await self._drain_call  # deregistering must not overtake it

    def _log_departure(self) -> None:
        if self._session.pending_reports:
            self._log.error(
                "leaving with undelivered reports", reports=self._session.pending_reports
            )
        else:
            self._log.info("drained")

    async def _close(self) -> None:
        self._executor.carry_out(self._session.registration_lost("the worker leaves"))
        await self._executor.wait_until_finished()
        await self._executor.wait_for_logs(0)
        if self._drain_call is not None:
            await self._drain_call
        await self.metrics_server.close()
        await self._client.close()
        await self._http_sessions.close()
        await self._python_pool.close()
        await self._supervisor.shut_down()
        await asyncio.to_thread(self._workspace.leave)


def _slots(config: WorkerConfig) -> int:
    """Estimates how many executions run at once, before any job's requirements are known."""
    return config.concurrency or len(os.sched_getaffinity(0))


def _child_settings(config: WorkerConfig, context: RunnerContext) -> ChildSettings:
    """Settings of warm children: the environment that commands get, and PYTHONPATH."""
    env = {**context.env, "ROTA_WORKER": config.name}
    if "PYTHONPATH" in os.environ:
        env["PYTHONPATH"] = os.environ["PYTHONPATH"]
    return ChildSettings(
        supervisor=context.supervisor,
        workspace=context.workspace,
        env=env,
        grace_s=config.grace_s,
        app=config.app,
        idle_max=_slots(config),
    )


def registration(config: WorkerConfig, machine: Machine) -> RegisterSpec:
    """Builds the registration: detected values, replaced by those that the operator states."""
    overrides = config.resources
    return RegisterSpec(
        name=config.name,
        capabilities=list(dict.fromkeys([*machine.capabilities, *config.capabilities])),
        resources=ResourcesSpec(
            cpu=machine.cpu if overrides.cpu is None else overrides.cpu,
            memory=ByteSize(machine.memory if overrides.memory is None else overrides.memory),
            storage=ByteSize(machine.storage if overrides.storage is None else overrides.storage),
            gpu=machine.gpu if overrides.gpu is None else overrides.gpu,
            custom=dict(overrides.custom),
        ),
        queues=None if config.queues is None else list(config.queues),
        labels={"host": socket.gethostname(), **config.labels},
        only=list(config.only),
    )
