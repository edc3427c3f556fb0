from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from rota.cli.connect import CommandLimits
from rota.cli.main import run
from tests.api.in_process_server import TOKEN as REAL_TOKEN
from tests.sdk.fake_server import TOKEN, SmallServer
from tests.sdk.real_server import real_server


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its output as the one document that it is."""
        return json.loads(self.out)


Rota = Callable[..., Ran]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallServer]:
    small = SmallServer()
    monkeypatch.setenv("ROTA_URL", small.url)
    monkeypatch.setenv("ROTA_TOKEN", TOKEN)
    yield small
    small.close()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Of a real server on a socket."""
    with real_server() as address:
        yield address


@pytest.fixture
def at_real_server(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands ask that one."""
    monkeypatch.setenv("ROTA_URL", url)
    monkeypatch.setenv("ROTA_TOKEN", REAL_TOKEN)


@pytest.fixture
def rota(capsys: pytest.CaptureFixture[str]) -> Rota:
    def command(*args: str, limits: CommandLimits | None = None) -> Ran:
        capsys.readouterr()
        status = run(args, limits)
        out, err = capsys.readouterr()
        return Ran(status, out, err)

    return command
