"""A retry of many jobs that depend on each other, in one action."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from rota.core.commands import AnyInput, Retry
from rota.core.model import JobId, JobRecord
from rota.core.outcome import AnyReceipt
from tests.api.in_process_server import NOOP, InProcessServer
from tests.stand_in import stand_in

LABELS = {"dag": "night"}
AGAIN = {"action": "retry", "filter": {"labels": LABELS}}


async def _submit(server: InProcessServer, *dependencies: list[str]) -> list[str]:
    """Submits a batch of jobs, each named by its place in it."""
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
    answer = await server.ask("POST", "/jobs/batch", {"jobs": jobs}, expect=201)
    return list(answer["job_ids"])


async def _states(server: InProcessServer, job_ids: list[str]) -> list[str]:
    return [(await server.ask("GET", f"/jobs/{one}"))["status"] for one in job_ids]


async def _fail_next(server: InProcessServer, worker: str) -> None:
    for order in (await server.lease(worker))["executions"]:
        await server.finish(order, "failed")


async def _names_in_order(server: InProcessServer, worker: str) -> list[list[str]]:
    """Returns the names of jobs that run together, poll after poll, until none is left."""
    rounds: list[list[str]] = []
    while orders := (await server.lease(worker, wait=0.05))["executions"]:
        rounds.append(sorted(order["name"] for order in orders))
        for order in orders:
            await server.finish(order)
    return rounds


def _after_each_retry(server: InProcessServer, then: Callable[[], Awaitable[None]]) -> None:
    """Runs `then` when jobs were retried, before the caller gets the answer."""
    engine = server.engine

    async def post(command: AnyInput) -> AnyReceipt:
        receipt = await engine.post(command)
        if isinstance(command, Retry):
            await then()
        return receipt

    server.change(brain=stand_in(engine, post=post))


async def test_a_skipped_job_waits_again_for_the_failed_one(server: InProcessServer) -> None:
    worker = await server.register()
    jobs = await _submit(server, [], ["0"], ["1"])
    await _fail_next(server, worker)
    assert await _states(server, jobs) == ["failed", "skipped", "skipped"]
    answer = await server.ask("POST", "/jobs/bulk", AGAIN, expect=200)
    assert (answer["count"], answer["refused"]) == (3, 0)
    assert await _names_in_order(server, worker) == [["j0"], ["j1"], ["j2"]]


async def test_a_graph_that_was_cancelled_runs_in_its_order_again(server: InProcessServer) -> None:
    jobs = await _submit(server, [], ["0"], ["0"], ["1", "2"])
    await server.ask("POST", "/jobs/bulk", {**AGAIN, "action": "cancel"}, expect=200)
    assert await _states(server, jobs) == ["cancelled"] * 4
    assert (await server.ask("POST", "/jobs/bulk", AGAIN, expect=200))["count"] == 4
    order = await _names_in_order(server, await server.register())
    assert order == [["j0"], ["j1", "j2"], ["j3"]]


async def test_a_graph_is_retried_in_order_whatever_order_it_was_submitted_in(
    server: InProcessServer,
) -> None:
    server.limit(bulk_page=2)
    await _submit(server, ["1"], ["2"], ["3"], ["4"], [])
    await server.ask("POST", "/jobs/bulk", {**AGAIN, "action": "cancel"}, expect=200)
    await server.ask("POST", "/jobs/bulk", AGAIN, expect=200)
    order = await _names_in_order(server, await server.register())
    assert order == [["j4"], ["j3"], ["j2"], ["j1"], ["j0"]]


async def test_a_job_whose_upstream_is_not_retried_starts_as_if_retried_alone(
    server: InProcessServer,
) -> None:
    worker = await server.register()
    jobs = await _submit(server, [], ["0"], ["1"])
    await _fail_next(server, worker)
    again: dict[str, Any] = {"action": "retry", "filter": {"status": "skipped"}}
    assert (await server.ask("POST", "/jobs/bulk", again, expect=200))["count"] == 2
    assert await _names_in_order(server, worker) == [["j1"], ["j2"]]
    assert await _states(server, jobs) == ["failed", "succeeded", "succeeded"]


async def test_a_job_whose_upstream_fails_again_at_once_does_not_run(
    server: InProcessServer,
) -> None:
    worker = await server.register()
    jobs = await _submit(server, [], ["0"])
    await server.ask("POST", "/jobs/bulk", {**AGAIN, "action": "cancel"}, expect=200)

    async def fail() -> None:
        await _fail_next(server, worker)

    _after_each_retry(server, fail)
    answer = await server.ask("POST", "/jobs/bulk", AGAIN, expect=200)
    assert (answer["count"], answer["refused"]) == (1, 1)
    assert sum(answer["reasons"].values()) == 1
    assert await _states(server, jobs) == ["failed", "cancelled"]
    assert await _names_in_order(server, worker) == []


async def _array_that_failed(server: InProcessServer, worker: str, size: int = 4) -> str:
    """Makes an array of which every second member has failed."""
    array = await server.submit("render", count=size)
    for place, order in enumerate((await server.lease(worker))["executions"]):
        await server.finish(order, "failed" if place % 2 else "succeeded")
    return str(array["job_id"])


async def _retry_of_group(server: InProcessServer, reason: str) -> dict[str, Any]:
    """Sends what the dashboard's button sends for a group of dead letters."""
    groups = (await server.ask("GET", "/dead-letters/groups", expect=200))["items"]
    (group,) = [one for one in groups if one["reason"] == reason]
    wanted = {"status": "failed", "name": group["name"], "fingerprint": group["fingerprint"]}
    return {"action": "retry", "filter": wanted, "limit": 200}


@pytest.mark.parametrize("reason", ["error", "members"])
async def test_failed_members_are_retried_with_their_array(
    server: InProcessServer, reason: str
) -> None:
    worker = await server.register(cpu=4)
    array = await _array_that_failed(server, worker)
    again = await _retry_of_group(server, reason)
    foreseen = await server.ask("POST", "/jobs/bulk", again | {"dry_run": True}, expect=200)
    answer = await server.ask("POST", "/jobs/bulk", again, expect=200)
    assert [foreseen["count"], answer["count"], answer["refused"]] == [1, 1, 0]
    orders = (await server.lease(worker))["executions"]
    assert [order["array"]["index"] for order in orders] == [1, 3]
    assert await _states(server, [array]) == ["running"]


async def test_an_array_that_matches_with_its_members_is_retried_once(
    server: InProcessServer,
) -> None:
    server.limit(bulk_page=2)
    worker = await server.register(cpu=4)
    array = await _array_that_failed(server, worker)
    again = {"action": "retry", "filter": {"name": "render"}}
    answer = await server.ask("POST", "/jobs/bulk", again, expect=200)
    assert (answer["count"], answer["refused"]) == (1, 0)
    assert (await server.ask("GET", f"/jobs/{array}"))["array"]["queued"] == 2
    # Their rows still say that they failed, but there is nothing left to do.
    answer = await server.ask("POST", "/jobs/bulk", again, expect=200)
    assert (answer["count"], answer["refused"]) == (0, 0)


async def test_members_of_an_array_that_does_not_match_are_refused(server: InProcessServer) -> None:
    worker = await server.register(cpu=3)
    array = (await server.submit("render", count=3))["job_id"]
    first, second, third = (await server.lease(worker))["executions"]
    await server.ask("PUT", f"/jobs/{first['job_id']}/cancel")
    await server.finish(first, "cancelled")
    await server.finish(second, "failed")
    await server.finish(third)
    assert await _states(server, [array]) == ["failed"]
    again = {"action": "retry", "filter": {"status": "cancelled"}}
    answer = await server.ask("POST", "/jobs/bulk", again, expect=200)
    assert (answer["count"], answer["refused"]) == (0, 1)
    assert await _states(server, [array]) == ["failed"]


async def test_a_stopping_server_does_not_finish_a_bulk_retry(
    server: InProcessServer,
) -> None:
    await _submit(server, [], ["0"], ["1"], ["2"])
    await server.ask("POST", "/jobs/bulk", {**AGAIN, "action": "cancel"}, expect=200)

    async def stop() -> None:
        server.deps.closing.set()

    _after_each_retry(server, stop)
    await server.ask("POST", "/jobs/bulk", AGAIN, expect=503)


async def test_a_long_chain_is_not_read_again_for_each_of_its_jobs(
    server: InProcessServer,
) -> None:
    length, read = 40, 0
    await _submit(server, [], *([str(place)] for place in range(length - 1)))
    await server.ask("POST", "/jobs/bulk", {**AGAIN, "action": "cancel"}, expect=200)
    catalog = server.deps.queries

    async def counted(job_ids: Sequence[JobId]) -> list[JobRecord]:
        nonlocal read
        read += len(job_ids)
        return await catalog.jobs(job_ids)

    server.change(queries=stand_in(catalog, jobs=counted))
    assert (await server.ask("POST", "/jobs/bulk", AGAIN, expect=200))["count"] == length
    assert read <= 10 * length


async def test_a_skipped_job_counts_even_if_its_upstream_is_newer(
    server: InProcessServer,
) -> None:
    server.limit(bulk_page=2)
    worker = await server.register()
    jobs = await _submit(server, ["1"], ["2"], ["3"], ["4"], [])
    await _fail_next(server, worker)
    assert await _states(server, jobs) == ["skipped"] * 4 + ["failed"]
    answer = await server.ask("POST", "/jobs/bulk", AGAIN, expect=200)
    assert (answer["count"], answer["refused"]) == (5, 0)
    assert await _names_in_order(server, worker) == [["j4"], ["j3"], ["j2"], ["j1"], ["j0"]]
