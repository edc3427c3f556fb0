"""Output files and object storage in memory, for tests and the simulator."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from rota.core.model import ExecutionId
from rota.store.files.artifacts import check_artifact_name
from rota.store.files.blobs import STORAGE_ID_KEY, BlobMissingError, DownloadLink, check_key
from rota.store.files.spool import SpooledFile
from rota.store.limits import OBJECT_BYTES_MAX
from rota.store.protocol import Artifact, ArtifactTooLargeError


class MemoryArtifacts:
    """Artifacts as byte strings."""

    def __init__(self) -> None:
        self._files: dict[ExecutionId, dict[str, bytes]] = {}

    async def write(
        self, execution_id: ExecutionId, name: str, stream: AsyncIterator[bytes], bytes_max: int
    ) -> Artifact:
        """Keeps a file. All of it is there, or nothing is."""
        check_artifact_name(name)
        content = bytearray()
        async for piece in stream:
            content += piece
            if len(content) > bytes_max:
                raise ArtifactTooLargeError(f"artifact {name} has more than {bytes_max} bytes")
        self._files.setdefault(execution_id, {})[name] = bytes(content)
        return Artifact(name, len(content))

    async def list(self, execution_id: ExecutionId) -> Sequence[Artifact]:
        """What was kept, by name."""
        files = self._files.get(execution_id, {})
        return [Artifact(name, len(files[name])) for name in sorted(files)]

    async def list_each(self, execution_ids: Sequence[ExecutionId]) -> Sequence[Sequence[Artifact]]:
        """The same of many, each in its place."""
        return [await self.list(one) for one in execution_ids]

    async def read(self, execution_id: ExecutionId, name: str) -> AsyncIterator[bytes] | None:
        """The content in pieces; None if there is no such file."""
        check_artifact_name(name)
        content = self._files.get(execution_id, {}).get(name)
        return None if content is None else _in_one_piece(content)

    async def forget(self, execution_ids: Sequence[ExecutionId]) -> None:
        """Removes all files of these."""
        self.forget_now(execution_ids)

    def forget_now(self, execution_ids: Sequence[ExecutionId]) -> None:
        """The same, at once."""
        for execution_id in execution_ids:
            self._files.pop(execution_id, None)


class MemoryBlobs:
    """Object storage as byte strings."""

    bytes_max = OBJECT_BYTES_MAX

    where = "this server's memory"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    async def put(self, key: str, draft: SpooledFile) -> None:
        """Keeps the draft's content."""
        check_key(key)
        self.objects[key] = draft.path.read_bytes()

    async def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes from `start` to before `end`."""
        if key not in self.objects:
            raise BlobMissingError(f"there is no object {key}")
        return _in_one_piece(self.objects[key][start:end])

    async def drop(self, keys: Sequence[str]) -> None:
        """Removes these."""
        for key in keys:
            self.objects.pop(key, None)

    async def link(self, key: str, expires_s: int) -> DownloadLink | None:
        """Memory has no addresses."""
        return None

    async def mark(self, wanted: str) -> str:
        """Says which storage this is."""
        return self.objects.setdefault(STORAGE_ID_KEY, wanted.encode()).decode()

    async def close(self) -> None:
        """Nothing to give back."""


async def _in_one_piece(content: bytes) -> AsyncIterator[bytes]:
    yield content
