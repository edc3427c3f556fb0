"""Followers: what they answer themselves, and what they forward to the leader."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from rota.api.limits import FORWARD_PATIENCE_MS
from rota.sdk.calls import uuid7
from tests.api.cluster_servers import SILENT_TTL_MS, Cell, a_cell
from tests.api.in_process_server import NOOP
from tests.engine.rig import until


async def test_a_write_through_a_follower_goes_to_the_leader_and_is_read_on_both() -> None:
    async with a_cell() as cell:
        leader, follower = await cell.pair()
        answer = await follower.http.post("/jobs", json={"name": "j", "task": NOOP})
        assert answer.status_code == 201
        assert answer.headers["rota-leader"] == leader.url
        path = answer.headers["location"]
        assert (await follower.ask("GET", path, expect=200))["status"] == "queued"
        assert (await leader.ask("GET", path, expect=200))["status"] == "queued"
        assert (await follower.ask("GET", f"{path}/why", expect=200))["cause"]["code"]
        assert "rota-leader" not in (await follower.http.get(path)).headers


async def test_a_forwarded_refusal_and_its_headers_come_back_once() -> None:
    async with a_cell() as cell:
        _, follower = await cell.pair()
        answer = await follower.http.put("/jobs/019a85bf-0000-7000-8000-000000000009/cancel")
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
        for name in ("content-security-policy", "cache-control", "date", "content-length"):
            assert len(answer.headers.get_list(name)) == 1, name


async def test_orders_reach_a_poll_held_by_a_follower() -> None:
    async with a_cell() as cell:
        leader, follower = await cell.pair()
        worker = await follower.register()
        poll = follower.lease(worker)
        await leader.polled()
        job = await follower.submit()
        (order,) = (await poll)["executions"]
        assert order["job_id"] == job["job_id"]
        body = {"status": "succeeded", "fence": order["fence"]}
        await follower.ask(
            "POST", f"/executions/{order['execution_id']}/complete", body, expect=200
        )
        assert (await follower.ask("GET", f"/jobs/{job['job_id']}"))["status"] == "succeeded"


async def test_a_poll_whose_worker_left_the_follower_is_closed_at_the_leader() -> None:
    async with a_cell() as cell:
        leader, follower = await cell.pair()
        worker = await follower.register()
        poll = follower.lease(worker)
        await leader.polled()
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)
        await until(lambda: not leader.engine._callers._polls)
        job = await follower.submit()
        assert (await leader.ask("GET", f"/jobs/{job['job_id']}"))["status"] == "queued"


@pytest.mark.parametrize("asked", ["second", "third"])
async def test_a_poll_through_a_follower_continues_with_the_next_leader(asked: str) -> None:
    async with a_cell() as cell:
        leader, second = await cell.pair()
        third = await cell.start("c", leads=False)
        await until(lambda: third.engine.standing().address == leader.url)
        through = second if asked == "second" else third
        worker = await through.register()
        poll = through.lease(worker)
        await leader.polled()
        await leader.crash()
        await until(lambda: second.engine.ready)
        await second.polled()
        job = await through.submit()
        (order,) = (await poll)["executions"]
        assert order["job_id"] == job["job_id"]


async def test_a_poll_stays_with_the_next_leader() -> None:
    async with a_cell() as cell:
        leader, second = await cell.pair()
        third = await cell.start("c", leads=False)
        await until(lambda: third.engine.standing().address == leader.url)
        poll = third.lease(await third.register())
        await leader.polled()
        succession = third.deps.forwarder._succession
        await succession.stop()  # as if all its looks came late
        await leader.crash()
        await second.polled()
        held = list(second.engine._callers._polls)
        succession.look()
        await third.ask("GET", "/queues", expect=200)
        assert list(second.engine._callers._polls) == held
        await third.submit()
        assert len((await poll)["executions"]) == 1


async def test_a_leader_that_is_frozen_does_not_hold_a_call_that_may_be_repeated() -> None:
    async with a_cell(SILENT_TTL_MS) as cell, silent_leader(cell) as heard:
        follower = await cell.start("b")
        asking = asyncio.create_task(follower.ask("GET", "/queues", expect=200))
        keyed = {"Idempotency-Key": "once"}
        putting = asyncio.create_task(
            follower.ask("PUT", "/queues/q", {}, expect=200, headers=keyed)
        )
        await until(lambda: len(heard) == 2)
        assert (await putting)["name"] == "q"
        await asking
        assert follower.engine.ready


@asynccontextmanager
async def silent_leader(cell: Cell) -> AsyncIterator[list[bytes]]:
    """Starts a leader that accepts requests and answers nothing; yields what it received."""
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readline())
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    await cell.store.journal.claim("ghost", None, f"http://127.0.0.1:{port}")
    try:
        yield heard
    finally:
        listener.close()


async def test_an_unanswered_write_without_a_key_is_not_sent_again() -> None:
    async with a_cell() as cell:
        leader, follower = await cell.pair()
        leader.store.journal.shut()
        asking = asyncio.create_task(follower.http.post("/workers/register", json={"name": "box"}))
        await leader.store.journal.reached()
        await leader.crash()
        answer = await asking
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert "may or may not have happened" in answer.json()["detail"]


async def test_a_submission_that_the_leader_did_not_answer_is_accepted_once() -> None:
    async with a_cell() as cell:
        leader, follower = await cell.pair()
        leader.store.journal.shut()
        asking = asyncio.create_task(follower.submit())
        await leader.store.journal.reached()
        job = await asking
        assert job["reason"] == "leaderless"
        # It was only slow: what it accepted after all is the same job, and runs once.
        leader.store.journal.let_go()
        await until(lambda: not cell.store.journal.inbox_size)
        listed = (await leader.ask("GET", "/jobs"))["items"]
        assert [one["job_id"] for one in listed] == [job["job_id"]]
        assert listed[0]["status"] == "queued"


async def test_a_submission_with_a_key_may_be_sent_to_two_servers_at_once() -> None:
    """Our clients do so when one server does not answer: their keys contain their time."""
    async with a_cell() as cell:
        leader, follower = await cell.pair()
        leader.store.journal.shut()
        key = {"Idempotency-Key": uuid7(leader.clock.now(), b"0123456789")}
        body = {"name": "j", "task": NOOP}
        asking = asyncio.create_task(leader.http.post("/jobs", json=body, headers=key))
        await leader.store.journal.reached()
        other = await follower.http.post("/jobs", json=body, headers=key)
        leader.store.journal.let_go()
        first = await asking
        assert first.status_code == other.status_code == 201
        assert first.json()["job_id"] == other.json()["job_id"]
        await until(lambda: not cell.store.journal.inbox_size)
        (listed,) = (await leader.ask("GET", "/jobs"))["items"]
        assert listed["status"] == "queued"


async def test_only_the_first_submission_waits_for_a_leader_that_accepts_nothing() -> None:
    async with a_cell() as cell, silent_leader(cell) as heard:
        follower = await cell.start("f")
        await follower.submit()
        await follower.submit()
        assert sum(line.startswith(b"POST /jobs ") for line in heard) == 1


async def test_a_dry_run_is_not_accepted_as_a_submission() -> None:
    async with a_cell() as cell:
        leader, follower = await cell.pair()
        body = {"name": "j", "task": NOOP}
        foreseen = await follower.http.post("/jobs", params={"dry_run": "true"}, json=body)
        assert foreseen.status_code == 200
        assert (await leader.ask("GET", "/jobs"))["items"] == []


async def test_a_submission_with_dry_run_false_is_accepted_when_the_leader_stops() -> None:
    async with a_cell() as cell:
        leader, follower = await cell.pair()
        leader.store.journal.shut()
        body = {"name": "j", "task": NOOP}
        asking = asyncio.create_task(follower.http.post("/jobs?dry_run=false", json=body))
        await leader.store.journal.reached()
        await leader.crash()
        assert (await asking).status_code == 201


async def test_a_leader_that_no_other_server_reaches_steps_down() -> None:
    async with a_cell() as cell:
        leader, follower = await cell.pair()
        third = await cell.start("third")
        for other in (follower, third):
            await until(lambda other=other: other.cluster.reach.met == leader.engine.epoch)
        leader.go_deaf()
        await until(lambda: not leader.engine.ready)
        await until(lambda: follower.engine.ready or third.engine.ready)


async def test_a_leader_that_one_server_reaches_continues_to_lead() -> None:
    async with a_cell() as cell:
        leader, follower = await cell.pair()
        await cell.start("third")
        await follower.cluster.membership.report_unreachable(leader.engine.epoch)
        await leader.cluster.membership.check_reachability()
        await follower.submit()
        assert leader.engine.ready


async def test_a_stopping_server_does_not_wait_for_a_new_leader() -> None:
    async with a_cell() as cell:
        leader, _ = await cell.pair()
        leader.deps.closing.set()
        await leader.engine.stop()
        keyed = {"Idempotency-Key": "once"}
        async with asyncio.timeout(FORWARD_PATIENCE_MS / 1000 / 2):
            answer = await leader.http.put("/queues/q", json={}, headers=keyed)
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"


async def test_a_forwarded_call_is_not_forwarded_again() -> None:
    async with a_cell() as cell:
        _, follower = await cell.pair()
        answer = await follower.http.get("/queues", headers={"Rota-Forwarded": "somebody"})
        assert (answer.status_code, answer.headers["rota-forwarded"]) == (503, "refused")
        assert answer.json()["type"].endswith("not_leader")
        assert answer.headers["retry-after"] == "1"


async def test_a_browser_signed_in_at_a_follower_asks_the_leader_through_it() -> None:
    async with a_cell() as cell:
        _, follower = await cell.pair()
        signed_in = await follower.http.post("/session")
        name, _, value = signed_in.headers["set-cookie"].partition(";")[0].partition("=")
        assert name.endswith(follower.host.rpartition(":")[2])
        async with httpx2.AsyncClient(base_url=follower.url, cookies={name: value}) as browser:
            assert (await browser.get("/stats")).status_code == 200
            own = {"Origin": follower.url, "Sec-Fetch-Site": "same-origin"}
            put = await browser.put("/queues/q", json={}, headers=own)
            assert put.status_code == 200, put.text
            other = {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
            assert (await browser.put("/queues/q", json={}, headers=other)).status_code == 403


async def test_a_follower_forwards_a_file_in_pieces() -> None:
    async with a_cell() as cell:
        _, follower = await cell.pair()
        worker = await follower.register()
        await follower.submit()
        (order,) = (await follower.lease(worker))["executions"]
        path = f"/executions/{order['execution_id']}/artifacts/out.bin"
        piece = bytes(range(256)) * 256

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(40):
                yield piece

        sent = await follower.http.put(path, content=pieces())
        assert sent.status_code == 200, sent.text
        assert sent.json()["size"] == 40 * len(piece)
        fetched = await follower.http.get(path)
        assert fetched.content == piece * 40


async def test_logs_sent_to_the_leader_are_followed_through_a_follower() -> None:
    async with a_cell() as cell:
        leader, follower = await cell.pair()
        worker = await leader.register()
        job = await leader.submit()
        (order,) = (await leader.lease(worker))["executions"]
        logs = f"/executions/{order['execution_id']}/logs"
        follow = f"/jobs/{job['job_id']}/logs?follow=true"
        async with follower.http.stream("GET", follow) as reading:
            text = reading.aiter_text()
            await leader.http.post(logs, content=b"one\n")
            assert await anext(text) == "one\n"
            done = {"status": "succeeded", "fence": order["fence"]}
            await leader.ask("POST", f"/executions/{order['execution_id']}/complete", done)
            assert [piece async for piece in text] == []


async def test_a_followers_stream_shows_the_leaders_changes_and_can_be_resumed_elsewhere() -> None:
    async with a_cell() as cell:
        leader, follower = await cell.pair()
        async with follower.http.stream("GET", "/stream") as reading:
            lines = reading.aiter_lines()
            first = await leader.submit("first")
            seen = await _event(lines)
            while seen["data"]["id"] != first["job_id"]:
                seen = await _event(lines)
        second = await follower.submit("second")
        resumed = {"Last-Event-ID": seen["id"]}
        async with leader.http.stream("GET", "/stream", headers=resumed) as reading:
            lines = reading.aiter_lines()
            seen = await _event(lines)
            assert seen["data"]["id"] == second["job_id"]


async def _event(lines: AsyncIterator[str]) -> dict[str, Any]:
    event: dict[str, Any] = {}
    async for line in lines:
        if line.startswith("id: "):
            event["id"] = line[4:]
        elif line.startswith("data: "):
            event["data"] = json.loads(line[6:])
        elif not line and "data" in event:
            return event
    raise AssertionError("the stream has ended")


async def test_leader_and_follower_are_ready_and_show_their_role() -> None:
    async with a_cell() as cell:
        leader, follower = await cell.pair()
        assert (await leader.ask("GET", "/readyz", expect=200))["role"] == "leader"
        shown = await follower.ask("GET", "/readyz", expect=200)
        assert (shown["role"], shown["detail"]) == ("follower", "a leads")


async def test_every_server_shows_the_same_cluster() -> None:
    async with a_cell() as cell:
        leader, follower = await cell.pair()
        await leader.submit()
        for server in (leader, follower):
            await server.deps.membership.announce()  # type: ignore[union-attr]
        views = [await server.ask("GET", "/cluster", expect=200) for server in cell.servers]
        for view in views:
            assert (view["leader"], view["durability"], view["warnings"]) == ("a", "single", [])
            roles = {node["node"]: (node["role"], node["address"]) for node in view["nodes"]}
            assert roles == {"a": ("leader", leader.url), "b": ("follower", follower.url)}
        assert views[0]["epoch"] == views[1]["epoch"] >= 1


async def test_a_follower_does_not_expose_the_cells_metrics() -> None:
    async with a_cell() as cell:
        leader, follower = await cell.pair()
        await follower.submit()
        shown, others = [(await one.http.get("/metrics")).text for one in (leader, follower)]
        assert "rota_jobs_submitted_total 1.0" in shown
        assert "rota_leader 1.0" in shown
        for name in ("rota_jobs_submitted_total", "rota_jobs{", "rota_workers", "rota_fold_lag"):
            assert name not in others
        assert "rota_leader 0.0" in others
        assert "rota_standby_lag_records" in others
        assert 'rota_durability_level{level="single"} 1.0' in others


async def test_a_forwarded_call_is_audited_with_the_clients_own_address() -> None:
    async with a_cell() as cell:
        leader, follower = await cell.pair()
        async with _from("127.0.0.2", follower.url, follower.http.headers) as elsewhere:
            await elsewhere.post("/jobs", json={"name": "j", "task": NOOP})
        (entry,) = (await leader.ask("GET", "/audit", expect=200))["items"]
        assert (entry["remote"], entry["node"], entry["route"]) == ("127.0.0.2", "a", "/jobs")
        assert (await follower.ask("GET", "/audit", expect=200))["items"] == [entry]


def _from(address: str, url: str, headers: httpx2.Headers) -> httpx2.AsyncClient:
    transport = httpx2.AsyncHTTPTransport(local_address=address)
    return httpx2.AsyncClient(base_url=url, headers=headers, transport=transport)
