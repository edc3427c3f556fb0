"""Files through the client that awaits, against the real API in this process."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from rota.sdk import AnswerError, AsyncClient, Endpoint, NotFoundError
from rota.sdk.methods.file_calls import PIECE_BYTES
from rota.store.limits import OBJECT_BYTES_MIN
from rota.store.sqlite.memory import MemoryBlobs
from tests.api.in_process_server import HOST, TOKEN, InProcessServer, open_server

CONTENT = os.urandom(PIECE_BYTES + 1000)


@pytest.fixture
async def house() -> AsyncIterator[InProcessServer]:
    async with open_server() as one:
        yield one


@pytest.fixture
def asked() -> list[tuple[str, str]]:
    """Method and path of each request of the client."""
    return []


@pytest.fixture
async def client(
    house: InProcessServer, asked: list[tuple[str, str]]
) -> AsyncIterator[AsyncClient]:
    endpoint = Endpoint(f"http://{HOST}", TOKEN, "the test", "the test", ())

    async def noted(scope: Any, receive: Any, send: Any) -> None:
        asked.append((scope["method"], scope["path"]))
        await house.app(scope, receive, send)

    transport = httpx2.ASGITransport(app=noted)
    async with AsyncClient(endpoint, transport=transport) as one:
        yield one


def written(folder: Path, content: bytes = CONTENT) -> Path:
    path = folder / "app.bin"
    path.write_bytes(content)
    return path


async def test_a_bundle_goes_up_in_pieces_and_comes_down_whole(
    client: AsyncClient, tmp_path: Path
) -> None:
    bundle = await client.push_bundle(written(tmp_path), name="app")
    assert (bundle.name, bundle.size) == ("app", len(CONTENT))
    assert bundle.sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert (await client.bundle(bundle.bundle_id)) == bundle
    assert (await client.bundles()).items == [bundle]
    await client.fetch_bundle(bundle.bundle_id, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == CONTENT
    await client.delete_bundle(bundle.bundle_id)
    with pytest.raises(NotFoundError):
        await client.fetch_bundle(bundle.bundle_id, tmp_path / "gone")
    assert not (tmp_path / "gone").exists()


async def test_what_the_server_has_is_not_sent_again(
    client: AsyncClient, tmp_path: Path, asked: list[tuple[str, str]]
) -> None:
    path = written(tmp_path)
    first = await client.push_bundle(path)
    asked.clear()
    assert await client.push_bundle(path) == first
    assert [method for method, _ in asked] == ["GET"]


async def test_an_upload_with_damaged_remains_begins_anew(
    house: InProcessServer, client: AsyncClient, tmp_path: Path
) -> None:
    digest = hashlib.sha256(CONTENT).hexdigest()
    query = {"name": "x", "sha256": digest, "size": str(len(CONTENT))}
    await house.http.post("/bundles", params=query, content=b"damaged")
    bundle = await client.push_bundle(written(tmp_path))
    assert bundle.sha256 == digest


@pytest.mark.parametrize("size", [10, OBJECT_BYTES_MIN + 10])
@pytest.mark.parametrize("name", ["out", "a/b/out"])
async def test_an_output_file_is_compared_with_what_was_kept(
    house: InProcessServer, client: AsyncClient, tmp_path: Path, size: int, name: str
) -> None:
    order = await house.start(await house.register())
    run, content, written = order["execution_id"], os.urandom(size), quote(name, safe="")
    await house.http.put(f"/executions/{run}/artifacts/{written}", content=content)
    (listed,) = await client.artifacts(run)
    assert (listed.name, listed.size) == (name, size)
    assert await client.read_artifact(run, name) == content
    await client.fetch_artifact(run, name, tmp_path / name)
    await client.fetch_artifact(run, listed, tmp_path / "listed")
    assert (tmp_path / name).read_bytes() == (tmp_path / "listed").read_bytes() == content
    link = await client.artifact_link(run, name)
    assert (link.url, link.signed) == (f"/executions/{run}/artifacts/{written}", False)
    with pytest.raises(NotFoundError):
        await client.read_artifact(run, "nothing")


async def test_a_file_that_was_damaged_in_the_storage_is_not_handed_out(
    house: InProcessServer, client: AsyncClient, tmp_path: Path
) -> None:
    bundle = await client.push_bundle(written(tmp_path))
    storage = house.deps.files.blobs
    assert isinstance(storage, MemoryBlobs)
    for key, content in storage.objects.items():
        storage.objects[key] = b"X" + content[1:]
    with pytest.raises(AnswerError, match="damaged"):
        await client.fetch_bundle(bundle.bundle_id, tmp_path / "back")
    assert os.listdir(tmp_path) == ["app.bin"]
