"""One in-process server for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.api.in_process_server import InProcessServer, open_server


@pytest.fixture
async def server() -> AsyncIterator[InProcessServer]:
    async with open_server() as one:
        yield one
