"""Bundles on a worker: a cache shared by all agents of a user, and staging for each execution.

The cache is a folder: `<sha256>` is the content, `<sha256>.part` the part fetched so far,
`<sha256>.lock` is held by the agent that fetches it, and its date is the last use. The content is
checked at every use. Archives are unpacked by a supervised process of their own
(worker/unpacking.py).
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rota.sdk.backoff import delay_s
from rota.wire.bundles import BundleView
from rota.wire.workers import OrderView
from rota.worker import unpacking
from rota.worker.runners.exit_status import StartError
from rota.worker.runners.workspace import write_all
from rota.worker.server_client import AwayError, RefusedError
from rota.worker.supervisor.client import Ended, Launch, ProcessTree, Supervisor

CACHE_BYTES = 10 * 1024 * 1024 * 1024
"""Default size limit of the cache."""
READ_BYTES = 1024 * 1024
ABANDONED_S = 24 * 3600.0
"""A fetch that nobody has continued for this long is given up."""
LOCK_LOOK_S = 0.1
"""Interval of checks whether another agent has fetched it."""


class BundleError(Exception):
    """Raised when a bundle cannot be used."""


class BundleSource(Protocol):
    async def show_bundle(self, execution_id: str, bundle_id: str) -> BundleView:
        """Describes a bundle. Raises AwayError to be asked again, RefusedError if it is not
        available."""
        ...

    def open_bundle(
        self, execution_id: str, bundle_id: str, offset: int
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Streams its content from `offset` on."""
        ...


class BundleCache:
    """Cache of the bundles that this machine has fetched."""

    def __init__(self, root: Path, source: BundleSource, bytes_max: int = CACHE_BYTES) -> None:
        self._root = root
        self._source = source
        self._bytes_max = bytes_max
        self._checked: dict[str, tuple[int, ...]] = {}
        """What a file's metadata was when its checksum was right. Whoever writes to the file
        changes that: the kernel sets the time of its last change."""

    async def open(self, execution_id: str, bundle_id: str) -> tuple[BundleView, int]:
        """Returns the description and a descriptor of the checked content, which the caller
        closes."""
        bundle = await self._source.show_bundle(execution_id, bundle_id)
        if bundle.size > self._bytes_max:
            raise BundleError(
                f"bundle {bundle.name} has {bundle.size} bytes, more than this worker's cache of"
                f" {self._bytes_max}: start the worker with a larger --bundle-cache"
            )
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        async with self._locked(bundle.sha256):
            handle = await asyncio.to_thread(self._open_checked, bundle)
            if handle is None:
                await self._fetch(execution_id, bundle)
                handle = await asyncio.to_thread(self._open_checked, bundle)
        if handle is None:
            raise BundleError(f"bundle {bundle.name} was changed on this worker during its fetch")
        return bundle, handle

    @asynccontextmanager
    async def _locked(self, sha256: str) -> AsyncIterator[None]:
        """Lets one fetch while the others wait: executions of this agent, and other agents."""
        handle = os.open(
            self._root / f"{sha256}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600
        )
        try:
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(LOCK_LOOK_S)
            os.utime(handle)
            yield
        finally:
            os.close(handle)

    def _open_checked(self, bundle: BundleView) -> int | None:
        """Opens the content if it is here and right; removes it if it is wrong."""
        path = self._root / bundle.sha256
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        fingerprint = _fingerprint(handle)
        if self._checked.get(bundle.sha256) == fingerprint:
            return handle
        if _hash_of(handle) == bundle.sha256 and _fingerprint(handle) == fingerprint:
            self._checked[bundle.sha256] = fingerprint
            return handle
        os.close(handle)
        path.unlink(missing_ok=True)
        return None

    async def _fetch(self, execution_id: str, bundle: BundleView) -> None:
        """Continues an earlier fetch; raises AwayError where the connection breaks again."""
        part = self._root / f"{bundle.sha256}.part"
        await asyncio.to_thread(self._evict, bundle)
        handle = os.open(part, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            offset = os.fstat(handle).st_size
            if offset >= bundle.size:
                os.ftruncate(handle, 0)
                offset = 0
            os.lseek(handle, offset, os.SEEK_SET)
            if bundle.size:
                await self._receive(execution_id, bundle, handle, offset)
            found = await asyncio.to_thread(_hash_of, handle)
        finally:
            os.close(handle)
        if found != bundle.sha256:
            part.unlink()
            raise BundleError(f"the checksum of bundle {bundle.name} is wrong after the fetch")
        part.replace(self._root / bundle.sha256)

    async def _receive(
        self, execution_id: str, bundle: BundleView, handle: int, offset: int
    ) -> None:
        opened = self._source.open_bundle(execution_id, bundle.bundle_id, offset)
        async with opened as pieces:
            async for piece in pieces:
                offset += len(piece)
                if offset > bundle.size:
                    os.ftruncate(handle, 0)
                    raise BundleError(f"bundle {bundle.name} is larger than the server said")
                await asyncio.to_thread(write_all, handle, piece)

    def _evict(self, bundle: BundleView) -> None:
        """Removes the longest unused. A process that still reads one is not disturbed."""
        now = _last_used(self._root / f"{bundle.sha256}.lock")
        used: dict[Path, float] = {}
        for path in self._root.iterdir():
            last = _last_used(self._root / f"{path.stem}.lock")
            # A partial fetch may be removed when no agent can be working on it any more.
            begun = path.suffix == ".part" and last > now - ABANDONED_S
            if path.suffix != ".lock" and path.stem != bundle.sha256 and not begun:
                used[path] = last
        sizes = {path: _size(path) for path in used}
        over = sum(sizes.values()) + bundle.size - self._bytes_max
        for path in sorted(used, key=used.__getitem__):
            if over <= 0:
                break
            path.unlink(missing_ok=True)
            over -= sizes[path]


def _fingerprint(handle: int) -> tuple[int, ...]:
    found = os.fstat(handle)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _hash_of(handle: int) -> str:
    hasher, at = hashlib.sha256(), 0
    while piece := os.pread(handle, READ_BYTES, at):
        hasher.update(piece)
        at += len(piece)
    return hasher.hexdigest()


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def _last_used(lock: Path) -> float:
    with suppress(FileNotFoundError):
        return lock.stat().st_mtime
    return 0.0


FETCH_RETRY_CAP_S = 5.0
UNPACKED_BYTES_MAX = 32 * 1024 * 1024 * 1024
"""Unpacked size of one archive, unless the job requests storage."""
UNPACKED_FILES_MAX = 1_000_000
UNPACK_S = 1_800.0
UNPACK_MEMORY = 1024 * 1024 * 1024
"""For the program that unpacks: most of it is the list of a zip's files."""


@dataclass(frozen=True, slots=True)
class BundleStaging:
    """Dependencies for staging the bundles of executions."""

    cache: BundleCache
    supervisor: Supervisor


class StagedBundles:
    """Bundles of one execution; staging can be cancelled at any time."""

    def __init__(self, staging: BundleStaging, order: OrderView, deadline: float | None) -> None:
        self._staging = staging
        self._order = order
        self._deadline = deadline
        self._tree: ProcessTree | None = None
        self.lapsed = False
        """The supervisor ended the unpacking because the lease ran out."""

    def hold_until(self, deadline: float) -> None:
        """Passes on that the execution's lease was renewed."""
        self._deadline = deadline
        if self._tree is not None:
            self._tree.hold_until(deadline)

    async def stage(self, bundle_id: str, folder: Path) -> BundleView:
        """Puts an archive's content, or the file under its name, into the folder. Raises
        StartError."""
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
        """Retries while the server is away, as long as the execution is wanted."""
        order, attempt = self._order, 0
        while True:
            try:
                return await self._staging.cache.open(order.execution_id, bundle_id)
            except AwayError as away:
                pause = delay_s(order.execution_id, attempt, FETCH_RETRY_CAP_S)
                attempt += 1
                await asyncio.sleep(max(pause, away.retry_after_s))
            except RefusedError as refused:
                raise StartError(f"the job's bundle cannot be fetched: {refused}") from None
            except BundleError as error:
                raise StartError(str(error)) from None
            except OSError as error:
                raise StartError(f"this worker cannot store the job's bundle: {error}") from None

    async def _unpack(self, bundle: BundleView, archive: int, folder: Path) -> None:
        output = os.memfd_create("rota-unpack", os.MFD_CLOEXEC)
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
                fds={0: archive, 1: output, 2: output},
                limits={"memory": UNPACK_MEMORY},
                timeout_s=UNPACK_S,
                grace_s=0.0,
            )
            ended = await self._supervised(launch)
            self.lapsed = ended.cause == "lease"
            if ended.cause != "exit" or ended.returncode != 0:
                raise StartError(f"bundle {bundle.name} was not unpacked: {_why(ended, output)}")
        finally:
            os.close(output)

    async def _supervised(self, launch: Launch) -> Ended:
        self._tree = tree = self._staging.supervisor.spawn(launch, self._deadline)
        try:
            return await tree.ended
        finally:
            self._tree = None
            if not tree.ended.done():
                tree.kill()


def _why(ended: Ended, output: int) -> str:
    if ended.cause == "memory":
        return "it needs too much memory"
    if ended.cause == "timeout":
        return f"it takes longer than {UNPACK_S:g} s"
    text = os.pread(output, 1000, 0).decode("utf-8", "replace").strip()
    return text.splitlines()[-1] if text else f"the program that unpacks it ended by {ended.cause}"


def _plain(name: str) -> str:
    """Checks a name again, though the server has: here it becomes a path."""
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
