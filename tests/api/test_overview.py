"""Overview: history, error groups, attention, digest and timeline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rota.api.app import create_app
from rota.api.endpoints.overview import count_buckets, first_id
from rota.api.limits import TIMELINE_BUCKET_PARTS, TIMELINE_SAMPLE
from rota.api.metrics import MetricsHistory, quantile
from rota.core.model import ExecutionState, WorkerId
from rota.store.queries import Sampled
from rota.store.tokens import Role
from tests.api.in_process_server import HOST, InProcessServer, StreamReader
from tests.api.token_headers import ACME, token_headers


async def fail(server: InProcessServer, worker: str, name: str, **report: Any) -> str:
    """Makes a job use up its attempts; returns its id."""
    order = await server.start(worker, name=name, **report.pop("job", {}))
    await server.finish(order, "failed", retryable=False, **report)
    return str(order["job_id"])


@pytest.mark.parametrize(
    ("buckets", "share", "wanted"),
    [
        ([(1, 0), (2, 0), (float("inf"), 0)], 0.5, None),
        ([(1, 10), (2, 10), (float("inf"), 10)], 0.5, 0.5),
        ([(1, 5), (2, 10), (float("inf"), 10)], 0.95, 1.9),
        ([(1, 0), (2, 0), (float("inf"), 4)], 0.5, 2),
    ],
)
def test_a_quantile_is_interpolated_between_buckets(
    buckets: list[tuple[float, int]], share: float, wanted: float | None
) -> None:
    assert quantile(buckets, share) == (wanted if wanted is None else pytest.approx(wanted))


async def test_a_history_sample_shows_what_happened_since_the_last(server: InProcessServer) -> None:
    recorder = MetricsHistory(server.engine, server.deps.metrics)
    worker = await server.register("box")
    await server.submit("early", run_at="2100-01-01T00:00:00Z")
    await recorder.sample()
    assert recorder.last_hour() == []
    order = await server.start(worker, name="late")
    await fail(server, worker, "broken")
    await server.submit("waits", run_at="2100-01-01T00:00:00Z")
    await recorder.sample()
    (sample,) = recorder.last_hour()
    assert (sample.submitted, sample.failed, sample.succeeded) == (3, 1, 0)
    assert (sample.waiting, sample.running) == (2, 1)
    assert sample.resources["cpu"] == {"capacity": 8, "used": 1}
    assert sample.wait_p50 is not None
    await server.finish(order)
    await recorder.sample()
    assert recorder.newest() == recorder.last_hour()[-1]
    assert recorder.last_hour()[-1].succeeded == 1
    assert recorder.last_hour()[-1].wait_p50 is None


async def test_a_queues_rate_is_known_after_two_samples(server: InProcessServer) -> None:
    recorder = MetricsHistory(server.engine, server.deps.metrics)
    worker = await server.register("box")
    await recorder.sample()
    assert recorder.rate("default") is None
    for _ in range(3):
        await server.finish(await server.start(worker))
    await recorder.sample()
    assert (recorder.rate("default") or 0) > 0
    assert recorder.rate("idle") == 0


async def test_a_queue_that_grows_by_much_is_noticed_and_one_that_is_long_is_not(
    server: InProcessServer,
) -> None:
    jobs = [{"name": "j", "task": {"kind": "noop"}, "queue": "long"}] * 150
    await server.ask("POST", "/jobs/batch", {"jobs": jobs}, expect=201)
    recorder = MetricsHistory(server.engine, server.deps.metrics)
    await recorder.sample()
    more = [{**jobs[0], "queue": "growing"}] * 120
    await server.ask("POST", "/jobs/batch", {"jobs": more}, expect=201)
    await recorder.sample()
    assert recorder.growing() == {"growing": 120}


async def test_the_history_is_shown_but_not_to_a_tenant(server: InProcessServer) -> None:
    recorder = MetricsHistory(server.engine, server.deps.metrics)
    await recorder.sample()
    await server.submit()
    await recorder.sample()
    server.http._transport.app = create_app(replace(server.deps, metrics_history=recorder))  # type: ignore[attr-defined]
    hour = await server.ask("GET", "/stats/history", expect=200)
    assert (hour["step"], len(hour["items"]), hour["items"][0]["submitted"]) == (5, 1, 1)
    day = await server.ask("GET", "/stats/history?window=day", expect=200)
    assert day["items"] == []
    tenant = await token_headers(server, Role.VIEWER, tenant=ACME)
    assert (await server.http.get("/stats/history", headers=tenant)).status_code == 403


async def test_dead_letters_that_failed_alike_are_one_group(server: InProcessServer) -> None:
    worker = await server.register("box")
    for number in range(3):
        error = {"type": "HTTPError", "message": f"order {number} at 0x7f{number}a refused"}
        await fail(server, worker, "invoice", error=error)
    other = await fail(server, worker, "invoice", error={"message": "out of paper"})
    await fail(server, worker, "mail", error={"message": "out of paper"})
    found = await server.ask("GET", "/dead-letters/groups", expect=200)
    assert (found["examined"], found["more"]) == (5, False)
    assert [(one["name"], one["count"]) for one in found["items"]] == [
        ("invoice", 3),
        ("invoice", 1),
        ("mail", 1),
    ]
    assert found["items"][0]["message"].startswith("HTTPError: order 2 ")
    assert found["items"][1]["job_ids"] == [other]
    named = await server.ask("GET", "/dead-letters/groups?name=mail", expect=200)
    assert [one["name"] for one in named["items"]] == ["mail"]


@pytest.mark.parametrize("code", [1, 2])
async def test_different_exit_codes_are_different_groups(
    server: InProcessServer, code: int
) -> None:
    worker = await server.register("box")
    await fail(server, worker, "j", error={"message": "exit code 1"})
    await fail(server, worker, "j", error={"message": f"exit code {code}"})
    found = await server.ask("GET", "/dead-letters/groups", expect=200)
    assert len(found["items"]) == code


@pytest.mark.parametrize("error", [None, "text", ["a", 1], {"code": 5}, 7])
async def test_errors_of_any_shape_have_a_group(server: InProcessServer, error: Any) -> None:
    worker = await server.register("box")
    await fail(server, worker, "j", error=error)
    (one,) = (await server.ask("GET", "/dead-letters/groups", expect=200))["items"]
    assert one["count"] == 1
    assert isinstance(one["message"], str)


async def test_a_group_can_be_retried_alone_and_piece_by_piece(server: InProcessServer) -> None:
    worker = await server.register("box")
    for number in range(5):
        await fail(server, worker, "invoice", error={"message": f"timeout after {number} s"})
    await fail(server, worker, "invoice", error={"message": "out of paper"})
    groups = (await server.ask("GET", "/dead-letters/groups", expect=200))["items"]
    spec = {"action": "retry", "filter": {"fingerprint": groups[0]["fingerprint"]}, "limit": 2}
    dry = await server.ask("POST", "/jobs/bulk", {**spec, "dry_run": True}, expect=200)
    assert (dry["count"], dry["more"]) == (2, True)
    shown = [await server.ask("POST", "/jobs/bulk", spec, expect=200) for _ in range(3)]
    assert [(one["count"], one["more"]) for one in shown] == [(2, True), (2, True), (1, False)]
    left = (await server.ask("GET", "/dead-letters/groups", expect=200))["items"]
    assert [one["message"] for one in left] == ["out of paper"]


async def test_a_bulk_reprioritise_in_pieces_changes_each_job_once(
    server: InProcessServer,
) -> None:
    for _ in range(5):
        await server.submit("j", run_at="2100-01-01T00:00:00Z")
    spec = {"action": "reprioritise", "priority": 9, "filter": {"name": "j"}, "limit": 2}
    shown = [await server.ask("POST", "/jobs/bulk", spec, expect=200) for _ in range(4)]
    assert [one["count"] for one in shown] == [2, 2, 1, 0]


async def test_attention_lists_what_needs_it_with_a_link(server: InProcessServer) -> None:
    assert (await server.ask("GET", "/attention", expect=200))["items"] == []
    worker = await server.register("box")
    job_id = await fail(server, worker, "invoice", error={"message": "out of paper"})
    await server.submit("stuck", queue="closed")
    await server.ask("POST", "/queues/closed/pause", expect=200)
    viewer = await token_headers(server, Role.VIEWER, tenant="default")
    own = await server.http.get("/attention", headers=viewer)
    assert [one["kind"] for one in own.json()["items"]] == ["failing"]
    server.http._transport.app = create_app(server.deps)  # type: ignore[attr-defined]
    items = (await server.ask("GET", "/attention", expect=200))["items"]
    assert [(one["kind"], one["name"]) for one in items] == [
        ("failing", "invoice"),
        ("queue", "closed"),
    ]
    assert items[0]["job_id"] == job_id
    assert items[0]["message"] == "out of paper"


async def test_a_firing_alert_needs_attention(server: InProcessServer) -> None:
    await server.ask("PUT", "/alerts/disk_low", {"threshold": 1e17}, expect=200)
    await server.deps.alerts.evaluate()
    (item,) = (await server.ask("GET", "/attention", expect=200))["items"]
    assert (item["kind"], item["about"]) == ("alert", "disk_low")
    assert item["message"].startswith("fires (critical): disk low")


async def test_a_silenced_alert_needs_no_attention(server: InProcessServer) -> None:
    await server.ask("PUT", "/alerts/disk_low", {"threshold": 1e17}, expect=200)
    await server.deps.alerts.evaluate()
    await server.ask("PUT", "/alerts/disk_low/silence", {"for": "1h"}, expect=200)
    assert (await server.ask("GET", "/attention", expect=200))["items"] == []


async def test_an_answer_about_attention_is_shared_for_a_few_seconds(
    server: InProcessServer,
) -> None:
    before = await server.ask("GET", "/attention", expect=200)
    await fail(server, await server.register("box"), "invoice")
    assert await server.ask("GET", "/attention", expect=200) == before


async def test_a_digest_carries_the_figures_and_comes_again_when_something_changed(
    server: InProcessServer,
) -> None:
    async with StreamReader(server, "/stream?digest=true") as tap:
        first = await tap.read_until('"submitted_total":0')
        await server.submit("j")
        text = await tap.read_until('"submitted_total":1')
    assert "event: digest" in first
    assert '"kind":"job"' not in text


async def test_a_tenants_digest_has_no_figures_of_others(server: InProcessServer) -> None:
    viewer = await token_headers(server, Role.VIEWER, tenant=ACME)
    async with StreamReader(server, "/stream?digest=true", viewer) as tap:
        text = await tap.read_until('"seq"')
    assert '"stats":null' in text


async def test_the_timeline_shows_what_ran_where_and_what_runs(server: InProcessServer) -> None:
    worker, other = await server.register("box"), await server.register("crate")
    done = await server.start(worker, name="done")
    await server.finish(done)
    await server.lease(worker, max=0, wait=0)
    running = await server.start(other, name="runs")
    found = await server.ask("GET", "/timeline", expect=200)
    bars = {one["name"]: one for one in found["items"]}
    assert bars["done"]["worker_id"] == worker
    assert bars["done"]["end"] is not None
    assert bars["runs"]["execution_id"] == running["execution_id"]
    assert bars["runs"]["end"] is None
    mine = await server.ask("GET", f"/timeline?worker_id={worker}", expect=200)
    assert [one["name"] for one in mine["items"]] == ["done"]


async def test_the_timeline_shows_reservations(server: InProcessServer) -> None:
    worker = await server.register("box", resources={"cpu": 4})
    await server.start(worker, name="runs", requirements={"cpu": 3})
    wide = await server.submit(name="wide", requirements={"cpu": 4}, tenant=ACME)
    small = await server.submit(name="small", requirements={"cpu": 1})
    await server.lease(worker, max=5, wait=0)
    found = await server.ask("GET", "/timeline", expect=200)
    (reserved,) = found["reserved"]
    assert (reserved["job_id"], reserved["name"], reserved["worker_id"]) == (
        wide["job_id"],
        "wide",
        worker,
    )
    assert reserved["start"] < reserved["end"]
    assert small["job_id"] not in str(found["reserved"])
    mine = await token_headers(server, Role.VIEWER, tenant="other")
    theirs = (await server.http.get("/timeline", headers=mine)).json()
    assert theirs["reserved"] == []
    long_ago = "/timeline?after=2020-01-01T00:00:00Z&before=2020-01-02T00:00:00Z"
    assert (await server.ask("GET", long_ago, expect=200))["reserved"] == []


async def test_a_timeline_leaves_out_executions_claimed_outside_its_window(
    server: InProcessServer,
) -> None:
    worker = await server.register("box")
    await server.finish(await server.start(worker, name="now"))
    long_ago = "/timeline?after=2020-01-01T00:00:00Z&before=2020-01-02T00:00:00Z"
    assert (await server.ask("GET", long_ago, expect=200))["items"] == []
    wrong = "/timeline?after=2020-01-02T00:00:00Z&before=2020-01-01T00:00:00Z"
    assert (await server.http.get(wrong)).status_code == 422
    wide = "/timeline?after=2020-01-01T00:00:00Z&before=2026-01-01T00:00:00Z"
    assert (await server.http.get(wide)).status_code == 422


async def test_a_busy_timeline_is_answered_with_counts(server: InProcessServer) -> None:
    server.limit(timeline_bars_max=3)
    worker = await server.register("box")
    for number in range(6):
        outcome = "failed" if number == 0 else "succeeded"
        await server.finish(await server.start(worker, name="short"), outcome)
        await server.lease(worker, max=0, wait=0)
    running = await server.start(worker, name="runs")
    found = await server.ask("GET", "/timeline", expect=200)
    assert found["more"]
    assert [one["execution_id"] for one in found["items"]] == [running["execution_id"]]
    assert found["running"] == 1
    crowd = found["crowd"]
    assert (crowd["total"], crowd["estimated"]) == (7, False)
    (lane,) = crowd["lanes"]
    assert (lane["worker_id"], sum(lane["began"]), sum(lane["failed"])) == (worker, 7, 1)
    assert crowd["step"] * (len(lane["began"]) - 1) < 3600 <= crowd["step"] * len(lane["began"])
    acme = await token_headers(server, Role.VIEWER, tenant=ACME)
    theirs = (await server.http.get("/timeline", headers=acme)).json()
    assert (theirs["items"], theirs["running"]) == ([], 0)
    assert (theirs["crowd"]["total"], theirs["crowd"]["lanes"]) == (0, [])


async def test_a_tenants_token_gets_its_own_counts_of_a_busy_timeline(
    server: InProcessServer,
) -> None:
    server.limit(timeline_bars_max=3)
    worker = await server.register("box")
    for number, tenant in enumerate((ACME, "other") * 3):
        outcome = "failed" if number == 0 else "succeeded"
        await server.finish(await server.start(worker, name="short", tenant=tenant), outcome)
        await server.lease(worker, max=0, wait=0)
    running = await server.start(worker, name="runs", tenant=ACME)
    acme = await token_headers(server, Role.VIEWER, tenant=ACME)
    theirs = (await server.http.get("/timeline", headers=acme)).json()
    assert [one["execution_id"] for one in theirs["items"]] == [running["execution_id"]]
    assert (theirs["more"], theirs["running"]) == (True, 1)
    (lane,) = theirs["crowd"]["lanes"]
    assert (theirs["crowd"]["total"], sum(lane["began"]), sum(lane["failed"])) == (4, 4, 1)
    assert (await server.ask("GET", "/timeline", expect=200))["crowd"]["total"] == 7


def test_a_part_that_was_sampled_is_estimated_by_its_rate() -> None:
    # As many as are looked at in the first quarter of the first part; some of them failed.
    last = first_id(1_000 + 249)
    well = TIMELINE_SAMPLE - 25
    seen = [
        Sampled(0, WorkerId("a"), ExecutionState.SUCCEEDED, well, last),
        Sampled(0, WorkerId("b"), ExecutionState.FAILED, 25, first_id(1_000)),
        Sampled(1, WorkerId("a"), ExecutionState.SUCCEEDED, 7, first_id(2_500)),
        Sampled(TIMELINE_BUCKET_PARTS, WorkerId("a"), ExecutionState.LOST, 1, first_id(9_500)),
    ]
    crowd = count_buckets(
        seen, list(range(1_000, 1_000 * (TIMELINE_BUCKET_PARTS + 3), 1_000)), TIMELINE_SAMPLE
    )
    assert crowd.estimated
    first, second = crowd.lanes
    burst = 4 * well
    assert (first.began, first.failed) == ([burst + 7, 1], [0, 1]), "it counts for its part alone"
    assert (second.began, second.failed) == ([100, 0], [100, 0])
    assert (crowd.total, crowd.step) == (burst + 100 + 8, TIMELINE_BUCKET_PARTS)


def test_a_tenants_count_is_estimated_by_the_rate_of_all() -> None:
    seen = [
        Sampled(0, WorkerId("a"), ExecutionState.SUCCEEDED, 10, first_id(1_000)),
        Sampled(
            0,
            WorkerId("b"),
            ExecutionState.SUCCEEDED,
            TIMELINE_SAMPLE - 10,
            first_id(1_249),
            is_own=False,
        ),
    ]
    edges = list(range(1_000, 1_000 * (TIMELINE_BUCKET_PARTS + 2), 1_000))
    crowd = count_buckets(seen, edges, TIMELINE_SAMPLE)
    assert (crowd.total, crowd.estimated) == (40, True)
    assert [one.worker_id for one in crowd.lanes] == ["a"], "where others ran is not told"


async def test_a_session_shows_the_caller_and_the_server(server: InProcessServer) -> None:
    me = await server.ask("GET", "/session", expect=200)
    assert (me["name"], me["role"], me["tenant"], me["node"]) == ("tests", "admin", None, "node-a")
    acme = await token_headers(server, Role.VIEWER, tenant=ACME)
    theirs = (await server.http.get("/session", headers=acme)).json()
    assert (theirs["role"], theirs["tenant"]) == ("viewer", ACME)
    assert (await server.http.get("/session", headers={"Authorization": ""})).status_code == 401
    assert HOST not in me.values()


async def test_a_part_of_a_log_has_the_requested_bytes_and_the_size_of_the_whole(
    server: InProcessServer,
) -> None:
    order = await server.start(await server.register("box"))
    path = f"/executions/{order['execution_id']}/logs"
    text = "".join(f"line {number}\n" for number in range(100))
    assert (await server.http.post(path, content=text.encode())).status_code == 200
    part = await server.http.get(f"{path}?offset=7&limit=20")
    assert part.text == text[7:27]
    assert part.headers["rota-log-offset"] == "7"
    assert part.headers["rota-log-size"] == str(len(text))
    tail = await server.http.get(f"{path}?tail=2&limit=1000")
    assert tail.text == "line 98\nline 99\n"
    past = await server.http.get(f"{path}?offset=5000&limit=10")
    assert (past.status_code, past.text) == (200, "")
    assert (await server.http.get(f"{path}?follow=true&limit=10")).status_code == 422
    assert (await server.http.get(f"{path}?limit=0")).status_code == 422
