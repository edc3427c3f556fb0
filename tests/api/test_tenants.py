from __future__ import annotations

from typing import Any

import pytest

from rota.store.tokens import Role
from tests.api.in_process_server import NOOP, InProcessServer, StreamReader, events
from tests.api.token_headers import ACME, OTHER, token_headers

JOB = {"name": "j", "task": NOOP}


async def submitter(server: InProcessServer, tenant: str) -> dict[str, str]:
    return await token_headers(server, Role.SUBMITTER, tenant=tenant)


async def submit(server: InProcessServer, headers: dict[str, str], **fields: Any) -> dict[str, Any]:
    job: dict[str, Any] = await server.ask(
        "POST", "/jobs", {**JOB, **fields}, headers=headers, expect=201
    )
    return job


async def test_jobs_of_a_tenants_token_belong_to_its_tenant(server: InProcessServer) -> None:
    acme = await submitter(server, ACME)
    assert (await submit(server, acme))["tenant"] == ACME
    assert (await submit(server, acme, tenant=ACME))["tenant"] == ACME
    batch = {"jobs": [JOB, {**JOB, "tenant": ACME}]}
    ids = (await server.ask("POST", "/jobs/batch", batch, headers=acme, expect=201))["job_ids"]
    for job_id in ids:
        assert (await server.ask("GET", f"/jobs/{job_id}"))["tenant"] == ACME


@pytest.mark.parametrize("tenant", [OTHER, "default"])
async def test_naming_another_tenant_is_refused_in_clear_words(
    server: InProcessServer, tenant: str
) -> None:
    acme = await submitter(server, ACME)
    foreign = {**JOB, "tenant": tenant}
    for path, body in (("/jobs", foreign), ("/jobs/batch", {"jobs": [JOB, foreign]})):
        answer = await server.ask("POST", path, body, headers=acme, expect=403)
        assert answer["type"].endswith(":other_tenant")
        assert "is for the tenant 'acme'" in answer["detail"]
    assert (await server.ask("GET", "/jobs"))["items"] == []


async def test_a_job_stays_with_its_tenant_when_it_is_changed(server: InProcessServer) -> None:
    acme = await submitter(server, ACME)
    path = f"/jobs/{(await submit(server, acme))['job_id']}"
    await server.ask("PATCH", path, {"tenant": OTHER}, headers=acme, expect=403)
    for patch in ({"tenant": None, "priority": 3}, {"tenant": ACME}, {"priority": 4}):
        changed = await server.ask("PATCH", path, patch, headers=acme, expect=200)
        assert changed["tenant"] == ACME


async def test_a_job_cannot_depend_on_one_of_another_tenant(server: InProcessServer) -> None:
    acme, other = await submitter(server, ACME), await submitter(server, OTHER)
    foreign, own = await submit(server, other), await submit(server, acme)
    unknown = "019a85c2-0000-7000-8000-000000000000"
    for upstream in (foreign["job_id"], unknown):
        body = {"jobs": [{**JOB, "dependencies": [own["job_id"], upstream]}]}
        answer = await server.ask("POST", "/jobs/batch", body, headers=acme, expect=422)
        assert answer["type"].endswith(":unknown_dependency")
        assert answer["errors"][0]["field"] == "jobs[0].dependencies[1]"
        assert answer["detail"] == f"there is no job {upstream} to depend on"
        waiting = await submit(server, acme, run_at="2100-01-01T00:00:00Z")
        patch = {"dependencies": [upstream]}
        await server.ask("PATCH", f"/jobs/{waiting['job_id']}", patch, headers=acme, expect=422)
    await submit(server, acme, dependencies=[own["job_id"]])


async def test_lists_show_a_tenant_its_own(server: InProcessServer) -> None:
    worker = await server.register()
    acme = await submitter(server, ACME)
    for tenant in (ACME, OTHER, ACME):
        await server.finish(await server.start(worker, tenant=tenant), "failed")
    for path in ("/jobs", "/dead-letters", "/jobs?tenant=acme"):
        found = (await server.ask("GET", path, headers=acme))["items"]
        assert [job["tenant"] for job in found] == [ACME, ACME], path
        both = (await server.ask("GET", path.partition("?")[0]))["items"]
        assert len(both) == 3
    assert (await server.ask("GET", "/jobs?tenant=other", headers=acme))["items"] == []
    assert len((await server.ask("GET", "/executions", headers=acme))["items"]) == 2
    page = await server.ask("GET", "/executions?limit=1", headers=acme)
    rest = await server.ask("GET", f"/executions?cursor={page['next_cursor']}", headers=acme)
    assert len(page["items"]) == len(rest["items"]) == 1
    stats = await server.ask("GET", "/stats", headers=acme)
    assert (stats["jobs"]["failed"], stats["submitted_total"]) == (2, 2)


async def test_a_page_of_executions_that_reaches_its_search_limit_has_a_cursor(
    server: InProcessServer,
) -> None:
    server.limit(read_at_once=2, executions_at_once=2, executions_scanned_max=4)
    worker, acme = await server.register(), await submitter(server, ACME)
    mine = await server.start(worker, tenant=ACME)
    for _ in range(6):
        await server.start(worker, tenant=OTHER)
    path, found = "/executions", []
    for _ in range(5):
        page = await server.ask("GET", path, headers=acme)
        found += [one["execution_id"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        path = f"/executions?cursor={page['next_cursor']}"
    assert found == [mine["execution_id"]]


async def test_a_graph_ends_where_another_tenant_begins(server: InProcessServer) -> None:
    acme = await submitter(server, ACME)
    own = await submit(server, acme)
    foreign = await server.submit(tenant=OTHER, dependencies=[own["job_id"]])
    path = f"/jobs/{own['job_id']}/graph"
    assert len((await server.ask("GET", path))["nodes"]) == 2
    graph = await server.ask("GET", path, headers=acme)
    assert [node["job_id"] for node in graph["nodes"]] == [own["job_id"]]
    assert graph["edges"] == []
    assert foreign["job_id"] not in str(graph)


async def test_the_stream_shows_a_tenant_its_own_jobs_only(server: InProcessServer) -> None:
    worker = await server.register()
    early = await server.submit(tenant=ACME, run_at="2100-01-01T00:00:00Z")
    acme = await submitter(server, ACME)
    async with StreamReader(server, "/stream", acme) as tap:
        await server.finish(await server.start(worker, tenant=OTHER))
        mine = await server.start(worker, tenant=ACME)
        await server.finish(mine)
        await server.ask("PUT", f"/jobs/{early['job_id']}/cancel", expect=200)
        await server.ask("DELETE", f"/jobs/{mine['job_id']}", expect=204)
        await server.ask("PUT", "/queues/q", {}, expect=200)
        seen = events(await tap.read_until('"queue","id":"q"'))
    shown = [one for one in seen if one["kind"] in ("job", "execution")]
    assert {one.get("job_id") or one["id"] for one in shown} == {early["job_id"], mine["job_id"]}
    assert [one["status"] for one in shown if one["id"] == mine["job_id"]][-1] == "deleted"
    assert [one["status"] for one in shown if one["id"] == early["job_id"]] == ["cancelled"]


async def test_idempotency_keys_are_separate_for_each_tenant(
    server: InProcessServer,
) -> None:
    made = []
    for tenant in (ACME, OTHER):
        headers = {**await submitter(server, tenant), "Idempotency-Key": "nightly"}
        job = await submit(server, headers)
        assert (await submit(server, headers))["job_id"] == job["job_id"]
        made.append(job["job_id"])
    admin = await server.ask("POST", "/jobs", JOB, headers={"Idempotency-Key": "nightly"})
    assert len({*made, admin["job_id"]}) == 3


async def test_a_tenant_may_act_on_its_own_jobs(server: InProcessServer) -> None:
    acme = await submitter(server, ACME)
    path = f"/jobs/{(await submit(server, acme))['job_id']}"
    await server.ask("PUT", f"{path}/cancel", headers=acme, expect=200)
    await server.ask("POST", f"{path}/retry", headers=acme, expect=200)
    await server.ask("PUT", f"{path}/cancel", headers=acme, expect=200)
    await server.ask("DELETE", path, headers=acme, expect=204)
