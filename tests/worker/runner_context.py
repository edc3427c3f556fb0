"""Context of runners in tests: a supervisor, and a sink that keeps what is sent."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil

from rota.wire.bundles import BundleView, Format
from rota.wire.workers import ProgressSpec
from rota.worker.machine import GpuAllocator
from rota.worker.runners.bundles import BundleCache, BundleStaging
from rota.worker.runners.process import RunnerContext
from rota.worker.runners.workspace import FolderPool
from rota.worker.server_client import AwayError, RefusedError
from rota.worker.supervisor.client import Isolation, Supervisor

PATIENCE_S = 20.0


class Sink:
    """Fake server that keeps what executions send."""

    def __init__(self) -> None:
        self.log = bytearray()
        self.chunks: list[int] = []
        self.progress: list[tuple[float | None, str | None]] = []
        self.files: dict[str, bytes] = {}
        self.open = asyncio.Event()
        self.open.set()
        self.failures = 0
        self.bundles: dict[str, tuple[str, Format, bytes]] = {}
        """Name, format and content of the bundles that can be fetched."""
        self.fetched: list[tuple[str, int]] = []
        self.line_bytes: int | None = None
        """The connection breaks once after this many bytes."""
        self.views: dict[str, BundleView] = {}
        """Descriptions of bundles that differ from their content."""
        self.artifact_errors: list[Exception] = []
        """Errors for the next output files."""
        self.bundle_errors: list[Exception] = []
        """Errors for the next requests of a bundle."""
        self.takes_folders = True

    async def send_log(self, execution_id: str, fence: int, offset: int, chunk: bytes) -> None:
        """Stores a chunk at its offset, as a server does."""
        await self.open.wait()
        if self.failures:
            self.failures -= 1
            self.log[offset:] = chunk
            raise AwayError("the answer was lost")
        self.log[offset:] = chunk
        self.chunks.append(len(chunk))

    async def send_progress(self, execution_id: str, record: ProgressSpec) -> None:
        self.progress.append((record.progress, record.message))

    async def send_artifact(self, execution_id: str, name: str, file: Path, sha256: str) -> None:
        """Keeps a copy, if its checksum is right."""
        if self.artifact_errors:
            raise self.artifact_errors.pop(0)
        if "/" in name and not self.takes_folders:
            raise RefusedError(404, "there is nothing at /executions")
        content = await asyncio.to_thread(file.read_bytes)
        assert hashlib.sha256(content).hexdigest() == sha256
        self.files[name] = content

    async def show_bundle(self, execution_id: str, bundle_id: str) -> BundleView:
        if self.bundle_errors:
            raise self.bundle_errors.pop(0)
        if bundle_id in self.views:
            return self.views[bundle_id]
        if bundle_id not in self.bundles:
            raise RefusedError(404, f"there is no bundle {bundle_id}")
        name, form, content = self.bundles[bundle_id]
        digest = hashlib.sha256(content).hexdigest()
        return BundleView(bundle_id, name, "default", len(content), digest, form, "", "")

    @asynccontextmanager
    async def open_bundle(
        self, execution_id: str, bundle_id: str, offset: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Streams the content, until the connection breaks."""
        self.fetched.append((bundle_id, offset))
        yield self._pieces(self.bundles[bundle_id][2][offset:])

    async def _pieces(self, content: bytes) -> AsyncIterator[bytes]:
        for start in range(0, len(content), 1000):
            await self.open.wait()
            if self.line_bytes is not None:
                self.line_bytes -= 1000
                if self.line_bytes < 0:
                    self.line_bytes = None
                    raise AwayError("the line broke")
            yield content[start : start + 1000]


class ObservedSupervisor(Supervisor):
    """Supervisor that records the deadlines it is sent."""

    def __init__(self, isolation: Isolation, **more: Any) -> None:
        self.deadlines: list[float | None] = []
        super().__init__(isolation, **more)

    def send_command(self, message: dict[str, Any]) -> None:
        if message["do"] == "hold":
            self.deadlines.append(message["deadline"])
        super().send_command(message)


_supervisors: dict[tuple[Any, ...], ObservedSupervisor] = {}


def supervisor_here(isolation: Isolation = "auto", **more: Any) -> ObservedSupervisor:
    """Returns this test's supervisor, and starts it when the first job needs it."""
    key = (asyncio.get_running_loop(), isolation, *sorted(more.items()))
    if key not in _supervisors:
        _supervisors[key] = ObservedSupervisor(isolation, **more)
    return _supervisors[key]


async def shut_down_supervisors() -> None:
    """Kills whatever a test left running."""
    while _supervisors:
        await _supervisors.popitem()[1].shut_down()


def runner_context(
    workspace: Path, sink: Sink, grace_s: float = 5.0, isolation: Isolation = "auto"
) -> RunnerContext:
    """Makes the context of a test's executions; tests of containers add an engine."""
    return RunnerContext(
        workspace=workspace,
        folders=FolderPool(workspace, kept_max=0),
        worker="tester",
        mask=(),
        grace_s=grace_s,
        sink=sink,
        supervisor=supervisor_here(isolation),
        devices=GpuAllocator([0, 1]),
        on_progress=lambda *_: None,
        deadline=lambda _: None,
        bundles=BundleStaging(
            BundleCache(workspace.parent / f"{workspace.name}-bundles", sink),
            supervisor_here(isolation),
        ),
        engine=None,
    )


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def marked(mark: str) -> list[int]:
    """The living processes whose command line has this in it.

    Jobs may know themselves by other numbers than the machine does, and may clear all else.
    """
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(mark in word for word in process.cmdline()) and alive(process.pid):
                found.append(process.pid)
    return found


async def until(true: Callable[[], bool]) -> None:
    """Waits until a condition is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not true():  # noqa: ASYNC110  (files and processes send no signals)
            await asyncio.sleep(0.01)
