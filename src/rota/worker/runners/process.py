"""Runs a program with all that it starts: a `command`, a `bundle`, or a `container`'s engine.

Builds what exactly is started (arguments, environment, limits), has the supervisor start it, and
returns the report when every process is gone and the output files are sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias, assert_never

import msgspec
from msgspec import UnsetType

from rota.sdk.backoff import delay_s
from rota.wire.jobs import BundleRun, Command, Container, bundles_of
from rota.wire.queues import LimitsView
from rota.wire.workers import CompletedReport, OrderView
from rota.worker.machine import GpuAllocator
from rota.worker.masking import Secrets, secrets_of
from rota.worker.reports import StopReason, report_failed, report_stopped
from rota.worker.runners.bundles import BundleStaging, StagedBundles
from rota.worker.runners.containers import (
    ContainerEngine,
    engine_environment,
    out_of_memory,
    write_env,
)
from rota.worker.runners.exit_status import ExitReporter, StartError, check_started, signals_text
from rota.worker.runners.output_channels import ExecutionOutput, OutputPipe, OutputSink
from rota.worker.runners.workspace import (
    ExecutionFolder,
    FolderPool,
    UnusableError,
    find_outputs,
    inherited_environment,
    job_environment,
    sha256_of,
)
from rota.worker.server_client import AwayError, RefusedError
from rota.worker.supervisor.client import Ended, Launch, ProcessTree, Supervisor

ProgramTask: TypeAlias = Command | BundleRun | Container


class StartContext(msgspec.Struct, frozen=True, kw_only=True):
    """Context for starting a program, beside what its task says."""

    folder: ExecutionFolder
    worker: str
    base_env: Mapping[str, str]
    devices: Sequence[int]
    """Numbers of the GPUs allocated to it."""
    bundle_file: str | None = None
    """Name of the bundle, if that is one file."""
    engine: ContainerEngine | None = None


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """Program to start."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    limits: Mapping[str, int] = {}
    after: Sequence[str] = ()
    may_gain: bool = False


def program_of(order: OrderView, task: ProgramTask, start: StartContext) -> Program:
    """Builds the program of a task. Raises StartError where it cannot be run here."""
    folder = start.folder
    env = job_environment(order, {**start.base_env, **task.env}, folder, start.worker)
    if not isinstance(task.inputs, UnsetType):
        env["ROTA_INPUTS"] = str(folder.inputs)
    argv: Sequence[str]
    match task:
        case Container():
            return _contained(order, task, env, start)
        case Command():
            argv, cwd = task.argv, task.cwd or os.fspath(folder.cwd)
        case BundleRun():
            argv, cwd = _argv(task, folder.cwd, start.bundle_file), os.fspath(folder.cwd)
            env["ROTA_BUNDLE"] = cwd
        case _:
            assert_never(task)
    if start.devices:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, start.devices))
    return Program(argv=argv, env=env, cwd=cwd, limits=limits_of(order))


def limits_of(order: OrderView) -> dict[str, int]:
    """Limits that the supervisor enforces on a process which runs this order alone."""
    given = order.limits or LimitsView()
    limits = {
        "processes": given.processes,
        "open_files": given.open_files,
        "file_size": given.file_size,
    }
    return {**limits, "memory": memory} if (memory := order.requirements.memory) else limits


def _argv(task: BundleRun, folder: Path, file: str | None) -> Sequence[str]:
    """Prefers a program of the bundle itself to one of the machine."""
    if not task.argv:
        if file is None:
            raise StartError("the bundle is an archive: set task.argv to the program to run in it")
        return [f"./{file}"]
    first = task.argv[0]
    if "/" not in first and (folder / first).is_file():
        return [f"./{first}", *task.argv[1:]]
    return task.argv


def _contained(
    order: OrderView, task: Container, env: Mapping[str, str], start: StartContext
) -> Program:
    """Builds the engine's program. The job's limits apply to the container, not to it."""
    if start.engine is None:
        raise StartError("this worker has neither podman nor docker")
    folder = start.folder.path
    own = {
        name: value
        for name, value in env.items()
        if name in task.env or name.startswith("ROTA_") or name in ("TRACEPARENT", "TMPDIR")
    }
    write_env(folder, own)
    return Program(
        argv=start.engine.run(order, task, folder, start.devices),
        env=engine_environment(),
        cwd="/",
        after=start.engine.remove(order, folder),
        may_gain=True,
    )


DRAIN_S = 1.0
"""For the last output once all processes are gone; only an escaped one could hold the pipe
longer."""
UPLOAD_RETRY_CAP_S = 3.0
NOT_FOUND = 404
"""Answer of a server to a path that it does not know."""


class JobSink(OutputSink, Protocol):
    """Receiver of everything that an execution sends beside its report."""

    async def send_artifact(self, execution_id: str, name: str, file: Path, sha256: str) -> None:
        """Raises AwayError to be asked again, RefusedError if it cannot be kept."""
        ...


@dataclass(frozen=True, slots=True)
class RunnerContext:
    """Context that all executions of an agent share."""

    workspace: Path
    folders: FolderPool
    worker: str
    mask: Sequence[str]
    """Variables whose values are secrets, whatever their names."""
    grace_s: float
    sink: JobSink
    supervisor: Supervisor
    devices: GpuAllocator
    on_progress: Callable[[str, float, str | None], None]
    deadline: Callable[[str], float | None]
    """Returns when an execution's lease runs out, as of now."""
    bundles: BundleStaging
    engine: ContainerEngine | None = None
    """Engine that runs containers here."""
    env: Mapping[str, str] = field(default_factory=inherited_environment)
    """Variables of the agent's own environment that jobs inherit."""
    secrets: Secrets = field(init=False)
    """Secrets among the variables that all jobs inherit."""

    def __post_init__(self) -> None:
        secrets = secrets_of(self.env, self.mask, os.environ)
        object.__setattr__(self, "secrets", secrets)  # frozen, and derived


class StoppedBeforeStartError(Exception):
    """Raised when an execution is stopped before it began."""


class ProcessRunner:
    """Runs one execution of a program."""

    def __init__(self, order: OrderView, task: ProgramTask, context: RunnerContext) -> None:
        self._order = order
        self._task = task
        self._context = context
        self._limits = order.limits or LimitsView()
        self._tree: ProcessTree | None = None
        self._stop_reason: StopReason | None = None
        self._at_once = asyncio.Event()
        self._stop_requested = asyncio.Event()
        self._bundles: StagedBundles | None = None
        secrets = context.secrets
        if task.env:
            secrets = secrets_of({**context.env, **task.env}, context.mask, os.environ)
        self._output = ExecutionOutput(order, context.sink, secrets, context.on_progress)
        self.lapsed = False
        """The supervisor ended it because its lease ran out."""

    @property
    def unsent_log(self) -> asyncio.Task[None] | None:
        """Task that still sends output after the execution ended: the server was away."""
        return self._output.unsent_log

    def stop(self, reason: StopReason) -> None:
        """Ends it with its grace period."""
        self._stop_reason = self._stop_reason or reason
        self._stop_requested.set()
        if self._tree is not None:
            self._tree.stop()

    def abandon(self) -> None:
        """Ends it at once; its report is not wanted."""
        self._at_once.set()
        self._stop_requested.set()
        if self._tree is not None:
            self._tree.kill()

    def hold_until(self, deadline: float) -> None:
        """Passes on that its lease was renewed."""
        if self._tree is not None:
            self._tree.hold_until(deadline)
        elif self._bundles is not None:
            self._bundles.hold_until(deadline)

    async def run(self) -> CompletedReport:
        """Returns when every process of it is gone and its files are sent."""
        order = self._order
        try:
            folder = self._context.folders.take(order)
        except OSError as error:
            message = f"the worker could not make a folder for this job: {error.strerror}"
            return report_failed(order.execution_id, order.fence, message)
        try:
            return await self._run_in(folder)
        except StartError as error:
            self.lapsed = self._bundles is not None and self._bundles.lapsed
            return report_failed(order.execution_id, order.fence, str(error))
        except StoppedBeforeStartError:
            return report_stopped(order.execution_id, order.fence, self._stop_reason or "shutdown")
        finally:
            self._context.devices.give_back(order.execution_id)
            if not self._context.folders.put_back(folder):
                await asyncio.to_thread(folder.remove)

    async def _run_in(self, folder: ExecutionFolder) -> CompletedReport:
        if self._stop_reason is not None:
            return report_stopped(self._order.execution_id, self._order.fence, self._stop_reason)
        output = self._output
        pipe = OutputPipe(output.printed, lambda: output.backlogged)
        folder.listen(output.progressed)
        try:
            file = await self._stage_bundles(folder)
            ended = await self._supervised(self._launch(folder, file, pipe.write_end), pipe)
            ended = self._corrected_by_engine(ended, folder)
            await pipe.drain(DRAIN_S)
            folder.stop_listening()
            reporter = ExitReporter(self._order, contained=isinstance(self._task, Container))
            report = reporter.report(ended, self._stop_reason, output.tail())
            if not self._at_once.is_set():
                report = await self._collect_results(folder, report)
                await output.flush(self._at_once)
        finally:
            pipe.close()
            folder.stop_listening()
            output.close()
        return report

    async def _stage_bundles(self, folder: ExecutionFolder) -> str | None:
        """Puts its bundles in place; returns the file name of the bundle to run, if that is one
        file."""
        if not bundles_of(self._task):
            return None
        deadline = self._context.deadline(self._order.execution_id)
        self._bundles = StagedBundles(self._context.bundles, self._order, deadline)
        filling = asyncio.create_task(self._stage_into(folder, self._bundles))
        leaving = asyncio.create_task(self._stop_requested.wait())
        try:
            await asyncio.wait((filling, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not filling.done():
                raise StoppedBeforeStartError
            return filling.result()
        finally:
            filling.cancel()
            leaving.cancel()
            await asyncio.gather(filling, leaving, return_exceptions=True)

    async def _stage_into(self, folder: ExecutionFolder, staged: StagedBundles) -> str | None:
        task, file = self._task, None
        if isinstance(task, BundleRun):
            bundle = await staged.stage(task.bundle_id, folder.cwd)
            file = bundle.name if bundle.format == "file" else None
        if not isinstance(task.inputs, UnsetType):
            folder.inputs.mkdir(mode=0o700)
            for name, bundle_id in task.inputs.items():
                place = folder.inputs / name
                place.mkdir(mode=0o700)
                await staged.stage(bundle_id, place)
        return file

    def _launch(self, folder: ExecutionFolder, file: str | None, output: int) -> Launch:
        order, context = self._order, self._context
        wanted = order.requirements.gpu
        start = StartContext(
            folder=folder,
            worker=context.worker,
            base_env=context.env,
            devices=context.devices.take(order.execution_id, wanted) if wanted else (),
            bundle_file=file,
            engine=context.engine,
        )
        program = program_of(order, self._task, start)
        return Launch(
            argv=program.argv,
            env=program.env,
            cwd=program.cwd,
            fds={1: output, 2: output},
            limits=program.limits,
            timeout_s=order.timeout,
            grace_s=context.grace_s,
            after=program.after,
            may_gain=program.may_gain,
        )

    async def _supervised(self, launch: Launch, output: OutputPipe) -> Ended:
        """Starts it and waits until nothing of it is left."""
        deadline = self._context.deadline(self._order.execution_id)
        try:
            self._tree = self._context.supervisor.spawn(launch, deadline)
        except ValueError as error:  # text that no program can be given: half a surrogate
            raise StartError(f"program {launch.argv[0]!r} cannot be started: {error}") from None
        finally:
            output.started()
        try:
            ended = await self._tree.ended
        finally:
            if not self._tree.ended.done():
                self._tree.kill()  # this coroutine was cancelled
        check_started(ended, launch)
        self.lapsed = ended.cause == "lease"
        if launch.after and ended.after != 0:
            self._note("the container may still exist: it could not be removed")
        # Processes that a container's engine leaves for a moment are not the job's.
        if ended.cause == "exit" and ended.signals and not launch.after:
            self._note(f"ended what the job left running: {signals_text(ended)}")
        return ended

    def _corrected_by_engine(self, ended: Ended, folder: ExecutionFolder) -> Ended:
        """Adds what only the engine knows: the supervisor sees its program, not the container."""
        if ended.cause != "exit" or not isinstance(self._task, Container):
            return ended
        if not ended.status or not out_of_memory(folder.path):
            return ended
        allowed = self._order.requirements.memory
        return msgspec.structs.replace(ended, cause="memory", used=allowed)

    async def _collect_results(
        self, folder: ExecutionFolder, report: CompletedReport
    ) -> CompletedReport:
        """Reads the result and sends the output files; a success without them is a failure."""
        try:
            result = folder.read_result(self._limits.result_size)
            await self._upload(folder)
        except UnusableError as error:
            if report.status != "succeeded":
                return report
            order = self._order
            failed = report_failed(order.execution_id, order.fence, str(error))
            failed.exit_code, failed.usage = report.exit_code, report.usage
            return failed
        if result is not None:
            report.result = result
        return report

    async def _upload(self, folder: ExecutionFolder) -> None:
        if not folder.has_outputs():
            return
        outputs = await asyncio.to_thread(find_outputs, folder.artifacts)
        for other in outputs.others:
            self._note(other)
        for name, file in outputs.files.items():
            try:
                await self._upload_one(name, file)
            except (RefusedError, OSError) as error:
                if "/" in name and isinstance(error, RefusedError) and error.status == NOT_FOUND:
                    self._note(
                        f"{name} in ROTA_ARTIFACTS is not kept: this server takes no folders"
                    )
                    continue
                raise UnusableError(f"the output file {name} could not be kept: {error}") from None

    async def _upload_one(self, name: str, file: Path) -> None:
        attempt = 0
        order = self._order
        digest = await asyncio.to_thread(sha256_of, file)
        while not self._at_once.is_set():
            try:
                await self._context.sink.send_artifact(order.execution_id, name, file, digest)
            except AwayError as away:
                pause = delay_s(order.execution_id, attempt, UPLOAD_RETRY_CAP_S)
                attempt += 1
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(pause, away.retry_after_s)):
                        await self._at_once.wait()
            else:
                return

    def _note(self, text: str) -> None:
        self._output.printed(f"[rota: {text}]\n".encode())
