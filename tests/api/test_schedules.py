"""Schedules over HTTP: created, shown, changed, run, backfilled, deployed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rota.api.endpoints.stream import change_view
from tests.api.in_process_server import NOOP, InProcessServer, open_server

JOB = {"name": "report", "task": NOOP}
FAR = "0 0 1 1 *"
NOBODY = "019a85c0-2222-7333-8444-955566677788"


@pytest.fixture
async def server() -> AsyncIterator[InProcessServer]:
    async with open_server() as opened:
        yield opened


async def make(server: InProcessServer, expect: int = 201, **fields: Any) -> dict[str, Any]:
    """Creates a schedule that is not due for a long time unless told otherwise."""
    body = {"name": "nightly", "job": JOB, **fields}
    if not any(when in body for when in ("cron", "interval", "at")):
        body["cron"] = FAR
    answer: dict[str, Any] = await server.ask("POST", "/schedules", body, expect=expect)
    return answer


async def occurrences(
    server: InProcessServer, schedule_id: str, query: str = ""
) -> list[dict[str, Any]]:
    page = await server.ask("GET", f"/schedules/{schedule_id}/occurrences{query}", expect=200)
    items: list[dict[str, Any]] = page["items"]
    return items


async def fired(server: InProcessServer, schedule_id: str, count: int = 1) -> list[dict[str, Any]]:
    """Returns the occurrences, once there are so many."""
    async with asyncio.timeout(20):
        seen = 0
        while len(found := await occurrences(server, schedule_id)) < count:
            seen = await server.engine.journal_notifier.wait_beyond(seen)
    return found


async def test_a_created_schedule_shows_its_settings_and_the_defaults(
    server: InProcessServer,
) -> None:
    made = await make(server, timezone="Europe/Berlin", jitter="30s", overlap="skip")
    assert made["dst"] == {"gap": "jump", "overlap": "first"}
    assert (made["catch_up"], made["catch_up_window"]) == ("latest", 604800)
    assert (made["status"], made["jitter"], made["from"]) == ("active", 30, "start")
    assert made["job"]["name"] == "report"
    assert made["next_at"].endswith("-12-31T23:00:00.000Z")
    again = await server.ask("GET", f"/schedules/{made['schedule_id']}", expect=200)
    assert again == made
    listed = await server.ask("GET", "/schedules?name=nightly", expect=200)
    assert listed == {"items": [made], "next_cursor": None}
    assert (await server.ask("GET", "/schedules?name=daily"))["items"] == []


async def test_a_due_schedule_creates_a_job_with_its_scheduled_time(
    server: InProcessServer,
) -> None:
    made = await make(
        server, cron="* * * * * *", job={**JOB, "payload": {"at": "{{scheduled_at}}"}}
    )
    line = (await fired(server, made["schedule_id"]))[-1]
    assert line["outcome"] in ("fired", "late")
    job = await server.ask("GET", f"/jobs/{line['job_id']}", expect=200)
    assert job["schedule_id"] == made["schedule_id"]
    assert job["scheduled_at"] == line["at"]
    assert job["payload"]["at"] == line["at"].replace(".000Z", "Z")
    metrics = (await server.http.get("/metrics")).text
    assert "rota_schedule_lateness_seconds_count" in metrics
    assert 'rota_schedule_occurrences_total{outcome="' in metrics


async def test_a_list_continues_where_the_page_before_ended(server: InProcessServer) -> None:
    for number in range(5):
        await make(server, name=f"s{number}")
    first = await server.ask("GET", "/schedules?limit=3", expect=200)
    rest = await server.ask("GET", f"/schedules?limit=3&cursor={first['next_cursor']}", expect=200)
    names = [one["name"] for one in first["items"] + rest["items"]]
    assert names == ["s4", "s3", "s2", "s1", "s0"]
    assert rest["next_cursor"] is None


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"cron": "0 0 30 2 *"}, "cron", "FEB has no day 30"),
        ({"cron": "*/0 * * * *"}, "cron", "step of 0"),
        ({"cron": "*/99 * * * *"}, "cron", "more than the field has"),
        ({"cron": "61 * * * *"}, "cron", "61 is not from 0 to 59"),
        ({"cron": "0 0 * * XYZ"}, "cron", "XYZ"),
        ({"cron": "@noon"}, "cron", "@daily"),
        ({"cron": "0 0 * *"}, "cron", "five"),
        ({"cron": FAR, "interval": "5m"}, "cron", "exactly one"),
        ({"interval": 0}, "interval", "more than 0"),
        ({"interval": "200000000000s"}, "interval", "ten years"),
        ({"interval": "500ms"}, "interval", "at least 1 s"),
        ({"timezone": "Europe/Berlim"}, "timezone", "did you mean Europe/Berlin?"),
        ({"timezone": "../../etc/passwd"}, "timezone", "no time zone"),
        ({"at": "2001-01-01T00:00:00Z"}, "at", "past"),
        ({"at": "2999-01-01T00:00:00Z"}, "at", "2200"),
        ({"job": {**JOB, "run_at": "2030-01-01T00:00:00Z"}}, "job.run_at", "leave it out"),
        (
            {"job": {**JOB, "dependencies": [NOBODY]}},
            "job.dependencies",
            "cannot depend on another job",
        ),
        ({"job": {**JOB, "payload": "{{ ds }}"}}, "job", "{{scheduled_at}}"),
        ({"calendars": ["nowhere"]}, "calendars", "PUT /calendars/nowhere"),
        ({"dst": {"gap": "jmp"}}, "dst.gap", "jmp"),
        ({"crno": "x"}, "crno", "did you mean `cron`?"),
    ],
)
async def test_an_invalid_schedule_is_refused_with_the_reason(
    server: InProcessServer, fields: dict[str, Any], field: str, words: str
) -> None:
    problem = await make(server, expect=422, **fields)
    assert words in problem["detail"]
    assert [one["field"] for one in problem["errors"]] == [field]


async def test_a_name_that_is_taken_is_a_conflict(server: InProcessServer) -> None:
    await make(server)
    problem = await make(server, expect=409)
    assert "nightly" in problem["detail"]


async def test_the_same_key_creates_one_schedule(server: InProcessServer) -> None:
    body = {"name": "once", "cron": FAR, "job": JOB}
    headers = {"Idempotency-Key": "k1"}
    one = await server.ask("POST", "/schedules", body, expect=201, headers=headers)
    two = await server.ask("POST", "/schedules", body, expect=201, headers=headers)
    assert one["schedule_id"] == two["schedule_id"]
    assert len((await server.ask("GET", "/schedules"))["items"]) == 1


async def test_a_patch_changes_what_it_names_and_null_restores(server: InProcessServer) -> None:
    made = await make(server, overlap="skip", job={**JOB, "labels": {"team": "a"}})
    path = f"/schedules/{made['schedule_id']}"
    changed = await server.ask(
        "PATCH", path, {"interval": "15m", "job": {"priority": 7}, "overlap": None}, expect=200
    )
    assert (changed["cron"], changed["interval"], changed["overlap"]) == (None, 900, "allow")
    assert (changed["job"]["priority"], changed["job"]["labels"]) == (7, {"team": "a"})
    assert changed["revision"] == made["revision"] + 1
    assert (await server.ask("PATCH", path, {"timezone": "Nowhere"}))["status"] == 422
    assert await server.ask("GET", path) == changed


async def test_a_patch_may_change_the_kind_of_a_schedules_task(
    server: InProcessServer,
) -> None:
    made = await server.ask(
        "POST",
        "/schedules",
        {
            "name": "report",
            "interval": "1h",
            "job": {"name": "report", "task": {"kind": "command", "argv": ["true"]}},
        },
        expect=201,
    )
    path = f"/schedules/{made['schedule_id']}"
    changed = await server.ask("PATCH", path, {"job": {"task": {"kind": "noop"}}}, expect=200)
    assert changed["job"]["task"] == {"kind": "noop"}


async def test_a_paused_schedule_shows_so_and_can_be_previewed(
    server: InProcessServer,
) -> None:
    made = await make(server, paused=True)
    path = f"/schedules/{made['schedule_id']}"
    assert (made["status"], made["next_at"]) == ("paused", None)
    preview = await server.ask("GET", f"{path}/preview?count=2", expect=200)
    assert len(preview["items"]) == 2
    resumed = await server.ask("POST", f"{path}/resume", expect=200)
    assert resumed["next_at"] == preview["items"][0]["at"]
    paused = await server.ask("POST", f"{path}/pause", expect=200)
    assert paused["paused"] is True


async def test_a_preview_marks_clock_changes_and_stores_nothing(server: InProcessServer) -> None:
    body = {"cron": "30 2 * * *", "timezone": "America/New_York"}
    preview = await server.ask(
        "POST", "/schedules/preview?count=3&after=2027-03-13T00:00:00Z", body, expect=200
    )
    locals_ = [one["local"] for one in preview["items"]]
    assert locals_ == [
        "2027-03-13T02:30:00-05:00",
        "2027-03-14T03:00:00-04:00",
        "2027-03-15T02:30:00-04:00",
    ]
    assert "clock moved forward" in preview["items"][1]["note"]
    assert preview["items"][2]["note"] is None
    assert (await server.ask("GET", "/schedules"))["items"] == []


async def test_a_trigger_runs_the_job_now_even_while_paused(server: InProcessServer) -> None:
    made = await make(server, paused=True)
    line = await server.ask("POST", f"/schedules/{made['schedule_id']}/trigger", expect=201)
    assert (line["cause"], line["outcome"]) == ("trigger", "fired")
    assert (await server.ask("GET", f"/jobs/{line['job_id']}"))["status"] == "queued"
    shown = await server.ask("GET", f"/schedules/{made['schedule_id']}")
    assert shown["running"] == [line["job_id"]]


async def test_a_backfill_is_previewed_run_once_and_cancelled(server: InProcessServer) -> None:
    made = await make(server, cron="* * * * * *", paused=True)
    lines = await fired(server, made["schedule_id"], 3)
    path = f"/schedules/{made['schedule_id']}"
    span = {"from": lines[-1]["at"], "to": lines[0]["at"]}
    dry = await server.ask("POST", f"{path}/backfill", {**span, "dry_run": True}, expect=200)
    assert (dry["count"], dry["job_ids"], dry["already"]) == (3, [], 0)
    run = await server.ask("POST", f"{path}/backfill", span, expect=201)
    assert run["count"] == 3
    again = await server.ask("POST", f"{path}/backfill", span, expect=201)
    assert (again["count"], again["already"]) == (0, 3)
    jobs = [await server.ask("GET", f"/jobs/{one}") for one in run["job_ids"]]
    assert {job["priority"] for job in jobs} == {-100}
    reason = (await occurrences(server, made["schedule_id"], "?outcome=caught_up"))[0]
    assert reason["cause"] == "backfill"
    cancelled = await server.ask(
        "POST", f"{path}/backfills/{run['backfill_id']}/cancel", expect=200
    )
    assert cancelled == {"count": 3}


async def test_a_backfill_of_too_much_is_refused(server: InProcessServer) -> None:
    made = await make(server, cron="* * * * * *", paused=True)
    body = {"from": "2001-01-01T00:00:00Z", "to": "2002-01-01T00:00:00Z"}
    problem = await server.ask(
        "POST", f"/schedules/{made['schedule_id']}/backfill", body, expect=422
    )
    assert "shorter range" in problem["detail"]


async def test_occurrences_are_paged_and_filtered_with_reasons(server: InProcessServer) -> None:
    made = await make(server, cron="* * * * * *", paused=True)
    await fired(server, made["schedule_id"], 3)
    path = f"/schedules/{made['schedule_id']}/occurrences"
    first = await server.ask("GET", f"{path}?limit=2", expect=200)
    rest = await server.ask("GET", f"{path}?limit=2&cursor={first['next_cursor']}", expect=200)
    ats = [one["at"] for one in first["items"] + rest["items"]]
    assert ats == sorted(ats, reverse=True)
    assert first["items"][0]["message"] == "the schedule was paused"
    assert (await server.ask("GET", f"{path}?outcome=fired"))["items"] == []
    assert (await server.ask("GET", f"{path}?outcome=odd"))["status"] == 422


async def test_occurrences_of_a_deleted_schedule_can_be_read(server: InProcessServer) -> None:
    made = await make(server, cron="* * * * * *", paused=True)
    await fired(server, made["schedule_id"])
    path = f"/schedules/{made['schedule_id']}"
    await server.ask("DELETE", path, expect=204)
    assert (await server.ask("GET", path))["status"] == 404
    assert await occurrences(server, made["schedule_id"])
    assert (await server.ask("DELETE", path))["status"] == 404
    assert (await server.ask("GET", f"/schedules/{NOBODY}/occurrences"))["status"] == 404


async def test_a_deployment_creates_changes_and_removes_schedules(server: InProcessServer) -> None:
    def body(*schedules: dict[str, Any]) -> dict[str, Any]:
        return {"owner": "shop:app", "schedules": list(schedules)}

    one, two = ({"name": name, "cron": FAR, "job": JOB} for name in ("one", "two"))
    mine = await make(server, name="mine")
    path = "/schedules/deploy"
    first = await server.ask("POST", path, body(one, two), expect=200)
    assert first["created"] == ["one", "two"]
    second = await server.ask("POST", path, body({**one, "cron": "0 0 2 1 *"}), expect=200)
    assert (second["changed"], second["retired"]) == (["one"], ["two"])
    assert (await server.ask("POST", path, body({**one, "cron": "0 0 2 1 *"})))["unchanged"] == [
        "one"
    ]
    problem = await server.ask("POST", path, body({**one, "name": "mine"}), expect=409)
    assert "take another name" in problem["detail"]
    problem = await server.ask("POST", path, body({**one, "cron": "bad"}), expect=422)
    assert problem["errors"][0]["field"] == "schedules[0].cron"
    names = [s["name"] for s in (await server.ask("GET", "/schedules"))["items"]]
    assert sorted(names) == ["mine", "one"]
    assert mine["owner"] is None


async def test_calendars_are_set_used_and_kept_while_used(server: InProcessServer) -> None:
    dates = {"dates": ["2026-12-26", "2026-12-25", "2026-12-25"]}
    calendar = await server.ask("PUT", "/calendars/de", dates, expect=200)
    assert calendar["dates"] == ["2026-12-25", "2026-12-26"]
    made = await make(server, calendars=["de"])
    assert (await server.ask("GET", "/calendars/de"))["schedules"] == 1
    assert (await server.ask("DELETE", "/calendars/de"))["status"] == 409
    await server.ask("DELETE", f"/schedules/{made['schedule_id']}", expect=204)
    await server.ask("DELETE", "/calendars/de", expect=204)
    assert (await server.ask("GET", "/calendars"))["items"] == []
    assert (await server.ask("PUT", "/calendars/bad%20name", dates))["status"] == 422
    problem = await server.ask("PUT", "/calendars/de", {"dates": ["2026-13-01"]}, expect=422)
    assert problem["detail"] == "dates[0]: not a date: write it like 2026-01-31"
    assert (await server.ask("PUT", "/calendars/de", {"dates": ["2026-02-30"]}))["status"] == 422


async def test_the_stream_shows_schedules_and_their_occurrences(server: InProcessServer) -> None:
    made = await make(server, paused=True)
    line = await server.ask("POST", f"/schedules/{made['schedule_id']}/trigger", expect=201)
    changes = await server.store.queries.changes_after(0, 100)  # type: ignore[arg-type]
    views = [view for change in changes if (view := change_view(change)) is not None]
    shown = [(view.kind, view.status) for view in views]
    assert ("schedule", "paused") in shown
    assert ("occurrence", "fired") in shown
    assert any(view.job_id == line["job_id"] for view in views)
