"""What object storage is asked for: whole objects under keys that are used once, and no more.

A key is never written twice, so nobody reads half of one and half of another object, and removing
one can never hit what came later. Which keys matter is in the database (`objects.py`).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from rota.store.files.spool import SpooledFile
from rota.store.protocol import StoreError

STORAGE_ID_KEY = "rota-storage"
"""Where a storage says which one it is."""
_KEY = re.compile(r"[a-z0-9-]+(/[a-z0-9-]+){0,3}")


class BlobMissingError(StoreError):
    """The database has a reference, and the storage has nothing there."""


class DownloadLink(msgspec.Struct, frozen=True):
    """A way to fetch an object without passing the server."""

    url: str
    expires_s: int


class Blobs(Protocol):
    """Object storage, wherever it is."""

    @property
    def where(self) -> str:
        """For people."""
        ...

    @property
    def bytes_max(self) -> int:
        """The largest object it is meant for."""
        ...

    async def put(self, key: str, draft: SpooledFile) -> None:
        """Keeps the draft's content, durably; the draft's file may be gone afterwards."""
        ...

    async def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes from `start` to before `end`; raises BlobMissingError before the first."""
        ...

    async def drop(self, keys: Sequence[str]) -> None:
        """Removes these; those that are not there are no error."""
        ...

    async def link(self, key: str, expires_s: int) -> DownloadLink | None:
        """A signed address; None: this storage gives none."""
        ...

    async def mark(self, wanted: str) -> str:
        """Says which storage this is: `wanted`, unless it has been marked before."""
        ...

    async def close(self) -> None:
        """Gives everything back."""
        ...


def check_key(key: str) -> None:
    """Keys are made by us; yet they become paths, so they are looked at."""
    if not _KEY.fullmatch(key):
        raise StoreError(f"{key!r} is no key of an object")
