"""Bulk actions, graphs, reasons and patches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.api.parsing.merge_patch import merge
from rota.store.limits import LOOKUP_COST
from tests.api.in_process_server import NOOP, InProcessServer

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=12,
)


async def test_a_patch_changes_a_job_that_has_not_started(server: InProcessServer) -> None:
    job = await server.submit(
        run_at="2100-01-01T00:00:00Z", labels={"a": "1", "b": "2"}, payload={"x": {"y": 1, "z": 2}}
    )
    path = f"/jobs/{job['job_id']}"
    patch = {
        "priority": 9,
        "labels": {"a": None, "c": "3"},
        "retry": {"max_attempts": 3},
        "payload": {"x": {"y": None}},
        "requirements": {"memory": "1GiB"},
    }
    after = await server.ask("PATCH", path, patch, expect=200)
    assert (after["priority"], after["labels"]) == (9, {"b": "2", "c": "3"})
    assert (after["retry"]["max_attempts"], after["retry"]["delay"]) == (3, 1)
    assert after["payload"] == {"x": {"z": 2}}
    assert (after["requirements"]["memory"], after["requirements"]["cpu"]) == (1024**3, 1)
    assert after["status"] == "pending"
    back = await server.ask("PATCH", path, {"run_at": None, "priority": None}, expect=200)
    assert (back["run_at"], back["priority"], back["status"]) == (None, 0, "queued")
    assert back["created_at"] == job["created_at"]


async def test_a_patch_keeps_numbers_that_json_readers_would_round(server: InProcessServer) -> None:
    job = await server.submit(payload={"big": 10**29})
    after = await server.ask("PATCH", f"/jobs/{job['job_id']}", {"priority": 1}, expect=200)
    assert after["payload"] == {"big": 10**29}


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        ({"priorty": 1}, "priorty"),
        ({"priority": 5000}, "priority"),
        ({"name": None}, "name"),
        ({"status": "succeeded"}, "status"),
        ({"retry": {"max_attempts": 0}}, "retry.max_attempts"),
        ({"dependencies": ["ref:x"]}, "dependencies[0]"),
    ],
)
async def test_a_bad_patch_is_refused_by_field(
    server: InProcessServer, patch: dict[str, Any], field: str
) -> None:
    job = await server.submit()
    problem = await server.ask("PATCH", f"/jobs/{job['job_id']}", patch, expect=422)
    assert problem["errors"][0]["field"] == field
    assert await server.ask("GET", f"/jobs/{job['job_id']}") == job


async def test_a_patch_comes_too_late_for_a_running_or_ended_job(server: InProcessServer) -> None:
    order = await server.start(await server.register())
    path = f"/jobs/{order['job_id']}"
    await server.ask("PATCH", path, {"priority": 1}, expect=409)
    await server.finish(order)
    await server.ask("PATCH", path, {"priority": 1}, expect=409)
    nobody = "/jobs/019a85c2-6b1e-7c3a-9f00-5e2d8a41c7b3"
    await server.ask("PATCH", nobody, {"priority": 1}, expect=404)
    assert (await server.http.patch(path, content=b"[1]")).status_code == 422


async def test_a_patch_may_change_dependencies_but_not_into_a_cycle(
    server: InProcessServer,
) -> None:
    first = await server.submit("first")
    second = await server.submit("second", dependencies=[first["job_id"]])
    path = f"/jobs/{first['job_id']}"
    circle = await server.ask("PATCH", path, {"dependencies": [second["job_id"]]}, expect=422)
    assert circle["type"].endswith("dependency_cycle")
    freed = await server.ask("PATCH", f"/jobs/{second['job_id']}", {"dependencies": []}, expect=200)
    assert freed["status"] == "queued"


@given(JSON, JSON)
def test_a_merge_follows_the_rfc(target: Any, patch: Any) -> None:
    merged = merge(target, patch)
    if not isinstance(patch, dict):
        assert merged == patch
        return
    assert isinstance(merged, dict)
    for name, value in patch.items():
        if value is None:
            assert name not in merged
        elif not isinstance(value, dict):
            assert merged[name] == value
    untouched = target if isinstance(target, dict) else {}
    assert all(merged[name] == value for name, value in untouched.items() if name not in patch)
    assert merge(merged, patch) == merged


async def test_a_bulk_action_acts_on_all_matching_jobs_and_counts_them(
    server: InProcessServer,
) -> None:
    for number in range(7):
        await server.submit(queue="q" if number < 5 else "other", labels={"n": str(number % 2)})
    spec = {"action": "cancel", "filter": {"queue": "q", "labels": {"n": "0"}}}
    dry = await server.ask("POST", "/jobs/bulk", {**spec, "dry_run": True}, expect=200)
    assert dry == {"count": 3, "refused": 0, "dry_run": True, "more": False, "reasons": {}}
    assert (await server.ask("POST", "/jobs/bulk", spec, expect=200))["count"] == 3
    assert len((await server.ask("GET", "/jobs?status=cancelled"))["items"]) == 3
    assert (await server.ask("POST", "/jobs/bulk", spec, expect=200))["count"] == 0


@pytest.mark.parametrize(
    "asked",
    [
        {"status": "queued,pending", "label": "team:a"},
        {"status": ["queued", "pending"], "label": ["team:a", "run:1"]},
        {"status": "queued", "labels": {"team": "a"}, "label": "run:1"},
    ],
)
async def test_a_bulk_filter_has_the_filters_of_the_list_of_jobs(
    server: InProcessServer, asked: dict[str, Any]
) -> None:
    await server.submit(labels={"team": "a", "run": "1"})
    await server.submit(labels={"team": "b", "run": "1"})
    answer = await server.ask("POST", "/jobs/bulk", {"action": "cancel", "filter": asked})
    assert answer["count"] == 1
    for wrong, field in (({"status": "queued,odd"}, "status"), ({"label": "team"}, "label")):
        body = {"action": "cancel", "filter": wrong}
        problem = await server.ask("POST", "/jobs/bulk", body, expect=422)
        assert problem["errors"][0]["field"] == f"filter.{field}"


@pytest.mark.parametrize("none", ["", " ,", []])
async def test_an_empty_status_in_a_bulk_filter_is_refused(
    server: InProcessServer, none: str | list[str]
) -> None:
    await server.submit(queue="q")
    body = {"action": "cancel", "filter": {"queue": "q", "status": none}}
    problem = await server.ask("POST", "/jobs/bulk", body, expect=422)
    assert problem["errors"][0]["field"] == "filter.status"
    assert (await server.ask("GET", "/jobs?status=cancelled"))["items"] == []


async def test_a_doubled_dependency_is_reported_by_its_senders_name(
    server: InProcessServer,
) -> None:
    task = {"kind": "noop"}
    twice = ["ref:first", {"job_id": "ref:first", "when": "failed"}]
    jobs = [
        {"name": "a", "task": task, "ref": "first"},
        {"name": "b", "task": task, "dependencies": twice},
    ]
    problem = await server.ask("POST", "/jobs/batch", {"jobs": jobs}, expect=422)
    (error,) = problem["errors"]
    assert error["field"] == "jobs[1].dependencies[1]"
    assert error["message"] == "ref:first is named twice, with different `when`"


async def test_a_preview_counts_no_further_than_its_limit(server: InProcessServer) -> None:
    for number in range(5):
        await server.submit(priority=number % 2)
    spec: dict[str, Any] = {"action": "cancel", "filter": {}, "dry_run": True}
    shown = [
        await server.ask("POST", "/jobs/bulk", {**spec, "limit": limit}, expect=200)
        for limit in (3, 5, 9)
    ]
    assert [(one["count"], one["more"]) for one in shown] == [(3, True), (5, False), (5, False)]
    move = {**spec, "action": "reprioritise", "priority": 1}
    assert (await server.ask("POST", "/jobs/bulk", move, expect=200))["count"] == 3
    assert len((await server.ask("GET", "/jobs?status=queued"))["items"]) == 5


async def test_a_preview_without_a_limit_counts_page_by_page(
    server: InProcessServer,
) -> None:
    server.limit(bulk_counted_at_once=2)
    for _ in range(5):
        await server.submit()
    spec = {"action": "cancel", "filter": {}, "dry_run": True}
    assert (await server.ask("POST", "/jobs/bulk", spec, expect=200))["count"] == 5


async def test_a_preview_of_rarely_matching_filters_says_that_it_stopped_early(
    server: InProcessServer,
) -> None:
    for number in range(6):
        await server.submit("mail", queue="slow" if number else "fast")
        await server.submit("other", queue="fast")
    rare = {"name": "mail", "queue": "fast"}
    spec = {"action": "cancel", "filter": rare, "dry_run": True, "limit": 2}
    server.limit(preview_look=LOOKUP_COST)
    part = await server.ask("POST", "/jobs/bulk", spec, expect=200)
    assert (part["count"], part["more"]) == (0, True)
    whole = {name: value for name, value in spec.items() if name != "limit"}
    shown = await server.ask("POST", "/jobs/bulk", whole, expect=200)
    assert (shown["count"], shown["more"]) == (1, False)


async def test_a_bulk_action_reaches_jobs_that_its_search_finds_late(
    server: InProcessServer,
) -> None:
    server.limit(page_look=2)
    for number in range(9):
        await server.submit(name="rare" if number in (0, 5) else "usual")
    spec = {"action": "cancel", "filter": {"name": "rare"}}
    assert (await server.ask("POST", "/jobs/bulk", spec, expect=200))["count"] == 2


async def test_a_preview_of_one_error_says_that_it_stopped_early(
    server: InProcessServer,
) -> None:
    worker = await server.register()
    for number in range(4):
        started = await server.start(worker, name="bill")
        await server.finish(started, status="failed", error=f"row {number} is wrong")
    (group,) = (await server.ask("GET", "/dead-letters/groups"))["items"]
    wanted = {"fingerprint": group["fingerprint"]}
    spec = {"action": "retry", "filter": wanted, "dry_run": True, "limit": 100}
    whole = await server.ask("POST", "/jobs/bulk", spec, expect=200)
    assert (whole["count"], whole["more"]) == (4, False)
    server.limit(bulk_examined_max=3)
    part = await server.ask("POST", "/jobs/bulk", spec, expect=200)
    assert (part["count"], part["more"]) == (3, True)


async def test_bulk_retries_deletes_and_reprioritises(server: InProcessServer) -> None:
    ids = [(await server.submit())["job_id"] for _ in range(3)]
    move = {"action": "reprioritise", "priority": 42, "filter": {}}
    assert (await server.ask("POST", "/jobs/bulk", move, expect=200))["count"] == 3
    assert (await server.ask("GET", f"/jobs/{ids[0]}"))["priority"] == 42
    named = {"action": "cancel", "filter": {"job_ids": ids[:2]}}
    assert (await server.ask("POST", "/jobs/bulk", named, expect=200))["count"] == 2
    again = {"action": "retry", "filter": {"status": "cancelled"}}
    assert (await server.ask("POST", "/jobs/bulk", again, expect=200))["count"] == 2
    gone = {"action": "delete", "filter": {"status": ["queued"]}}
    answer = await server.ask("POST", "/jobs/bulk", gone, expect=200)
    assert (answer["count"], answer["refused"]) == (0, 3)


async def test_a_bulk_action_repeated_under_its_key_runs_once(
    server: InProcessServer,
) -> None:
    await server.submit()
    spec = {"action": "cancel", "filter": {}}
    keyed = {"headers": {"Idempotency-Key": "b"}}
    first = await server.ask("POST", "/jobs/bulk", spec, expect=200, **keyed)
    await server.submit()
    assert await server.ask("POST", "/jobs/bulk", spec, expect=200, **keyed) == first
    assert len((await server.ask("GET", "/jobs?status=queued"))["items"]) == 1
    await server.ask("POST", "/jobs/bulk", {**spec, "dry_run": True}, expect=409, **keyed)


async def test_a_priority_goes_with_reprioritise_only(server: InProcessServer) -> None:
    for spec in (
        {"action": "cancel", "priority": 1, "filter": {}},
        {"action": "reprioritise", "filter": {}},
    ):
        problem = await server.ask("POST", "/jobs/bulk", spec, expect=422)
        assert problem["errors"][0]["field"] == "priority"


async def test_a_graph_shows_all_connected_jobs(server: InProcessServer) -> None:
    body = {
        "jobs": [
            {"name": "a", "task": NOOP, "ref": "a"},
            {"name": "b", "task": NOOP, "ref": "b", "dependencies": ["ref:a"]},
            {"name": "c", "task": NOOP, "ref": "c", "dependencies": ["ref:a"]},
            {
                "name": "d",
                "task": NOOP,
                "dependencies": ["ref:b", {"job_id": "ref:c", "when": "finished"}],
            },
            {"name": "alone", "task": NOOP},
        ]
    }
    a, b, c, d, alone = (await server.ask("POST", "/jobs/batch", body, expect=201))["job_ids"]
    for start in (a, d):
        graph = await server.ask("GET", f"/jobs/{start}/graph", expect=200)
        assert sorted(node["name"] for node in graph["nodes"]) == ["a", "b", "c", "d"]
        edges = {(edge["from"], edge["to"], edge["when"]) for edge in graph["edges"]}
        assert edges == {
            (a, b, "succeeded"),
            (a, c, "succeeded"),
            (b, d, "succeeded"),
            (c, d, "finished"),
        }
        assert graph["truncated"] is False
    assert len((await server.ask("GET", f"/jobs/{alone}/graph"))["nodes"]) == 1


async def test_why_explains_waiting_running_and_finished_jobs(
    server: InProcessServer,
) -> None:
    job = await server.submit(requirements={"cpu": 64})
    path = f"/jobs/{job['job_id']}/why"
    why = await server.ask("GET", path, expect=200)
    assert why["status"] == "queued"
    assert why["cause"]["message"]
    order = await server.start(await server.register())
    path = f"/jobs/{order['job_id']}/why"
    running = await server.ask("GET", path, expect=200)
    assert (running["cause"]["code"], running["status"]) == ("running", "running")
    await server.finish(order)
    ended = await server.ask("GET", path, expect=200)
    assert ended["cause"]["code"] == "succeeded"
    nobody = "/jobs/019a85c2-6b1e-7c3a-9f00-5e2d8a41c7b3/why"
    await server.ask("GET", nobody, expect=404)
