"""Autoscaling figures, the report of waste, and more memory after too little, over HTTP."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rota.store.tokens import Role
from tests.api.in_process_server import InProcessServer
from tests.api.token_headers import ACME, OTHER, token_headers

GIB = 1 << 30
USAGE = {"cpu_seconds": 0.5, "memory_peak": 100 << 20}


def gjson(document: Any, path: str) -> Any:
    r"""Reads a path like KEDA's metrics-api scaler: names with dots between, `\` before a dot."""
    for name in re.split(r"(?<!\\)\.", path):
        plain = name.replace("\\", "")
        document = document[int(plain)] if isinstance(document, list) else document[plain]
    return document


def json_path(document: Any, path: str) -> Any:
    """Reads a path like adapters for the HPA: `$.a.b` or `$['a']['b']`."""
    assert path.startswith("$")
    for plain, quoted in re.findall(r"\.([\w-]+)|\['([^']+)'\]", path[1:]):
        document = document[plain or quoted]
    return document


async def test_an_autoscaler_reads_one_number(server: InProcessServer) -> None:
    await server.register(cpu=4)
    for _ in range(8):
        await server.submit(queue="mail.out", expected_runtime="5m")
    view = await server.ask("GET", "/autoscale", params={"target": "5m"}, expect=200)
    for path in ("workers.needed", r"queues.mail\.out.workers.needed"):
        assert gjson(view, path) == 2
    assert json_path(view, "$.workers.needed") == gjson(view, "workers.needed")
    needed = gjson(view, r"queues.mail\.out.workers.needed")
    assert json_path(view, "$['queues']['mail.out']['workers']['needed']") == needed
    only = await server.ask("GET", "/autoscale?queue=mail.out&target=300", expect=200)
    assert gjson(only, "workers.needed") == needed
    assert gjson(only, "jobs") == 8
    assert gjson(only, "work") == 2400


async def test_the_demand_is_shown_by_queue_and_shape(server: InProcessServer) -> None:
    await server.register(cpu=4, labels={"zone": "a"})
    await server.submit(requirements={"cpu": 2}, expected_runtime="10s")
    view = await server.ask("GET", "/autoscale", expect=200)
    (shape,) = view["queues"]["default"]["shapes"]
    assert (shape["jobs"], shape["work"], shape["per_worker"], shape["kind"]) == (1, 10, 2, 0)
    assert shape["requirements"]["cpu"] == 2
    (kind,) = view["kinds"]
    assert (kind["size"]["cpu"], kind["size"]["memory"]) == (4, 8 * GIB)
    assert kind["workers"]["online"] == 1
    assert view["target"] == 300


async def test_the_size_of_a_new_worker_can_be_given(server: InProcessServer) -> None:
    for _ in range(8):
        await server.submit(requirements={"cpu": 2, "memory": "1GiB"}, expected_runtime="1h")
    query = {"cpu": 8, "memory": "64GiB"}
    view = await server.ask("GET", "/autoscale", params=query, expect=200)
    shape = view["queues"]["default"]["shapes"][0]
    assert (shape["per_worker"], view["kinds"][0]["size"]["cpu"]) == (4, 8)


@pytest.mark.parametrize("query", ["target=0", "target=soon", "cpu=-1", "queues=x"])
async def test_an_invalid_autoscale_query_is_refused(server: InProcessServer, query: str) -> None:
    answer = await server.http.request("GET", f"/autoscale?{query}")
    assert answer.status_code in (400, 422)


async def test_an_unknown_queue_is_not_found(server: InProcessServer) -> None:
    await server.ask("GET", "/autoscale?queue=nowhere", expect=404)


async def test_prometheus_gets_the_same_number_of_workers(server: InProcessServer) -> None:
    await server.register(cpu=1)
    for _ in range(5):
        await server.submit(expected_runtime="1h")
    needed = (await server.ask("GET", "/autoscale"))["queues"]["default"]["workers"]["needed"]
    text = (await server.http.request("GET", "/metrics")).text
    assert f'rota_autoscale_workers{{queue="default"}} {float(needed)}' in text
    assert 'rota_autoscale_work_seconds{queue="default"} 18000.0' in text


# Waste


async def measured(server: InProcessServer, worker_id: str, runs: int, **fields: Any) -> None:
    for _ in range(runs):
        order = await server.start(worker_id, **fields)
        await server.finish(order, usage=USAGE)


async def test_the_waste_report_shows_jobs_that_request_more_than_they_use(
    server: InProcessServer,
) -> None:
    worker_id = await server.register()
    asks = {"requirements": {"cpu": 4, "memory": "1GiB"}}
    await measured(server, worker_id, 5, name="greedy", tenant=ACME, **asks)
    await measured(server, worker_id, 1, name="modest", tenant=OTHER)
    report = await server.ask("GET", "/reports/waste", expect=200)
    by_name = {item["name"]: item for item in report["items"]}
    greedy = by_name["greedy"]
    assert greedy["asked"] == {"cpu": 4, "memory": GIB}
    assert 100 << 20 <= greedy["used"]["memory"]["p95"] <= 113 << 20
    assert greedy["suggestion"]["memory"] == 120 << 20
    assert by_name["modest"]["suggestion"] is None
    assert greedy["sums"]["runs"] == 5
    assert {one["tenant"]: one["sums"]["runs"] for one in report["tenants"]} == {ACME: 5, OTHER: 1}
    assert report["sums"]["runs"] == 6
    one = await server.ask("GET", "/reports/waste?tenant=acme", expect=200)
    assert [item["name"] for item in one["items"]] == ["greedy"]
    assert (await server.ask("GET", "/reports/waste?since=2100-01-01T00:00:00Z"))["items"] == []


async def test_a_tenant_sees_its_own_waste_only(server: InProcessServer) -> None:
    worker_id = await server.register()
    await measured(server, worker_id, 1, name="mine", tenant=ACME)
    await measured(server, worker_id, 1, name="theirs", tenant=OTHER)
    acme = await token_headers(server, Role.VIEWER, tenant=ACME)
    report = await server.ask("GET", "/reports/waste", headers=acme, expect=200)
    assert [item["name"] for item in report["items"]] == ["mine"]
    assert [one["tenant"] for one in report["tenants"]] == [ACME]
    await server.ask("GET", "/reports/waste?tenant=other", headers=acme, expect=403)


@pytest.mark.parametrize(
    "usage",
    [
        {},
        {"cpu_seconds": -1},
        {"cpu_seconds": "much", "memory_peak": True},
        {"memory_peak": 1e300, "cpu_seconds": None},
    ],
)
async def test_invalid_usage_figures_are_ignored(
    server: InProcessServer, usage: dict[str, Any]
) -> None:
    worker_id = await server.register()
    await server.finish(await server.start(worker_id), usage=usage)
    assert (await server.ask("GET", "/reports/waste"))["items"] == []


# Out of memory


@pytest.mark.parametrize(
    ("error", "memory"),
    [
        ({"reason": "memory", "message": "used 300 MiB of 256 MiB"}, 384 << 20),
        ({"type": "MemoryError", "message": ""}, 384 << 20),
        ({"reason": "processes", "message": "no memory of it"}, 256 << 20),
        ("memory", 256 << 20),
    ],
)
async def test_a_retry_after_running_out_of_memory_requests_more(
    server: InProcessServer, error: Any, memory: int
) -> None:
    worker_id = await server.register()
    retry = {"max_attempts": 3, "delay": 0, "memory_factor": 1.5, "memory_max": "1GiB"}
    fields = {"requirements": {"memory": "256MiB"}, "retry": retry}
    first = await server.start(worker_id, **fields)
    await server.finish(first, "failed", error=error)
    job = await server.ask("GET", f"/jobs/{first['job_id']}")
    assert job["requirements"]["memory"] == memory
    assert (job["retry"]["memory_factor"], job["retry"]["memory_max"]) == (1.5, GIB)
    (second,) = (await server.lease(worker_id))["executions"]
    assert second["requirements"]["memory"] == memory
    tries = (await server.ask("GET", f"/executions?job_id={first['job_id']}"))["items"]
    assert [one["memory"] for one in tries] == [memory, 256 << 20]
