from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.cli.start.http_server import EmbeddedServer, Ticks, listen
from rota.cli.start.up import HttpOptions

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates")


def make(folder: Path, name: str) -> None:
    """A certificate for this name, and its key, in the two files of the folder."""
    fresh = folder / "fresh"
    fresh.mkdir(exist_ok=True)
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-keyout", str(fresh / "key.pem"), "-out", str(fresh / "cert.pem")),
        ],
        check=True,
        capture_output=True,
    )
    for file in ("key.pem", "cert.pem"):
        (fresh / file).replace(folder / file)


async def nothing(scope: object, receive: object, send: object) -> None:
    """An application that answers nobody."""


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    """A server with a certificate, which looks at it often."""
    make(tmp_path, "first")
    options = HttpOptions(
        host="127.0.0.1", port=0, tls_cert=tmp_path / "cert.pem", tls_key=tmp_path / "key.pem"
    )
    server = EmbeddedServer(nothing, options, ticks=Ticks(tick_s=0.1, certificate=1))
    listening = listen("127.0.0.1", 0)
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    yield listening.getsockname()[1]
    server.should_exit = True
    await serving


async def served(port: int) -> str:
    address = ("127.0.0.1", port)
    return await asyncio.to_thread(ssl.get_server_certificate, address)


async def test_a_renewed_certificate_is_served_without_a_restart(port: int, tmp_path: Path) -> None:
    first = await served(port)
    (tmp_path / "cert.pem").write_text("no certificate")
    await asyncio.to_thread(make, tmp_path, "second")
    wanted = ssl.PEM_cert_to_DER_cert((tmp_path / "cert.pem").read_text())
    deadline = asyncio.get_running_loop().time() + 20
    while (now := await served(port)) == first:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.02)
    assert ssl.PEM_cert_to_DER_cert(now) == wanted


async def test_a_new_certificate_that_cannot_be_loaded_leaves_the_old_one_in_use(
    port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, printed = await served(port), ""
    (tmp_path / "cert.pem").write_text("no certificate")
    deadline = asyncio.get_running_loop().time() + 20
    while "the old one stays" not in (printed := printed + capsys.readouterr().out):
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.02)
    assert await served(port) == first
