"""A submission under a new key asks the store nothing; one that may have been used is looked up."""

from __future__ import annotations

from typing import Any

import pytest

from rota.engine.membership import Membership
from rota.store.batched_lookup import KeyStatus
from rota.store.documents import Node
from tests.api.in_process_server import NOOP, InProcessServer
from tests.engine.rig import until
from tests.stand_in import stand_in

JOB = {"name": "once", "task": NOOP}


@pytest.fixture
def looked_for(house: InProcessServer) -> list[str]:
    """Keys that were looked up in the store."""
    keys: list[str] = []

    async def noted(key: str) -> KeyStatus:
        keys.append(key)
        return await house.store.catalog.key_at_once(key)

    house.change(catalog=stand_in(house.parts.catalog, key_at_once=noted))
    return keys


async def submit(house: InProcessServer, key: str) -> Any:
    return await house.ask("POST", "/jobs", JOB, expect=201, headers={"Idempotency-Key": key})


async def test_a_new_key_is_not_looked_up_and_a_repeat_is(
    house: InProcessServer, looked_for: list[str]
) -> None:
    await until(lambda: house.engine.is_new_key("k"))
    first = await submit(house, "k")
    assert looked_for == []
    house.engine._ready_scheduler()._t.recently_finished._keys.shard(
        "k"
    ).clear()  # as after a while
    again = await submit(house, "k")
    assert (again["job_id"], looked_for) == (first["job_id"], ["k"])


async def test_a_server_with_other_servers_looks_up_every_key(
    house: InProcessServer, looked_for: list[str]
) -> None:
    """One of them may have promised something under it."""
    await until(lambda: house.engine.is_new_key("k"))
    presence = Membership(house.store, house.engine, Node(node="node-a"))
    house.change(membership=presence)
    await submit(house, "before anybody looked")
    await presence.check_reachability()
    await submit(house, "alone")
    await house.store.nodes.announce(Node(node="node-b"))
    await presence.check_reachability()
    await submit(house, "in company")
    assert looked_for == ["before anybody looked", "in company"]
