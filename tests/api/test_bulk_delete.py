"""Deleting many jobs in one action, members of arrays among them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.in_process_server import InProcessServer


async def _array(server: InProcessServer, worker: str, size: int) -> str:
    """Submits an array; every second of the members that the worker can run fails."""
    array = await server.submit("render", count=size)
    for place, order in enumerate((await server.lease(worker))["executions"]):
        await server.finish(order, "failed" if place % 2 else "succeeded")
    return str(array["job_id"])


async def _delete_of_group(server: InProcessServer, reason: str = "error") -> dict[str, Any]:
    """Sends what the dashboard's button sends for a group of dead letters."""
    groups = (await server.ask("GET", "/dead-letters/groups", expect=200))["items"]
    (group,) = [one for one in groups if one["reason"] == reason]
    wanted = {"status": "failed", "name": group["name"], "fingerprint": group["fingerprint"]}
    return {"action": "delete", "filter": wanted, "limit": 200}


async def _ids(server: InProcessServer) -> list[str]:
    return [one["job_id"] for one in (await server.ask("GET", "/jobs"))["items"]]


async def test_members_of_a_live_array_are_not_deleted_and_the_reason_is_given(
    server: InProcessServer,
) -> None:
    worker = await server.register(cpu=4)
    await _array(server, worker, size=8)
    before, delete = await _ids(server), await _delete_of_group(server)
    foreseen = await server.ask("POST", "/jobs/bulk", delete | {"dry_run": True}, expect=200)
    answer = await server.ask("POST", "/jobs/bulk", delete, expect=200)
    for shown in (foreseen, answer):
        assert (shown["count"], shown["refused"]) == (0, 2)
        ((reason, count),) = shown["reasons"].items()
        assert count == 2
        assert reason.startswith("job … is a member of …, which is running: ")
    assert await _ids(server) == before


async def test_jobs_that_cannot_be_deleted_do_not_use_up_the_limit(
    server: InProcessServer,
) -> None:
    worker = await server.register(cpu=4)
    await _array(server, worker, size=4)
    await _array(server, worker, size=8)
    delete = await _delete_of_group(server) | {"limit": 1}
    answers = [await server.ask("POST", "/jobs/bulk", delete, expect=200) for _ in range(3)]
    assert [one["count"] for one in answers] == [1, 1, 0]
    assert [one["more"] for one in answers] == [True, False, False]
    assert {one["refused"] for one in answers} == {2}


async def test_members_of_a_live_array_do_not_use_up_the_limit(
    server: InProcessServer,
) -> None:
    worker = await server.register(cpu=4)
    order = await server.start(worker, name="old")
    await server.finish(order, "failed")
    await _array(server, worker, size=8)
    wanted = {"status": ["running", "failed"]}
    delete = {"action": "delete", "filter": wanted, "limit": 1}
    answer = await server.ask("POST", "/jobs/bulk", delete, expect=200)
    assert answer["count"] == 1
    assert order["job_id"] not in await _ids(server)


async def test_a_bulk_delete_passes_over_a_limited_number_of_jobs(server: InProcessServer) -> None:
    server.limit(bulk_page=2, bulk_refused_max=2)
    worker = await server.register(cpu=8)
    await _array(server, worker, size=16)
    delete = await _delete_of_group(server)
    answer = await server.ask("POST", "/jobs/bulk", delete, expect=200)
    assert (answer["count"], answer["refused"], answer["more"]) == (0, 2, True)
    whole = {"action": "delete", "filter": delete["filter"]}
    answer = await server.ask("POST", "/jobs/bulk", whole, expect=200)
    assert (answer["refused"], answer["more"]) == (4, False)


@pytest.mark.parametrize("page", [2, 100])
async def test_deleting_arrays_in_bulk_deletes_their_members(
    server: InProcessServer, page: int
) -> None:
    server.limit(bulk_page=page)
    worker = await server.register(cpu=4)
    await _array(server, worker, size=4)
    other = (await server.submit("other"))["job_id"]
    delete = await _delete_of_group(server, "members")
    answer = await server.ask("POST", "/jobs/bulk", delete, expect=200)
    assert (answer["count"], answer["refused"], answer["reasons"]) == (1, 0, {})
    assert await _ids(server) == [other]


@pytest.mark.parametrize("page", [2, 100])
async def test_an_array_and_its_members_are_counted_once_each(
    server: InProcessServer, page: int
) -> None:
    server.limit(bulk_page=page)
    worker = await server.register(cpu=4)
    await _array(server, worker, size=4)
    delete = {"action": "delete", "filter": {"name": "render"}}
    answer = await server.ask("POST", "/jobs/bulk", delete, expect=200)
    assert (answer["count"], answer["refused"]) == (5, 0)
    assert await _ids(server) == []


async def test_a_running_job_is_refused_with_a_reason(server: InProcessServer) -> None:
    job = (await server.submit("other"))["job_id"]
    delete = {"action": "delete", "filter": {"job_ids": [job], "status": "queued"}}
    answer = await server.ask("POST", "/jobs/bulk", delete, expect=200)
    assert answer["reasons"] == {"job … is queued: cancel it first, or delete it with force": 1}
