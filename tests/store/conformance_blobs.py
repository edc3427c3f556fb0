"""Definition of object storage; every kind of it passes this."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from rota.store.files.blobs import BlobMissingError, Blobs
from rota.store.files.uploads import SpooledFile
from rota.store.protocol import StoreError

CONTENT = os.urandom(3_000_001)
"""More than one piece of every kind."""


def draft_of(content: bytes, folder: Path) -> SpooledFile:
    path = folder / f"draft-{len(list(folder.iterdir()))}"
    path.write_bytes(content)
    return SpooledFile(path, len(content), hashlib.sha256(content).hexdigest())


async def read(blobs: Blobs, key: str, start: int, end: int) -> bytes:
    return b"".join([piece async for piece in await blobs.read(key, start, end)])


class BlobsConformance:
    """Puts, reads, parts, removals and marks."""

    async def test_an_object_is_read_back_whole_and_in_parts(
        self, blobs: Blobs, tmp_path: Path
    ) -> None:
        await blobs.put("outputs/e1/k1", draft_of(CONTENT, tmp_path))
        size = len(CONTENT)
        for start, end in ((0, size), (0, 1), (5, 6), (1_048_570, 2_097_160), (size - 1, size)):
            assert await read(blobs, "outputs/e1/k1", start, end) == CONTENT[start:end]
        assert await read(blobs, "outputs/e1/k1", 7, 7) == b""

    async def test_a_read_of_a_missing_object_says_that_it_is_missing(
        self, blobs: Blobs, tmp_path: Path
    ) -> None:
        with pytest.raises(BlobMissingError):
            await blobs.read("bundles/none", 0, 10)
        await blobs.put("bundles/b1", draft_of(b"x", tmp_path))
        await blobs.drop(["bundles/b1", "bundles/none"])
        with pytest.raises(BlobMissingError):
            await blobs.read("bundles/b1", 0, 1)

    async def test_an_object_that_was_cut_is_never_taken_for_whole(
        self, blobs: Blobs, tmp_path: Path
    ) -> None:
        await blobs.put("bundles/b1", draft_of(b"short", tmp_path))
        with pytest.raises(StoreError):
            await read(blobs, "bundles/b1", 0, 10)

    @pytest.mark.parametrize("key", ["../out", "/etc/passwd", "a//b", "a/../b", "", "a b", "A"])
    async def test_keys_cannot_lead_elsewhere(self, blobs: Blobs, key: str, tmp_path: Path) -> None:
        with pytest.raises(StoreError):
            await blobs.put(key, draft_of(b"x", tmp_path))

    async def test_one_of_several_servers_that_mark_a_storage_at_once_wins(
        self, blobs: Blobs
    ) -> None:
        marks = await asyncio.gather(*(blobs.mark(f"mark{number}") for number in range(5)))
        assert len(set(marks)) == 1
        assert await blobs.mark("later") == marks[0]
