"""Schedules, triggers and events of tenants: each sees its own and nothing of others."""

from __future__ import annotations

from typing import Any

import pytest

from rota.store.tokens import Role
from tests.api.in_process_server import NOOP, InProcessServer, StreamReader, events
from tests.api.token_headers import ACME, OTHER, token_headers

JOB = {"name": "made", "task": NOOP}
KINDS: dict[str, dict[str, Any]] = {
    "schedule": {"name": "same", "cron": "0 0 1 1 *", "job": JOB},
    "trigger": {"name": "same", "event": "object.*", "job": JOB},
}
UPLOAD = {"id": "e1", "source": "/bucket", "type": "object.uploaded"}

either = pytest.mark.parametrize("kind", KINDS)


async def submitter(server: InProcessServer, tenant: str) -> dict[str, str]:
    return await token_headers(server, Role.SUBMITTER, tenant=tenant)


async def make(
    server: InProcessServer, kind: str, who: dict[str, str], **fields: Any
) -> dict[str, Any]:
    body = {**KINDS[kind], **fields}
    made: dict[str, Any] = await server.ask("POST", f"/{kind}s", body, headers=who, expect=201)
    return made


async def send(
    server: InProcessServer, who: dict[str, str] | None = None, **fields: Any
) -> dict[str, Any]:
    shown: dict[str, Any] = await server.ask(
        "POST", "/events", {**UPLOAD, **fields}, headers=who, expect=202
    )
    return shown


async def tenants_of(server: InProcessServer, shown: dict[str, Any]) -> list[str]:
    return sorted([(await server.ask("GET", f"/jobs/{one}"))["tenant"] for one in shown["job_ids"]])


@either
async def test_schedules_and_triggers_of_a_tenants_token_belong_to_its_tenant(
    server: InProcessServer, kind: str
) -> None:
    acme, other = await submitter(server, ACME), await submitter(server, OTHER)
    mine = await make(server, kind, acme)
    theirs = await make(server, kind, other, job={**JOB, "tenant": OTHER})
    assert (mine["job"]["tenant"], theirs["job"]["tenant"]) == (ACME, OTHER)
    listed = (await server.ask("GET", f"/{kind}s", headers=acme))["items"]
    assert [one[f"{kind}_id"] for one in listed] == [mine[f"{kind}_id"]]
    assert len((await server.ask("GET", f"/{kind}s"))["items"]) == 2


@either
async def test_naming_another_tenant_is_refused(server: InProcessServer, kind: str) -> None:
    acme, body = await submitter(server, ACME), KINDS[kind]
    for tenant in (OTHER, "default"):
        foreign = {**body, "job": {**JOB, "tenant": tenant}}
        deployed = {"owner": "app", f"{kind}s": [body, {**foreign, "name": "b"}]}
        for path, asked in ((f"/{kind}s", foreign), (f"/{kind}s/deploy", deployed)):
            answer = await server.ask("POST", path, asked, headers=acme, expect=403)
            assert answer["type"].endswith(":other_tenant")
    trial = {"event": UPLOAD, "trigger": {**KINDS["trigger"], "job": {**JOB, "tenant": OTHER}}}
    await server.ask("POST", "/triggers/preview", trial, headers=acme, expect=403)
    assert (await server.ask("GET", f"/{kind}s"))["items"] == []


@either
async def test_a_changed_schedule_or_trigger_stays_with_its_tenant(
    server: InProcessServer, kind: str
) -> None:
    acme = await submitter(server, ACME)
    path = f"/{kind}s/{(await make(server, kind, acme))[f'{kind}_id']}"
    refused = {"job": {"tenant": OTHER}}
    await server.ask("PATCH", path, refused, headers=acme, expect=403)
    for patch in ({"name": "b"}, {"job": {"tenant": None}}, {"job": {"priority": 3}}):
        changed = await server.ask("PATCH", path, patch, headers=acme, expect=200)
        assert changed["job"]["tenant"] == ACME
    await server.ask("PATCH", path, {"job": None}, headers=acme, expect=422)


@either
async def test_a_deployment_removes_only_items_of_its_tenant(
    server: InProcessServer, kind: str
) -> None:
    acme, other = await submitter(server, ACME), await submitter(server, OTHER)
    for who in (acme, other):
        await deploy(server, kind, who, KINDS[kind])
    assert (await deploy(server, kind, acme))["retired"] == ["same"]
    (left,) = (await server.ask("GET", f"/{kind}s"))["items"]
    assert left["job"]["tenant"] == OTHER
    assert (await deploy(server, kind, {}))["retired"] == ["same"]


async def deploy(
    server: InProcessServer, kind: str, who: dict[str, str], *given: dict[str, Any]
) -> dict[str, Any]:
    body = {"owner": "app", f"{kind}s": list(given)}
    path = f"/{kind}s/deploy"
    done: dict[str, Any] = await server.ask("POST", path, body, headers=who, expect=200)
    return done


async def test_a_tenants_event_fires_only_its_own_triggers(server: InProcessServer) -> None:
    acme, other = await submitter(server, ACME), await submitter(server, OTHER)
    for who in (acme, other):
        await make(server, "trigger", who)
    assert await tenants_of(server, await send(server, acme)) == [ACME]
    assert await tenants_of(server, await send(server, other)) == [OTHER]
    assert await tenants_of(server, await send(server)) == [ACME, OTHER]


async def test_the_same_event_of_two_tenants_is_two_events(server: InProcessServer) -> None:
    acme, other = await submitter(server, ACME), await submitter(server, OTHER)
    assert not (await send(server, other))["duplicate"]
    assert not (await send(server, acme))["duplicate"]
    assert (await send(server, acme))["duplicate"]
    listed = (await server.ask("GET", "/events", headers=acme))["items"]
    assert [one["id"] for one in listed] == ["e1"]
    assert len((await server.ask("GET", "/events"))["items"]) == 2


async def test_a_trigger_fires_for_jobs_of_its_own_tenant_only(server: InProcessServer) -> None:
    acme = await submitter(server, ACME)
    made = await make(server, "trigger", acme, event="rota.job.cancelled")
    for tenant in (OTHER, ACME):
        job = await server.submit(tenant=tenant)
        await server.ask("PUT", f"/jobs/{job['job_id']}/cancel", expect=200)
    path = f"/triggers/{made['trigger_id']}/events"
    (line,) = (await server.ask("GET", path, headers=acme))["items"]
    assert line["event_id"].startswith(job["job_id"])


async def test_a_preview_shows_a_tenant_its_own_triggers(server: InProcessServer) -> None:
    acme, other = await submitter(server, ACME), await submitter(server, OTHER)
    mine, theirs = [await make(server, "trigger", who) for who in (acme, other)]
    trial: dict[str, Any] = {"event": UPLOAD}
    found = await server.ask("POST", "/triggers/preview", trial, headers=acme)
    assert [one["trigger_id"] for one in found["items"]] == [mine["trigger_id"]]
    trial["trigger_id"] = theirs["trigger_id"]
    await server.ask("POST", "/triggers/preview", trial, headers=acme, expect=404)


async def test_a_calendar_belongs_to_no_tenant_and_counts_a_tenants_own_schedules(
    server: InProcessServer,
) -> None:
    acme, other = await submitter(server, ACME), await submitter(server, OTHER)
    await server.ask("PUT", "/calendars/closed", {"dates": ["2030-12-25"]}, expect=200)
    for who in (acme, other):
        await make(server, "schedule", who, calendars=["closed"])
    seen = await server.ask("GET", "/calendars/closed", headers=acme)
    assert (seen["dates"], seen["schedules"]) == (["2030-12-25"], 1)
    assert (await server.ask("GET", "/calendars/closed"))["schedules"] == 2
    await server.ask("DELETE", "/calendars/closed", headers=acme, expect=403)


async def test_the_stream_shows_a_tenant_its_own_schedules_and_triggers(
    server: InProcessServer,
) -> None:
    acme, other = await submitter(server, ACME), await submitter(server, OTHER)
    async with StreamReader(server, "/stream", acme) as tap:
        mine: dict[str, str] = {}
        for who in (other, acme):
            for kind in KINDS:
                mine[kind] = (await make(server, kind, who))[f"{kind}_id"]
            path = f"/schedules/{mine['schedule']}"
            await server.ask("POST", f"{path}/trigger", headers=who, expect=201)
            await send(server, who)
            await server.ask("DELETE", path, headers=who, expect=204)
        await server.ask("PUT", "/queues/q", {}, expect=200)
        seen = events(await tap.read_until('"queue","id":"q"'))
    shown = [one for one in seen if one["kind"] in ("schedule", "trigger")]
    assert {one["id"] for one in shown} == set(mine.values())
    assert [one["status"] for one in shown if one["kind"] == "schedule"][-1] == "deleted"
    made = [one["job_id"] for one in seen if one["kind"] in ("occurrence", "arrival")]
    assert len(made) == 2
    for job_id in made:
        assert (await server.ask("GET", f"/jobs/{job_id}"))["tenant"] == ACME
