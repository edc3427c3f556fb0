"""What a runner needs of its agent, small enough to look into."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import psutil

from rota.wire.executions import ProgressSpec
from rota.worker.devices import Devices
from rota.worker.link import AwayError
from rota.worker.runners.process import Site
from rota.worker.runners.reaper import Reaper

PATIENCE_S = 20.0


class Sink:
    """Keeps what a server would have been sent."""

    def __init__(self) -> None:
        self.log = bytearray()
        self.chunks: list[int] = []
        self.progress: list[tuple[float | None, str | None]] = []
        self.files: dict[str, bytes] = {}
        self.open = asyncio.Event()
        self.open.set()
        self.failures = 0

    async def send_log(self, execution_id: str, fence: int, offset: int, chunk: bytes) -> None:
        """As a server does: what is there already is not added again."""
        await self.open.wait()
        if self.failures:
            self.failures -= 1
            self.log[offset:] = chunk
            raise AwayError("the answer was lost")
        self.log[offset:] = chunk
        self.chunks.append(len(chunk))

    async def send_progress(self, execution_id: str, record: ProgressSpec) -> None:
        """Notes it."""
        self.progress.append((record.progress, record.message))

    async def send_artifact(self, execution_id: str, file: Path) -> None:
        """Keeps a copy."""
        self.files[file.name] = await asyncio.to_thread(file.read_bytes)


class NoWarden:
    """Nobody watches."""

    def watch(self, session: int, execution_id: str) -> None:
        """Does not."""

    def release(self, session: int) -> None:
        """Neither."""


def site(workplace: Path, sink: Sink, grace_s: float = 5.0) -> Site:
    """Where a test's executions run."""
    return Site(
        workplace=workplace,
        worker="tester",
        grace_s=grace_s,
        sink=sink,
        reaper=Reaper(),
        devices=Devices([0, 1]),
        warden=NoWarden(),
        progressed=lambda *_: None,
    )


def alive(pid: int) -> bool:
    """Whether a process runs; a dead one that nobody fetched does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def until(true: Callable[[], bool]) -> None:
    """Waits for something to become true, patiently."""
    async with asyncio.timeout(PATIENCE_S):
        while not true():  # noqa: ASYNC110  (files and processes send no signals)
            await asyncio.sleep(0.01)
