"""Puts bundles where a job finds them: fetched through the cache, unpacked under guard."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from rota.sdk.backoff import delay_s
from rota.wire.bundles import BundleView
from rota.wire.workers import OrderView
from rota.worker import unpacking
from rota.worker.bundles import BundleCache, BundleError
from rota.worker.guard.client import Ended, Launch, ProcessTree, Supervisor
from rota.worker.link import AwayError, RefusedError
from rota.worker.runners.child import StartError

FETCH_RETRY_CAP_S = 5.0
UNPACKED_BYTES_MAX = 32 * 1024 * 1024 * 1024
"""What one archive may come to, unless the job says how much storage it needs."""
UNPACKED_FILES_MAX = 1_000_000
UNPACK_S = 1_800.0
UNPACK_MEMORY = 1024 * 1024 * 1024
"""For the program that unpacks: most of it is the list of a zip's files."""


@dataclass(frozen=True, slots=True)
class BundleStaging:
    """What jobs are given to work with."""

    cache: BundleCache
    supervisor: Supervisor


class StagedBundles:
    """The bundles of one execution; may be broken off at any time."""

    def __init__(self, equipment: BundleStaging, order: OrderView, deadline: float | None) -> None:
        self._staging = equipment
        self._order = order
        self._deadline = deadline
        self._tree: ProcessTree | None = None
        self.lapsed = False
        """The guard ended its unpacking because the lease ran out."""

    def hold_until(self, deadline: float) -> None:
        """The execution's lease was renewed."""
        self._deadline = deadline
        if self._tree is not None:
            self._tree.hold_until(deadline)

    async def stage(self, bundle_id: str, folder: Path) -> BundleView:
        """An archive's content in the folder, or the file under its name. Raises StartError."""
        bundle, handle = await self._open(bundle_id)
        try:
            if bundle.format == "file":
                await asyncio.to_thread(_copy, handle, folder / _plain(bundle.name))
            else:
                await self._unpack(bundle, handle, folder)
        except OSError as error:
            raise StartError(f"bundle {bundle.name} cannot be put in place: {error}") from None
        finally:
            os.close(handle)
        return bundle

    async def _open(self, bundle_id: str) -> tuple[BundleView, int]:
        """Patient with the network, as long as the execution is wanted."""
        order, attempt = self._order, 0
        while True:
            try:
                return await self._staging.cache.open(order.execution_id, bundle_id)
            except AwayError as away:
                pause = delay_s(order.execution_id, attempt, FETCH_RETRY_CAP_S)
                attempt += 1
                await asyncio.sleep(max(pause, away.retry_after_s))
            except RefusedError as refused:
                raise StartError(f"the job's bundle is not to be had: {refused}") from None
            except BundleError as error:
                raise StartError(str(error)) from None
            except OSError as error:
                raise StartError(f"this worker cannot keep the job's bundle: {error}") from None

    async def _unpack(self, bundle: BundleView, archive: int, folder: Path) -> None:
        words = os.memfd_create("rota-unpack", os.MFD_CLOEXEC)
        try:
            os.lseek(archive, 0, os.SEEK_SET)
            bytes_max = self._order.requirements.storage or UNPACKED_BYTES_MAX
            launch = Launch(
                argv=[
                    *(sys.executable, "-I", "-S", unpacking.__file__),
                    *(bundle.format, str(folder), str(bytes_max), str(UNPACKED_FILES_MAX)),
                ],
                env={},
                cwd="/",
                fds={0: archive, 1: words, 2: words},
                limits={"memory": UNPACK_MEMORY},
                timeout_s=UNPACK_S,
                grace_s=0.0,
            )
            ended = await self._supervised(launch)
            self.lapsed = ended.cause == "lease"
            if ended.cause != "exit" or ended.returncode != 0:
                raise StartError(f"bundle {bundle.name} was not unpacked: {_why(ended, words)}")
        finally:
            os.close(words)

    async def _supervised(self, launch: Launch) -> Ended:
        self._tree = ward = self._staging.supervisor.spawn(launch, self._deadline)
        try:
            return await ward.ended
        finally:
            self._tree = None
            if not ward.ended.done():
                ward.kill()


def _why(ended: Ended, words: int) -> str:
    if ended.cause == "memory":
        return "it needs too much memory"
    if ended.cause == "timeout":
        return f"it takes longer than {UNPACK_S:g} s"
    said = os.pread(words, 1000, 0).decode("utf-8", "replace").strip()
    return said.splitlines()[-1] if said else f"the program that does it ended by {ended.cause}"


def _plain(name: str) -> str:
    """Names are checked by the server; here they become paths."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise StartError(f"a bundle cannot have the name {name!r}")
    return name


def _copy(handle: int, path: Path) -> None:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    with (
        os.fdopen(os.dup(handle), "rb") as source,
        os.fdopen(os.open(path, flags, 0o700), "wb") as target,
    ):
        source.seek(0)
        shutil.copyfileobj(source, target)
