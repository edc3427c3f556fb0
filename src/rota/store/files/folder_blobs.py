"""Objects as plain files in a folder: ROOT/<key>. All that touches the disk happens in threads."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

from rota.store.files.blobs import STORAGE_ID_KEY, BlobMissingError, DownloadLink, check_key
from rota.store.files.spool import SpooledFile
from rota.store.limits import ARTIFACT_PIECE_BYTES, ARTIFACT_THREADS, OBJECT_BYTES_MAX
from rota.store.protocol import StoreError, StoreFullError

T = TypeVar("T")

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class FolderBlobs:
    """A folder. Several servers can share it only if it is the same folder for all of them."""

    bytes_max = OBJECT_BYTES_MAX

    def __init__(self, root: Path) -> None:
        self._root = root
        self._threads = ThreadPoolExecutor(ARTIFACT_THREADS, thread_name_prefix="rota-objects")

    @property
    def where(self) -> str:
        """For people."""
        return f"the folder {self._root}"

    async def put(self, key: str, draft: SpooledFile) -> None:
        """Moves the draft here, or copies it from another disk."""
        path = self._path(key)
        await self._run(lambda: _move_in(draft.path, path))

    async def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes from `start` to before `end`."""
        path = self._path(key)
        try:
            file = await self._run(lambda: path.open("rb"))
        except FileNotFoundError:
            raise BlobMissingError(f"{self.where} has no object {key}") from None
        return self._pieces(file, start, end)

    async def _pieces(self, file: IO[bytes], start: int, end: int) -> AsyncIterator[bytes]:
        try:
            await self._run(lambda: file.seek(start))
            while start < end:
                wanted = min(ARTIFACT_PIECE_BYTES, end - start)
                piece = await self._run(partial(file.read, wanted))
                if not piece:
                    raise StoreError(f"{self.where} has less of an object than was kept")
                start += len(piece)
                yield piece
        finally:
            file.close()

    async def drop(self, keys: Sequence[str]) -> None:
        """Removes these, and folders that are empty then."""
        paths = [self._path(key) for key in keys]
        await self._run(lambda: _remove(self._root, paths))

    async def link(self, key: str, expires_s: int) -> DownloadLink | None:
        """A folder has no addresses of its own."""
        return None

    async def mark(self, wanted: str) -> str:
        """Says which storage this is."""
        return await self._run(lambda: _storage_id(self._root, wanted))

    async def close(self) -> None:
        """Waits for the files under way."""
        await asyncio.to_thread(self._threads.shutdown)

    def _path(self, key: str) -> Path:
        check_key(key)
        return self._root / key

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise StoreFullError(f"no space left in {self._root}") from error
            raise StoreError(f"{self.where} cannot be used: {error}") from error


def _move_in(source: Path, path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        source.replace(path)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(source, path)
    # The rename itself is only durable when the folder is, and so on up.
    for folder in (path.parent, path.parent.parent):
        _sync(folder)


def _copy(source: Path, path: Path) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        shutil.copyfile(source, part)
        part.chmod(0o600)
        _sync(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(root: Path, paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
        if path.parent != root:
            # Not empty: others are there, and stay.
            with suppress(OSError):
                path.parent.rmdir()


def _storage_id(root: Path, wanted: str) -> str:
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = root / STORAGE_ID_KEY
    if not path.exists():
        handle, part = tempfile.mkstemp(prefix=f".{STORAGE_ID_KEY}-", dir=root)
        with os.fdopen(handle, "w") as file:
            file.write(wanted + "\n")
            file.flush()
            os.fsync(handle)
        # Whole from its first moment, and only if nobody was quicker.
        with suppress(FileExistsError):
            os.link(part, path)
        os.unlink(part)
        _sync(root)
    return path.read_text("ascii").strip()
