"""Object storage that was named later: new objects go there, old ones are found where they were."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from rota.store.files.blobs import BlobMissingError, Blobs, DownloadLink
from rota.store.files.spool import SpooledFile


class FallbackBlobs:
    """The named storage, and behind it the server's own."""

    def __init__(self, named: Blobs, own: Blobs) -> None:
        self._primary = named
        self._fallback = own

    @property
    def where(self) -> str:
        """For people."""
        return self._primary.where

    @property
    def bytes_max(self) -> int:
        """Of the named one."""
        return self._primary.bytes_max

    async def put(self, key: str, draft: SpooledFile) -> None:
        """In the named one."""
        await self._primary.put(key, draft)

    async def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        """From wherever it is."""
        try:
            return await self._primary.read(key, start, end)
        except BlobMissingError:
            return await self._fallback.read(key, start, end)

    async def drop(self, keys: Sequence[str]) -> None:
        """From both: those that are not there are no error."""
        await self._primary.drop(keys)
        await self._fallback.drop(keys)

    async def link(self, key: str, expires_s: int) -> DownloadLink | None:
        """Of the named one, if the object is there: a link to nothing helps nobody."""
        try:
            pieces = await self._primary.read(key, 0, 1)
        except BlobMissingError:
            return None
        async for _ in pieces:
            pass
        return await self._primary.link(key, expires_s)

    async def mark(self, wanted: str) -> str:
        """Of the named one."""
        return await self._primary.mark(wanted)

    async def close(self) -> None:
        """Both."""
        await self._primary.close()
        await self._fallback.close()
