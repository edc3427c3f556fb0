"""Calls for every cell through a gateway: lists, statistics, queues, bulk actions."""

from __future__ import annotations

from typing import Any

from rota.gateway.endpoints import join_autoscale, join_waste
from tests.gateway.fleet import Gateway, TestFleet, until


async def spread(gateway: Gateway, count: int) -> list[str]:
    """Submits jobs of many tenants; returns their ids, newest first."""
    made = [await gateway.submit(f"tenant-{number}") for number in range(count)]
    return sorted((job["job_id"] for job in made), reverse=True)


async def test_a_list_of_all_cells_has_pages_newest_first(gateway: Gateway) -> None:
    made = await spread(gateway, 23)
    for limit in (1, 7, 23, 24):
        pages = [page async for page in gateway.pages("/jobs", limit=limit)]
        assert [job["job_id"] for page in pages for job in page["items"]] == made
        assert all(len(page["items"]) <= limit for page in pages)


async def test_a_list_continues_while_a_cell_is_down_and_is_complete_when_it_is_back(
    fleet: TestFleet, gateway: Gateway
) -> None:
    made = await spread(gateway, 30)
    south = fleet.cells["south"].listening
    seen: list[str] = []
    number = 0
    async for page in gateway.pages("/jobs", limit=4):
        seen += [job["job_id"] for job in page["items"]]
        if number == 0:
            await south.stop()
        if number == 2:
            missing = page["missing_cells"]
            assert [lack["cell"] for lack in missing] == ["south"]
            await south.start()
        number += 1
    assert len(seen) == len(set(seen))
    assert sorted(seen, reverse=True) == made


async def test_a_list_does_not_end_while_a_cell_is_missing(
    fleet: TestFleet, gateway: Gateway
) -> None:
    await spread(gateway, 6)
    await fleet.cells["south"].listening.stop()
    page = await gateway.ask("GET", "/jobs", expect=200)
    assert page["missing_cells"][0]["cell"] == "south"
    query = {"cursor": page["next_cursor"]}
    problem = await gateway.ask("GET", "/jobs", expect=503, params=query)
    assert "south" in problem["detail"]
    await fleet.cells["south"].listening.start()

    async def rest() -> Any:
        answer = await gateway.http.get("/jobs", params=query)
        return answer.json() if answer.status_code == 200 else None

    last = await until(rest, "the rest of the list")
    assert last["next_cursor"] is None
    assert len(page["items"]) + len(last["items"]) == 6


async def test_a_list_of_one_tenant_ends_although_another_cell_is_down(
    fleet: TestFleet, gateway: Gateway
) -> None:
    tenant = gateway.tenant_of("north")
    made = await gateway.submit(tenant)
    await fleet.cells["south"].listening.stop()
    page = await gateway.ask("GET", "/jobs", expect=200, params={"tenant": tenant})
    assert [job["job_id"] for job in page["items"]] == [made["job_id"]]
    assert page["next_cursor"] is None


async def test_a_list_with_invalid_parameters_is_refused(gateway: Gateway) -> None:
    for query in ({"cursor": "x"}, {"limit": "0"}, {"limit": "x"}, {"status": "odd"}, {"no": "1"}):
        problem = await gateway.ask("GET", "/jobs", expect=422, params=query)
        assert problem["errors"] or problem["detail"]


async def test_workers_and_executions_of_all_cells_are_listed(
    fleet: TestFleet, gateway: Gateway
) -> None:
    expected, runs = [], []
    for name, cell in fleet.cells.items():
        worker = await cell.server.register(f"box-{name}")
        order = await cell.server.start(worker)
        expected.append(worker)
        runs.append((order["job_id"], order["execution_id"]))
    pages = [page async for page in gateway.pages("/workers", limit=1)]
    assert [one["worker_id"] for page in pages for one in page["items"]] == expected[::-1]
    every = await gateway.ask("GET", "/executions", expect=200)
    assert sorted(one["execution_id"] for one in every["items"]) == sorted(run[1] for run in runs)
    job_id, execution_id = runs[0]
    one = await gateway.ask("GET", "/executions", expect=200, params={"job_id": job_id})
    assert [item["execution_id"] for item in one["items"]] == [execution_id]
    drained = await gateway.ask("POST", f"/workers/{expected[0]}/drain", expect=200)
    assert drained["status"] == "draining"


async def test_a_worker_that_chose_its_own_id_is_found_in_its_cell(
    fleet: TestFleet, gateway: Gateway
) -> None:
    await fleet.cells["south"].server.register(worker_id="press-9")
    shown = await gateway.ask("GET", "/workers/press-9", expect=200)
    assert shown["worker_id"] == "press-9"
    await gateway.ask("GET", "/workers/nobody", expect=404)
    await fleet.cells["north"].server.register(worker_id="press-9")
    problem = await gateway.ask("POST", "/workers/press-9/drain", expect=409)
    assert "north, south" in problem["detail"]


async def test_statistics_of_all_cells_are_added_up(fleet: TestFleet, gateway: Gateway) -> None:
    await spread(gateway, 9)
    for cell in fleet.cells.values():
        await cell.server.register(cpu=4)
    stats = await gateway.ask("GET", "/stats", expect=200)
    assert stats["submitted_total"] == 9
    assert stats["jobs"]["queued"] == 9
    assert stats["workers"]["online"] == 2
    assert stats["resources"]["cpu"]["capacity"] == 8
    assert "missing_cells" not in stats
    await fleet.cells["north"].listening.stop()
    answer = await gateway.http.get("/stats")
    assert answer.headers["rota-missing-cells"] == "north"
    assert 0 < answer.json()["submitted_total"] < 9


async def test_queues_of_one_name_in_all_cells_are_shown_as_one(
    fleet: TestFleet, gateway: Gateway
) -> None:
    await spread(gateway, 8)
    (queue,) = (await gateway.ask("GET", "/queues", expect=200))["items"]
    assert queue["depth"]["queued"] == 8
    assert sorted(queue["cells"]) == ["north", "south"]
    await gateway.ask("PUT", "/queues/video", {"max_workers": 3}, expect=200)
    await gateway.ask("POST", "/queues/video/pause", expect=200)
    for cell in fleet.cells.values():
        shown = await cell.server.ask("GET", "/queues/video", expect=200)
        assert (shown["max_workers"], shown["paused"]) == (3, True)
    names = [one["name"] for one in (await gateway.ask("GET", "/queues", expect=200))["items"]]
    assert names == ["default", "video"]
    purged = await gateway.ask("POST", "/queues/default/purge", expect=200)
    assert purged["count"] == 8
    await gateway.ask("GET", "/queues/none", expect=404)
    await gateway.ask("POST", "/queues/none/pause", expect=404)


async def test_a_queue_of_one_cell_is_changed_there(fleet: TestFleet, gateway: Gateway) -> None:
    await fleet.cells["south"].server.ask("PUT", "/queues/odd", {"weight": 2}, expect=200)
    changed = await gateway.ask("PATCH", "/queues/odd", {"weight": 5}, expect=200)
    assert list(changed["cells"]) == ["south"]


async def test_a_change_for_all_cells_fails_while_one_is_down(
    fleet: TestFleet, gateway: Gateway
) -> None:
    await spread(gateway, 6)
    await fleet.cells["south"].listening.stop()
    problem = await gateway.ask("POST", "/queues/default/pause", expect=503)
    assert "north, but not in south" in problem["detail"]
    problem = await gateway.ask(
        "POST", "/jobs/bulk", {"action": "cancel", "filter": {"queue": "default"}}, expect=503
    )
    assert problem["type"].endswith("partly_done")


async def test_a_bulk_action_counts_in_all_cells_and_goes_to_the_cells_of_named_jobs(
    fleet: TestFleet, gateway: Gateway
) -> None:
    made = await spread(gateway, 12)
    dry = {"action": "cancel", "filter": {}, "dry_run": True}
    assert (await gateway.ask("POST", "/jobs/bulk", dry, expect=200))["count"] == 12
    north = [one for one in made if gateway.context.directory.of_id(one).name == "north"]  # type: ignore[union-attr]
    await fleet.cells["south"].listening.stop()
    named = {"action": "cancel", "filter": {"job_ids": north}}
    done = await gateway.ask("POST", "/jobs/bulk", named, expect=200)
    assert done["count"] == len(north)
    tenant = gateway.tenant_of("north")
    await gateway.submit(tenant)
    own = {"action": "cancel", "filter": {"tenant": tenant}}
    done = await gateway.ask("POST", "/jobs/bulk", own, expect=200)
    assert (done["count"], done["missing_cells"][0]["cell"]) == (1, "south")


async def test_the_cluster_view_shows_all_cells_and_a_tenants_home(
    fleet: TestFleet, gateway: Gateway
) -> None:
    await fleet.cells["south"].listening.stop()
    shown = await gateway.ask("GET", "/cluster", expect=200, params={"tenant": "acme"})
    by_name = {cell["cell"]: cell for cell in shown["cells"]}
    assert by_name["north"]["leader"] == "node-a"
    assert not by_name["south"]["up"]
    assert [one for one in shown["warnings"] if one.startswith("cell south is missing: ")]
    assert shown["home"] == {
        "tenant": "acme",
        "cell": gateway.context.directory.of_tenant("acme").name,
    }


def view(needed: int, queue: str, kind: int | None) -> dict[str, Any]:
    workers = {"online": 1, "idle": 0, "needed": needed, "add": needed - 1, "remove": 0}
    shape = {"jobs": 3, "kind": kind}
    queues = {queue: {"workers": workers, "paused": False, "shapes": [shape]}}
    head = {"at": "2026-01-05T09:00:00.000Z", "target": 300, "workers": dict(workers)}
    return {**head, "queues": queues, "kinds": [{"size": {"cpu": 4}, "workers": workers}]}


def test_needed_workers_add_up_and_worker_types_stay_apart() -> None:
    whole = join_autoscale([view(2, "mail", 0), view(3, "mail", 0), view(4, "other", None)])
    assert whole["target"] == 300
    assert whole["workers"]["needed"] == 9
    assert whole["queues"]["mail"]["workers"]["needed"] == 5
    assert [shape["kind"] for shape in whole["queues"]["mail"]["shapes"]] == [0, 1]
    assert whole["queues"]["other"]["shapes"] == [{"jobs": 3, "kind": None}]
    assert len(whole["kinds"]) == 3


def test_a_tenant_in_two_cells_is_one_in_the_report() -> None:
    def report(hours: float) -> dict[str, Any]:
        sums = {"runs": 1, "cpu_hours_wasted": hours}
        item = {"tenant": "acme", "name": "j", "sums": sums}
        tenants = [{"tenant": "acme", "sums": sums}]
        return {"since": "2026-01-05", "sums": sums, "tenants": tenants, "items": [item]}

    whole = join_waste([report(1.0), report(2.0)])
    assert whole["tenants"] == [{"tenant": "acme", "sums": {"runs": 2, "cpu_hours_wasted": 3.0}}]
    assert [item["sums"]["cpu_hours_wasted"] for item in whole["items"]] == [2.0, 1.0]


async def test_the_gateway_joins_the_reports_of_all_cells(gateway: Gateway) -> None:
    for number in range(6):
        await gateway.submit(f"tenant-{number}")
    whole = await gateway.ask("GET", "/autoscale?target=1h", expect=200)
    assert (whole["jobs"], whole["target"]) == (6, 3600)
    assert (await gateway.ask("GET", "/reports/waste", expect=200))["items"] == []
