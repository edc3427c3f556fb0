"""Logs and artifacts kept in memory, for the forgetful store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from rota.core.model import ExecutionId
from rota.store.files.artifacts import check_artifact_name
from rota.store.files.log_pieces import LogSize
from rota.store.protocol import Artifact, ArtifactTooLargeError, LogPage, StoreError


class MemoryLogs:
    """Logs as byte strings."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._logs: dict[ExecutionId, tuple[bytearray, int]] = {}

    async def append(self, execution_id: ExecutionId, offset: int | None, data: bytes) -> int:
        """Adds what is new; answers where the sender goes on."""
        stored, dropped = self._logs.get(execution_id, (bytearray(), 0))
        size = LogSize(len(stored), dropped)
        placed = size.place(offset, data, self._bytes_max)
        stored += placed.kept
        self._logs[execution_id] = (stored, dropped + placed.dropped)
        return len(stored) + dropped + placed.dropped

    async def read(self, execution_id: ExecutionId, offset: int, limit: int) -> LogPage:
        """At most `limit` bytes from `offset`."""
        if offset < 0 or limit < 0:
            raise StoreError("a log is read from an offset and up to a number of bytes, from 0 up")
        stored, dropped = self._logs.get(execution_id, (bytearray(), 0))
        data = bytes(stored[offset : offset + limit])
        return LogPage(data, offset + len(data), len(stored), dropped)

    async def forget(self, execution_ids: Sequence[ExecutionId]) -> None:
        """Removes the logs of these."""
        self.forget_now(execution_ids)

    def forget_now(self, execution_ids: Sequence[ExecutionId]) -> None:
        """The same, at once."""
        for execution_id in execution_ids:
            self._logs.pop(execution_id, None)


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


async def _in_one_piece(content: bytes) -> AsyncIterator[bytes]:
    yield content
