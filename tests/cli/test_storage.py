"""Which storage a server opens, and when it refuses one."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from rota.cli.start.storage import check_is_ours, open_blobs
from rota.store.protocol import StoreError
from rota.store.sqlite.memory import MemoryBlobs, MemoryStore
from tests.cli.conftest import Rota


async def test_the_first_storage_is_the_cells_and_another_is_refused_unless_adopted() -> None:
    book, first, second = MemoryStore().objects, MemoryBlobs(), MemoryBlobs()
    await check_is_ours(first, book)
    await check_is_ours(first, book)
    with pytest.raises(click.ClickException, match="one that all servers share") as refused:
        await check_is_ours(second, book)
    assert "--adopt-storage" in refused.value.message
    await check_is_ours(second, book, adopt=True)
    with pytest.raises(click.ClickException):
        await check_is_ours(first, book)


@pytest.mark.parametrize("address", ["{}", "file://{}"])
def test_a_folder_may_be_named_either_way(tmp_path: Path, address: str) -> None:
    assert open_blobs(address.format(tmp_path)).where == f"the folder {tmp_path}"


def test_a_cloud_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore.store", None)
    with pytest.raises(StoreError, match=r"pip install 'rota\[objectstore\]'"):
        open_blobs("s3://bucket")


def test_an_address_of_another_kind_is_refused(rota: Rota) -> None:
    ran = rota("server", "--objects", "ftp://files")
    assert ran.status == 2
    assert "s3://, gs:// or az://" in ran.err
