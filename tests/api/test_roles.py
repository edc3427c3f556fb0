"""Every operation with every role: the expectations here are written by hand."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rota.api.endpoints import OPERATIONS
from rota.api.limits import ApiLimits
from rota.api.router import Operation
from rota.api.throttling import Throttle, WrongTokenLimiter
from rota.cli.tokens import ROLES
from rota.store.tokens import Role
from rota.wire.tokens import RoleName
from tests.api.in_process_server import NOOP, InProcessServer, open_server
from tests.api.token_headers import ACME, OTHER, bearer, ended_token, token_headers

NOBODY = ""
READERS = ("admin", "operator", "submitter", "viewer")
SUBMITTERS = ("admin", "operator", "submitter")
WORKERS = ("admin", "operator", "worker")
OPERATORS = ("admin", "operator")
ADMINS = ("admin",)
ALL = ("admin", "operator", "submitter", "worker", "viewer")
EVERYBODY = (*ALL, NOBODY)

EXPECTED = {
    "POST /jobs": SUBMITTERS,
    "POST /jobs/batch": SUBMITTERS,
    "GET /jobs": READERS,
    "POST /jobs/bulk": OPERATORS,
    "GET /jobs/{job_id}": READERS,
    "PATCH /jobs/{job_id}": SUBMITTERS,
    "DELETE /jobs/{job_id}": SUBMITTERS,
    "PUT /jobs/{job_id}/cancel": SUBMITTERS,
    "POST /jobs/{job_id}/retry": SUBMITTERS,
    "POST /jobs/{job_id}/execute": OPERATORS,
    "GET /jobs/{job_id}/why": READERS,
    "GET /jobs/{job_id}/graph": READERS,
    "GET /jobs/{job_id}/logs": READERS,
    "GET /dead-letters": READERS,
    "GET /dead-letters/groups": READERS,
    "POST /workers/register": WORKERS,
    "POST /workers/{worker_id}/lease": WORKERS,
    "POST /workers/{worker_id}/heartbeat": WORKERS,
    "POST /workers/{worker_id}/drain": WORKERS,
    "POST /workers/{worker_id}/resume": OPERATORS,
    "DELETE /workers/{worker_id}": WORKERS,
    "GET /workers": READERS,
    "GET /workers/{worker_id}": READERS,
    "GET /executions": READERS,
    "GET /executions/{execution_id}": READERS,
    "POST /executions/{execution_id}/complete": WORKERS,
    "POST /executions/{execution_id}/progress": WORKERS,
    "GET /executions/{execution_id}/logs": READERS,
    "POST /executions/{execution_id}/logs": WORKERS,
    "GET /executions/{execution_id}/artifacts": READERS,
    "GET /executions/{execution_id}/artifacts/{name}": READERS,
    "PUT /executions/{execution_id}/artifacts/{name}": WORKERS,
    "GET /executions/{execution_id}/artifacts/{name}/link": READERS,
    "GET /executions/{execution_id}/artifacts/{name}/upload": WORKERS,
    "GET /executions/{execution_id}/bundles/{bundle_id}": WORKERS,
    "GET /executions/{execution_id}/bundles/{bundle_id}/content": WORKERS,
    "POST /bundles": SUBMITTERS,
    "GET /bundles": READERS,
    "GET /bundles/uploads/{sha256}": SUBMITTERS,
    "GET /bundles/{bundle_id}": READERS,
    "DELETE /bundles/{bundle_id}": SUBMITTERS,
    "GET /bundles/{bundle_id}/content": READERS,
    "GET /queues": READERS,
    "GET /queues/{name}": READERS,
    "PUT /queues/{name}": OPERATORS,
    "PATCH /queues/{name}": OPERATORS,
    "POST /queues/{name}/pause": OPERATORS,
    "POST /queues/{name}/resume": OPERATORS,
    "POST /queues/{name}/purge": OPERATORS,
    "POST /schedules": SUBMITTERS,
    "GET /schedules": READERS,
    "POST /schedules/preview": READERS,
    "POST /schedules/deploy": SUBMITTERS,
    "GET /schedules/{schedule_id}": READERS,
    "PATCH /schedules/{schedule_id}": SUBMITTERS,
    "DELETE /schedules/{schedule_id}": SUBMITTERS,
    "POST /schedules/{schedule_id}/pause": SUBMITTERS,
    "POST /schedules/{schedule_id}/resume": SUBMITTERS,
    "POST /schedules/{schedule_id}/trigger": SUBMITTERS,
    "GET /schedules/{schedule_id}/preview": READERS,
    "GET /schedules/{schedule_id}/occurrences": READERS,
    "POST /schedules/{schedule_id}/backfill": SUBMITTERS,
    "POST /schedules/{schedule_id}/backfills/{backfill_id}/cancel": SUBMITTERS,
    "GET /calendars": READERS,
    "GET /calendars/{name}": READERS,
    "PUT /calendars/{name}": OPERATORS,
    "DELETE /calendars/{name}": OPERATORS,
    "POST /triggers": SUBMITTERS,
    "GET /triggers": READERS,
    "POST /triggers/preview": READERS,
    "POST /triggers/deploy": SUBMITTERS,
    "GET /triggers/{trigger_id}": READERS,
    "PATCH /triggers/{trigger_id}": SUBMITTERS,
    "DELETE /triggers/{trigger_id}": SUBMITTERS,
    "POST /triggers/{trigger_id}/pause": SUBMITTERS,
    "POST /triggers/{trigger_id}/resume": SUBMITTERS,
    "GET /triggers/{trigger_id}/events": READERS,
    "POST /events": SUBMITTERS,
    "GET /events": READERS,
    "GET /alerts": READERS,
    "GET /alerts/{name}": READERS,
    "PUT /alerts/{name}": OPERATORS,
    "DELETE /alerts/{name}": OPERATORS,
    "POST /alerts/{name}/test": READERS,
    "PUT /alerts/{name}/silence": OPERATORS,
    "DELETE /alerts/{name}/silence": OPERATORS,
    "GET /alert-notices": READERS,
    "GET /alert-channels": READERS,
    "PUT /alert-channels/{name}": ADMINS,
    "DELETE /alert-channels/{name}": ADMINS,
    "POST /alert-channels/{name}/test": ADMINS,
    "GET /hooks": READERS,
    "GET /hooks/{name}": READERS,
    "PUT /hooks/{name}": OPERATORS,
    "DELETE /hooks/{name}": OPERATORS,
    "POST /hooks/{name}": EVERYBODY,
    "GET /policy": READERS,
    "PUT /policy": OPERATORS,
    "GET /tenants": READERS,
    "GET /tenants/{name}": READERS,
    "PUT /tenants/{name}": OPERATORS,
    "GET /autoscale": READERS,
    "GET /reports/waste": READERS,
    "POST /simulations": OPERATORS,
    "POST /simulations/trace": OPERATORS,
    "GET /healthz": EVERYBODY,
    "GET /readyz": EVERYBODY,
    "GET /stats": READERS,
    "GET /stats/history": READERS,
    "GET /attention": READERS,
    "GET /timeline": READERS,
    "GET /cluster": ALL,
    "GET /metrics": READERS,
    "GET /stream": READERS,
    "GET /session": ALL,
    "POST /session": ALL,
    "DELETE /session": EVERYBODY,
    "GET /tokens": ADMINS,
    "POST /tokens": ADMINS,
    "GET /quarantine": ADMINS,
    "POST /quarantine/repair": ADMINS,
    "DELETE /tokens/{token_id}": ADMINS,
    "GET /audit": ADMINS,
}
NOT_FOR_TENANTS = (
    *("GET /metrics", "GET /hooks", "GET /autoscale", "GET /stats/history", "GET /alerts"),
    *("GET /alert-notices", "GET /alert-channels", "GET /alerts/{name}"),
)
"""Operations that the role allows, but that show all tenants."""
UNKNOWN_ID = "019a85c2-0000-7000-8000-000000000000"

PAST = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
BODIES: dict[str, Any] = {
    "POST /quarantine/repair": {},
    "PATCH /jobs/{job_id}": {"priority": 7},
    "PATCH /schedules/{schedule_id}": {"overlap": "skip"},
    "POST /schedules/{schedule_id}/backfill": PAST,
    "PATCH /triggers/{trigger_id}": {"filter": "data.size > 1"},
}
"""Smallest bodies with which an operation gets as far as looking for its item."""


def named(call: Operation) -> str:
    return f"{call.method} {call.path}"


def is_about_one(call: Operation) -> bool:
    kinds = ("{job_id}", "{execution_id}", "{schedule_id}", "{trigger_id}", "{bundle_id}")
    return any(kind in call.path for kind in kinds)


async def ask(server: InProcessServer, call: Operation, headers: dict[str, str], **ids: str) -> Any:
    """Sends an almost empty request; one that would not end is only opened."""
    path = re.sub(r"{(\w+)}", lambda found: ids.get(found[1], UNKNOWN_ID), call.path)
    method = "HEAD" if call.path == "/stream" else call.method
    return await server.http.request(method, path, headers=headers, json=BODIES.get(named(call)))


async def items_of_tenant(server: InProcessServer, name: str) -> dict[str, str]:
    """Makes a schedule, a trigger and a bundle of a tenant; returns their ids."""
    job = {"name": name, "task": NOOP, "tenant": ACME}
    made: dict[str, str] = {}
    for kind, more in (("schedule", {"cron": "0 0 1 1 *"}), ("trigger", {"event": "object.*"})):
        body = {"name": name, "job": job, **more}
        answer = await server.ask("POST", f"/{kind}s", body, expect=201)
        made[f"{kind}_id"] = answer[f"{kind}_id"]
    sent = await server.http.post(f"/bundles?name={name}&tenant={ACME}", content=b"#!/bin/sh")
    made["bundle_id"] = sent.json()["bundle_id"]
    return made


def test_every_call_has_an_expectation() -> None:
    assert sorted(EXPECTED) == sorted(named(call) for call in OPERATIONS)


def test_the_public_roles_are_those_that_are_enforced() -> None:
    assert tuple(RoleName.__args__) == ROLES == tuple(role.value for role in Role)


@pytest.mark.parametrize("role", Role)
async def test_each_role_has_its_permissions_and_no_more(
    server: InProcessServer, role: Role
) -> None:
    headers, wrong = await token_headers(server, role), []
    for call in OPERATIONS:
        answer = await ask(server, call, headers)
        allowed = answer.status_code not in (401, 403)
        if allowed != (role in EXPECTED[named(call)]):
            wrong.append(f"{named(call)} answers {answer.status_code} {answer.text}")
    assert not wrong, "\n".join(["", *wrong])


@pytest.mark.parametrize("who", ["nobody", "unknown", "forged", "revoked", "expired"])
async def test_a_caller_without_a_valid_token_is_refused_everywhere(who: str) -> None:
    throttle = Throttle(wrong_tokens=WrongTokenLimiter(free=len(OPERATIONS)))
    async with open_server(limits=ApiLimits(token_refresh_soon_s=0), throttle=throttle) as server:
        await _gets_nowhere(server, who)


async def _gets_nowhere(server: InProcessServer, who: str) -> None:
    server.http.headers.pop("authorization")
    headers = {
        "nobody": {},
        "unknown": bearer("rota_unknown"),
        "forged": {"Cookie": "rota_session_7070=id-viewer.99999999999999.00"},
        "revoked": await ended_token(server),
        "expired": await ended_token(server, expires_at=server.engine.clock.now()),
    }[who]
    wrong = []
    for call in OPERATIONS:
        answer = await ask(server, call, headers)
        due = (200, 204) if NOBODY in EXPECTED[named(call)] else (401,)
        if call.path == "/hooks/{name}" and call.method == "POST":
            due = (404,)  # there is none of that name; if there were, its signature would count
        if answer.status_code not in due:
            wrong.append(f"{named(call)} answers {answer.status_code} {answer.text}")
    assert not wrong, "\n".join(["", *wrong])


@pytest.mark.parametrize("role", [Role.SUBMITTER, Role.VIEWER])
async def test_items_of_another_tenant_are_not_found(server: InProcessServer, role: Role) -> None:
    order = await server.start(await server.register(), tenant=ACME)
    ids = {"job_id": order["job_id"], "execution_id": order["execution_id"]}
    ids |= await items_of_tenant(server, "unspeakable")
    other = await token_headers(server, role, tenant=OTHER)
    calls = [one for one in OPERATIONS if is_about_one(one) and role in EXPECTED[named(one)]]
    assert len(calls) >= 12
    for call in calls:
        foreign = await ask(server, call, other, **ids)
        unknown = await ask(server, call, other)
        assert foreign.status_code == unknown.status_code == 404, named(call)
        shown = foreign.text
        for own_id in ids.values():
            shown = shown.replace(own_id, UNKNOWN_ID)
        assert shown == unknown.text, named(call)
    assert (await server.ask("GET", f"/jobs/{order['job_id']}"))["status"] == "running"


async def test_no_list_shows_a_tenant_items_of_others(server: InProcessServer) -> None:
    order = await server.start(await server.register(), name="unspeakable", tenant=ACME)
    ids = await items_of_tenant(server, "unspeakable")
    event = {"id": "e1", "source": "/unspeakable", "type": "object.uploaded"}
    acme = await token_headers(server, Role.SUBMITTER, tenant=ACME)
    await server.ask("POST", "/events", event, headers=acme, expect=202)
    other, looked = await token_headers(server, Role.VIEWER, tenant=OTHER), 0
    for call in OPERATIONS:
        if call.method != "GET" or "{" in call.path or "viewer" not in EXPECTED[named(call)]:
            continue
        answer = await ask(server, call, other)
        looked += 1
        assert answer.status_code == (403 if named(call) in NOT_FOR_TENANTS else 200), named(call)
        for secret in (order["job_id"], order["execution_id"], *ids.values(), "unspeakable"):
            assert secret not in answer.text, named(call)
    assert looked >= 8
