"""Fixtures: two cells and a gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.gateway.fleet import Gateway, TestFleet, open_fleet


@pytest.fixture
async def fleet() -> AsyncIterator[TestFleet]:
    async with open_fleet("north", "south") as one:
        yield one


@pytest.fixture
async def gateway(fleet: TestFleet) -> Gateway:
    return await fleet.gateway()
