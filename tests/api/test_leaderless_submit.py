"""Submissions while no server leads: what is accepted, how it is shown, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from rota.api.app import create_app
from rota.api.cluster.leaderless_submit import LeaderlessInbox
from rota.api.ids import mint_key
from rota.api.recall import look_up_key
from rota.core.model import KeyRecord
from rota.store.protocol import DurabilityLevel, Epoch
from tests.api.cluster_servers import Cell, Server, a_cell
from tests.api.in_process_server import NOOP
from tests.engine.rig import until
from tests.stand_in import stand_in

JOB = {"name": "j", "task": NOOP}


async def nobody_leads(cell: Cell, *nodes: str) -> list[Server]:
    """Starts servers of which none can lead."""
    return [await cell.start(node, leads=False) for node in nodes]


async def somebody_leads(server: Server) -> None:
    """Lets a server lead from now on."""
    server.store.journal.may_claim = True
    await until(lambda: server.engine.ready)


async def key_used(server: Server, key: str, **fields: Any) -> Any:
    """Submits a job with a key."""
    return await server.http.post("/jobs", json=JOB | fields, headers={"Idempotency-Key": key})


async def test_a_job_is_accepted_and_taken_by_the_next_leader() -> None:
    async with a_cell() as cell:
        one, two = await nobody_leads(cell, "a", "b")
        job = await one.submit("early")
        assert (job["status"], job["reason"]) == ("pending", "leaderless")
        for server in (one, two):
            shown = await server.ask("GET", f"/jobs/{job['job_id']}", expect=200)
            assert (shown["status"], shown["reason"]) == ("pending", "leaderless")
            why = await server.ask("GET", f"/jobs/{job['job_id']}/why", expect=200)
            assert why["cause"]["code"] == "leaderless"
        await somebody_leads(two)
        shown = await one.ask("GET", f"/jobs/{job['job_id']}", expect=200)
        assert (shown["name"], shown["status"]) == ("early", "queued")
        why = await two.ask("GET", f"/jobs/{job['job_id']}/why", expect=200)
        assert why["cause"]["code"] == "no_workers"


async def test_leaderless_submissions_are_taken_in_order_across_servers() -> None:
    async with a_cell() as cell:
        one, two = await nobody_leads(cell, "a", "b")
        first, second, third = [(await server.submit())["job_id"] for server in (one, two, one)]
        await somebody_leads(two)
        records = await cell.store.queries.jobs([third, first, second])
        records.sort(key=lambda job: job.spec.arrival_number)
        assert [job.id for job in records] == [first, second, third]


async def test_a_batch_waits_for_a_leader_with_its_dependencies() -> None:
    async with a_cell() as cell:
        (one,) = await nobody_leads(cell, "a")
        before = await one.submit("before")
        batch = {
            "jobs": [
                JOB | {"ref": "x", "dependencies": [before["job_id"]]},
                JOB | {"dependencies": ["ref:x"]},
            ]
        }
        ids = (await one.ask("POST", "/jobs/batch", batch, expect=201))["job_ids"]
        assert (await one.ask("GET", f"/jobs/{ids[1]}", expect=200))["status"] == "pending"
        await somebody_leads(one)
        graph = await one.ask("GET", f"/jobs/{ids[1]}/graph", expect=200)
        assert [node["job_id"] for node in graph["nodes"]] == [ids[1], ids[0], before["job_id"]]


async def test_a_submission_that_a_leader_would_refuse_is_refused_at_once() -> None:
    async with a_cell() as cell:
        (one,) = await nobody_leads(cell, "a")
        nowhere = "019a85bf-0000-7000-8000-000000000009"
        orphan = await one.ask("POST", "/jobs", JOB | {"dependencies": [nowhere]}, expect=422)
        assert orphan["type"].endswith("unknown_dependency")
        circle = {
            "jobs": [
                JOB | {"ref": "x", "dependencies": ["ref:y"]},
                JOB | {"ref": "y", "dependencies": ["ref:x"]},
            ]
        }
        refused = await one.ask("POST", "/jobs/batch", circle, expect=422)
        assert refused["type"].endswith("dependency_cycle")
        assert "x -> y -> x" in refused["detail"]
        await one.ask("POST", "/jobs", {"name": "j", "tusk": 1}, expect=422)
        assert await cell.store.journal.take_inbox(9) == []


async def test_a_key_gets_its_first_answer_on_every_server_before_and_after() -> None:
    async with a_cell() as cell:
        one, two = await nobody_leads(cell, "a", "b")
        first = (await key_used(one, "k")).json()["job_id"]
        again = await key_used(two, "k")
        assert (again.status_code, again.json()["job_id"]) == (201, first)
        other = await key_used(two, "k", priority=7)
        assert (other.status_code, other.json()["type"].rpartition(":")[2]) == (
            409,
            "idempotency_key_reused",
        )
        await somebody_leads(two)
        for server in (one, two):
            assert (await key_used(server, "k")).json()["job_id"] == first
        assert [job["job_id"] for job in (await two.ask("GET", "/jobs"))["items"]] == [first]


async def test_a_leader_knows_the_key_of_a_job_that_it_has_not_taken_yet() -> None:
    async with a_cell() as cell:
        leader = await cell.start("a", address="http://127.0.0.1:9")
        await until(lambda: leader.engine.ready)
        other = await cell.start("b")
        leader.store.journal.shut()
        first = (await key_used(other, "k")).json()
        assert first["reason"] == "leaderless"
        assert (await key_used(leader, "k")).json()["job_id"] == first["job_id"]
        assert (await key_used(leader, "k", priority=7)).status_code == 409
        leader.store.journal.let_go()


async def test_a_leader_finds_a_job_that_it_has_not_taken_yet() -> None:
    async with a_cell(durable_inbox_look_s_min=3600) as cell:
        leader = await cell.start("a", address="http://127.0.0.1:9")
        await until(lambda: leader.engine.ready)
        other = await cell.start("b")
        job = await other.submit()
        assert job["reason"] == "leaderless"
        answer = await leader.http.put(f"/jobs/{job['job_id']}/cancel")
        assert answer.status_code == 503
        assert "waits for a leader" in answer.json()["detail"]


async def test_a_key_that_a_leader_answered_before_is_not_taken_again() -> None:
    async with a_cell() as cell:
        leader, follower = await cell.pair()
        first = (await key_used(leader, "k")).json()["job_id"]
        follower.store.journal.may_claim = False
        await leader.crash()
        await until(lambda: follower.engine.standing().leader is None)
        again = await key_used(follower, "k")
        assert (again.status_code, again.json()["job_id"]) == (201, first)
        assert (await key_used(follower, "k", priority=7)).status_code == 409
        assert await cell.store.journal.take_inbox(9) == []


class LateCatalog:
    """Query store of a server whose key is used between its two lookups."""

    def __init__(self, server: Server, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self._catalog = server.store.queries
        self._meanwhile = meanwhile
        self._looks = 0

    async def key(self, key: str) -> KeyRecord | None:
        """Returns what a leader answered to the key."""
        self._looks += 1
        if self._looks == 2:
            await self._meanwhile()
        return await self._catalog.key(key)


async def test_ids_answered_without_a_leader_exist_whatever_the_last_leader_accepted() -> None:
    async with a_cell() as cell:
        leader, one = await cell.pair()
        two = await cell.start("two")
        leader.store.journal.shut()
        first = asyncio.create_task(key_used(leader, "k"))
        await leader.store.journal.reached()
        promised: list[str] = []

        async def another_server_answers_then_the_leader() -> None:
            promised.append((await key_used(two, "k")).json()["job_id"])
            leader.store.journal.let_go()
            await first

        late = LateCatalog(one, another_server_answers_then_the_leader)
        inbox = LeaderlessInbox(stand_in(one.store, queries=late), one.clock)
        app = create_app(replace(one.deps, leaderless_inbox=inbox))
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(
            transport=transport, base_url=one.url, headers=one.http.headers
        ) as http:
            used = await http.post("/jobs", json=JOB, headers={"Idempotency-Key": "k"})
        job_id = used.json()["job_id"]
        assert job_id == first.result().json()["job_id"] != promised[0]
        await until(lambda: not cell.store.journal.inbox_size)
        other = await one.ask("GET", f"/jobs/{promised[0]}", expect=200)
        assert (other["status"], other["reason"]) == ("skipped", "duplicate")


async def test_a_job_is_accepted_although_the_leader_cannot_be_reached() -> None:
    async with a_cell(ttl_ms=20_000) as cell:
        await cell.store.journal.claim("ghost", None, "http://127.0.0.1:9")
        (one,) = await nobody_leads(cell, "a")
        assert one.engine.standing().leader == "ghost"
        assert (await one.submit())["reason"] == "leaderless"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/queues/q", {}),
        ("POST", "/workers/register", {"name": "w"}),
        ("POST", "/jobs/bulk", {"action": "cancel", "filter": {}}),
        ("PUT", "/jobs/019a85bf-0000-7000-8000-000000000009/cancel", None),
    ],
)
async def test_other_writes_get_503_with_retry_after(method: str, path: str, body: Any) -> None:
    async with a_cell() as cell:
        (one,) = await nobody_leads(cell, "a")
        answer = await one.http.request(method, path, json=body)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["type"].endswith("no_leader")


async def test_a_call_that_may_be_repeated_waits_for_the_next_leader() -> None:
    async with a_cell() as cell:
        (one,) = await nobody_leads(cell, "a")
        asking = asyncio.create_task(one.http.get("/queues"))
        for _ in range(3):
            await one.ask("GET", "/healthz", expect=200)
        assert not asking.done()
        one.store.journal.may_claim = True
        assert (await asking).status_code == 200


async def test_no_server_is_ready_and_the_cluster_shows_why() -> None:
    async with a_cell() as cell:
        (one,) = await nobody_leads(cell, "a")
        await one.ask("GET", "/readyz", expect=503)
        view = await one.ask("GET", "/cluster", expect=200)
        assert view["leader"] is None
        assert any("nobody leads" in warning for warning in view["warnings"])
        assert [node["role"] for node in view["nodes"]] == ["follower"]


async def test_no_job_is_accepted_below_the_required_durability() -> None:
    async with a_cell() as cell:
        one = await cell.start("a", DurabilityLevel.SYNC_HA)
        await until(lambda: one.engine.ready)
        answer = await one.http.post("/jobs", json=JOB)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert "durability is single" in answer.json()["detail"]
        assert "durability is single" in (await one.ask("GET", "/readyz", expect=503))["detail"]
        assert any(
            "durability is single" in one for one in (await one.ask("GET", "/cluster"))["warnings"]
        )


async def lead_again(server: Server, meanwhile: Callable[[], Awaitable[Any]]) -> None:
    """Reloads the scheduler; `meanwhile` happens before it leads again."""
    ledger = server.store.journal
    ledger.is_away, ledger.may_claim = True, False
    assert (await server.http.post("/jobs", json=JOB)).status_code != 201
    ledger.is_away = False
    await until(lambda: not server.engine.ready)
    await meanwhile()
    await somebody_leads(server)


async def alone(server: Server) -> None:
    """Waits until the server leads, has seen no other server, and recognises a new key."""
    await until(lambda: server.engine.ready)
    assert server.cluster.membership is not None
    await server.cluster.membership.check_reachability()
    assert server.cluster.membership.is_alone
    await until(lambda: server.engine.is_new_key("never used"))


async def test_a_server_that_leads_again_alone_knows_the_key_it_answered() -> None:
    """The entry was still on its way into the store when the inbox was read."""
    async with a_cell(durable_inbox_look_s_min=60) as cell:
        server = await cell.start("a")
        await alone(server)
        arrived, may_go, inner = asyncio.Event(), asyncio.Event(), server.store.journal.inner

        async def slowly(*args: Any) -> Any:
            arrived.set()
            await may_go.wait()
            return await inner.put_inbox(*args)

        server.store.journal.inner = stand_in(inner, put_inbox=slowly)
        promise: list[asyncio.Task[Any]] = []

        async def promised() -> None:
            promise.append(asyncio.create_task(key_used(server, "k")))
            await arrived.wait()

        await lead_again(server, promised)
        await alone(server)
        may_go.set()
        first = (await promise[0]).json()
        assert first["reason"] == "leaderless"
        assert (await key_used(server, "k")).json()["job_id"] == first["job_id"]


async def test_a_leader_knows_the_key_answered_by_a_stopped_server_before_it_takes_the_job() -> (
    None
):
    async with a_cell(durable_inbox_entries=1) as cell:
        (gone,) = await nobody_leads(cell, "a")
        await key_used(gone, "before")
        first = (await key_used(gone, "k")).json()["job_id"]
        await gone.crash()
        await cell.store.nodes.leave("a")
        server = await cell.start("b", leads=False)
        inner, may_go, takes = server.store.journal.inner, asyncio.Event(), 0

        async def slowly(limit: int, epoch: Epoch) -> Any:
            nonlocal takes
            takes += 1
            if takes > 1:
                await may_go.wait()
            return await inner.take_inbox(limit, epoch)

        server.store.journal.inner = stand_in(inner, take_inbox=slowly)
        await somebody_leads(server)
        await until(lambda: takes > 1)
        assert server.cluster.membership is not None
        await server.cluster.membership.check_reachability()
        await asyncio.sleep(0.05)  # in which the keys in the tables are read
        assert (await key_used(server, "k")).json()["job_id"] == first
        may_go.set()
        await until(lambda: server.engine.is_new_key("never used"))


async def test_a_new_leader_checks_again_whether_it_is_alone() -> None:
    async with a_cell() as cell:
        server = await cell.start("a")
        await alone(server)
        assert server.cluster.membership is not None
        await lead_again(server, lambda: asyncio.sleep(0))
        assert not server.cluster.membership.is_alone
        await alone(server)


async def test_a_new_server_answers_no_key_before_a_lone_leader_has_seen_it() -> None:
    """It cannot reach that leader, whose clients may have the same key."""
    async with a_cell(seen_after_ms=700, reachability_alone_look_s=0.1) as cell:
        leader = await cell.start("a", address="http://127.0.0.1:9")
        await alone(leader)
        other = await cell.start("b")
        assert (await key_used(other, mint_key())).json()["reason"] == "leaderless", "at once"
        first = asyncio.create_task(key_used(other, "k"))
        assert leader.cluster.membership is not None
        await until(lambda: not leader.cluster.membership.is_alone)
        assert not first.done()
        leader.store.journal.shut()
        promised = (await first).json()
        assert promised["reason"] == "leaderless"
        assert (await key_used(leader, "k")).json()["job_id"] == promised["job_id"]
        leader.store.journal.let_go()


async def test_a_server_with_an_inbox_and_no_membership_does_not_count_as_alone() -> None:
    async with a_cell() as cell:
        server = await cell.start("a")
        await alone(server)
        looked_for: list[str] = []
        look = cell.store.queries.key_at_once

        async def noted(key: str) -> Any:
            looked_for.append(key)
            return await look(key)

        cell.store.queries.key_at_once = noted  # type: ignore[method-assign]
        await look_up_key(server.deps, "k", waits=False)
        assert looked_for == []
        await look_up_key(replace(server.deps, membership=None), "k", waits=False)
        assert looked_for == ["k"]
