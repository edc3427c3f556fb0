from __future__ import annotations

from collections.abc import Iterator

import pytest

from rota.sdk import Client, Patience
from tests.sdk.small_server import TOKEN, SmallServer


@pytest.fixture
def server() -> Iterator[SmallServer]:
    small = SmallServer()
    yield small
    small.close()


@pytest.fixture
def client(server: SmallServer) -> Iterator[Client]:
    with Client(server.url, TOKEN, patience=Patience(retry_for_s=20)) as opened:
        yield opened
