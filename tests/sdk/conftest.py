from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from rota.sdk import Client, Patience
from tests.sdk.async_as_blocking import KINDS, OpenClient
from tests.sdk.fake_server import TOKEN, SmallServer


@pytest.fixture
def server() -> Iterator[SmallServer]:
    small = SmallServer()
    yield small
    small.close()


@pytest.fixture(params=list(KINDS))
def open_client(request: pytest.FixtureRequest) -> Iterator[OpenClient]:
    """Opens clients of either kind, and closes them at the end."""
    with ExitStack() as opened:

        def open_one(*args: Any, **more: Any) -> Client:
            client: Client = opened.enter_context(KINDS[request.param](*args, **more))
            return client

        yield open_one


@pytest.fixture
def client(server: SmallServer, open_client: OpenClient) -> Client:
    return open_client(server.url, TOKEN, patience=Patience(retry_for_s=20))
