from __future__ import annotations

import asyncio
from typing import Any

from rota.core.commands import Timing
from tests.api.in_process_server import HOST, TOKEN, InProcessServer, open_server


async def test_a_worker_registers_and_is_shown(server: InProcessServer) -> None:
    body = {
        "name": "box-1",
        "capabilities": ["linux", "gpu"],
        "resources": {"cpu": 4, "memory": "8GiB", "gpu": 0.5, "custom": {"licence": 2}},
        "queues": ["default", "billing"],
    }
    shown = await server.ask("POST", "/workers/register", body, expect=201)
    assert (shown["lease_ttl"], shown["heartbeat_interval"], shown["poll_wait_max"]) == (15, 5, 5)
    worker = await server.ask("GET", f"/workers/{shown['worker_id']}", expect=200)
    assert worker["status"] == "online"
    assert worker["capabilities"] == ["gpu", "linux"]
    assert worker["queues"] == ["billing", "default"]
    assert worker["resources"]["cpu"] == {"capacity": 4, "used": 0}
    assert worker["resources"]["custom"] == {"licence": {"capacity": 2, "used": 0}}
    assert worker["resources"]["gpu"]["capacity"] == 0.5


async def test_an_order_has_all_that_is_needed_to_run_the_job(
    server: InProcessServer,
) -> None:
    worker = await server.register()
    job = await server.submit("w", payload={"n": 1}, timeout="1m")
    answer = await server.lease(worker)
    (order,) = answer["executions"]
    assert order["job_id"] == job["job_id"]
    assert (order["payload"], order["task"]["kind"], order["timeout"]) == ({"n": 1}, "noop", 60)
    assert (order["attempt"], order["fence"], order["lease_expires_in"]) == (1, 1, 15)
    assert 0 <= answer["held_for"] < 5
    shown = await server.ask("GET", f"/workers/{worker}")
    assert shown["executions"] == [order["execution_id"]]
    assert shown["resources"]["cpu"]["used"] == 1


async def test_a_worker_with_spare_places_gets_short_jobs_prefetched(
    server: InProcessServer,
) -> None:
    worker = await server.register(cpu=1)
    jobs = [await server.submit(f"short-{n}", expected_runtime="5ms") for n in range(3)]
    first, second = (await server.lease(worker, spare=1))["executions"]
    assert (first["behind"], second["behind"]) == (None, first["execution_id"])
    shown = await server.ask("GET", f"/workers/{worker}")
    assert shown["resources"]["cpu"]["used"] == 1
    why = await server.ask("GET", f"/jobs/{jobs[1]['job_id']}/why")
    assert (why["cause"]["code"], why["history"][-1]["reason"]) == ("ahead", "ahead")
    done = [
        {"execution_id": one["execution_id"], "fence": one["fence"], "status": status}
        for one, status in ((first, "succeeded"), (second, "returned"))
    ]
    (again,) = (await server.lease(worker, completed=done, max=1))["executions"]
    assert (again["job_id"], again["behind"], again["attempt"]) == (second["job_id"], None, 1)
    tries = await server.ask("GET", f"/executions?job_id={second['job_id']}")
    assert [one["status"] for one in tries["items"]] == ["claimed", "preempted"]
    assert tries["items"][1]["behind"] == first["execution_id"]


async def test_a_waiting_poll_is_answered_as_soon_as_there_is_an_order(
    server: InProcessServer,
) -> None:
    worker = await server.register()
    waiting = asyncio.create_task(server.lease(worker, wait="5s"))
    await asyncio.sleep(0)
    await server.submit()
    assert len((await waiting)["executions"]) == 1


async def test_a_patient_poll_reports_at_once_and_waits_for_orders(
    server: InProcessServer,
) -> None:
    worker, waiting = await _held_with_a_report(server)
    later = await server.submit("later")
    assert [one["job_id"] for one in (await waiting)["executions"]] == [later["job_id"]]
    assert (await server.ask("GET", f"/workers/{worker}"))["resources"]["cpu"]["used"] == 1


async def test_a_shutdown_ends_a_patient_poll_whose_reports_were_taken(
    server: InProcessServer,
) -> None:
    _, waiting = await _held_with_a_report(server)
    server.deps.closing.set()
    async with asyncio.timeout(5):
        assert (await waiting)["executions"] == []


async def _held_with_a_report(server: InProcessServer) -> tuple[str, asyncio.Task[dict[str, Any]]]:
    """Makes a worker that has reported its only job's end, and waits for another."""
    worker = await server.register()
    order = await server.start(worker)
    done = [{"execution_id": order["execution_id"], "fence": 1, "status": "succeeded"}]
    waiting = asyncio.create_task(server.lease(worker, completed=done, wait=5, patient=True))
    async with asyncio.timeout(5):
        while not await _has_succeeded(server, order["job_id"]):  # noqa: ASYNC110  (nobody announces it)
            await asyncio.sleep(0.002)
    assert not waiting.done()
    return worker, waiting


async def _has_succeeded(server: InProcessServer, job_id: str) -> bool:
    job = await server.ask("GET", f"/jobs/{job_id}")
    return bool(job["status"] == "succeeded")


async def test_a_poll_reports_completions_and_names_refused_ones(
    server: InProcessServer,
) -> None:
    worker = await server.register()
    order = await server.start(worker)
    done = {
        "execution_id": order["execution_id"],
        "status": "succeeded",
        "fence": order["fence"],
        "result": [1],
    }
    ghost = {**done, "execution_id": "019a85c2-7d40-7b11-8a2c-90f1c3d2e4a5"}
    answer = await server.lease(worker, wait=0, completed=[done, ghost], executions=[])
    assert answer["lost"] == [ghost["execution_id"]]
    job = await server.ask("GET", f"/jobs/{order['job_id']}")
    assert (job["status"], job["result"]) == ("succeeded", [1])


async def test_a_worker_that_disconnects_gets_no_orders(server: InProcessServer) -> None:
    worker = await server.register()
    left, watching = asyncio.Event(), asyncio.Event()
    sent: list[Any] = []
    body = [{"type": "http.request", "body": b'{"wait": "5s"}', "more_body": False}]

    async def receive() -> Any:
        if body:
            return body.pop()
        watching.set()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": f"/workers/{worker}/lease",
        "query_string": b"",
        "headers": [(b"host", HOST.encode()), (b"authorization", f"Bearer {TOKEN}".encode())],
        "client": None,
    }
    call = asyncio.create_task(server.app(scope, receive, send))
    await asyncio.wait_for(watching.wait(), 5)
    left.set()
    await asyncio.wait_for(call, 5)
    assert sent == []
    job = await server.submit()
    assert job["status"] == "queued"
    assert (await server.ask("GET", f"/jobs/{job['job_id']}"))["status"] == "queued"


async def test_a_shutdown_ends_waiting_polls_and_drops_no_report(
    server: InProcessServer,
) -> None:
    worker = await server.register()
    waiting = asyncio.create_task(server.lease(worker, wait="5s"))
    await asyncio.sleep(0.01)
    server.deps.closing.set()
    answer = await asyncio.wait_for(waiting, 2)
    assert answer["executions"] == []
    done = {
        "execution_id": "019a85c2-7d40-7b11-8a2c-90f1c3d2e4a5",
        "status": "succeeded",
        "fence": 1,
    }
    late = await server.http.post(f"/workers/{worker}/lease", json={"completed": [done]})
    assert late.status_code == 503
    assert int(late.headers["retry-after"]) >= 1


async def test_a_polls_wait_is_at_most_a_third_of_the_lease() -> None:
    async with open_server(timing=Timing(lease_ttl_ms=150)) as server:
        worker = await server.register()
        answer = await asyncio.wait_for(server.lease(worker, wait="1h"), 5)
        assert answer["executions"] == []


async def test_a_newer_registration_wins(server: InProcessServer) -> None:
    first = await server.ask(
        "POST", "/workers/register", {"name": "a", "worker_id": "box"}, expect=201
    )
    second = await server.ask(
        "POST", "/workers/register", {"name": "a", "worker_id": "box"}, expect=201
    )
    assert first["worker_id"] == second["worker_id"] == "box"
    old = {"session": first["session"]}
    await server.ask("POST", "/workers/box/heartbeat", old, expect=409)
    await server.ask("POST", "/workers/box/lease", {**old, "wait": 0}, expect=409)
    await server.ask("POST", "/workers/box/heartbeat", {"session": second["session"]}, expect=200)


async def test_unknown_workers_are_not_found(server: InProcessServer) -> None:
    await server.ask("GET", "/workers/ghost", expect=404)
    await server.ask("POST", "/workers/ghost/heartbeat", {}, expect=404)
    await server.ask("POST", "/workers/ghost/lease", {"wait": 0}, expect=404)
    await server.ask("POST", "/workers/ghost/drain", expect=404)
    await server.ask("DELETE", "/workers/ghost", expect=404)


async def test_a_heartbeats_usage_is_shown(server: InProcessServer) -> None:
    worker = await server.register()
    usage = {"cpu": 1.5, "memory": 100, "note": "ignored"}
    await server.ask("POST", f"/workers/{worker}/heartbeat", {"usage": usage}, expect=200)
    shown = await server.ask("GET", f"/workers/{worker}")
    assert shown["usage"] == {"cpu": 1.5, "memory": 100}
    assert shown["last_heartbeat"] is not None
    metrics = (await server.http.get("/metrics")).text
    assert 'rota_worker_usage{kind="cpu"} 1.5' in metrics


async def test_a_draining_worker_gets_no_orders_and_a_removed_one_loses_its_executions(
    server: InProcessServer,
) -> None:
    worker = await server.register()
    order = await server.start(worker)
    drained = await server.ask("POST", f"/workers/{worker}/drain", expect=200)
    assert drained["status"] == "draining"
    await server.submit()
    assert (await server.lease(worker, wait=0))["executions"] == []
    await server.ask("DELETE", f"/workers/{worker}", expect=204)
    job = await server.ask("GET", f"/jobs/{order['job_id']}")
    assert job["status"] in ("pending", "queued")
    assert job["losses"] == 1


async def test_a_drained_worker_can_be_resumed(server: InProcessServer) -> None:
    worker = await server.register()
    await server.ask("POST", f"/workers/{worker}/drain", expect=200)
    await server.submit()
    assert (await server.lease(worker, wait=0))["executions"] == []
    resumed = await server.ask("POST", f"/workers/{worker}/resume", expect=200)
    assert resumed["status"] == "online"
    assert len((await server.lease(worker))["executions"]) == 1
    await server.ask("POST", "/workers/ghost/resume", expect=404)


async def test_a_removed_worker_is_told_to_register_again(server: InProcessServer) -> None:
    worker = await server.register()
    await server.ask("DELETE", f"/workers/{worker}", expect=204)
    for call in ("heartbeat", "lease"):
        answer = await server.http.post(f"/workers/{worker}/{call}", json={})
        assert answer.status_code == 404
        assert "register again" in answer.json()["detail"]
    assert (await server.ask("GET", f"/workers/{worker}"))["status"] == "offline"
    await server.ask("DELETE", f"/workers/{worker}", expect=204)
    await server.ask("POST", f"/workers/{worker}/resume", expect=409)


async def test_workers_are_listed_by_status_and_capability(server: InProcessServer) -> None:
    a = await server.register("a", capabilities=["linux"])
    b = await server.register("b", capabilities=["linux", "gpu"])
    await server.ask("POST", f"/workers/{a}/drain", expect=200)

    async def ids(query: str) -> list[str]:
        page = await server.ask("GET", f"/workers?{query}", expect=200)
        return [one["worker_id"] for one in page["items"]]

    assert await ids("capabilities=linux,gpu") == [b]
    assert await ids("status=draining") == [a]
    assert sorted(await ids("status=online,draining")) == sorted([a, b])
    first = await server.ask("GET", "/workers?limit=1")
    rest = await ids(f"limit=1&cursor={first['next_cursor']}")
    assert sorted([first["items"][0]["worker_id"], *rest]) == sorted([a, b])
    await server.ask("GET", "/workers?status=asleep", expect=422)
