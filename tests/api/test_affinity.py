"""Affinity, labels and taints over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.in_process_server import InProcessServer

WISH: dict[str, Any] = {
    "require": {"zone": ["b", "a"]},
    "prefer": {"disk": "ssd"},
    "spread": "host",
    "near": "previous",
    "wait": "5s",
    "tolerate": ["gpu"],
}
SHOWN: dict[str, Any] = {
    "require": {"zone": ["a", "b"]},
    "prefer": {"disk": ["ssd"]},
    "spread": "host",
    "near": "previous",
    "wait": 5,
    "tolerate": ["gpu"],
}


async def test_a_job_shows_its_affinity(server: InProcessServer) -> None:
    assert (await server.submit(affinity=WISH))["affinity"] == SHOWN
    assert (await server.submit())["affinity"] is None
    assert (await server.submit(affinity={}))["affinity"] is None


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"require": {"zone": []}}, "affinity.require"),
        ({"require": {"": "a"}}, "affinity.require"),
        ({"prefer": {"zone": 3}}, "affinity.prefer"),
        ({"near": "home"}, "affinity.near"),
        ({"wait": "soon"}, "affinity.wait"),
        ({"requires": {}}, "affinity"),
        ({"tolerate": "gpu"}, "affinity.tolerate"),
    ],
)
async def test_an_invalid_affinity_is_refused_by_field(
    server: InProcessServer, bad: dict[str, Any], field: str
) -> None:
    body = {"name": "j", "task": {"kind": "noop"}, "affinity": bad}
    answer = await server.http.request("POST", "/jobs", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].startswith(field)


async def test_a_patch_changes_adds_and_removes_preferences(server: InProcessServer) -> None:
    path = f"/jobs/{(await server.submit(affinity={'require': {'zone': 'a'}}))['job_id']}"
    patch = {"affinity": {"prefer": {"disk": "ssd"}, "require": {"rack": "7"}}}
    changed = await server.ask("PATCH", path, patch, expect=200)
    assert changed["affinity"]["require"] == {"rack": ["7"], "zone": ["a"]}
    assert changed["affinity"]["prefer"] == {"disk": ["ssd"]}
    changed = await server.ask("PATCH", path, {"affinity": {"require": {"zone": None}}}, expect=200)
    assert changed["affinity"]["require"] == {"rack": ["7"]}
    changed = await server.ask("PATCH", path, {"priority": 3}, expect=200)
    assert changed["affinity"]["require"] == {"rack": ["7"]}
    assert (await server.ask("PATCH", path, {"affinity": None}, expect=200))["affinity"] is None


async def test_a_patched_preference_decides_the_placement(server: InProcessServer) -> None:
    worker_id = await server.register(labels={"zone": "b"})
    job = await server.submit(affinity={"require": {"zone": "a"}})
    assert (await server.lease(worker_id, wait=0))["executions"] == []
    patch = {"affinity": {"require": {"zone": "b"}}}
    await server.ask("PATCH", f"/jobs/{job['job_id']}", patch, expect=200)
    assert len((await server.lease(worker_id))["executions"]) == 1


async def test_a_worker_shows_its_labels_and_the_taints_it_requires(
    server: InProcessServer,
) -> None:
    worker_id = await server.register(labels={"zone": "a"}, only=["gpu", "gpu"])
    shown = await server.ask("GET", f"/workers/{worker_id}")
    assert (shown["labels"], shown["only"]) == ({"zone": "a"}, ["gpu"])


async def test_a_tainted_worker_takes_only_jobs_that_tolerate_it(server: InProcessServer) -> None:
    worker_id = await server.register(only=["batch"])
    plain = await server.submit("plain")
    await server.submit("tolerant", affinity={"tolerate": ["batch"]})
    (order,) = (await server.lease(worker_id))["executions"]
    assert order["name"] == "tolerant"
    why = await server.ask("GET", f"/jobs/{plain['job_id']}/why")
    assert "kept for jobs that ask for batch" in why["cause"]["message"]


async def test_a_schedule_template_may_have_an_affinity(server: InProcessServer) -> None:
    job = {"name": "j", "task": {"kind": "noop"}, "affinity": {"require": {"zone": "a"}}}
    body = {"name": "nightly", "cron": "0 3 * * *", "job": job}
    schedule = await server.ask("POST", "/schedules", body, expect=201)
    assert schedule["job"]["affinity"]["require"] == {"zone": ["a"]}
    path = f"/schedules/{schedule['schedule_id']}"
    run = await server.ask("POST", f"{path}/trigger", expect=201)
    made = await server.ask("GET", f"/jobs/{run['job_id']}")
    assert made["affinity"]["require"] == {"zone": ["a"]}
