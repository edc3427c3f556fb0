"""Artifacts, the output files of executions: small ones in the store, large ones in object storage.

On the disk a file is ROOT/<execution id>/<name>, with a backslash for each slash in the name:
`plots/a.png` is one file beside all others. No name contains a backslash itself. So only the file
has to be made or removed, and no name can conflict with another.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import msgspec

from rota.core.model import ExecutionId, Instant
from rota.store.files.blobs import Blobs, DownloadLink
from rota.store.files.uploads import SpooledFile
from rota.store.limits import (
    ARTIFACT_DEPTH,
    ARTIFACT_NAME_BYTES,
    ARTIFACT_PIECE_BYTES,
    ARTIFACT_THREADS,
    DATABASE_FILE_BYTES_MAX,
    INTENT_MS,
    OBJECT_BYTES_MIN,
)
from rota.store.object_index import LargeOutput, ObjectIndex
from rota.store.protocol import (
    Artifact,
    ArtifactNameError,
    Artifacts,
    ArtifactTooLargeError,
    StoreError,
)

T = TypeVar("T")

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\]")
_SLASH_ON_DISK = "\\"
_EXECUTION_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_artifact_name(name: str) -> None:
    """Raises ArtifactNameError unless the name is that of a file, or a relative path down to
    one."""
    parts = name.split("/")
    if not all(parts) or any(part.startswith(".") for part in parts):
        raise ArtifactNameError(
            "an artifact's name, and each folder in it, must not be empty or begin with a dot"
        )
    if len(parts) > ARTIFACT_DEPTH:
        raise ArtifactNameError(f"an artifact's name has at most {ARTIFACT_DEPTH - 1} folders")
    if _FORBIDDEN.search(name):
        raise ArtifactNameError("an artifact's name has no backslashes and no control characters")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise ArtifactNameError("an artifact's name is valid Unicode") from None
    if size > ARTIFACT_NAME_BYTES:
        raise ArtifactNameError(f"an artifact's name has at most {ARTIFACT_NAME_BYTES} bytes")


def check_plain_name(name: str) -> None:
    """Raises ArtifactNameError unless the name is valid, and that of a file in no folder."""
    if "/" in name:
        raise ArtifactNameError("the name of a file here has no slashes")
    check_artifact_name(name)


class DiskArtifacts:
    """Artifacts on a file system; all access to the disk happens in threads."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._threads = ThreadPoolExecutor(ARTIFACT_THREADS, thread_name_prefix="rota-artifacts")

    async def write(
        self, execution_id: ExecutionId, name: str, stream: AsyncIterator[bytes], bytes_max: int
    ) -> Artifact:
        check_artifact_name(name)
        folder = self._folder(execution_id)
        file, part = await self._run(lambda: _begin(folder))
        size = 0
        try:
            try:
                async for piece in stream:
                    size += len(piece)
                    if size > bytes_max:
                        raise ArtifactTooLargeError(
                            f"artifact {name} has more than {bytes_max} bytes"
                        )
                    await self._run(partial(_write_all, file, piece))
                await self._run(lambda: os.fsync(file))
            finally:
                os.close(file)
            await self._run(lambda: _keep(part, folder / _on_disk(name)))
        finally:
            await self._run(lambda: part.unlink(missing_ok=True))
        return Artifact(name, size)

    async def list(self, execution_id: ExecutionId) -> Sequence[Artifact]:
        folder = self._folder(execution_id)
        return await self._run(lambda: _list(folder))

    async def list_each(self, execution_ids: Sequence[ExecutionId]) -> Sequence[Sequence[Artifact]]:
        folders = [self._folder(one) for one in execution_ids]
        return await self._run(lambda: [_list(folder) for folder in folders])

    async def read(self, execution_id: ExecutionId, name: str) -> AsyncIterator[bytes] | None:
        check_artifact_name(name)
        path = self._folder(execution_id) / _on_disk(name)
        return self._pieces(path) if await self._run(path.is_file) else None

    async def forget(self, execution_ids: Sequence[ExecutionId]) -> None:
        await self._run(lambda: self.forget_from_thread(execution_ids))

    def forget_from_thread(self, execution_ids: Sequence[ExecutionId]) -> None:
        """Removes all files of these, and blocks until it is done."""
        for execution_id in execution_ids:
            shutil.rmtree(self._folder(execution_id), ignore_errors=True)

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)

    async def _pieces(self, path: Path) -> AsyncIterator[bytes]:
        file = await self._run(lambda: path.open("rb"))
        try:
            while piece := await self._run(lambda: file.read(ARTIFACT_PIECE_BYTES)):
                yield piece
        finally:
            file.close()

    def _folder(self, execution_id: ExecutionId) -> Path:
        # Ids are minted by the server, but this one becomes a path: so it is checked.
        if not _EXECUTION_ID.fullmatch(execution_id):
            raise ArtifactNameError(f"{execution_id!r} is not an execution's id")
        return self._root / execution_id

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except OSError as error:
            raise StoreError(f"cannot keep or read an artifact: {error}") from error


def _begin(folder: Path) -> tuple[int, Path]:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # With a leading dot: no artifact can have this name, and `list` leaves it out.
    file, path = tempfile.mkstemp(prefix=".part-", dir=folder)
    return file, Path(path)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _keep(part: Path, path: Path) -> None:
    part.replace(path)
    # The rename itself is durable only when the folder is synced.
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _on_disk(name: str) -> str:
    return name.replace("/", _SLASH_ON_DISK)


def _list(folder: Path) -> list[Artifact]:
    try:
        entries = list(folder.iterdir())
    except FileNotFoundError:
        return []
    found = [
        Artifact(entry.name.replace(_SLASH_ON_DISK, "/"), entry.stat().st_size)
        for entry in entries
        if not entry.name.startswith(".") and entry.is_file()
    ]
    return sorted(found, key=lambda one: one.name)


class Output(msgspec.Struct, frozen=True):
    """Output file, small or large."""

    name: str
    size: int
    sha256: str | None = None
    """None: not stored, because it is small or was kept by an older version."""


class Content(msgspec.Struct, frozen=True):
    """Content of a file or of a part of it, to be sent."""

    size: int
    """The size of the whole file."""
    sha256: str | None
    start: int
    end: int
    pieces: AsyncIterator[bytes]


class Range(msgspec.Struct, frozen=True):
    """Range of bytes of a file that was asked for."""

    start: int | None
    """None: the last `end` bytes."""
    end: int | None
    """The byte after the last; None: to the end of the file."""

    def within(self, size: int) -> tuple[int, int] | None:
        """Returns the range within a file of this size; None: it has no such bytes."""
        if self.start is None:
            start, end = max(0, size - (self.end or 0)), size
        else:
            start, end = self.start, size if self.end is None else min(self.end, size)
        return (start, end) if start < end else None


WHOLE = Range(0, None)


class OutOfRangeError(Exception):
    """Raised when a file has no such range."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the file has {size} bytes")
        self.size = size


class Outputs:
    """Output files of executions, in the store or in object storage."""

    def __init__(self, small: Artifacts, index: ObjectIndex | None, blobs: Blobs | None) -> None:
        """Takes where small and large files are kept; without `blobs` large ones are kept with the
        small ones.
        """
        self._small = small
        self._index = index
        self._blobs = blobs

    @property
    def bytes_max(self) -> int:
        """The largest file that is kept."""
        return DATABASE_FILE_BYTES_MAX if self._blobs is None else self._blobs.bytes_max

    async def keep_small(self, execution_id: ExecutionId, name: str, content: bytes) -> Output:
        """Keeps a small file, in place of one of the same name."""
        await self._small.write(execution_id, name, _one(content), len(content))
        if self._index is not None:
            await self._index.forget(execution_id, name)
        return Output(name, len(content), sha256(content).hexdigest())

    async def keep(
        self, execution_id: ExecutionId, name: str, draft: SpooledFile, key: str, now: Instant
    ) -> Output:
        """Keeps a file that is whole and checked, in place of one of the same name."""
        check_artifact_name(name)
        if draft.size <= OBJECT_BYTES_MIN:
            content = await asyncio.to_thread(draft.path.read_bytes)
            return await self.keep_small(execution_id, name, content)
        if self._index is None or self._blobs is None:
            key = ""
            await self._small.write(execution_id, name, _pieces_of(draft.path), draft.size)
        else:
            await self._index.intend(key, now + INTENT_MS)
            await self._blobs.put(key, draft)
        if self._index is not None:
            await self._index.keep(
                LargeOutput(
                    execution_id=execution_id,
                    name=name,
                    size=draft.size,
                    sha256=draft.sha256,
                    key=key,
                )
            )
        return Output(name, draft.size, draft.sha256)

    async def list(self, execution_ids: Sequence[ExecutionId]) -> list[list[Output]]:
        """Returns all files of each execution, by name."""
        found: dict[str, dict[str, Output]] = {one: {} for one in execution_ids}
        each = await self._small.list_each(execution_ids)
        for execution_id, small in zip(execution_ids, each, strict=True):
            for one in small:
                found[execution_id][one.name] = Output(one.name, one.size)
        for kept in await self._in_storage(execution_ids):
            found[kept.execution_id][kept.name] = Output(kept.name, kept.size, kept.sha256)
        return [[found[one][name] for name in sorted(found[one])] for one in execution_ids]

    async def read(
        self, execution_id: ExecutionId, name: str, part: Range = WHOLE
    ) -> Content | None:
        """Returns a file's content; None: there is no such file. Raises OutOfRangeError."""
        check_artifact_name(name)
        for kept in await self._in_storage([execution_id]):
            if kept.name == name:
                return await self._large(kept, part)
        for one in await self._in_store(execution_id):
            if one.name == name:
                return await self._from_store(execution_id, Output(name, one.size), part)
        return None

    async def link(
        self, execution_id: ExecutionId, name: str, expires_s: int
    ) -> DownloadLink | None:
        """Returns a link to the storage itself; None: there is none for this file."""
        for kept in await self._in_storage([execution_id]):
            if kept.name == name and kept.key and self._blobs is not None:
                return await self._blobs.link(kept.key, expires_s)
        return None

    async def _large(self, kept: LargeOutput, part: Range) -> Content | None:
        if not kept.key or self._blobs is None:
            output = Output(kept.name, kept.size, kept.sha256)
            return await self._from_store(kept.execution_id, output, part)
        start, end = _within(part, kept.size)
        pieces = await self._blobs.read(kept.key, start, end)
        return Content(kept.size, kept.sha256, start, end, pieces)

    async def _from_store(
        self, execution_id: ExecutionId, output: Output, part: Range
    ) -> Content | None:
        start, end = _within(part, output.size)
        pieces = await self._small.read(execution_id, output.name)
        if pieces is None:
            return None
        return Content(output.size, output.sha256, start, end, _cut(pieces, start, end))

    async def _in_store(self, execution_id: ExecutionId) -> Sequence[Output]:
        found = await self._small.list(execution_id)
        return [Output(one.name, one.size) for one in found]

    async def _in_storage(self, execution_ids: Sequence[ExecutionId]) -> Sequence[LargeOutput]:
        return () if self._index is None else await self._index.large_outputs(execution_ids)


def _within(part: Range, size: int) -> tuple[int, int]:
    if part is WHOLE:
        return 0, size
    found = part.within(size)
    if found is None:
        raise OutOfRangeError(size)
    return found


async def _one(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _pieces_of(path: Path) -> AsyncIterator[bytes]:
    file = await asyncio.to_thread(path.open, "rb")
    try:
        while piece := await asyncio.to_thread(file.read, ARTIFACT_PIECE_BYTES):
            yield piece
    finally:
        file.close()


async def _cut(pieces: AsyncIterator[bytes], start: int, end: int) -> AsyncIterator[bytes]:
    """Yields a part of a stream that can only be read from its beginning."""
    at = 0
    async for piece in pieces:
        wanted = piece[max(0, start - at) : max(0, end - at)]
        at += len(piece)
        if wanted:
            yield wanted
        if at >= end:
            return
