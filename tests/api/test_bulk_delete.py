"""Deleting many jobs in one action, members of arrays among them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.in_process_server import InProcessServer


async def _array(house: InProcessServer, worker: str, size: int) -> str:
    """Of the members that the worker has room for every second fails."""
    array = await house.submit("render", count=size)
    for place, order in enumerate((await house.lease(worker))["executions"]):
        await house.finish(order, "failed" if place % 2 else "succeeded")
    return str(array["job_id"])


async def _delete_of_group(house: InProcessServer, reason: str = "error") -> dict[str, Any]:
    """What the dashboard's button sends for a group of dead letters."""
    groups = (await house.ask("GET", "/dead-letters/groups", expect=200))["items"]
    (group,) = [one for one in groups if one["reason"] == reason]
    wanted = {"status": "failed", "name": group["name"], "fingerprint": group["fingerprint"]}
    return {"action": "delete", "filter": wanted, "limit": 200}


async def _ids(house: InProcessServer) -> list[str]:
    return [one["job_id"] for one in (await house.ask("GET", "/jobs"))["items"]]


async def test_members_of_a_live_array_are_not_deleted_and_the_reason_is_given(
    house: InProcessServer,
) -> None:
    worker = await house.register(cpu=4)
    await _array(house, worker, size=8)
    before, delete = await _ids(house), await _delete_of_group(house)
    foreseen = await house.ask("POST", "/jobs/bulk", delete | {"dry_run": True}, expect=200)
    answer = await house.ask("POST", "/jobs/bulk", delete, expect=200)
    for told in (foreseen, answer):
        assert (told["count"], told["refused"]) == (0, 2)
        ((reason, count),) = told["reasons"].items()
        assert count == 2
        assert reason.startswith("job … is a member of …, which is running: ")
    assert await _ids(house) == before


async def test_jobs_that_cannot_be_deleted_do_not_use_up_the_limit(
    house: InProcessServer,
) -> None:
    worker = await house.register(cpu=4)
    await _array(house, worker, size=4)
    await _array(house, worker, size=8)
    delete = await _delete_of_group(house) | {"limit": 1}
    answers = [await house.ask("POST", "/jobs/bulk", delete, expect=200) for _ in range(3)]
    assert [one["count"] for one in answers] == [1, 1, 0]
    assert [one["more"] for one in answers] == [True, False, False]
    assert {one["refused"] for one in answers} == {2}


async def test_members_of_a_live_array_do_not_use_up_the_limit(
    house: InProcessServer,
) -> None:
    worker = await house.register(cpu=4)
    order = await house.start(worker, name="old")
    await house.finish(order, "failed")
    await _array(house, worker, size=8)
    wanted = {"status": ["running", "failed"]}
    delete = {"action": "delete", "filter": wanted, "limit": 1}
    answer = await house.ask("POST", "/jobs/bulk", delete, expect=200)
    assert answer["count"] == 1
    assert order["job_id"] not in await _ids(house)


async def test_a_bulk_delete_passes_over_a_limited_number_of_jobs(house: InProcessServer) -> None:
    house.limit(bulk_page=2, bulk_refused_max=2)
    worker = await house.register(cpu=8)
    await _array(house, worker, size=16)
    delete = await _delete_of_group(house)
    answer = await house.ask("POST", "/jobs/bulk", delete, expect=200)
    assert (answer["count"], answer["refused"], answer["more"]) == (0, 2, True)
    whole = {"action": "delete", "filter": delete["filter"]}
    answer = await house.ask("POST", "/jobs/bulk", whole, expect=200)
    assert (answer["refused"], answer["more"]) == (4, False)


@pytest.mark.parametrize("page", [2, 100])
async def test_deleting_arrays_in_bulk_deletes_their_members(
    house: InProcessServer, page: int
) -> None:
    house.limit(bulk_page=page)
    worker = await house.register(cpu=4)
    await _array(house, worker, size=4)
    other = (await house.submit("other"))["job_id"]
    delete = await _delete_of_group(house, "members")
    answer = await house.ask("POST", "/jobs/bulk", delete, expect=200)
    assert (answer["count"], answer["refused"], answer["reasons"]) == (1, 0, {})
    assert await _ids(house) == [other]


@pytest.mark.parametrize("page", [2, 100])
async def test_an_array_and_its_members_are_counted_once_each(
    house: InProcessServer, page: int
) -> None:
    house.limit(bulk_page=page)
    worker = await house.register(cpu=4)
    await _array(house, worker, size=4)
    delete = {"action": "delete", "filter": {"name": "render"}}
    answer = await house.ask("POST", "/jobs/bulk", delete, expect=200)
    assert (answer["count"], answer["refused"]) == (5, 0)
    assert await _ids(house) == []


async def test_a_running_job_is_refused_with_a_reason(house: InProcessServer) -> None:
    job = (await house.submit("other"))["job_id"]
    delete = {"action": "delete", "filter": {"job_ids": [job], "status": "queued"}}
    answer = await house.ask("POST", "/jobs/bulk", delete, expect=200)
    assert answer["reasons"] == {"job … is queued: cancel it first, or delete it with force": 1}
