"""A store goes on with the database it began with, and with no other behind the same address."""

from __future__ import annotations

import pytest

from rota.engine.loop import unready_reason
from rota.store.postgres.connect import Address, DedicatedConnection, Identity, parse_address
from rota.store.protocol import OtherDatabaseError
from tests.postgres.cell import Cell
from tests.postgres.server import PostgresServer

pytestmark = pytest.mark.postgres


async def test_another_database_behind_the_same_address_is_refused_in_plain_words() -> None:
    first, other = Cell(), PostgresServer()
    try:
        known = parse_address(first.dsn)
        line = DedicatedConnection(known, "test", 5, {})
        assert await line.read(lambda c: c.fetchval("SELECT 1")) == 1
        await line.close()
        moved = DedicatedConnection(Address(other.dsn(), identity=known.identity), "test", 5, {})
        with pytest.raises(OtherDatabaseError, match="another database now") as refused:
            await moved.read(lambda c: c.fetchval("SELECT 1"))
        assert unready_reason(refused.value) == str(refused.value)
        await moved.close()
    finally:
        other.remove()


async def test_the_same_database_is_known_again_by_every_connection() -> None:
    address = Address(Cell().dsn, identity=Identity())
    for _ in range(2):
        line = DedicatedConnection(address, "test", 5, {})
        assert await line.read(lambda c: c.fetchval("SELECT 1")) == 1
        await line.close()
