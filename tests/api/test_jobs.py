from __future__ import annotations

import asyncio

from rota.store.limits import LOOKUP_COST
from tests.api.in_process_server import NOOP, InProcessServer

NOBODY = "019a85c2-6b1e-7c3a-9f00-5e2d8a41c7b3"
FULL = {
    "name": "invoice",
    "queue": "billing",
    "tenant": "acme",
    "priority": 7,
    "task": {"kind": "command", "argv": ["python3", "bill.py"], "env": {"A": "b"}, "cwd": "/tmp"},
    "requirements": {
        "cpu": 1.5,
        "memory": "256MiB",
        "storage": "1GiB",
        "gpu": 0,
        "custom": {"licence": 1},
        "capabilities": ["linux", "gpu"],
    },
    "run_at": "2100-01-01T02:00:00+02:00",
    "expires_at": "2100-01-02T00:00:00Z",
    "timeout": "10m",
    "expected_runtime": 30,
    "retry": {"max_attempts": 4, "backoff": "linear", "delay": "2s", "jitter": 0},
    "semantics": "at_most_once",
    "concurrency": {"key": "customer-42", "limit": 2},
    "preemptible": True,
    "labels": {"team": "billing"},
    "payload": {"deep": [1, {"x": None}], "big": 123456789012345678901234567890},
}


async def test_a_submitted_job_shows_all_its_settings(server: InProcessServer) -> None:
    answer = await server.http.post("/jobs", json=FULL)
    job = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/jobs/{job['job_id']}"
    assert job["requirements"]["memory"] == 256 * 1024**2
    assert job["requirements"]["capabilities"] == ["gpu", "linux"]
    assert job["run_at"] == job["scheduled_at"] == "2100-01-01T00:00:00.000Z"
    assert (job["timeout"], job["expected_runtime"], job["retry"]["delay"]) == (600, 30, 2)
    assert job["payload"] == FULL["payload"]
    assert job["task"] == FULL["task"]
    assert job["status"] == "pending"
    assert await server.ask("GET", f"/jobs/{job['job_id']}", expect=200) == job


async def test_only_name_and_task_are_needed(server: InProcessServer) -> None:
    job = await server.submit("small")
    assert (job["status"], job["queue"], job["priority"]) == ("queued", "default", 0)
    assert (job["requirements"]["cpu"], job["requirements"]["memory"]) == (1, 0)
    assert (job["retry"]["max_attempts"], job["payload"], job["labels"]) == (1, {}, {})
    assert job["scheduled_at"] == job["created_at"]


async def test_a_batch_resolves_its_refs_and_keeps_the_order(server: InProcessServer) -> None:
    body = {
        "jobs": [
            {"name": "load", "task": NOOP, "dependencies": [{"job_id": "ref:a", "when": "failed"}]},
            {"name": "extract", "task": NOOP, "ref": "a"},
        ]
    }
    load, extract = (await server.ask("POST", "/jobs/batch", body, expect=201))["job_ids"]
    job = await server.ask("GET", f"/jobs/{load}")
    assert job["name"] == "load"
    assert job["dependencies"] == [{"job_id": extract, "when": "failed"}]


async def test_a_cycle_is_refused_with_the_senders_refs(server: InProcessServer) -> None:
    body = {
        "jobs": [
            {"name": "a", "task": NOOP, "ref": "first", "dependencies": ["ref:second"]},
            {"name": "b", "task": NOOP, "ref": "second", "dependencies": ["ref:first"]},
        ]
    }
    problem = await server.ask("POST", "/jobs/batch", body, expect=422)
    assert "first" in problem["detail"]
    assert "second" in problem["detail"]
    assert problem["type"].endswith("dependency_cycle")
    assert (await server.ask("GET", "/jobs"))["items"] == []


async def test_doubled_or_unknown_refs_are_named(server: InProcessServer) -> None:
    twice = {"jobs": [{"name": "a", "task": NOOP, "ref": "x"}] * 2}
    problem = await server.ask("POST", "/jobs/batch", twice, expect=422)
    assert problem["errors"][0]["field"] == "jobs[1].ref"
    unknown = {"jobs": [{"name": "a", "task": NOOP, "dependencies": ["ref:ghost"]}]}
    problem = await server.ask("POST", "/jobs/batch", unknown, expect=422)
    assert problem["errors"][0]["field"] == "jobs[0].dependencies[0]"
    assert "ghost" in problem["detail"]


async def test_an_unknown_dependency_is_named(server: InProcessServer) -> None:
    body = {"name": "a", "task": NOOP, "dependencies": [NOBODY]}
    problem = await server.ask("POST", "/jobs", body, expect=422)
    assert NOBODY in problem["detail"]
    assert problem["errors"][0]["field"] == "dependencies[0]"
    body["dependencies"] = ["not-an-id"]
    problem = await server.ask("POST", "/jobs", body, expect=422)
    assert "not-an-id" in problem["detail"]


async def test_a_job_may_depend_on_one_that_ended_long_ago(server: InProcessServer) -> None:
    worker = await server.register()
    order = await server.start(worker)
    await server.finish(order)
    after = await server.submit("after", dependencies=[order["job_id"]])
    assert after["status"] == "queued"
    never = await server.submit(
        "never", dependencies=[{"job_id": order["job_id"], "when": "failed"}]
    )
    assert never["status"] == "skipped"


async def test_a_repeat_with_the_same_key_gets_the_first_answer(server: InProcessServer) -> None:
    keyed = {"headers": {"Idempotency-Key": "k-1"}}
    body = {"name": "once", "task": NOOP}
    first = await server.ask("POST", "/jobs", body, expect=201, **keyed)
    again = await server.ask("POST", "/jobs", body, expect=201, **keyed)
    assert again == first
    assert len((await server.ask("GET", "/jobs"))["items"]) == 1
    other = await server.ask("POST", "/jobs", {**body, "name": "twice"}, expect=409, **keyed)
    assert other["type"].endswith("idempotency_key_reused")


async def test_a_key_makes_every_verb_repeatable(server: InProcessServer) -> None:
    job = await server.submit()
    path = f"/jobs/{job['job_id']}"
    for method, where in (("PUT", f"{path}/cancel"), ("POST", f"{path}/retry"), ("DELETE", path)):
        headers = {"Idempotency-Key": f"{method} {where}"}
        params = {"force": "true"} if method == "DELETE" else {}
        first = await server.http.request(method, where, headers=headers, params=params)
        again = await server.http.request(method, where, headers=headers, params=params)
        assert first.status_code in (200, 204)
        assert (again.status_code, again.content) == (first.status_code, first.content)
    await server.ask("GET", path, expect=404)


async def test_a_key_must_be_printable(server: InProcessServer) -> None:
    for key in ("", "x" * 256, "caf\u00e9"):
        answer = await server.http.post(
            "/jobs",
            json={"name": "a", "task": NOOP},
            headers=[(b"Idempotency-Key", key.encode("latin-1"))],
        )
        assert answer.status_code == 422, key


async def test_lists_are_newest_first_and_continue_by_cursor(server: InProcessServer) -> None:
    made = [(await server.submit(f"j{n}"))["job_id"] for n in range(5)]
    first = await server.ask("GET", "/jobs?limit=2")
    second = await server.ask("GET", "/jobs", params={"limit": 2, "cursor": first["next_cursor"]})
    third = await server.ask("GET", "/jobs", params={"limit": 2, "cursor": second["next_cursor"]})
    seen = [job["job_id"] for page in (first, second, third) for job in page["items"]]
    assert seen == made[::-1]
    assert third["next_cursor"] is None


async def test_a_page_of_huge_jobs_ends_early_with_a_cursor(server: InProcessServer) -> None:
    payload = "x" * 1_000_000
    made = [(await server.submit(payload=payload))["job_id"] for _ in range(60)]
    seen: list[str] = []
    cursor = None
    pages = 0
    while cursor or not pages:
        query = {"limit": "1000", **({"cursor": cursor} if cursor else {})}
        page = await server.ask("GET", "/jobs", params=query, expect=200)
        seen += [job["job_id"] for job in page["items"]]
        cursor, pages = page["next_cursor"], pages + 1
    assert seen == made[::-1]
    assert pages == 2


async def test_lists_take_filters(server: InProcessServer) -> None:
    await server.submit("a", queue="q1", labels={"team": "x", "env": "prod"}, priority=3)
    await server.submit("b", queue="q2", labels={"team": "x"}, tenant="acme")
    await server.submit("c", queue="q2", run_at="2100-01-01T00:00:00Z")

    async def names(query: str) -> str:
        page = await server.ask("GET", f"/jobs?{query}", expect=200)
        return "".join(job["name"] for job in page["items"])

    assert await names("queue=q2") == "cb"
    assert await names("status=pending") == "c"
    assert await names("status=pending,queued") == "cba"
    assert await names("label=team:x") == "ba"
    assert await names("label=team:x&label=env:prod") == "a"
    assert await names("priority=3") == "a"
    assert await names("tenant=acme") == "b"
    assert await names("name=c") == "c"
    assert await names("created_after=2099-01-01T00:00:00%2B02:00") == ""
    assert await names("created_before=2099-01-01T00:00:00+02:00") == "cba"
    assert await names("status=&queue=") == "cba"


async def test_bad_filters_are_refused_by_name(server: InProcessServer) -> None:
    for query, field in (
        ("status=qeued", "status"),
        ("label=nocolon", "label"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("cursor=!!", "cursor"),
        ("cursor=aGVsbG8", "cursor"),
        ("quue=x", "quue"),
        ("queue=a&queue=b", "queue"),
        ("created_after=yesterday", "created_after"),
    ):
        problem = await server.ask("GET", f"/jobs?{query}", expect=422)
        assert problem["errors"][0]["field"] == field, query
    problem = await server.ask("GET", "/jobs?quue=x")
    assert "did you mean `queue`" in problem["detail"]


async def test_a_waiting_job_is_cancelled_at_once_and_an_ended_one_is_409(
    server: InProcessServer,
) -> None:
    path = f"/jobs/{(await server.submit())['job_id']}"
    job = await server.ask("PUT", f"{path}/cancel", expect=200)
    assert job["status"] == "cancelled"
    await server.ask("PUT", f"{path}/cancel", expect=409)
    await server.ask("PUT", f"/jobs/{NOBODY}/cancel", expect=404)
    await server.ask("PUT", "/jobs/nonsense/cancel", expect=404)


async def test_a_cancelled_running_job_is_stopped_by_its_worker(server: InProcessServer) -> None:
    worker = await server.register()
    order = await server.start(worker)
    job = await server.ask("PUT", f"/jobs/{order['job_id']}/cancel", expect=200)
    assert job["status"] == "cancelling"
    held = [{"execution_id": order["execution_id"]}]
    beat = await server.ask(
        "POST", f"/workers/{worker}/heartbeat", {"executions": held}, expect=200
    )
    assert beat["cancel"] == [order["execution_id"]]


async def test_a_long_retry_delay_is_not_cut_by_the_default_maximum(
    server: InProcessServer,
) -> None:
    async def longest(**retry: float | str) -> float:
        return float((await server.submit(retry=retry))["retry"]["max_delay"])

    assert await longest(max_attempts=3, delay="1h") == 3600
    assert await longest(max_attempts=3, delay="1s") == 300
    assert await longest(max_attempts=3, delay="1h", max_delay="5m") == 300
    path = f"/jobs/{(await server.submit(run_at='2100-01-01T00:00:00Z'))['job_id']}"
    for patch, now in (
        ({"delay": "2h"}, 7200),
        ({"jitter": 0}, 7200),
        ({"delay": 1}, 300),
        ({"max_delay": "10m"}, 600),
        ({"delay": "1h"}, 600),
        ({"max_delay": None}, 3600),
    ):
        job = await server.ask("PATCH", path, {"retry": patch}, expect=200)
        assert job["retry"]["max_delay"] == now, patch


async def test_a_retry_brings_back_skipped_jobs(server: InProcessServer) -> None:
    worker = await server.register()
    body = {
        "jobs": [
            {"name": "a", "task": NOOP, "ref": "a"},
            {"name": "b", "task": NOOP, "ref": "b", "dependencies": ["ref:a"]},
            {"name": "c", "task": NOOP, "dependencies": ["ref:b"]},
        ]
    }
    a, b, c = (await server.ask("POST", "/jobs/batch", body, expect=201))["job_ids"]
    (order,) = (await server.lease(worker))["executions"]
    await server.finish(order, "failed")
    assert [(await server.ask("GET", f"/jobs/{one}"))["status"] for one in (a, b, c)] == [
        "failed",
        "skipped",
        "skipped",
    ]
    await server.ask("POST", f"/jobs/{a}/retry", expect=200)
    assert (await server.ask("GET", f"/jobs/{b}"))["status"] == "pending"
    assert (await server.ask("GET", f"/jobs/{c}"))["status"] == "pending"
    await server.ask("POST", f"/jobs/{b}/retry", expect=409)
    await server.ask("POST", f"/jobs/{NOBODY}/retry", expect=404)


async def test_a_succeeded_job_cannot_be_retried(server: InProcessServer) -> None:
    order = await server.start(await server.register())
    await server.finish(order, result={"total": 1})
    job = await server.ask("GET", f"/jobs/{order['job_id']}")
    assert (job["status"], job["result"], job["attempt"]) == ("succeeded", {"total": 1}, 1)
    await server.ask("POST", f"/jobs/{order['job_id']}/retry", expect=409)


async def test_only_an_ended_job_is_deleted_unless_forced(server: InProcessServer) -> None:
    path = f"/jobs/{(await server.submit())['job_id']}"
    await server.ask("DELETE", path, expect=409)
    await server.ask("PUT", f"{path}/cancel", expect=200)
    await server.ask("DELETE", path, expect=204)
    await server.ask("GET", path, expect=404)
    await server.ask("DELETE", path, expect=404)


async def test_a_running_job_deleted_by_force_is_removed_when_it_has_stopped(
    server: InProcessServer,
) -> None:
    order = await server.start(await server.register())
    path = f"/jobs/{order['job_id']}"
    job = await server.ask("DELETE", f"{path}?force=true", expect=202)
    assert job["status"] == "cancelling"
    await server.finish(order, "cancelled")
    await server.ask("GET", path, expect=404)


async def test_a_job_can_run_on_a_named_worker_while_its_queue_is_paused(
    server: InProcessServer,
) -> None:
    worker = await server.register()
    job = await server.submit(run_at="2100-01-01T00:00:00Z")
    path = f"/jobs/{job['job_id']}/execute"
    execution = await server.ask("POST", path, {"worker_id": worker}, expect=201)
    assert (execution["status"], execution["worker_id"]) == ("claimed", worker)
    (order,) = (await server.lease(worker))["executions"]
    assert order["execution_id"] == execution["execution_id"]
    await server.ask("POST", path, {"worker_id": worker}, expect=409)
    await server.ask("POST", path, {"worker_id": "nobody"}, expect=409)
    other = await server.submit()
    ghost = f"/jobs/{other['job_id']}/execute"
    await server.ask("POST", ghost, {"worker_id": "nobody"}, expect=404)


async def test_dead_letters_are_the_failed_jobs(server: InProcessServer) -> None:
    order = await server.start(await server.register(), name="dead")
    await server.finish(order, "failed", error={"message": "no"})
    await server.submit("alive")
    (dead,) = (await server.ask("GET", "/dead-letters", expect=200))["items"]
    assert (dead["name"], dead["error"]) == ("dead", {"message": "no"})
    assert (await server.ask("GET", "/dead-letters?queue=other"))["items"] == []


async def test_many_submitters_at_once_each_get_their_own_job(server: InProcessServer) -> None:
    jobs = await asyncio.gather(*(server.submit(f"j{n}") for n in range(50)))
    assert [job["name"] for job in jobs] == [f"j{n}" for n in range(50)]
    assert len({job["job_id"] for job in jobs}) == 50


async def test_a_page_that_reaches_its_search_limit_ends_with_a_cursor(
    server: InProcessServer,
) -> None:
    server.limit(page_look=LOOKUP_COST)
    ids = [
        (await server.submit("mail" if number in (0, 5, 6, 7, 8) else "other", queue=queue))[
            "job_id"
        ]
        for number, queue in enumerate(["fast"] * 6 + ["slow"] * 3)
    ]
    path = "/jobs?name=mail&queue=fast&limit=1"
    pages, cursor = [], ""
    while cursor is not None:
        page = await server.ask("GET", f"{path}&cursor={cursor}" if cursor else path)
        pages.append([job["job_id"] for job in page["items"]])
        cursor = page["next_cursor"]
    assert [one for page in pages for one in page] == [ids[5], ids[0]]
    assert [] in pages, "a page without items is not the end"


async def test_rarely_matching_executions_come_in_short_pages(server: InProcessServer) -> None:
    server.limit(page_look=LOOKUP_COST)
    worker, other = await server.register("box"), await server.register("other")
    for number in range(5):
        started = await server.start(worker)
        await server.finish(started, status="succeeded" if number else "failed")
        await server.finish(await server.start(other), status="failed")
    path = f"/executions?status=failed&worker_id={worker}&limit=1"
    first = await server.ask("GET", path)
    assert first["items"] == []
    found, cursor = [], first["next_cursor"]
    while cursor is not None:
        page = await server.ask("GET", f"{path}&cursor={cursor}")
        found += page["items"]
        cursor = page["next_cursor"]
    assert [one["status"] for one in found] == ["failed"]
