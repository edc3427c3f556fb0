"""Lookups of idempotency keys: a new key needs no query, one that may be used is looked up."""

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
def looked_for(server: InProcessServer) -> list[str]:
    """Records the keys that were looked up in the store."""
    keys: list[str] = []

    async def noted(key: str) -> KeyStatus:
        keys.append(key)
        return await server.store.queries.key_at_once(key)

    server.change(queries=stand_in(server.deps.queries, key_at_once=noted))
    return keys


async def submit(server: InProcessServer, key: str) -> Any:
    return await server.ask("POST", "/jobs", JOB, expect=201, headers={"Idempotency-Key": key})


async def test_a_new_key_is_not_looked_up_and_a_repeat_is(
    server: InProcessServer, looked_for: list[str]
) -> None:
    await until(lambda: server.engine.is_new_key("k"))
    first = await submit(server, "k")
    assert looked_for == []
    server.engine._ready_scheduler()._t.recently_finished._keys.shard(
        "k"
    ).clear()  # as after a while
    again = await submit(server, "k")
    assert (again["job_id"], looked_for) == (first["job_id"], ["k"])


async def test_a_server_with_other_servers_looks_up_every_key(
    server: InProcessServer, looked_for: list[str]
) -> None:
    """One of them may have answered under this key."""
    await until(lambda: server.engine.is_new_key("k"))
    presence = Membership(server.store, server.engine, Node(node="node-a"))
    server.change(membership=presence)
    await submit(server, "before anybody looked")
    await presence.check_reachability()
    await submit(server, "alone")
    await server.store.nodes.announce(Node(node="node-b"))
    await presence.check_reachability()
    await submit(server, "in company")
    assert looked_for == ["before anybody looked", "in company"]
