"""Object storage: whole objects under keys that are used once, in a folder or in a cloud.

A key is never written twice, so no reader gets parts of two objects, and removing an object can
never hit a later one. The keys in use are in the database (`object_index.py`). S3, Google Cloud
Storage and Azure are reached through obstore, which only this file imports. Credentials, regions
and endpoints come from the environment, by the names of each cloud's own tools, or from the
machine's role.

Why: docs/decisions/0008-logs-and-files-bypass-the-journal.md.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, TypeVar

import msgspec

from rota.store.files.uploads import SpooledFile
from rota.store.limits import (
    ARTIFACT_PIECE_BYTES,
    ARTIFACT_THREADS,
    CLOUD_PART_BYTES,
    CLOUD_PARTS_AT_ONCE,
    CLOUD_REQUEST_S,
    CLOUD_RETRY_S,
    OBJECT_BYTES_MAX,
)
from rota.store.protocol import StoreError, StoreFullError

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store


STORAGE_ID_KEY = "rota-storage"
"""The key under which a storage has its own id."""
_KEY = re.compile(r"[a-z0-9-]+(/[a-z0-9-]+){0,3}")


class BlobMissingError(StoreError):
    """Raised when the database refers to an object that the storage does not have."""


class DownloadLink(msgspec.Struct, frozen=True):
    """Link for downloading an object without passing the server."""

    url: str
    expires_s: int


class Blobs(Protocol):
    """Object storage."""

    @property
    def where(self) -> str:
        """The storage's name in messages."""
        ...

    @property
    def bytes_max(self) -> int:
        """The size of the largest object that it takes."""
        ...

    async def put(self, key: str, draft: SpooledFile) -> None:
        """Keeps the draft's content, durably; the draft's file may be gone afterwards."""
        ...

    async def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        """Returns the bytes from `start` to before `end`; raises BlobMissingError at once."""
        ...

    async def drop(self, keys: Sequence[str]) -> None:
        """Removes these; those that are not there are no error."""
        ...

    async def link(self, key: str, expires_s: int) -> DownloadLink | None:
        """Returns a signed link; None: this storage has none."""
        ...

    async def mark(self, wanted: str) -> str:
        """Returns the storage's id, which becomes `wanted` if it has none."""
        ...

    async def close(self) -> None:
        """Closes what is open."""
        ...


def check_key(key: str) -> None:
    """Raises StoreError unless the key is valid: it becomes a path."""
    if not _KEY.fullmatch(key):
        raise StoreError(f"{key!r} is no key of an object")


T = TypeVar("T")

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class FolderBlobs:
    """Object storage in a folder; servers can share it only if all of them see the same folder."""

    bytes_max = OBJECT_BYTES_MAX

    def __init__(self, root: Path) -> None:
        self._root = root
        self._threads = ThreadPoolExecutor(ARTIFACT_THREADS, thread_name_prefix="rota-objects")

    @property
    def where(self) -> str:
        return f"the folder {self._root}"

    async def put(self, key: str, draft: SpooledFile) -> None:
        """Moves the draft here, or copies it from another disk."""
        path = self._path(key)
        await self._run(lambda: _move_in(draft.path, path))

    async def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
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
        """Returns None: a folder has no addresses of its own."""
        return None

    async def mark(self, wanted: str) -> str:
        return await self._run(lambda: _storage_id(self._root, wanted))

    async def close(self) -> None:
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
    # The rename itself is durable only when the folder is synced, and so on up.
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
            # Fails if the folder has other objects.
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
        # Atomic, and without effect if another server was faster.
        with suppress(FileExistsError):
            os.link(part, path)
        os.unlink(part)
        _sync(root)
    return path.read_text("ascii").strip()


class FallbackBlobs:
    """Object storage that was named, with the server's own as fallback for reads."""

    def __init__(self, named: Blobs, own: Blobs) -> None:
        self._primary = named
        self._fallback = own

    @property
    def where(self) -> str:
        return self._primary.where

    @property
    def bytes_max(self) -> int:
        return self._primary.bytes_max

    async def put(self, key: str, draft: SpooledFile) -> None:
        await self._primary.put(key, draft)

    async def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        """Reads from whichever storage has it."""
        try:
            return await self._primary.read(key, start, end)
        except BlobMissingError:
            return await self._fallback.read(key, start, end)

    async def drop(self, keys: Sequence[str]) -> None:
        """Removes these from both storages."""
        await self._primary.drop(keys)
        await self._fallback.drop(keys)

    async def link(self, key: str, expires_s: int) -> DownloadLink | None:
        """Returns the named storage's link if the object is there: one to nothing helps nobody."""
        try:
            pieces = await self._primary.read(key, 0, 1)
        except BlobMissingError:
            return None
        async for _ in pieces:
            pass
        return await self._primary.link(key, expires_s)

    async def mark(self, wanted: str) -> str:
        return await self._primary.mark(wanted)

    async def close(self) -> None:
        await self._primary.close()
        await self._fallback.close()


SCHEMES = ("s3", "gs", "az")


def open_cloud(url: str) -> CloudBlobs:
    """Opens the storage that an address such as s3://bucket/prefix names."""
    try:
        import obstore.store as clouds
        from obstore.exceptions import BaseError
    except ImportError:
        raise StoreError(
            f"object storage at {url} needs a package that is not installed:"
            " pip install 'rota[objectstore]'"
        ) from None
    try:
        store = clouds.from_url(
            url,
            # HTTP is used only if the operator's own endpoint says so.
            client_options={"timeout": timedelta(seconds=CLOUD_REQUEST_S), "allow_http": True},
            retry_config={"max_retries": 5, "retry_timeout": timedelta(seconds=CLOUD_RETRY_S)},
        )
    except (BaseError, ValueError) as error:
        raise StoreError(f"object storage at {url} cannot be used: {error}") from error
    assert isinstance(store, clouds.S3Store | clouds.GCSStore | clouds.AzureStore), SCHEMES
    return CloudBlobs(url, store)


class CloudBlobs:
    """Object storage in a bucket, or in a part of one."""

    bytes_max = OBJECT_BYTES_MAX

    def __init__(self, url: str, store: S3Store | GCSStore | AzureStore) -> None:
        self._url = url
        self._store = store

    @property
    def where(self) -> str:
        return self._url

    async def put(self, key: str, draft: SpooledFile) -> None:
        """Sends it in parts if it is large; the storage shows it when the last part is there."""
        check_key(key)
        await self._sent(key, draft)

    async def _sent(self, key: str, draft: SpooledFile) -> None:
        from obstore import put_async
        from obstore.exceptions import BaseError

        try:
            await put_async(
                self._store,
                key,
                draft.path,
                chunk_size=CLOUD_PART_BYTES,
                max_concurrency=CLOUD_PARTS_AT_ONCE,
            )
        except (BaseError, OSError) as error:
            raise StoreError(f"{self._url} did not take an object: {error}") from error

    async def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        from obstore import get_async
        from obstore.exceptions import BaseError

        check_key(key)
        if start >= end:
            return _nothing()
        try:
            found = await get_async(self._store, key, options={"range": (start, end)})
        except (FileNotFoundError, BaseError) as error:
            if _is_missing(error):
                raise BlobMissingError(f"{self._url} has no object {key}") from None
            raise StoreError(f"{self._url} did not give an object: {error}") from error
        return self._pieces(found.stream(ARTIFACT_PIECE_BYTES), end - start)

    async def _pieces(self, stream: AsyncIterator[bytes], left: int) -> AsyncIterator[bytes]:
        from obstore.exceptions import BaseError

        try:
            async for piece in stream:
                left -= len(piece)
                yield bytes(piece)
        except BaseError as error:
            raise StoreError(f"{self._url} broke off: {error}") from error
        if left:
            raise StoreError(f"{self._url} has less of an object than was kept")

    async def drop(self, keys: Sequence[str]) -> None:
        from obstore import delete_async
        from obstore.exceptions import BaseError

        for key in keys:
            check_key(key)
            try:
                await delete_async(self._store, key)
            except (FileNotFoundError, BaseError) as error:
                if not _is_missing(error):
                    raise StoreError(f"{self._url} did not remove an object: {error}") from error

    async def link(self, key: str, expires_s: int) -> DownloadLink | None:
        """Signs with the server's own credentials; some of those cannot sign."""
        from obstore import sign_async
        from obstore.exceptions import BaseError

        check_key(key)
        with suppress(BaseError):
            lasts = timedelta(seconds=expires_s)
            return DownloadLink(await sign_async(self._store, "GET", key, lasts), expires_s)
        return None

    async def mark(self, wanted: str) -> str:
        """Returns which storage this is; of two servers that try at once one wins."""
        from obstore import get_async, put_async
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            with suppress(AlreadyExistsError):
                await put_async(self._store, STORAGE_ID_KEY, wanted.encode(), mode="create")
                return wanted
            found = await get_async(self._store, STORAGE_ID_KEY)
            return bytes(await found.bytes_async()).decode("ascii").strip()
        except (BaseError, OSError) as error:
            raise StoreError(
                f"object storage at {self._url} cannot be used: {error};"
                " check the address, the credentials in the environment and that the bucket exists"
            ) from error

    async def close(self) -> None:
        """Does nothing: no connection is kept."""


def _is_missing(error: Exception) -> bool:
    from obstore.exceptions import NotFoundError

    return isinstance(error, NotFoundError | FileNotFoundError)


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""  # makes it a generator
