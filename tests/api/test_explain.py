"""Explanations and forecasts of jobs, dry runs and deadlines, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.api.in_process_server import NOOP, InProcessServer, StreamReader, events

HOUR = 3600


def spec(**fields: Any) -> dict[str, Any]:
    return {"name": "j", "task": NOOP, **fields}


def cpus(count: float) -> dict[str, Any]:
    return {"requirements": {"cpu": count}}


async def busy_server(server: InProcessServer) -> tuple[str, dict[str, Any]]:
    """Starts a job with 6 cpus on a worker of 8; it is expected to take an hour."""
    worker = await server.register(name="box", cpu=8)
    order = await server.start(worker, name="long", expected_runtime=HOUR, **cpus(6))
    return worker, order


async def test_why_shows_the_estimated_start_the_worker_and_remedies(
    server: InProcessServer,
) -> None:
    worker, order = await busy_server(server)
    job = await server.submit(**cpus(4))
    why = await server.ask("GET", f"/jobs/{job['job_id']}/why", expect=200)
    assert why["cause"]["code"] == "resources_busy"
    start = why["estimated_start"]
    assert (start["method"], start["worker_id"]) == ("forward_run", worker)
    assert start["low"] <= start["at"] <= start["high"]
    assert start["computed_at"] < start["at"]
    less, end = why["would_help"]
    assert less["figures"] == {"kind": "cpu", "less": 2.0, "worker_id": worker}
    assert end["figures"]["jobs"] == [order["job_id"]]
    assert (less["enough"], end["enough"]) == (True, True)
    assert why["position"] == {
        "ahead": 0,
        "waiting": 1,
        "exact": True,
        "starts_before": 0,
        "tenants_ahead": 0,
    }


async def test_a_remedy_that_is_not_enough_alone_is_marked(server: InProcessServer) -> None:
    await busy_server(server)
    await server.ask("PUT", "/queues/bulk", {"paused": True}, expect=200)
    job = await server.submit(queue="bulk", **cpus(4))
    why = await server.ask("GET", f"/jobs/{job['job_id']}/why", expect=200)
    assert [one["enough"] for one in why["would_help"]] == [False, False, False]
    assert why["would_help"][0]["message"] == "if queue bulk were resumed"
    assert why["estimated_start"]["method"] == "unknown"


async def test_a_job_that_nothing_blocks_is_predicted_to_start_at_once(
    server: InProcessServer,
) -> None:
    worker = await server.register()
    job = await server.submit()
    why = await server.ask("GET", f"/jobs/{job['job_id']}/why", expect=200)
    assert (why["cause"]["code"], why["others"]) == ("no_poll", [])
    start = why["estimated_start"]
    assert (start["at"], start["worker_id"]) == (start["computed_at"], worker)


async def test_the_history_of_a_job_comes_from_its_executions(server: InProcessServer) -> None:
    worker = await server.register()
    order = await server.start(worker, retry={"max_attempts": 2, "delay": 60})
    await server.finish(order, "failed")
    why = await server.ask("GET", f"/jobs/{order['job_id']}/why", expect=200)
    shown = [(one["what"], one["reason"]) for one in why["history"]]
    assert ("running", "failed") in shown
    assert shown[-1] == ("pending", "retry")
    assert why["history"][-1]["until"] is None
    assert why["estimated_start"]["method"] == "known_times"


async def test_a_dry_run_says_now_later_or_never_and_leaves_nothing_behind(
    server: InProcessServer,
) -> None:
    await busy_server(server)
    before = await server.ask("GET", "/stats")
    key = {"Idempotency-Key": "only-tried"}
    tried = [
        await server.ask("POST", "/jobs?dry_run=true", spec(**cpus(n)), expect=200, headers=key)
        for n in (1, 4, 64)
    ]
    assert [one["verdict"] for one in tried] == ["now", "later", "never"]
    assert tried[0]["message"] == "would start now on box"
    assert tried[1]["causes"][0]["code"] == "resources_busy"
    assert "asks 64 cpu, the largest has 8 cpu" in tried[2]["message"]
    after = await server.ask("GET", "/stats")
    assert after["jobs"] == before["jobs"]
    assert after["submitted_total"] == before["submitted_total"]
    await server.ask("POST", "/jobs", spec(name="real"), expect=201, headers=key)


async def test_a_dry_run_of_a_batch_follows_its_graph(server: InProcessServer) -> None:
    await server.register()
    jobs = [
        {**spec(expected_runtime=60), "ref": "first"},
        {**spec(), "ref": "second", "dependencies": ["ref:first"]},
    ]
    shown = await server.ask("POST", "/jobs/batch?dry_run=true", {"jobs": jobs}, expect=200)
    assert [(one["ref"], one["verdict"]) for one in shown["jobs"]] == [
        ("first", "now"),
        ("second", "later"),
    ]
    assert (await server.ask("GET", "/jobs"))["items"] == []


async def test_a_dry_run_knows_how_its_dependencies_ended(server: InProcessServer) -> None:
    worker = await server.register()
    order = await server.start(worker)
    await server.finish(order, "failed")
    shown = await server.ask(
        "POST", "/jobs?dry_run", spec(dependencies=[order["job_id"]]), expect=200
    )
    assert shown["verdict"] == "never"
    assert "would be skipped" in shown["message"]
    when = {"job_id": order["job_id"], "when": "finished"}
    shown = await server.ask("POST", "/jobs?dry_run", spec(dependencies=[when]), expect=200)
    assert shown["verdict"] == "now"


async def test_a_dry_run_is_refused_like_the_submission(
    server: InProcessServer,
) -> None:
    await server.ask("PUT", "/tenants/acme", {"quota": {"queued": 1}}, expect=200)
    await server.submit(tenant="acme")
    shown = await server.ask("POST", "/jobs?dry_run=true", spec(tenant="acme"), expect=429)
    assert "1 waiting jobs of at most 1" in shown["detail"]
    missing = "019a85c2-6b1e-7c3a-9f00-5e2d8a41c7b3"
    await server.ask("POST", "/jobs?dry_run=true", spec(dependencies=[missing]), expect=422)


async def test_a_submission_answers_whether_its_deadline_can_be_met(
    server: InProcessServer,
) -> None:
    await busy_server(server)
    verdicts = []
    for finish_by in ("20h", "5m"):
        job = await server.submit(finish_by=finish_by, expected_runtime=60, **cpus(4))
        assert job["deadline"]["finish_by"] == job["finish_by"]
        verdicts.append(job["deadline"]["verdict"])
    assert verdicts == ["on_time", "late"]
    idle = await server.submit(finish_by="5m", expected_runtime=60, **cpus(1))
    assert idle["deadline"]["verdict"] == "on_time"


async def test_a_deadline_can_be_changed_and_removed(server: InProcessServer) -> None:
    job = await server.submit(finish_by="2100-01-01T00:00:00Z")
    assert job["finish_by"] == "2100-01-01T00:00:00.000Z"
    path = f"/jobs/{job['job_id']}"
    changed = await server.ask("PATCH", path, {"finish_by": "90m"}, expect=200)
    assert changed["deadline"]["slack"] < 90 * 60
    changed = await server.ask("PATCH", path, {"finish_by": None}, expect=200)
    assert (changed["finish_by"], changed["deadline"]) == (None, None)
    problem = await server.ask("PATCH", path, {"finish_by": "soon"}, expect=422)
    assert problem["errors"][0]["field"] == "finish_by"


async def test_a_missed_deadline_is_kept_and_counted(server: InProcessServer) -> None:
    worker = await server.register()
    order = await server.start(worker, finish_by=0.05)
    await asyncio.sleep(0.1)
    await server.finish(order)
    job = await server.ask("GET", f"/jobs/{order['job_id']}", expect=200)
    assert (job["status"], job["deadline"]["verdict"]) == ("succeeded", "missed")
    assert job["deadline"]["slack"] < 0
    metrics = (await server.http.get("/metrics")).text
    assert 'rota_deadlines_total{outcome="missed"} 1.0' in metrics


async def test_the_stream_reports_a_deadline_at_risk_and_then_missed(
    server: InProcessServer,
) -> None:
    async with StreamReader(server, "/stream") as tap:
        await tap.read_until("retry:")
        job = await server.submit(finish_by=0.3)
        text = await tap.read_until('"deadline":"missed"')
    shown = [one for one in events(text) if one["id"] == job["job_id"] and "deadline" in one]
    assert [one["deadline"] for one in shown] == ["at_risk", "missed"]
    assert {one["status"] for one in shown} == {"queued"}


async def test_a_job_template_takes_only_a_relative_deadline(server: InProcessServer) -> None:
    plan = {"name": "nightly", "cron": "0 3 * * *", "job": spec(finish_by="2h")}
    made = await server.ask("POST", "/schedules", plan, expect=201)
    assert made["job"]["finish_by"] == 7200
    ran = await server.ask("POST", f"/schedules/{made['schedule_id']}/trigger", {}, expect=201)
    job = await server.ask("GET", f"/jobs/{ran['job_id']}", expect=200)
    assert 7100 < job["deadline"]["slack"] + 300 <= 7200
    plan["job"]["finish_by"] = "2100-01-01T00:00:00Z"
    problem = await server.ask("POST", "/schedules", {**plan, "name": "other"}, expect=422)
    assert problem["errors"][0]["field"] == "job.finish_by"
