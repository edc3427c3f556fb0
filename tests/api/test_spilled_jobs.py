"""Spilled jobs behave like all others for clients."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rota.core.commands import MemoryWindow, Timing
from tests.api.in_process_server import InProcessServer, open_server

WAITING = 12
DAMAGE = """
UPDATE jobs SET spec = CAST(substr(spec, 1, length(spec) - 1) || x'ff' AS BLOB) WHERE id = ?
"""


@pytest.fixture
async def server() -> AsyncIterator[InProcessServer]:
    """Twelve jobs wait in queue `q`, and the first three of them are in memory."""
    async with open_server(
        timing=Timing(window=MemoryWindow(jobs=3, fifo_group=2, refill=2))
    ) as opened:
        for number in range(WAITING):
            await opened.submit(f"j{number:02}", queue="q", payload={"number": number})
        assert opened.engine._ready_scheduler().live_jobs() == 3
        yield opened


async def listed(server: InProcessServer, **wanted: str) -> list[dict[str, Any]]:
    """Lists jobs, by name."""
    page = await server.ask("GET", "/jobs", params=wanted, expect=200)
    return sorted(page["items"], key=lambda job: str(job["name"]))


async def run_all(server: InProcessServer) -> list[str]:
    """Runs all jobs, one at a time."""
    worker = await server.register(cpu=1)
    ran: list[str] = []
    while orders := (await server.lease(worker, max=1))["executions"]:
        ran += [order["name"] for order in orders]
        assert orders[0]["payload"] or orders[0]["name"] == "child"
        await server.finish(orders[0])
    return ran


async def test_spilled_jobs_are_counted_and_listed_as_queued(server: InProcessServer) -> None:
    assert len(await listed(server, queue="q", status="queued")) == WAITING
    queue = await server.ask("GET", "/queues/q", expect=200)
    assert queue["depth"]["queued"] == WAITING
    assert (await server.ask("GET", "/stats", expect=200))["jobs"]["queued"] == WAITING
    metrics = (await server.http.get("/metrics")).text
    assert f'rota_jobs{{queue="q",status="queued"}} {WAITING}.0' in metrics


async def test_spilled_jobs_show_why_they_wait(server: InProcessServer) -> None:
    await server.register(cpu=1)
    last = (await listed(server))[-1]["job_id"]
    why = await server.ask("GET", f"/jobs/{last}/why", expect=200)
    causes = {cause["code"]: cause for cause in (why["cause"], *why["others"])}
    assert causes["order"]["figures"]["alike"] == WAITING - 1


async def test_spilled_jobs_run_in_order_with_their_payloads(server: InProcessServer) -> None:
    assert await run_all(server) == [f"j{number:02}" for number in range(WAITING)]


async def test_spilled_jobs_can_be_cancelled_changed_deleted_and_depended_on(
    server: InProcessServer,
) -> None:
    jobs = [job["job_id"] for job in await listed(server)]
    await server.ask("PUT", f"/jobs/{jobs[8]}/cancel", expect=200)
    await server.ask("DELETE", f"/jobs/{jobs[9]}", expect=409)
    await server.ask("DELETE", f"/jobs/{jobs[9]}?force=true", expect=204)
    changed = await server.ask("PATCH", f"/jobs/{jobs[10]}", {"priority": 5}, expect=200)
    assert changed["payload"] == {"number": 10}
    await server.submit("child", queue="q", dependencies=[jobs[11]])
    await server.ask("POST", f"/jobs/{jobs[7]}/retry", expect=409)
    rest = [f"j{number:02}" for number in range(8)]
    assert await run_all(server) == ["j10", *rest, "j11", "child"]


async def test_a_spilled_job_can_run_on_a_named_worker(server: InProcessServer) -> None:
    worker = await server.register(cpu=1)
    last = (await listed(server))[-1]["job_id"]
    await server.ask("POST", f"/jobs/{last}/execute", {"worker_id": worker}, expect=201)
    (order,) = (await server.lease(worker))["executions"]
    assert order["payload"] == {"number": WAITING - 1}


async def test_a_bulk_action_reaches_spilled_jobs(server: InProcessServer) -> None:
    body = {"action": "cancel", "filter": {"queue": "q"}}
    answer = await server.ask("POST", "/jobs/bulk", body, expect=200)
    assert answer["count"] == WAITING
    assert len(await listed(server, status="cancelled")) == WAITING


@pytest.mark.parametrize(("page", "piece"), [(500, 2000), (4, 1)])
async def test_a_purge_cancels_spilled_jobs_and_counts_each_once(
    server: InProcessServer, page: int, piece: int
) -> None:
    server.limit(purge_page=page, purge_piece=piece)
    elsewhere = await server.submit("elsewhere")
    key = {"Idempotency-Key": "purge-1"}
    purge = "/queues/q/purge"
    assert await server.ask("POST", purge, headers=key, expect=200) == {"count": WAITING}
    assert len(await listed(server, status="cancelled", queue="q")) == WAITING
    await server.submit("later", queue="q")
    assert await server.ask("POST", purge, headers=key, expect=200) == {"count": WAITING}
    assert [job["name"] for job in await listed(server, status="queued")] == ["elsewhere", "later"]
    assert (await server.ask("GET", f"/jobs/{elsewhere['job_id']}"))["status"] == "queued"


@pytest.mark.parametrize("damaged", [("j05",), ("j11",), ("j03", "j04", "j05", "j10", "j11")])
async def test_damaged_spilled_jobs_are_refused_and_all_others_run(
    server: InProcessServer, damaged: tuple[str, ...]
) -> None:
    ids = {job["name"]: job["job_id"] for job in await listed(server)}
    connection = server.store.journal.connection
    for name in damaged:
        connection.execute(DAMAGE, (ids[name],))
    assert {job["name"] for job in await listed(server)} == {*ids} - {*damaged}
    for name in damaged:
        for method, path in (("GET", ""), ("GET", "/why"), ("PUT", "/cancel"), ("DELETE", "")):
            found = await server.ask(method, f"/jobs/{ids[name]}{path}", expect=500)
            assert found["type"].endswith("store_damaged")
            assert f"job {ids[name]} is damaged" in found["detail"]
            assert "`rota doctor`" in found["detail"]
    assert await run_all(server) == sorted({*ids} - {*damaged})
    server.engine._ready_scheduler().check()
    queue = await server.ask("GET", "/queues/q", expect=200)
    assert queue["depth"]["queued"] == 0
