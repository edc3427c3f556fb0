"""Schedules, triggers and events of tenants: each has its own, and learns nothing of others."""

from __future__ import annotations

from typing import Any

import pytest

from rota.store.tokens import Role
from tests.api.in_process_server import NOOP, InProcessServer, StreamReader, events
from tests.api.token_headers import ACME, OTHER, key

JOB = {"name": "made", "task": NOOP}
KINDS: dict[str, dict[str, Any]] = {
    "schedule": {"name": "same", "cron": "0 0 1 1 *", "job": JOB},
    "trigger": {"name": "same", "event": "object.*", "job": JOB},
}
UPLOAD = {"id": "e1", "source": "/bucket", "type": "object.uploaded"}

either = pytest.mark.parametrize("kind", KINDS)


async def submitter(house: InProcessServer, tenant: str) -> dict[str, str]:
    return await key(house, Role.SUBMITTER, tenant=tenant)


async def make(
    house: InProcessServer, kind: str, who: dict[str, str], **fields: Any
) -> dict[str, Any]:
    body = {**KINDS[kind], **fields}
    made: dict[str, Any] = await house.ask("POST", f"/{kind}s", body, headers=who, expect=201)
    return made


async def send(
    house: InProcessServer, who: dict[str, str] | None = None, **fields: Any
) -> dict[str, Any]:
    told: dict[str, Any] = await house.ask(
        "POST", "/events", {**UPLOAD, **fields}, headers=who, expect=202
    )
    return told


async def tenants_of(house: InProcessServer, told: dict[str, Any]) -> list[str]:
    return sorted([(await house.ask("GET", f"/jobs/{one}"))["tenant"] for one in told["job_ids"]])


@either
async def test_schedules_and_triggers_of_a_tenants_token_belong_to_its_tenant(
    house: InProcessServer, kind: str
) -> None:
    acme, other = await submitter(house, ACME), await submitter(house, OTHER)
    mine = await make(house, kind, acme)
    theirs = await make(house, kind, other, job={**JOB, "tenant": OTHER})
    assert (mine["job"]["tenant"], theirs["job"]["tenant"]) == (ACME, OTHER)
    listed = (await house.ask("GET", f"/{kind}s", headers=acme))["items"]
    assert [one[f"{kind}_id"] for one in listed] == [mine[f"{kind}_id"]]
    assert len((await house.ask("GET", f"/{kind}s"))["items"]) == 2


@either
async def test_naming_another_tenant_is_refused(house: InProcessServer, kind: str) -> None:
    acme, body = await submitter(house, ACME), KINDS[kind]
    for tenant in (OTHER, "default"):
        foreign = {**body, "job": {**JOB, "tenant": tenant}}
        deployed = {"owner": "app", f"{kind}s": [body, {**foreign, "name": "b"}]}
        for path, asked in ((f"/{kind}s", foreign), (f"/{kind}s/deploy", deployed)):
            answer = await house.ask("POST", path, asked, headers=acme, expect=403)
            assert answer["type"].endswith(":other_tenant")
    trial = {"event": UPLOAD, "trigger": {**KINDS["trigger"], "job": {**JOB, "tenant": OTHER}}}
    await house.ask("POST", "/triggers/preview", trial, headers=acme, expect=403)
    assert (await house.ask("GET", f"/{kind}s"))["items"] == []


@either
async def test_a_changed_schedule_or_trigger_stays_with_its_tenant(
    house: InProcessServer, kind: str
) -> None:
    acme = await submitter(house, ACME)
    path = f"/{kind}s/{(await make(house, kind, acme))[f'{kind}_id']}"
    refused = {"job": {"tenant": OTHER}}
    await house.ask("PATCH", path, refused, headers=acme, expect=403)
    for patch in ({"name": "b"}, {"job": {"tenant": None}}, {"job": {"priority": 3}}):
        changed = await house.ask("PATCH", path, patch, headers=acme, expect=200)
        assert changed["job"]["tenant"] == ACME
    await house.ask("PATCH", path, {"job": None}, headers=acme, expect=422)


@either
async def test_a_deployment_removes_only_items_of_its_tenant(
    house: InProcessServer, kind: str
) -> None:
    acme, other = await submitter(house, ACME), await submitter(house, OTHER)
    for who in (acme, other):
        await deploy(house, kind, who, KINDS[kind])
    assert (await deploy(house, kind, acme))["retired"] == ["same"]
    (left,) = (await house.ask("GET", f"/{kind}s"))["items"]
    assert left["job"]["tenant"] == OTHER
    assert (await deploy(house, kind, {}))["retired"] == ["same"]


async def deploy(
    house: InProcessServer, kind: str, who: dict[str, str], *given: dict[str, Any]
) -> dict[str, Any]:
    body = {"owner": "app", f"{kind}s": list(given)}
    path = f"/{kind}s/deploy"
    done: dict[str, Any] = await house.ask("POST", path, body, headers=who, expect=200)
    return done


async def test_a_tenants_event_fires_only_its_own_triggers(house: InProcessServer) -> None:
    acme, other = await submitter(house, ACME), await submitter(house, OTHER)
    for who in (acme, other):
        await make(house, "trigger", who)
    assert await tenants_of(house, await send(house, acme)) == [ACME]
    assert await tenants_of(house, await send(house, other)) == [OTHER]
    assert await tenants_of(house, await send(house)) == [ACME, OTHER]


async def test_the_same_event_of_two_tenants_is_two_events(house: InProcessServer) -> None:
    acme, other = await submitter(house, ACME), await submitter(house, OTHER)
    assert not (await send(house, other))["duplicate"]
    assert not (await send(house, acme))["duplicate"]
    assert (await send(house, acme))["duplicate"]
    listed = (await house.ask("GET", "/events", headers=acme))["items"]
    assert [one["id"] for one in listed] == ["e1"]
    assert len((await house.ask("GET", "/events"))["items"]) == 2


async def test_a_trigger_fires_for_jobs_of_its_own_tenant_only(house: InProcessServer) -> None:
    acme = await submitter(house, ACME)
    made = await make(house, "trigger", acme, event="rota.job.cancelled")
    for tenant in (OTHER, ACME):
        job = await house.submit(tenant=tenant)
        await house.ask("PUT", f"/jobs/{job['job_id']}/cancel", expect=200)
    path = f"/triggers/{made['trigger_id']}/events"
    (line,) = (await house.ask("GET", path, headers=acme))["items"]
    assert line["event_id"].startswith(job["job_id"])


async def test_a_preview_shows_a_tenant_its_own_triggers(house: InProcessServer) -> None:
    acme, other = await submitter(house, ACME), await submitter(house, OTHER)
    mine, theirs = [await make(house, "trigger", who) for who in (acme, other)]
    trial: dict[str, Any] = {"event": UPLOAD}
    found = await house.ask("POST", "/triggers/preview", trial, headers=acme)
    assert [one["trigger_id"] for one in found["items"]] == [mine["trigger_id"]]
    trial["trigger_id"] = theirs["trigger_id"]
    await house.ask("POST", "/triggers/preview", trial, headers=acme, expect=404)


async def test_a_calendar_belongs_to_no_tenant_and_counts_a_tenants_own_schedules(
    house: InProcessServer,
) -> None:
    acme, other = await submitter(house, ACME), await submitter(house, OTHER)
    await house.ask("PUT", "/calendars/closed", {"dates": ["2030-12-25"]}, expect=200)
    for who in (acme, other):
        await make(house, "schedule", who, calendars=["closed"])
    seen = await house.ask("GET", "/calendars/closed", headers=acme)
    assert (seen["dates"], seen["schedules"]) == (["2030-12-25"], 1)
    assert (await house.ask("GET", "/calendars/closed"))["schedules"] == 2
    await house.ask("DELETE", "/calendars/closed", headers=acme, expect=403)


async def test_the_stream_shows_a_tenant_its_own_schedules_and_triggers(
    house: InProcessServer,
) -> None:
    acme, other = await submitter(house, ACME), await submitter(house, OTHER)
    async with StreamReader(house, "/stream", acme) as tap:
        mine: dict[str, str] = {}
        for who in (other, acme):
            for kind in KINDS:
                mine[kind] = (await make(house, kind, who))[f"{kind}_id"]
            path = f"/schedules/{mine['schedule']}"
            await house.ask("POST", f"{path}/trigger", headers=who, expect=201)
            await send(house, who)
            await house.ask("DELETE", path, headers=who, expect=204)
        await house.ask("PUT", "/queues/q", {}, expect=200)
        seen = events(await tap.read_until('"queue","id":"q"'))
    told = [one for one in seen if one["kind"] in ("schedule", "trigger")]
    assert {one["id"] for one in told} == set(mine.values())
    assert [one["status"] for one in told if one["kind"] == "schedule"][-1] == "deleted"
    made = [one["job_id"] for one in seen if one["kind"] in ("occurrence", "arrival")]
    assert len(made) == 2
    for job_id in made:
        assert (await house.ask("GET", f"/jobs/{job_id}"))["tenant"] == ACME
