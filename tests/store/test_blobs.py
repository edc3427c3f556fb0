"""Object storage of every kind that needs no server, uploads on their way in, and output files."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.core.model import ExecutionId
from rota.store.files.artifacts import OutOfRangeError, Output, Outputs, Range
from rota.store.files.blobs import Blobs, FallbackBlobs, FolderBlobs
from rota.store.files.uploads import (
    Spool,
    TakenOverError,
    TooManyUploadsError,
    UploadTooLargeError,
    WrongOffsetError,
    archive_format,
)
from rota.store.limits import OBJECT_BYTES_MIN, StoreLimits
from rota.store.protocol import StoreFullError
from rota.store.sqlite.memory import MemoryBlobs, MemoryStore
from tests.archives import tar_of, zip_of
from tests.store.conformance_blobs import CONTENT, BlobsConformance, draft_of, read

RUN = ExecutionId("execution-1")
LARGE = os.urandom(OBJECT_BYTES_MIN + 10)


class TestFolder(BlobsConformance):
    @pytest.fixture
    async def blobs(self, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Blobs]:
        folder = FolderBlobs(tmp_path_factory.mktemp("objects") / "deep")
        yield folder
        await folder.close()


class TestFallback(BlobsConformance):
    @pytest.fixture
    async def blobs(self, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Blobs]:
        root = tmp_path_factory.mktemp("objects")
        both = FallbackBlobs(FolderBlobs(root / "named"), FolderBlobs(root / "own"))
        yield both
        await both.close()


async def test_objects_kept_before_a_storage_was_named_are_still_found(tmp_path: Path) -> None:
    own, named = FolderBlobs(tmp_path / "own"), FolderBlobs(tmp_path / "named")
    await own.put("bundles/old", draft_of(b"old", tmp_path))
    both = FallbackBlobs(named, own)
    await both.put("bundles/new", draft_of(b"new", tmp_path))
    assert await read(both, "bundles/old", 0, 3) == b"old"
    assert await read(named, "bundles/new", 0, 3) == b"new"
    await both.drop(["bundles/old", "bundles/new"])
    assert not (tmp_path / "own" / "bundles").exists(), "empty folders go with the last object"
    await both.close()


@pytest.fixture
async def spool(tmp_path: Path) -> AsyncIterator[Spool]:
    made = Spool(tmp_path / "uploads")
    yield made
    await made.close()


async def test_an_upload_that_broke_off_goes_on_in_a_new_process(tmp_path: Path) -> None:
    before = Spool(tmp_path)
    upload = await before.begin("u", 0, 100)
    await upload.write(b"hello ")
    await before.close()  # and the upload is never ended, as by a kill
    after = Spool(tmp_path)
    assert await after.offset("u") == 6
    upload = await after.begin("u", 6, 100)
    await upload.write(b"world")
    draft = await upload.finish()
    assert draft.path.read_bytes() == b"hello world"
    assert draft.sha256 == hashlib.sha256(b"hello world").hexdigest()
    await upload.leave(kept=True)
    assert await after.offset("u") == 0
    await after.close()


async def test_an_upload_goes_on_only_from_where_it_is(spool: Spool) -> None:
    with pytest.raises(WrongOffsetError) as wrong:
        await spool.begin("u", 4, 100)
    assert wrong.value.offset == 0
    upload = await spool.begin("u", 0, 100)
    await upload.write(b"123")
    await upload.leave()
    with pytest.raises(WrongOffsetError) as wrong:
        await spool.begin("u", 4, 100)
    assert wrong.value.offset == 3
    anew = await spool.begin("u", 0, 100)
    await anew.write(b"9")
    assert (await anew.finish()).path.read_bytes() == b"9"


async def test_a_request_that_resumes_takes_over_from_one_that_hangs(spool: Spool) -> None:
    hanging = await spool.begin("u", 0, 100)
    await hanging.write(b"123")
    taking = await spool.begin("u", 3, 100)
    with pytest.raises(TakenOverError):
        await hanging.write(b"late")
    await hanging.leave()
    await taking.write(b"456")
    draft = await taking.finish()
    assert draft.path.read_bytes() == b"123456"


async def test_two_that_send_the_same_from_the_beginning_do_not_disturb_each_other(
    spool: Spool,
) -> None:
    one, two = await spool.begin("u", 0, 100), await spool.begin("u", 0, 100)
    await asyncio.gather(one.write(b"same"), two.write(b"same"))
    first, second = await one.finish(), await two.finish()
    assert (first.sha256, first.size) == (second.sha256, second.size)
    await two.leave()
    assert first.path.exists()
    await one.leave(kept=True)
    assert list(first.path.parent.iterdir()) == []


async def test_the_size_and_the_number_of_uploads_are_limited(spool: Spool, tmp_path: Path) -> None:
    upload = await spool.begin(None, 0, 5)
    with pytest.raises(UploadTooLargeError):
        await upload.write(b"123456")
    await upload.leave()
    small = Spool(tmp_path / "small", StoreLimits(spool_uploads_max=2))
    for name in ("a", "b"):
        await (await small.begin(name, 0, 5)).leave()
    with pytest.raises(TooManyUploadsError):
        await small.begin("c", 0, 5)
    await small.begin("a", 0, 5)
    await small.close()


async def test_a_full_disk_is_reported_as_such(spool: Spool, tmp_path: Path) -> None:
    upload = await spool.begin("u", 0, 1000)
    upload.path.unlink()
    upload.path.symlink_to("/dev/full")
    with pytest.raises(StoreFullError):
        await upload.write(b"data")


async def test_an_upload_that_is_not_resumed_is_removed(spool: Spool) -> None:
    old, busy = await spool.begin("old", 0, 100), await spool.begin("busy", 0, 100)
    await old.write(b"1")
    await busy.write(b"1")
    await old.leave()
    born = old.path.stat().st_mtime
    assert await spool.sweep(60, born + 59) == 0
    assert await spool.sweep(60, born + 100) == 1
    assert (await spool.offset("old"), await spool.offset("busy")) == (0, 1)


def outputs(store: MemoryStore, blobs: Blobs | None) -> Outputs:
    return Outputs(store.artifacts, store.objects, blobs)


async def content(outputs: Outputs, name: str, part: Range | None = None) -> bytes:
    found = await outputs.read(RUN, name, part) if part else await outputs.read(RUN, name)
    assert found is not None
    data = b"".join([piece async for piece in found.pieces])
    assert len(data) == found.end - found.start
    return data


@pytest.mark.parametrize("has_storage", [True, False])
async def test_small_files_stay_in_the_store_and_large_ones_go_to_object_storage(
    tmp_path: Path, *, has_storage: bool
) -> None:
    store, blobs = MemoryStore(), MemoryBlobs()
    kept = outputs(store, blobs if has_storage else None)
    small = await kept.keep_small(RUN, "small", b"data")
    large = await kept.keep(RUN, "large", draft_of(LARGE, tmp_path), "outputs/e/1", 0)
    tiny = await kept.keep(RUN, "tiny", draft_of(b"t", tmp_path), "outputs/e/2", 0)
    assert (list(blobs.objects) == ["outputs/e/1"]) is has_storage
    assert await kept.list([RUN]) == [
        [large, Output(small.name, 4), Output(tiny.name, 1)],
    ]
    assert large.sha256 == hashlib.sha256(LARGE).hexdigest()
    assert await content(kept, "large") == LARGE
    assert await content(kept, "large", Range(5, 9)) == LARGE[5:9]
    assert await content(kept, "large", Range(None, 7)) == LARGE[-7:]
    assert await content(kept, "large", Range(len(LARGE) - 1, None)) == LARGE[-1:]
    assert await content(kept, "small", Range(1, 100)) == b"ata"
    with pytest.raises(OutOfRangeError):
        await kept.read(RUN, "small", Range(4, None))
    assert await kept.read(RUN, "none") is None


async def test_a_file_of_the_same_name_is_replaced_whatever_its_size(tmp_path: Path) -> None:
    store, blobs = MemoryStore(), MemoryBlobs()
    kept = outputs(store, blobs)
    await kept.keep(RUN, "out", draft_of(LARGE, tmp_path), "outputs/e/1", 0)
    await kept.keep_small(RUN, "out", b"small")
    assert await content(kept, "out") == b"small"
    assert list(await store.objects.deletions_due(0, 9)) == ["outputs/e/1"]
    await kept.keep(RUN, "out", draft_of(LARGE, tmp_path), "outputs/e/2", 0)
    assert await content(kept, "out") == LARGE
    assert len((await kept.list([RUN]))[0]) == 1


@pytest.mark.parametrize("how", ["", "gz", "bz2", "xz"])
def test_archives_are_recognised_by_their_first_bytes(tmp_path: Path, how: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(tar_of({"run.sh": CONTENT}, how))
    assert archive_format(path) == "tar"


def test_a_zip_is_an_archive_and_a_script_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for made, form in (
        (zip_of({"a": b"x"}), "zip"),
        (b"#!/bin/sh\n" + zip_of({"a": b"x"}), "file"),
        (b"\x1f\x8bbroken", "file"),
        (b"x", "file"),
        (tar_of({"a": b"x"}, "bz2"), "tar"),
    ):
        path.write_bytes(made)
        assert archive_format(path) == form
