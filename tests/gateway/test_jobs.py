"""Jobs through a gateway: they go to their tenant's cell and are found by their id."""

from __future__ import annotations

from typing import Any

from rota.wire.formats import cell_tag, tag_in
from tests.api.in_process_server import NOOP
from tests.gateway.fleet import Gateway, TestFleet


async def test_a_job_goes_to_its_tenants_cell_and_its_id_has_that_cells_tag(
    fleet: TestFleet, gateway: Gateway
) -> None:
    for cell in ("north", "south"):
        made = await gateway.submit(gateway.tenant_of(cell))
        assert tag_in(made["job_id"]) == cell_tag(cell)
        server = fleet.cells[cell].server
        worker = await server.register()
        assert tag_in(worker) == cell_tag(cell)
        (order,) = (await server.lease(worker))["executions"]
        assert order["job_id"] == made["job_id"]
        assert tag_in(order["execution_id"]) == cell_tag(cell)
        shown = await gateway.ask("GET", f"/executions/{order['execution_id']}", expect=200)
        assert shown["job_id"] == made["job_id"]


async def test_any_gateway_finds_shows_and_cancels_a_job_by_its_id(
    fleet: TestFleet, gateway: Gateway
) -> None:
    made = await gateway.submit("acme")
    # This one would send the tenant's new jobs elsewhere, and has never seen the old.
    home = gateway.context.directory.of_tenant("acme").name
    other = await fleet.gateway({"acme": "south" if home == "north" else "north"})
    path = f"/jobs/{made['job_id']}"
    assert (await other.ask("GET", path, expect=200))["tenant"] == "acme"
    assert (await other.ask("PUT", f"{path}/cancel", expect=200))["status"] == "cancelled"
    assert (await gateway.ask("GET", path, expect=200))["status"] == "cancelled"
    answer = await other.http.get(path)
    assert answer.headers["rota-cell"] == home


async def test_adding_a_cell_moves_no_job_and_few_tenants(
    fleet: TestFleet, gateway: Gateway
) -> None:
    tenants = [f"tenant-{number}" for number in range(24)]
    made = {tenant: (await gateway.submit(tenant))["job_id"] for tenant in tenants}
    await fleet.add_cell("west")
    wider = await fleet.gateway()
    for job_id in made.values():
        await wider.ask("PUT", f"/jobs/{job_id}/cancel", expect=200)
    again = {tenant: (await wider.submit(tenant))["job_id"] for tenant in tenants}
    moved = [one for one in tenants if tag_in(made[one]) != tag_in(again[one])]
    assert 0 < len(moved) < len(tenants) / 2
    assert {tag_in(again[one]) for one in moved} == {cell_tag("west")}


async def test_a_job_from_before_its_cell_had_a_name_is_found(
    fleet: TestFleet, gateway: Gateway
) -> None:
    west = await fleet.add_cell("west", called="")
    job_id = (await west.server.submit())["job_id"]
    assert tag_in(job_id) == cell_tag("")
    await gateway.ask("GET", f"/jobs/{job_id}", expect=404)
    await west.restart_as("west")
    wider = await fleet.gateway()
    assert (await wider.ask("GET", f"/jobs/{job_id}", expect=200))["job_id"] == job_id
    await wider.ask("PUT", f"/jobs/{job_id}/cancel", expect=200)
    await fleet.cells["north"].listening.stop()
    await wider.ask("GET", f"/jobs/{job_id}", expect=200)
    unknown = job_id[:-4] + "0000"
    problem = await wider.ask("GET", f"/jobs/{unknown}", expect=503)
    assert "north cannot be asked" in problem["detail"]


async def test_a_repeat_with_the_same_key_gets_the_first_answer(gateway: Gateway) -> None:
    job = {"name": "j", "task": NOOP, "tenant": "acme"}
    headers = {"Idempotency-Key": "once"}
    first = await gateway.ask("POST", "/jobs", job, expect=201, headers=headers)
    again = await gateway.ask("POST", "/jobs", job, expect=201, headers=headers)
    assert again["job_id"] == first["job_id"]


async def test_a_batch_goes_to_one_cell_or_is_refused(fleet: TestFleet, gateway: Gateway) -> None:
    here, there = gateway.tenant_of("north"), gateway.tenant_of("south")

    def job(tenant: str, **more: Any) -> dict[str, Any]:
        return {"name": "j", "task": NOOP, "tenant": tenant, **more}

    both = {"jobs": [job(here, ref="a"), job(here, dependencies=["ref:a"])]}
    made = await gateway.ask("POST", "/jobs/batch", both, expect=201)
    assert {tag_in(job_id) for job_id in made["job_ids"]} == {cell_tag("north")}
    mixed = {"jobs": [job(here), job(here), job(there)]}
    problem = await gateway.ask("POST", "/jobs/batch", mixed, expect=422)
    assert problem["errors"][0]["field"] == "jobs[2].tenant"
    assert "north" in problem["detail"]
    assert "south" in problem["detail"]
    there_now = await fleet.cells["south"].server.ask("GET", "/jobs", expect=200)
    assert there_now["items"] == []


async def test_a_job_cannot_wait_for_one_of_another_cell(gateway: Gateway) -> None:
    here, there = gateway.tenant_of("north"), gateway.tenant_of("south")
    far = (await gateway.submit(there))["job_id"]
    near = (await gateway.submit(here))["job_id"]
    await gateway.submit(here, dependencies=[near])
    for needed in (far, {"job_id": far}):
        job = {"name": "j", "task": NOOP, "tenant": here, "dependencies": [near, needed]}
        problem = await gateway.ask("POST", "/jobs", job, expect=422)
        assert problem["errors"][0]["field"] == "dependencies[1]"
        assert f"--pin {here}=south" in problem["detail"]


async def test_an_invalid_body_is_refused_by_a_cell(gateway: Gateway) -> None:
    headers = {"Content-Type": "application/json"}
    for path in ("/jobs", "/jobs/batch", "/jobs/bulk"):
        for body in (b"", b"[", b'{"tenant": 5}', b"\xff", b"[]", b'{"jobs": []}', b"[" * 9999):
            answer = await gateway.http.post(path, content=body, headers=headers)
            assert answer.status_code in (400, 422), answer.text
            assert answer.json()["type"].startswith("urn:rota:problem:")


async def test_all_other_calls_for_a_job_are_relayed(fleet: TestFleet, gateway: Gateway) -> None:
    made = await gateway.submit("acme")
    path = f"/jobs/{made['job_id']}"
    patch = await gateway.ask("PATCH", path, {"priority": 7}, expect=200)
    assert patch["priority"] == 7
    for word in ("why", "graph"):
        await gateway.ask("GET", f"{path}/{word}", expect=200)
    head = await gateway.http.head(path)
    assert (head.status_code, head.content) == (200, b"")
    await gateway.ask("PUT", f"{path}/cancel", expect=200)
    assert (await gateway.ask("POST", f"{path}/retry", expect=200))["status"] == "queued"
    await gateway.ask("PUT", f"{path}/cancel", expect=200)
    answer = await gateway.http.delete(path)
    assert answer.status_code == 204
    await gateway.ask("GET", path, expect=404)
