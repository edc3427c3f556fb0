"""Schedules, triggers and events through a gateway: in one cell, or in every cell."""

from __future__ import annotations

from typing import Any

from rota.wire.formats import cell_tag, tag_in
from tests.gateway.fleet import Gateway, TestFleet, until

CELLS = ("north", "south")
SCHEDULE: dict[str, Any] = {"name": "s", "cron": "0 0 1 1 *"}
TRIGGER: dict[str, Any] = {"name": "t", "event": "object.*"}
UPLOAD = {"id": "e1", "source": "/bucket", "type": "object.uploaded"}


def of(tenant: str, what: dict[str, Any]) -> dict[str, Any]:
    return {**what, "job": {"name": "j", "task": {"kind": "noop"}, "tenant": tenant}}


async def one_in_each(gateway: Gateway, kind: str, what: dict[str, Any]) -> list[str]:
    """Creates one in every cell; returns their ids, newest first."""
    ids = []
    for cell in CELLS:
        tenant = gateway.tenant_of(cell)
        made = await gateway.ask("POST", f"/{kind}s", of(tenant, what), expect=201)
        assert tag_in(made[f"{kind}_id"]) == cell_tag(cell)
        ids.append(made[f"{kind}_id"])
    return sorted(ids, reverse=True)


async def test_schedules_are_created_in_their_tenants_cell_and_found_by_their_ids(
    gateway: Gateway,
) -> None:
    ids = await one_in_each(gateway, "schedule", SCHEDULE)
    for schedule_id in ids:
        path = f"/schedules/{schedule_id}"
        assert (await gateway.ask("POST", f"{path}/pause", expect=200))["paused"]
        run = await gateway.ask("POST", f"{path}/trigger", expect=201)
        assert tag_in(run["job_id"]) == tag_in(schedule_id)
        ledger = await gateway.ask("GET", f"{path}/occurrences", expect=200)
        assert [one["job_id"] for one in ledger["items"]] == [run["job_id"]]
    pages = [page async for page in gateway.pages("/schedules", limit=1)]
    assert [one["schedule_id"] for page in pages for one in page["items"]] == ids


async def test_an_event_is_sent_to_every_cell_and_has_its_effect_once(
    fleet: TestFleet, gateway: Gateway
) -> None:
    ids = await one_in_each(gateway, "trigger", TRIGGER)
    answer = await gateway.ask("POST", "/events", UPLOAD, expect=202)
    assert sorted(one["trigger_id"] for one in answer["outcomes"]) == sorted(ids)
    assert {tag_in(job_id) for job_id in answer["job_ids"]} == {cell_tag(one) for one in CELLS}
    again = await gateway.ask("POST", "/events", UPLOAD, expect=202)
    assert again["duplicate"]
    assert sorted(again["job_ids"]) == sorted(answer["job_ids"])
    batch = {"content-type": "application/cloudevents-batch+json"}
    both = [UPLOAD, {**UPLOAD, "id": "e2"}]
    answer = await gateway.ask("POST", "/events", both, expect=200, headers=batch)
    assert [(one["id"], one["duplicate"]) for one in answer["items"]] == [
        ("e1", True),
        ("e2", False),
    ]
    assert len(answer["items"][1]["job_ids"]) == 2
    await gateway.ask("GET", "/events", expect=421)


async def test_an_event_that_a_cell_did_not_get_must_be_sent_again(
    fleet: TestFleet, gateway: Gateway
) -> None:
    await one_in_each(gateway, "trigger", TRIGGER)
    south = fleet.cells["south"].listening
    await south.stop()
    problem = await gateway.ask("POST", "/events", UPLOAD, expect=503)
    assert problem["type"].endswith(":partly_done")
    await south.start()

    async def sent() -> Any:
        answer = await gateway.http.post("/events", json=UPLOAD)
        return answer.json() if answer.status_code == 202 else None

    answer = await until(sent, "south is back")
    assert len(answer["job_ids"]) == 2
    assert not answer["duplicate"], "it was news to one of them"


async def test_an_event_is_previewed_against_the_triggers_of_all_cells_or_the_named_one(
    gateway: Gateway,
) -> None:
    ids = await one_in_each(gateway, "trigger", TRIGGER)
    trial: dict[str, Any] = {"event": UPLOAD}
    found = await gateway.ask("POST", "/triggers/preview", trial, expect=200)
    assert sorted(one["trigger_id"] for one in found["items"]) == sorted(ids)
    for trigger_id in ids:
        one = {**trial, "trigger_id": trigger_id}
        found = await gateway.ask("POST", "/triggers/preview", one, expect=200)
        assert [one["trigger_id"] for one in found["items"]] == [trigger_id]


async def test_an_app_deploys_to_one_cell_and_an_empty_deployment_goes_to_all(
    gateway: Gateway,
) -> None:
    north, south = (gateway.tenant_of(cell) for cell in CELLS)
    both = [of(north, SCHEDULE), of(south, {**SCHEDULE, "name": "b"})]
    problem = await gateway.ask(
        "POST", "/schedules/deploy", {"owner": "app", "schedules": both}, expect=422
    )
    assert problem["errors"][0]["field"] == "schedules[1].job.tenant"
    for given in (both[:1], both[1:]):
        body = {"owner": "app", "schedules": given}
        done = await gateway.ask("POST", "/schedules/deploy", body, expect=200)
        assert len(done["created"]) == 1
    nothing = {"owner": "app", "schedules": []}
    done = await gateway.ask("POST", "/schedules/deploy", nothing, expect=200)
    assert sorted(done["retired"]) == ["b", "s"]


async def test_a_calendar_is_set_in_every_cell(fleet: TestFleet, gateway: Gateway) -> None:
    dates = {"dates": ["2030-12-25"]}
    await gateway.ask("PUT", "/calendars/closed", dates, expect=200)
    for cell in CELLS:
        spec = {**SCHEDULE, "calendars": ["closed"]}
        body = of(gateway.tenant_of(cell), spec)
        await gateway.ask("POST", "/schedules", body, expect=201)
        there = await fleet.cells[cell].server.ask("GET", "/calendars/closed")
        assert there["schedules"] == 1
    assert (await gateway.ask("GET", "/calendars/closed", expect=200))["schedules"] == 2
    listed = await gateway.ask("GET", "/calendars", expect=200)
    assert [(one["name"], one["schedules"]) for one in listed["items"]] == [("closed", 2)]
    for schedule in (await gateway.ask("GET", "/schedules", expect=200))["items"]:
        await gateway.ask("DELETE", f"/schedules/{schedule['schedule_id']}", expect=204)
    await gateway.ask("DELETE", "/calendars/closed", expect=204)
    await gateway.ask("GET", "/calendars/closed", expect=404)


async def test_calls_for_hooks_are_refused_with_a_hint_to_the_cell(gateway: Gateway) -> None:
    for method, path in (("PUT", "/hooks/code"), ("POST", "/hooks/code"), ("GET", "/hooks")):
        problem = await gateway.ask(method, path, {"scheme": "github"}, expect=421)
        assert problem["type"].endswith(":ask_the_cell")
