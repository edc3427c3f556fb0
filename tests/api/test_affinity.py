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


async def test_what_is_asked_for_is_shown(house: InProcessServer) -> None:
    assert (await house.submit(affinity=WISH))["affinity"] == SHOWN
    assert (await house.submit())["affinity"] is None
    assert (await house.submit(affinity={}))["affinity"] is None


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
async def test_nonsense_is_refused_by_its_field(
    house: InProcessServer, bad: dict[str, Any], field: str
) -> None:
    body = {"name": "j", "task": {"kind": "noop"}, "affinity": bad}
    answer = await house.http.request("POST", "/jobs", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].startswith(field)


async def test_a_patch_changes_adds_and_removes_wishes(house: InProcessServer) -> None:
    path = f"/jobs/{(await house.submit(affinity={'require': {'zone': 'a'}}))['job_id']}"
    patch = {"affinity": {"prefer": {"disk": "ssd"}, "require": {"rack": "7"}}}
    changed = await house.ask("PATCH", path, patch, expect=200)
    assert changed["affinity"]["require"] == {"rack": ["7"], "zone": ["a"]}
    assert changed["affinity"]["prefer"] == {"disk": ["ssd"]}
    changed = await house.ask("PATCH", path, {"affinity": {"require": {"zone": None}}}, expect=200)
    assert changed["affinity"]["require"] == {"rack": ["7"]}
    changed = await house.ask("PATCH", path, {"priority": 3}, expect=200)
    assert changed["affinity"]["require"] == {"rack": ["7"]}
    assert (await house.ask("PATCH", path, {"affinity": None}, expect=200))["affinity"] is None


async def test_a_patched_wish_is_what_counts(house: InProcessServer) -> None:
    worker_id = await house.register(labels={"zone": "b"})
    job = await house.submit(affinity={"require": {"zone": "a"}})
    assert (await house.lease(worker_id, wait=0))["executions"] == []
    patch = {"affinity": {"require": {"zone": "b"}}}
    await house.ask("PATCH", f"/jobs/{job['job_id']}", patch, expect=200)
    assert len((await house.lease(worker_id))["executions"]) == 1


async def test_a_worker_shows_its_labels_and_whom_it_is_kept_for(house: InProcessServer) -> None:
    worker_id = await house.register(labels={"zone": "a"}, only=["gpu", "gpu"])
    shown = await house.ask("GET", f"/workers/{worker_id}")
    assert (shown["labels"], shown["only"]) == ({"zone": "a"}, ["gpu"])


async def test_a_worker_kept_for_some_takes_only_those(house: InProcessServer) -> None:
    worker_id = await house.register(only=["batch"])
    plain = await house.submit("plain")
    await house.submit("tolerant", affinity={"tolerate": ["batch"]})
    (order,) = (await house.lease(worker_id))["executions"]
    assert order["name"] == "tolerant"
    why = await house.ask("GET", f"/jobs/{plain['job_id']}/why")
    assert "take only jobs that ask for batch" in why["cause"]["message"]


async def test_a_template_of_a_schedule_may_say_where_to_run(house: InProcessServer) -> None:
    job = {"name": "j", "task": {"kind": "noop"}, "affinity": {"require": {"zone": "a"}}}
    body = {"name": "nightly", "cron": "0 3 * * *", "job": job}
    schedule = await house.ask("POST", "/schedules", body, expect=201)
    assert schedule["job"]["affinity"]["require"] == {"zone": ["a"]}
    path = f"/schedules/{schedule['schedule_id']}"
    run = await house.ask("POST", f"{path}/trigger", expect=201)
    made = await house.ask("GET", f"/jobs/{run['job_id']}")
    assert made["affinity"]["require"] == {"zone": ["a"]}
