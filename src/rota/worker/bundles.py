"""Bundles on a worker's machine: fetched once, checked at every use, forgotten when room is short.

The cache is a folder that all agents of a user share: `<sha256>` is the content, `<sha256>.part`
what has come of it, `<sha256>.lock` is held by whoever fetches it and says when it was last used.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from rota.wire.bundles import BundleView

CACHE_BYTES = 10 * 1024 * 1024 * 1024
"""Unless the operator says otherwise."""
READ_BYTES = 1024 * 1024
ABANDONED_S = 24 * 3600.0
"""A fetch that nobody has gone on with for so long is given up."""
LOCK_LOOK_S = 0.1
"""Between two looks at whether another agent has fetched it."""


class BundleError(Exception):
    """A bundle cannot be used, and why."""


class BundleSource(Protocol):
    """Where bundles come from."""

    async def show_bundle(self, execution_id: str, bundle_id: str) -> BundleView:
        """What it is. Raises AwayError to be asked again, RefusedError if it is not to be had."""
        ...

    def open_bundle(
        self, execution_id: str, bundle_id: str, offset: int
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Its content from `offset` on."""
        ...


class BundleCache:
    """What this machine has fetched."""

    def __init__(self, root: Path, source: BundleSource, bytes_max: int = CACHE_BYTES) -> None:
        self._root = root
        self._source = source
        self._bytes_max = bytes_max
        self._checked: dict[str, tuple[int, ...]] = {}
        """What a file looked like when its checksum was right. Whoever writes to it changes that:
        the time of its last change is the kernel's."""

    async def open(self, execution_id: str, bundle_id: str) -> tuple[BundleView, int]:
        """What it is, and a descriptor of its content, checked. The caller closes it."""
        bundle = await self._source.show_bundle(execution_id, bundle_id)
        if bundle.size > self._bytes_max:
            raise BundleError(
                f"bundle {bundle.name} has {bundle.size} bytes, and this worker's cache takes"
                f" {self._bytes_max}: give it more with --bundle-cache"
            )
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        async with self._locked(bundle.sha256):
            handle = await asyncio.to_thread(self._open_checked, bundle)
            if handle is None:
                await self._fetch(execution_id, bundle)
                handle = await asyncio.to_thread(self._open_checked, bundle)
        if handle is None:
            raise BundleError(f"bundle {bundle.name} was changed on this worker as it was fetched")
        return bundle, handle

    @asynccontextmanager
    async def _locked(self, sha256: str) -> AsyncIterator[None]:
        """One fetches, the others wait: executions of this agent, and other agents."""
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
        """The content, if it is here and is right; what is wrong is removed."""
        path = self._root / bundle.sha256
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        looks = _fingerprint(handle)
        if self._checked.get(bundle.sha256) == looks:
            return handle
        if _hash_of(handle) == bundle.sha256 and _fingerprint(handle) == looks:
            self._checked[bundle.sha256] = looks
            return handle
        os.close(handle)
        path.unlink(missing_ok=True)
        return None

    async def _fetch(self, execution_id: str, bundle: BundleView) -> None:
        """Goes on with what came before; raises AwayError where the line breaks again."""
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
            raise BundleError(f"what was fetched of bundle {bundle.name} is not what was uploaded")
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
                await asyncio.to_thread(_write_all, handle, piece)

    def _evict(self, bundle: BundleView) -> None:
        """Forgets the longest unused. Whoever reads one goes on: it is gone when they are done."""
        now = _last_used(self._root / f"{bundle.sha256}.lock")
        used: dict[Path, float] = {}
        for path in self._root.iterdir():
            last = _last_used(self._root / f"{path.stem}.lock")
            # What is left of a fetch may go when nobody can be at it any more.
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


def _write_all(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def _size(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def _last_used(lock: Path) -> float:
    with suppress(FileNotFoundError):
        return lock.stat().st_mtime
    return 0.0
