from __future__ import annotations

import pytest

from rota.engine.ports import BusyError, UnavailableError
from rota.store.protocol import StoreError, StoreFullError
from tests.api.in_process_server import InProcessServer
from tests.stand_in import stand_in


async def test_a_queue_is_created_shown_and_changed(server: InProcessServer) -> None:
    body = {
        "priority": 5,
        "weight": 2,
        "max_workers": 3,
        "rate_limit": {"count": 10, "per": "1m"},
        "paused": True,
    }
    queue = await server.ask("PUT", "/queues/billing", body, expect=200)
    assert (queue["max_workers"], queue["rate_limit"]) == (3, {"count": 10, "per": 60})
    changed = await server.ask(
        "PATCH", "/queues/billing", {"max_workers": None, "priority": 6}, expect=200
    )
    assert (changed["max_workers"], changed["priority"], changed["paused"]) == (None, 6, True)
    reset = await server.ask("PUT", "/queues/billing", {}, expect=200)
    assert (reset["priority"], reset["rate_limit"], reset["paused"]) == (0, None, False)
    assert await server.ask("GET", "/queues/billing", expect=200) == reset


async def test_a_queues_limits_are_shown_changed_singly_and_sent_with_orders(
    server: InProcessServer,
) -> None:
    plain = await server.ask("PUT", "/queues/tight", {}, expect=200)
    assert plain["limits"] == {
        "processes": 4096,
        "open_files": 8192,
        "file_size": 1 << 40,
        "log_size": 16 << 20,
        "result_size": 1 << 20,
    }
    given = {"processes": 20, "file_size": "2GiB"}
    await server.ask("PATCH", "/queues/tight", {"limits": given}, expect=200)
    changed = await server.ask("PATCH", "/queues/tight", {"limits": {"processes": 30}}, expect=200)
    assert changed["limits"] == {**plain["limits"], "processes": 30, "file_size": 2 << 30}
    await server.submit(queue="tight")
    await server.submit(queue="loose")
    orders = (await server.lease(await server.register(), max=2))["executions"]
    assert {one["queue"]: one["limits"] for one in orders} == {
        "tight": changed["limits"],
        "loose": None,
    }
    await server.ask("PATCH", "/queues/tight", {"limits": {"processes": None}}, expect=200)
    back = await server.ask("PATCH", "/queues/tight", {"limits": None}, expect=200)
    assert back["limits"] == plain["limits"]
    await server.ask("PATCH", "/queues/tight", {"limits": {"open_files": 100}}, expect=200)
    assert (await server.ask("PUT", "/queues/tight", {}, expect=200))["limits"] == plain["limits"]


@pytest.mark.parametrize(
    "limits",
    [
        {"processes": 0},
        {"open_files": 3},
        {"log_size": "65MiB"},
        {"result_size": "2MiB"},
        {"cores": 1},
        {"file_size": "much"},
        3,
    ],
)
async def test_invalid_queue_limits_are_refused(server: InProcessServer, limits: object) -> None:
    await server.ask("PUT", "/queues/q", {"limits": limits}, expect=422)


async def test_queues_show_their_depth(server: InProcessServer) -> None:
    await server.submit(queue="a")
    await server.submit(queue="a", run_at="2100-01-01T00:00:00Z")
    await server.submit(queue="b")
    page = await server.ask("GET", "/queues", expect=200)
    assert [queue["name"] for queue in page["items"] if queue["name"] != "default"] == ["a", "b"]
    depth = (await server.ask("GET", "/queues/a"))["depth"]
    assert depth == {"pending": 1, "queued": 1, "running": 0, "cancelling": 0}
    first = await server.ask("GET", "/queues?limit=1")
    rest = await server.ask("GET", f"/queues?cursor={first['next_cursor']}")
    assert [*first["items"], *rest["items"]] == page["items"]


async def test_a_paused_queue_starts_nothing_and_a_purge_empties_it(
    server: InProcessServer,
) -> None:
    worker = await server.register()
    await server.submit(queue="q")
    assert (await server.ask("POST", "/queues/q/pause", expect=200))["paused"] is True
    assert (await server.lease(worker, wait=0))["executions"] == []
    assert (await server.ask("POST", "/queues/q/resume", expect=200))["paused"] is False
    assert len((await server.lease(worker))["executions"]) == 1
    await server.submit(queue="q")
    await server.ask("POST", "/queues/q/pause", expect=200)
    await server.submit(queue="q")
    assert (await server.ask("POST", "/queues/q/purge", expect=200)) == {"count": 2}


async def test_a_purge_of_a_long_queue_is_many_small_records(server: InProcessServer) -> None:
    """One record for all would block the server until it loses leadership."""
    server.limit(purge_piece=2)
    for _ in range(7):
        await server.submit(queue="q")
    before = (await server.store.queries.head())[1]
    assert await server.ask("POST", "/queues/q/purge", expect=200) == {"count": 7}
    assert (await server.store.queries.head())[1] - before == 4


async def test_unknown_queues_and_bad_settings_are_refused(server: InProcessServer) -> None:
    await server.ask("GET", "/queues/ghost", expect=404)
    await server.ask("PATCH", "/queues/ghost", {}, expect=404)
    for verb in ("pause", "resume", "purge"):
        await server.ask("POST", f"/queues/ghost/{verb}", expect=404)
    await server.ask("PUT", "/queues/-bad", {}, expect=422)
    await server.ask("PUT", "/queues/a%0A", {}, expect=422)
    await server.ask("PUT", "/queues/q", {"weight": 0}, expect=422)
    await server.ask("PUT", "/queues/q", {"rate_limit": {"count": 1, "per": 0}}, expect=422)
    problem = await server.ask("PUT", "/queues/q", {"max_worker": 1}, expect=422)
    assert "did you mean `max_workers`" in problem["detail"]


async def test_health_needs_no_token_and_readiness_follows_the_engine(
    server: InProcessServer,
) -> None:
    bare = {"headers": {"Authorization": ""}}
    assert await server.ask("GET", "/healthz", expect=200, **bare) == {"status": "ok"}
    ready = await server.ask("GET", "/readyz", expect=200, **bare)
    assert ready == {"status": "ok", "role": "leader"}
    await server.engine.stop()
    answer = await server.http.get("/readyz")
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert (await server.ask("GET", "/healthz", expect=200))["status"] == "ok"


async def test_a_stopping_server_answers_with_retry_after(server: InProcessServer) -> None:
    await server.engine.stop()
    answer = await server.http.post("/jobs", json={"name": "a", "task": {"kind": "noop"}})
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["retry-after"]


async def test_stats_and_cluster_show_the_figures(server: InProcessServer) -> None:
    worker = await server.register()
    order = await server.start(worker)
    await server.finish(order)
    await server.submit(requirements={"cpu": 99})
    stats = await server.ask("GET", "/stats", expect=200)
    assert (stats["jobs"]["succeeded"], stats["jobs"]["queued"]) == (1, 1)
    assert (stats["submitted_total"], stats["workers"]["online"]) == (2, 1)
    assert stats["resources"]["cpu"] == {"capacity": 8, "used": 0}
    cluster = await server.ask("GET", "/cluster", expect=200)
    assert (cluster["leader"], cluster["durability"]) == ("node-a", "single")
    assert cluster["epoch"] >= 1


async def test_metrics_have_the_documented_names(server: InProcessServer) -> None:
    worker = await server.register()
    order = await server.start(worker)
    await server.finish(order)
    await server.submit(queue='we"ird'.replace('"', "_"))
    answer = await server.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    for wanted in (
        "rota_jobs_submitted_total 2.0",
        'rota_jobs_finished_total{queue="default",status="succeeded"} 1.0',
        'rota_jobs{queue="we_ird",status="queued"} 1.0',
        "rota_job_wait_seconds_count",
        "rota_job_run_seconds_bucket",
        "rota_dispatch_latency_seconds_sum",
        'rota_workers{status="online"} 1.0',
        'rota_resource_capacity{kind="cpu"} 8.0',
        'rota_resource_used{kind="cpu"} 0.0',
        "rota_leader 1.0",
        "rota_append_seconds_count",
        "rota_append_jobs_count",
        "rota_fold_lag_seconds 0.0",
        "rota_data_disk_free_bytes 1234.0",
        "process_resident_memory_bytes",
    ):
        assert wanted in answer.text, wanted


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BusyError("slow down", 2), 429),
        (UnavailableError("starting"), 503),
        (StoreError("secret path"), 503),
        (StoreFullError("secret path"), 507),
        (RuntimeError("secret bug"), 500),
    ],
)
async def test_internal_errors_show_no_internals(
    server: InProcessServer, error: Exception, status: int
) -> None:
    async def fail(*_: object) -> None:
        raise error

    server.change(queries=stand_in(server.deps.queries, find_jobs=fail))
    answer = await server.http.get("/jobs")
    assert answer.status_code == status
    problem = answer.json()
    assert problem["status"] == status
    assert "secret" not in answer.text
    assert (answer.headers.get("retry-after") is not None) == (status != 500)
