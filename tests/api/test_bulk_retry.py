"""A retry of many jobs that depend on each other, in one action."""

from __future__ import annotations

from typing import Any

import pytest

from rota.api.bulk_order import Act, Latecomers
from tests.api.house import NOOP, House

LABELS = {"dag": "night"}
AGAIN = {"action": "retry", "filter": {"labels": LABELS}}


async def _submit(house: House, *dependencies: list[str]) -> list[str]:
    """A batch of jobs, each named by its place in it."""
    jobs = [
        {
            "name": f"j{place}",
            "task": NOOP,
            "ref": str(place),
            "labels": LABELS,
            "dependencies": [f"ref:{one}" for one in above],
        }
        for place, above in enumerate(dependencies)
    ]
    answer = await house.ask("POST", "/jobs/batch", {"jobs": jobs}, expect=201)
    return list(answer["job_ids"])


async def _states(house: House, job_ids: list[str]) -> list[str]:
    return [(await house.ask("GET", f"/jobs/{one}"))["status"] for one in job_ids]


async def _fail_next(house: House, worker: str) -> None:
    for order in (await house.lease(worker))["executions"]:
        await house.finish(order, "failed")


async def _names_in_order(house: House, worker: str) -> list[list[str]]:
    """What runs together, poll after poll, until nothing is left."""
    rounds: list[list[str]] = []
    while orders := (await house.lease(worker, wait=0.05))["executions"]:
        rounds.append(sorted(order["name"] for order in orders))
        for order in orders:
            await house.finish(order)
    return rounds


async def test_what_was_skipped_waits_for_the_job_that_failed(house: House) -> None:
    worker = await house.register()
    jobs = await _submit(house, [], ["0"], ["1"])
    await _fail_next(house, worker)
    assert await _states(house, jobs) == ["failed", "skipped", "skipped"]
    answer = await house.ask("POST", "/jobs/bulk", AGAIN, expect=200)
    assert (answer["count"], answer["refused"]) == (3, 0)
    assert await _names_in_order(house, worker) == [["j0"], ["j1"], ["j2"]]


async def test_a_graph_that_was_cancelled_runs_in_its_order_again(house: House) -> None:
    jobs = await _submit(house, [], ["0"], ["0"], ["1", "2"])
    await house.ask("POST", "/jobs/bulk", {**AGAIN, "action": "cancel"}, expect=200)
    assert await _states(house, jobs) == ["cancelled"] * 4
    assert (await house.ask("POST", "/jobs/bulk", AGAIN, expect=200))["count"] == 4
    order = await _names_in_order(house, await house.register())
    assert order == [["j0"], ["j1", "j2"], ["j3"]]


async def test_it_does_not_matter_in_which_order_they_were_submitted(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.api.bulk.BULK_PAGE", 2)
    monkeypatch.setattr("rota.api.bulk_order.BULK_PAGE", 2)
    await _submit(house, ["1"], ["2"], ["3"], ["4"], [])
    await house.ask("POST", "/jobs/bulk", {**AGAIN, "action": "cancel"}, expect=200)
    await house.ask("POST", "/jobs/bulk", AGAIN, expect=200)
    order = await _names_in_order(house, await house.register())
    assert order == [["j4"], ["j3"], ["j2"], ["j1"], ["j0"]]


async def test_what_waits_for_a_job_that_is_not_meant_goes_on_as_one_does_alone(
    house: House,
) -> None:
    worker = await house.register()
    jobs = await _submit(house, [], ["0"], ["1"])
    await _fail_next(house, worker)
    again: dict[str, Any] = {"action": "retry", "filter": {"status": "skipped"}}
    assert (await house.ask("POST", "/jobs/bulk", again, expect=200))["count"] == 2
    assert await _names_in_order(house, worker) == [["j1"], ["j2"]]
    assert await _states(house, jobs) == ["failed", "succeeded", "succeeded"]


async def test_what_waits_for_a_job_that_fails_again_at_once_does_not_run(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await house.register()
    jobs = await _submit(house, [], ["0"])
    await house.ask("POST", "/jobs/bulk", {**AGAIN, "action": "cancel"}, expect=200)
    start = Latecomers.start

    async def late(self: Latecomers, act: Act) -> int:
        await _fail_next(house, worker)
        return await start(self, act)

    monkeypatch.setattr(Latecomers, "start", late)
    answer = await house.ask("POST", "/jobs/bulk", AGAIN, expect=200)
    assert (answer["count"], answer["refused"]) == (1, 1)
    assert await _states(house, jobs) == ["failed", "cancelled"]
    assert await _names_in_order(house, worker) == []
