"""Output files of executions, as plain files: ROOT/<execution id>/<name>.

The folders in a name are a part of it: `plots/a.png` is one file, beside all others, in whose name
on the disk a backslash stands for each slash. No name has one itself. So nothing has to be made or
removed but the file, and no name can be in the way of another.
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
from pathlib import Path
from typing import TypeVar

from rota.core.model import ExecutionId
from rota.store.limits import (
    ARTIFACT_DEPTH,
    ARTIFACT_NAME_BYTES,
    ARTIFACT_PIECE_BYTES,
    ARTIFACT_THREADS,
)
from rota.store.protocol import (
    Artifact,
    ArtifactNameError,
    ArtifactTooLargeError,
    StoreError,
)

T = TypeVar("T")

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\]")
_SLASH_ON_DISK = "\\"
_EXECUTION_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_artifact_name(name: str) -> None:
    """Raises ArtifactNameError unless the name is a plain one that cannot lead elsewhere: that of a
    file, or a path down to one."""
    words = name.split("/")
    if not all(words) or any(word.startswith(".") for word in words):
        raise ArtifactNameError(
            "an artifact's name, and each folder in it, is not empty and does not begin with a dot"
        )
    if len(words) > ARTIFACT_DEPTH:
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
    """The same of a file that is in no folder."""
    if "/" in name:
        raise ArtifactNameError("the name of a file here has no slashes")
    check_artifact_name(name)


class DiskArtifacts:
    """Artifacts on a file system. All that touches the disk happens in threads."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._threads = ThreadPoolExecutor(ARTIFACT_THREADS, thread_name_prefix="rota-artifacts")

    async def write(
        self, execution_id: ExecutionId, name: str, stream: AsyncIterator[bytes], bytes_max: int
    ) -> Artifact:
        """Keeps a file. All of it is there, or nothing is."""
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
        """What was kept, by name."""
        folder = self._folder(execution_id)
        return await self._run(lambda: _list(folder))

    async def list_each(self, execution_ids: Sequence[ExecutionId]) -> Sequence[Sequence[Artifact]]:
        """The same of many, each in its place."""
        folders = [self._folder(one) for one in execution_ids]
        return await self._run(lambda: [_list(folder) for folder in folders])

    async def read(self, execution_id: ExecutionId, name: str) -> AsyncIterator[bytes] | None:
        """The content in pieces; None if there is no such file."""
        check_artifact_name(name)
        path = self._folder(execution_id) / _on_disk(name)
        return self._pieces(path) if await self._run(path.is_file) else None

    async def forget(self, execution_ids: Sequence[ExecutionId]) -> None:
        """Removes all files of these."""
        await self._run(lambda: self.forget_from_thread(execution_ids))

    def forget_from_thread(self, execution_ids: Sequence[ExecutionId]) -> None:
        """The same, for a caller that may wait."""
        for execution_id in execution_ids:
            shutil.rmtree(self._folder(execution_id), ignore_errors=True)

    async def close(self) -> None:
        """Waits for the files under way."""
        await asyncio.to_thread(self._threads.shutdown)

    async def _pieces(self, path: Path) -> AsyncIterator[bytes]:
        file = await self._run(lambda: path.open("rb"))
        try:
            while piece := await self._run(lambda: file.read(ARTIFACT_PIECE_BYTES)):
                yield piece
        finally:
            file.close()

    def _folder(self, execution_id: ExecutionId) -> Path:
        # Ids are minted by the server, but this one becomes a path: no trust needed here.
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
    # A dot in front: no artifact can have this name, and `list` leaves it out.
    file, path = tempfile.mkstemp(prefix=".part-", dir=folder)
    return file, Path(path)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _keep(part: Path, path: Path) -> None:
    part.replace(path)
    # The rename itself is only durable when the folder is.
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
