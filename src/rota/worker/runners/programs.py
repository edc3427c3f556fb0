"""What exactly is started for a job that runs a program, whichever kind of task it is."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, assert_never

import msgspec
from msgspec import UnsetType

from rota.wire.queues import LimitsView
from rota.wire.tasks import BundleRun, Command, Container
from rota.wire.workers import OrderView
from rota.worker.containers import ContainerEngine, engine_environment, write_env
from rota.worker.runners.child import StartError
from rota.worker.runners.folder import ExecutionFolder, job_environment

ProgramTask: TypeAlias = Command | BundleRun | Container


class StartContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a program is started with, beside what its task says."""

    folder: ExecutionFolder
    worker: str
    base_env: Mapping[str, str]
    devices: Sequence[int]
    """Numbers of the GPUs that are its own."""
    bundle_file: str | None = None
    """The name of the bundle, if that is one file."""
    engine: ContainerEngine | None = None


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program to start."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    limits: Mapping[str, int] = {}
    after: Sequence[str] = ()
    may_gain: bool = False


def program_of(order: OrderView, task: ProgramTask, around: StartContext) -> Program:
    """Raises StartError where it cannot be run here."""
    folder = around.folder
    env = job_environment(order, {**around.base_env, **task.env}, folder, around.worker)
    if not isinstance(task.inputs, UnsetType):
        env["ROTA_INPUTS"] = str(folder.inputs)
    argv: Sequence[str]
    match task:
        case Container():
            return _contained(order, task, env, around)
        case Command():
            argv, cwd = task.argv, task.cwd or os.fspath(folder.cwd)
        case BundleRun():
            argv, cwd = _argv(task, folder.cwd, around.bundle_file), os.fspath(folder.cwd)
            env["ROTA_BUNDLE"] = cwd
        case _:
            assert_never(task)
    if around.devices:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, around.devices))
    return Program(argv=argv, env=env, cwd=cwd, limits=_bounds(order))


def _bounds(order: OrderView) -> dict[str, int]:
    limits = order.limits or LimitsView()
    bounds = {
        "processes": limits.processes,
        "open_files": limits.open_files,
        "file_size": limits.file_size,
    }
    if order.requirements.memory:
        bounds["memory"] = order.requirements.memory
    return bounds


def _argv(task: BundleRun, folder: Path, file: str | None) -> Sequence[str]:
    """A program of the bundle itself goes before one of the machine."""
    if not task.argv:
        if file is None:
            raise StartError("the bundle is an archive: say what to run in it with task.argv")
        return [f"./{file}"]
    first = task.argv[0]
    if "/" not in first and (folder / first).is_file():
        return [f"./{first}", *task.argv[1:]]
    return task.argv


def _contained(
    order: OrderView, task: Container, env: Mapping[str, str], around: StartContext
) -> Program:
    """The engine's program is held to nothing of the job's: the container is."""
    if around.engine is None:
        raise StartError("this worker has neither podman nor docker")
    folder = around.folder.path
    own = {
        name: value
        for name, value in env.items()
        if name in task.env or name.startswith("ROTA_") or name in ("TRACEPARENT", "TMPDIR")
    }
    write_env(folder, own)
    return Program(
        argv=around.engine.run(order, task, folder, around.devices),
        env=engine_environment(),
        cwd="/",
        after=around.engine.remove(order, folder),
        may_gain=True,
    )
