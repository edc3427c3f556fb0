from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.api.in_process_server import InProcessServer


async def members(server: InProcessServer, array_id: str, query: str = "") -> list[dict[str, Any]]:
    page = await server.ask("GET", f"/jobs?array={array_id}&limit=1000{query}", expect=200)
    return list(page["items"])


async def test_an_array_is_one_job_with_a_count_of_its_members(server: InProcessServer) -> None:
    job = await server.submit("render", count=5, max_parallel=2)
    assert job["status"] == "queued"
    assert job["array"] == {
        "count": 5,
        "max_parallel": 2,
        "queued": 5,
        "running": 0,
        "succeeded": 0,
        "failed": 0,
        "cancelled": 0,
    }
    assert await members(server, job["job_id"]) == []
    page = await server.ask("GET", "/jobs", expect=200)
    assert [one["job_id"] for one in page["items"]] == [job["job_id"]]


async def test_an_order_says_which_member_it_runs(server: InProcessServer) -> None:
    box = await server.register(cpu=2)
    array = await server.submit("render", count=3, payload={"film": 7})
    orders = (await server.lease(box))["executions"]
    assert [order["array"]["index"] for order in orders] == [0, 1]
    assert orders[0]["array"] == {"array_id": array["job_id"], "index": 0, "count": 3}
    assert all(order["payload"] == {"film": 7} for order in orders)
    first = await server.ask("GET", f"/jobs/{orders[0]['job_id']}", expect=200)
    assert (first["array_id"], first["array_index"]) == (array["job_id"], 0)
    assert (first["name"], first["status"]) == ("render", "running")


async def test_members_are_listed_by_index_and_the_array_counts_them(
    server: InProcessServer,
) -> None:
    box = await server.register(cpu=3)
    array = (await server.submit("render", count=3))["job_id"]
    other = (await server.submit("other", count=2))["job_id"]
    orders = (await server.lease(box))["executions"]
    await server.finish(orders[0])
    await server.finish(orders[2], "failed")
    found = await members(server, array)
    assert [one["array_index"] for one in found] == [2, 1, 0]
    assert [one["status"] for one in found] == ["failed", "running", "succeeded"]
    assert [one["array_index"] for one in await members(server, array, "&status=failed")] == [2]
    view = await server.ask("GET", f"/jobs/{array}", expect=200)
    assert view["array"]["succeeded"] == view["array"]["failed"] == 1
    assert view["progress"] == pytest.approx(2 / 3)
    await server.finish(orders[1])
    ended = await server.ask("GET", f"/jobs/{array}", expect=200)
    assert (ended["status"], ended["progress"]) == ("failed", 1.0)
    assert await members(server, other) == []


async def test_a_retry_of_an_array_runs_only_its_failed_members(server: InProcessServer) -> None:
    box = await server.register(cpu=4)
    array = (await server.submit("render", count=4))["job_id"]
    orders = (await server.lease(box))["executions"]
    for order, status in zip(orders, ("succeeded", "failed", "succeeded", "failed"), strict=True):
        await server.finish(order, status)
    again = await server.ask("POST", f"/jobs/{array}/retry", expect=200)
    assert (again["array"]["succeeded"], again["array"]["queued"]) == (2, 2)
    orders = (await server.lease(box))["executions"]
    assert [order["array"]["index"] for order in orders] == [1, 3]
    for order in orders:
        await server.finish(order)
    assert (await server.ask("GET", f"/jobs/{array}", expect=200))["status"] == "succeeded"
    refused = await server.ask("POST", f"/jobs/{orders[0]['job_id']}/retry", expect=409)
    assert refused["status"] == 409


async def test_deleting_an_array_deletes_its_members(server: InProcessServer) -> None:
    box = await server.register(cpu=4)
    array = (await server.submit("render", count=3))["job_id"]
    for order in (await server.lease(box))["executions"]:
        await server.finish(order)
    await server.ask("DELETE", f"/jobs/{array}", expect=204)
    assert await members(server, array) == []
    assert (await server.ask("GET", "/jobs", expect=200))["items"] == []


async def test_a_live_array_is_deleted_by_force_with_its_finished_members(
    server: InProcessServer,
) -> None:
    box = await server.register(cpu=2)
    array = (await server.submit("render", count=9))["job_id"]
    first, second = (await server.lease(box))["executions"]
    await server.finish(first)
    await server.ask("DELETE", f"/jobs/{array}", expect=409)
    await server.ask("DELETE", f"/jobs/{array}?force=true", expect=202)
    await server.finish(second, "cancelled")
    assert (await server.ask("GET", "/jobs", expect=200))["items"] == []


async def test_an_array_is_cancelled_as_one(server: InProcessServer) -> None:
    box = await server.register(cpu=1)
    array = (await server.submit("render", count=1000))["job_id"]
    (order,) = (await server.lease(box))["executions"]
    view = await server.ask("PUT", f"/jobs/{array}/cancel", expect=200)
    assert (view["status"], view["array"]["cancelled"]) == ("cancelling", 999)
    assert order["execution_id"] in (await server.lease(box))["cancel"]
    await server.finish(order, "cancelled")
    view = await server.ask("GET", f"/jobs/{array}", expect=200)
    assert (view["status"], view["array"]["cancelled"]) == ("cancelled", 1000)


async def test_an_array_is_patched_as_one(server: InProcessServer) -> None:
    box = await server.register(cpu=1)
    array = (await server.submit("render", count=10))["job_id"]
    view = await server.ask("PATCH", f"/jobs/{array}", {"count": 12}, expect=200)
    assert view["array"]["count"] == 12
    await server.lease(box)
    view = await server.ask(
        "PATCH", f"/jobs/{array}", {"priority": 9, "max_parallel": 1}, expect=200
    )
    assert (view["priority"], view["array"]["max_parallel"]) == (9, 1)
    await server.ask("PATCH", f"/jobs/{array}", {"count": 20}, expect=409)
    await server.ask("PATCH", f"/jobs/{array}", {"count": None, "max_parallel": None}, expect=422)
    (member,) = await members(server, array)
    await server.ask("PATCH", f"/jobs/{member['job_id']}", {"priority": 1}, expect=409)


async def test_why_of_an_array_counts_its_waiting_members_by_cause(server: InProcessServer) -> None:
    box = await server.register(cpu=8)
    array = (await server.submit("render", count=10, max_parallel=2))["job_id"]
    await server.lease(box)
    why = await server.ask("GET", f"/jobs/{array}/why", expect=200)
    assert why["cause"]["code"] == "max_parallel"
    figures = {one["code"]: one["figures"] for one in why["others"]}["members"]
    assert (figures["waiting"], figures["running"]) == (8, 2)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"count": 0}, "count"),
        ({"count": 1_000_001}, "count"),
        ({"max_parallel": 2}, "max_parallel"),
        ({"count": 2, "gang": {"size": 2}}, "gang"),
        ({"gang": {"size": 1}}, "gang.size"),
        ({"gang": {"size": 1_001}}, "gang.size"),
    ],
)
async def test_an_invalid_array_or_gang_is_refused(
    server: InProcessServer, fields: dict[str, Any], field: str
) -> None:
    body = {"name": "j", "task": {"kind": "noop"}, **fields}
    refused = await server.ask("POST", "/jobs", body, expect=422)
    assert [one["field"] for one in refused["errors"]] == [field]
    refused = await server.ask("POST", "/jobs/batch", {"jobs": [body]}, expect=422)
    assert [one["field"] for one in refused["errors"]] == [f"jobs[0].{field}"]


async def test_a_batch_may_have_arrays_and_jobs_that_depend_on_them(
    server: InProcessServer,
) -> None:
    body = {
        "jobs": [
            {"name": "part", "task": {"kind": "noop"}, "count": 2, "ref": "parts"},
            {"name": "sum", "task": {"kind": "noop"}, "dependencies": ["ref:parts"]},
        ]
    }
    answer = await server.ask("POST", "/jobs/batch", body, expect=201)
    box = await server.register(cpu=2)
    for order in (await server.lease(box))["executions"]:
        await server.finish(order)
    (order,) = (await server.lease(box))["executions"]
    assert order["job_id"] == answer["job_ids"][1]


async def test_a_gang_starts_as_a_whole_and_its_members_know_each_other(
    server: InProcessServer,
) -> None:
    left = await server.register("left", cpu=1)
    gang = await server.submit("mpi", gang={"size": 2})
    assert gang["gang"]["queued"] == 2
    assert (await server.lease(left, wait=0))["executions"] == []
    why = await server.ask("GET", f"/jobs/{gang['job_id']}/why", expect=200)
    assert why["cause"]["message"].startswith("gang short by 1 member")
    right = await server.register("right", cpu=1)
    task = asyncio.ensure_future(server.lease(left, wait=5))
    orders: list[dict[str, Any]] = []
    while not orders:
        orders = (await server.lease(right, wait=0.2))["executions"]
    orders += (await task)["executions"]
    ranks = sorted((order["gang"] for order in orders), key=lambda one: one["index"])
    assert [one["index"] for one in ranks] == [0, 1]
    assert sorted(ranks[0]["hosts"]) == ["left", "right"]
    assert ranks[0]["gang_id"] == gang["job_id"]
    assert len(await members(server, gang["job_id"])) == 2
    for order in orders:
        await server.finish(order)
    view = await server.ask("GET", f"/jobs/{gang['job_id']}", expect=200)
    assert (view["status"], view["gang"]["succeeded"]) == ("succeeded", 2)


async def test_a_schedule_may_make_arrays(server: InProcessServer) -> None:
    job = {"name": "nightly", "task": {"kind": "noop"}, "count": 3}
    body = {"name": "n", "cron": "0 3 * * *", "overlap": "queue", "job": job}
    schedule = await server.ask("POST", "/schedules", body, expect=201)
    assert schedule["job"]["count"] == 3
    run = await server.ask("POST", f"/schedules/{schedule['schedule_id']}/trigger", expect=201)
    box = await server.register(cpu=4)
    orders = (await server.lease(box))["executions"]
    assert [order["array"]["index"] for order in orders] == [0, 1, 2]
    for order in orders:
        await server.finish(order)
    view = await server.ask("GET", f"/jobs/{run['job_id']}", expect=200)
    assert view["status"] == "succeeded"
