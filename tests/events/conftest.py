"""Fixtures: a real server on a socket, and clients of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from rota.events.publisher import Offsets, Publisher
from rota.sdk import AsyncClient, Patience
from tests.api.in_process_server import TOKEN
from tests.sdk.real_server import real_server

T = TypeVar("T")


@pytest.fixture
def url() -> Iterator[str]:
    with real_server() as found:
        yield found


@pytest.fixture
async def client(url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url, TOKEN, patience=Patience(retry_for_s=0.2)) as one:
        yield one


@pytest.fixture
def offsets(tmp_path: Path) -> Offsets:
    return Offsets(tmp_path / "state")


@pytest.fixture
def publisher(client: AsyncClient, offsets: Offsets) -> Publisher:
    return Publisher(client, offsets, "here")


async def until(look: Callable[[], Awaitable[T]], wanted: Callable[[T], Any]) -> T:
    """Looks until the result is as wanted; returns it."""
    async with asyncio.timeout(20):
        while True:
            seen = await look()
            if wanted(seen):
                return seen
            await asyncio.sleep(0.02)


async def received(client: AsyncClient, count: int) -> list[Any]:
    """Waits until the server has so many events; returns them, the oldest first."""

    async def look() -> list[Any]:
        return (await client.events(limit=1000)).items[::-1]

    return await until(look, lambda seen: len(seen) >= count)
