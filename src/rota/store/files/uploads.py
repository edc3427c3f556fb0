"""Resumable uploads, spooled as files until they are whole; and detection of archives.

An upload with a name can be resumed for a day, also after a crash of the server. What lies in the
spool is not trusted: in the end the checksum of the whole counts.
"""

from __future__ import annotations

import asyncio
import bz2
import errno
import hashlib
import lzma
import os
import tempfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from rota.store.limits import ARTIFACT_THREADS, SPOOL_PIECE_BYTES, STORE_LIMITS, StoreLimits
from rota.store.object_index import Format
from rota.store.protocol import StoreError, StoreFullError

T = TypeVar("T")

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NAMED = ".part"
_ONCE = ".once"


class UploadError(StoreError):
    """Raised when an upload is refused; what was there before is unchanged."""


class WrongOffsetError(UploadError):
    """Raised when the sender does not go on from where the last request ended."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"{offset} bytes are here: go on from there")
        self.offset = offset


class TakenOverError(UploadError):
    """Raised when a newer request goes on with this upload."""


class TooManyUploadsError(UploadError):
    """Raised when there are as many uploads as there may be."""


class UploadTooLargeError(UploadError):
    """Raised when more bytes came than there may be."""


class SpooledFile(msgspec.Struct, frozen=True):
    """Finished upload on this server's disk."""

    path: Path
    size: int
    sha256: str


class Spool:
    """Spool of all uploads of this server."""

    def __init__(self, root: Path, limits: StoreLimits = STORE_LIMITS) -> None:
        self._root = root
        self._uploads_max = limits.spool_uploads_max
        self._threads = ThreadPoolExecutor(ARTIFACT_THREADS, thread_name_prefix="rota-spool")
        self._active: dict[str, Upload] = {}

    async def offset(self, name: str) -> int:
        """Returns how many bytes of an upload are here."""
        return await self.run(lambda: _size(self._path(name)))

    async def begin(self, name: str | None, offset: int, bytes_max: int) -> Upload:
        """Begins or resumes an upload; one without a name cannot be resumed.

        Two requests that begin the same upload do not disturb each other: the second has a file of
        its own. One that resumes takes over: the connection of the first broke, and the server may
        not have noticed yet.
        """
        other = None if name is None else self._active.get(name)
        if other is not None and offset == 0:
            name = other = None
        upload = Upload(self, bytes_max)
        if name is not None:
            # Before the first await: no other request gets the same file.
            self._active[name] = upload
            upload.when_over(partial(self._over, name, upload))
        try:
            if other is not None:
                await other.cut_off()
            path, hasher = await self.run(lambda: self._open(name, offset))
        except BaseException:
            upload.abandon()
            raise
        upload.begin(path, hasher, offset)
        return upload

    def _open(self, name: str | None, offset: int) -> tuple[Path, hashlib._Hash]:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if name is None or not self._path(name).exists():
            if offset:
                raise WrongOffsetError(0)
            if sum(1 for _ in self._root.iterdir()) >= self._uploads_max:
                raise TooManyUploadsError(
                    f"{self._uploads_max} uploads are under way or were left: ask again later"
                )
        if name is None:
            handle, made = tempfile.mkstemp(suffix=_ONCE, dir=self._root)
            os.close(handle)
            return Path(made), hashlib.sha256()
        path = self._path(name)
        if offset and _size(path) != offset:
            raise WrongOffsetError(_size(path))
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | (0 if offset else os.O_TRUNC), 0o600))
        return path, _hash_of(path)

    def _path(self, name: str) -> Path:
        # Hashed: whatever the name contains, this is a plain file here.
        return self._root / (hashlib.sha256(name.encode()).hexdigest() + _NAMED)

    def _over(self, name: str, upload: Upload) -> None:
        if self._active.get(name) is upload:
            del self._active[name]

    async def sweep(self, older_than_s: float, now_s: float) -> int:
        """Removes uploads that were not resumed; returns how many."""
        busy = {upload.path for upload in self._active.values()}
        return await self.run(lambda: _sweep(self._root, busy, now_s - older_than_s))

    async def close(self) -> None:
        """Waits for work in progress."""
        await asyncio.to_thread(self._threads.shutdown)

    async def run(self, work: Callable[[], T]) -> T:
        """Runs work in a thread: the disk may be slow."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise StoreFullError(f"no space left for uploads in {self._root}") from error
            raise StoreError(f"cannot keep an upload: {error}") from error


class Upload:
    """Upload in progress."""

    def __init__(self, spool: Spool, bytes_max: int) -> None:
        self._spool = spool
        self.path = Path()
        self.size = 0
        self._hasher = hashlib.sha256()
        self._bytes_max = bytes_max
        self._turn = asyncio.Lock()
        self._cut_off = False
        self._when_over: Callable[[], None] = _do_nothing

    def begin(self, path: Path, hasher: hashlib._Hash, size: int) -> None:
        """Starts with the bytes that are there."""
        self.path, self._hasher, self.size = path, hasher, size

    def abandon(self) -> None:
        """Ends the upload; what is there stays."""
        self._when_over()

    def when_over(self, callback: Callable[[], None]) -> None:
        """Sets what is called at the end."""
        self._when_over = callback

    async def write(self, piece: bytes) -> None:
        """Adds the next bytes."""
        async with self._turn:
            if self._cut_off:
                raise TakenOverError("a newer request goes on with this upload")
            if self.size + len(piece) > self._bytes_max:
                raise UploadTooLargeError(f"more than the {self._bytes_max} bytes allowed")
            await self._spool.run(lambda: self._append(piece))
            self.size += len(piece)

    def _append(self, piece: bytes) -> None:
        # Opened for each piece: an upload may wait for hours, and descriptors are few.
        handle = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            left, at = memoryview(piece), self.size
            while left:
                written = os.pwrite(handle, left, at)
                left, at = left[written:], at + written
        finally:
            os.close(handle)
        self._hasher.update(piece)

    async def finish(self) -> SpooledFile:
        """Syncs the whole file to the disk."""
        async with self._turn:
            if self._cut_off:
                raise TakenOverError("a newer request goes on with this upload")
            await self._spool.run(lambda: _flush_to_disk(self.path, self.size))
        return SpooledFile(self.path, self.size, self._hasher.hexdigest())

    async def cut_off(self) -> None:
        """Refuses further writes."""
        async with self._turn:
            self._cut_off = True

    async def leave(self, *, kept: bool = False) -> None:
        """Ends the request; removes a file that is kept elsewhere now, or cannot be resumed."""
        self._when_over()
        if not self._cut_off and (kept or self.path.suffix == _ONCE):
            await self.discard()

    async def discard(self) -> None:
        """Removes the file, so that the next request begins anew."""
        await self._spool.run(lambda: self.path.unlink(missing_ok=True))


def _do_nothing() -> None:
    """The default callback."""


def _flush_to_disk(path: Path, size: int) -> None:
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        # A piece that failed half-way may have left more than was counted.
        os.ftruncate(handle, size)
        os.fsync(handle)
    finally:
        os.close(handle)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _hash_of(path: Path) -> hashlib._Hash:
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(SPOOL_PIECE_BYTES):
            hasher.update(piece)
    return hasher


def _sweep(root: Path, busy: set[Path], before_s: float) -> int:
    gone = 0
    for path in root.iterdir() if root.is_dir() else ():
        if path not in busy and path.stat().st_mtime < before_s:
            path.unlink(missing_ok=True)
            gone += 1
    return gone


_HEAD_BYTES = 1024 * 1024
"""More than the longest block of bzip2, which is decompressed only as a whole."""
_TAR_BYTES = 512
_LZMA_MEMORY = 128 * 1024 * 1024


def archive_format(path: Path) -> Format:
    """Returns the format of an archive that a worker unpacks; any other file, compressed or not, is
    `file`."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    return "tar" if _is_tar(head) or _is_tar(_unpacked(head)) else "file"


def _is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def _unpacked(head: bytes) -> bytes:
    """Returns the first decompressed bytes; empty if it is not compressed."""
    try:
        if head.startswith(b"\x1f\x8b"):
            return zlib.decompressobj(wbits=31).decompress(head, _TAR_BYTES)
        if head.startswith(b"BZh"):
            return bz2.BZ2Decompressor().decompress(head, _TAR_BYTES)
        if head.startswith(b"\xfd7zXZ\x00"):
            return lzma.LZMADecompressor(memlimit=_LZMA_MEMORY).decompress(head, _TAR_BYTES)
    except (zlib.error, OSError, EOFError, lzma.LZMAError):
        pass
    return b""
