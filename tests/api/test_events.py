"""Events and triggers over HTTP: sent in every mode, accepted once, previewed, recorded."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest

from tests.api.in_process_server import NOOP, InProcessServer

JOB = {"name": "scan", "task": NOOP}
NOBODY = "019a85c0-2222-7333-8444-955566677788"
STRUCTURED = {"Content-Type": "application/cloudevents+json"}
BATCHED = {"Content-Type": "application/cloudevents-batch+json"}


def event(event_id: str = "e1", **fields: Any) -> dict[str, Any]:
    return {
        "id": event_id,
        "source": "/bucket",
        "type": "object.uploaded",
        "time": "2026-01-05T09:00:00Z",
        "data": {"name": "a.csv", "size": 10},
        **fields,
    }


async def make(server: InProcessServer, expect: int = 201, **fields: Any) -> dict[str, Any]:
    body = {"name": "uploads", "event": "object.uploaded", "job": JOB, **fields}
    answer: dict[str, Any] = await server.ask("POST", "/triggers", body, expect=expect)
    return answer


async def send(server: InProcessServer, body: Any, expect: int = 202, **more: Any) -> Any:
    answer = await server.http.post("/events", content=json.dumps(body), **more)
    assert answer.status_code == expect, answer.text
    return answer.json()


async def decisions(
    server: InProcessServer, trigger_id: str, query: str = ""
) -> list[dict[str, Any]]:
    page = await server.ask("GET", f"/triggers/{trigger_id}/events{query}", expect=200)
    items: list[dict[str, Any]] = page["items"]
    return items


async def payload_of(server: InProcessServer, job_id: str) -> Any:
    return (await server.ask("GET", f"/jobs/{job_id}", expect=200))["payload"]


async def test_an_event_creates_a_job_with_its_data(server: InProcessServer) -> None:
    made = await make(server)
    shown = await server.ask("POST", "/events", event(), expect=202)
    (job_id,) = shown["job_ids"]
    job = await server.ask("GET", f"/jobs/{job_id}", expect=200)
    assert job["trigger_id"] == made["trigger_id"]
    assert job["payload"]["data"] == {"name": "a.csv", "size": 10}
    assert shown["outcomes"][0]["outcome"] == "fired"
    assert shown["outcomes"][0]["name"] == "uploads"
    assert not shown["duplicate"]


async def test_the_same_event_twice_starts_its_jobs_once(server: InProcessServer) -> None:
    made = await make(server)
    first = await send(server, event())
    again = await send(server, event(data={"other": 1}))
    assert (again["duplicate"], again["job_ids"]) == (True, first["job_ids"])
    assert len(await decisions(server, made["trigger_id"])) == 1
    (listed,) = (await server.ask("GET", "/events", expect=200))["items"]
    assert (listed["repeats"], listed["duplicate"]) == (1, False)


async def test_the_same_event_sent_at_once_by_many_starts_one_job(server: InProcessServer) -> None:
    made = await make(server)
    shown = await asyncio.gather(*(send(server, event()) for _ in range(8)))
    assert len({one["job_ids"][0] for one in shown}) == 1
    assert sum(not one["duplicate"] for one in shown) == 1
    assert len(await decisions(server, made["trigger_id"])) == 1


async def test_an_event_may_come_structured(server: InProcessServer) -> None:
    await make(server)
    shown = await send(server, event(specversion="1.0", region="eu"), headers=STRUCTURED)
    payload = await payload_of(server, shown["job_ids"][0])
    assert payload["region"] == "eu"


async def test_an_event_may_come_binary(server: InProcessServer) -> None:
    await make(server)
    headers = {
        "ce-specversion": "1.0",
        "ce-id": "b1",
        "ce-source": "/bucket",
        "ce-type": "object.uploaded",
        "ce-subject": "a%20b",
        "Content-Type": "application/json",
    }
    shown = await send(server, {"size": 5}, headers=headers)
    payload = await payload_of(server, shown["job_ids"][0])
    assert (payload["data"], payload["subject"]) == ({"size": 5}, "a b")


async def test_data_that_is_not_json_reaches_the_job_in_base64(server: InProcessServer) -> None:
    await make(server)
    headers = {
        "ce-specversion": "1.0",
        "ce-id": "b1",
        "ce-source": "/bucket",
        "ce-type": "object.uploaded",
        "Content-Type": "image/png",
    }
    answer = await server.http.post("/events", content=b"\x89PNG\x00", headers=headers)
    payload = await payload_of(server, answer.json()["job_ids"][0])
    assert base64.b64decode(payload["data_base64"]) == b"\x89PNG\x00"
    assert payload["datacontenttype"] == "image/png"


async def test_events_may_come_as_a_batch(server: InProcessServer) -> None:
    await make(server)
    shown = await send(server, [event("a"), event("b"), event("a")], 200, headers=BATCHED)
    assert [one["duplicate"] for one in shown["items"]] == [False, False, True]


@pytest.mark.parametrize(
    ("body", "field", "said"),
    [
        ({"source": "/a", "type": "t"}, "id", "required"),
        (event(id=""), "id", "1 to 1024"),
        (event(id=7), "id", "a text"),
        (event(type="has space"), "type", "dotted words"),
        (event(type="a.*"), "type", "dotted words"),
        (event(type="rota.job.failed"), "type", "server's own"),
        (event(source="rota"), "source", "server's own"),
        (event(specversion="0.3"), "specversion", "CloudEvents 1.0"),
        (event(time="yesterday"), "time", "RFC 3339"),
        (event(time="2026-01-05T09:00:00"), "time", "RFC 3339"),
        (event(Size=1), "Size", "lower-case"),
        (event(extra={"a": 1}), "extra", "a text"),
        (event(extra="x" * 2000), "extra", "at most"),
        (event(data_base64="AA=="), "data_base64", "not both"),
        (event(data=None, data_base64="%%"), "data_base64", "not base64"),
        (event(rotadepth=-1), "rotadepth", "from 0"),
        ([event(), {"id": "x"}], "[1].source", "required"),
        ([], "", "1 to 1000"),
        ("text", "", "an event is a JSON object"),
    ],
)
async def test_an_invalid_event_is_refused_with_the_reason(
    server: InProcessServer, body: Any, field: str, said: str
) -> None:
    problem = await send(server, body, 422)
    assert said in problem["detail"]
    assert problem["errors"][0]["field"] == field


async def test_an_unreadable_body_is_refused(server: InProcessServer) -> None:
    for content, headers, status in [
        (b"{", STRUCTURED, 400),
        (b"", STRUCTURED, 400),
        (b"<xml/>", {"Content-Type": "text/xml"}, 415),
        (b"{}", BATCHED, 422),
    ]:
        answer = await server.http.post("/events", content=content, headers=headers)
        assert answer.status_code == status, answer.text


async def test_an_event_of_ten_megabytes_is_refused(server: InProcessServer) -> None:
    large = {"text": "x" * 10_000_000}
    assert "at most 1000000 bytes" in (await send(server, event(data=large), 413))["detail"]
    assert (await send(server, [event(data=large)], 413))["detail"].startswith("[0].")
    binary = {"ce-specversion": "1.0", "ce-id": "b", "ce-source": "/b", "ce-type": "t"}
    await send(server, large, 413, headers=binary)


async def test_a_created_trigger_shows_all_its_settings(server: InProcessServer) -> None:
    made = await make(
        server,
        filter={"size": [10, 20]},
        debounce={"wait": "5s", "key": "data.name"},
        rate_limit={"count": 5, "per": "1m"},
    )
    assert made["filter"] == {"size": [10, 20]}
    assert made["debounce"] == {"wait": 5, "keep": "last", "max_wait": None, "key": "data.name"}
    assert made["rate_limit"] == {"count": 5, "per": 60}
    assert (made["batch"], made["paused"], made["waiting"]) == (None, False, 0)
    again = await server.ask("GET", f"/triggers/{made['trigger_id']}", expect=200)
    assert again == made
    assert (await server.ask("GET", "/triggers?name=uploads"))["items"] == [made]
    assert (await server.ask("GET", "/triggers?event=other"))["items"] == []


async def test_short_forms_of_debounce_and_batch(server: InProcessServer) -> None:
    made = await make(server, debounce="5s")
    assert made["debounce"]["wait"] == 5
    other = await make(server, name="other", batch=10)
    assert other["batch"] == {"size": 10, "wait": 10, "key": None}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"filter": "data.size >"}, "filter"),
        ({"filter": "__import__('os')"}, "filter"),
        ({"filter": 7}, "filter"),
        ({"event": "a*b"}, "event"),
        ({"debounce": "5s", "batch": 3}, "batch"),
        ({"debounce": "soon"}, "debounce"),
        ({"debounce": 0}, "debounce"),
        ({"batch": 0}, "batch"),
        ({"batch": 5000}, "batch"),
        ({"batch": {"size": 5, "key": "1"}}, "debounce.key"),
        ({"job": {**JOB, "payload": {"a": "{{nothing}}"}}}, "job"),
        ({"job": {**JOB, "run_at": "2030-01-01T00:00:00Z"}}, "job.run_at"),
    ],
)
async def test_an_invalid_trigger_is_refused(
    server: InProcessServer, fields: dict[str, Any], field: str
) -> None:
    problem = await make(server, 422, **fields)
    assert problem["errors"][0]["field"] == field, problem


async def test_a_trigger_can_be_changed_paused_and_removed(server: InProcessServer) -> None:
    made = await make(server, filter={"size": 10}, batch=10)
    path = f"/triggers/{made['trigger_id']}"
    changed = await server.ask("PATCH", path, {"filter": "data.size > 5"}, expect=200)
    assert (changed["filter"], changed["revision"]) == ("data.size > 5", 2)
    other = await server.ask("PATCH", path, {"debounce": "1s", "filter": None}, expect=200)
    assert (other["filter"], other["batch"], other["debounce"]["wait"]) == (None, None, 1)
    paused = await server.ask("POST", f"{path}/pause", expect=200)
    assert paused["paused"]
    await send(server, event())
    (line,) = await decisions(server, made["trigger_id"])
    assert (line["outcome"], line["message"]) == ("paused", "the trigger was paused")
    await server.ask("POST", f"{path}/resume", expect=200)
    await server.ask("DELETE", path, expect=204)
    await server.ask("GET", path, expect=404)
    assert len(await decisions(server, made["trigger_id"])) == 1
    await server.ask("GET", f"/triggers/{NOBODY}/events", expect=404)
    await server.ask("DELETE", f"/triggers/{NOBODY}", expect=404)
    await server.ask("GET", "/triggers/x", expect=404)


async def test_a_patch_may_change_the_kind_of_task(server: InProcessServer) -> None:
    made = await make(server)
    task = {"kind": "command", "argv": ["./scan.sh", "{{event.id}}"]}
    patch = {"job": {"task": task}}
    changed = await server.ask("PATCH", f"/triggers/{made['trigger_id']}", patch, expect=200)
    assert changed["job"]["task"]["argv"] == task["argv"]
    assert changed["job"]["name"] == "scan"


async def test_a_second_trigger_of_the_same_name_is_refused(server: InProcessServer) -> None:
    await make(server)
    assert "already" in (await make(server, 409))["detail"]


async def test_decisions_say_why_an_event_created_no_job(server: InProcessServer) -> None:
    made = await make(server, filter="data.size > 100")
    await send(server, event())
    await send(server, event("e2", data={"size": 200}))
    # Two of the same millisecond have no order.
    lines = {one["event_id"]: one for one in await decisions(server, made["trigger_id"])}
    assert (lines["e1"]["outcome"], lines["e2"]["outcome"]) == ("filtered", "fired")
    assert lines["e1"]["message"] == "the filter did not let it pass"
    (only,) = await decisions(server, made["trigger_id"], "?outcome=filtered")
    assert only["event_id"] == "e1"
    page = await server.ask("GET", f"/triggers/{made['trigger_id']}/events?limit=1", expect=200)
    (rest,) = await decisions(server, made["trigger_id"], f"?cursor={page['next_cursor']}")
    assert {rest["event_id"], page["items"][0]["event_id"]} == {"e1", "e2"}
    await server.ask("GET", f"/triggers/{made['trigger_id']}/events?outcome=maybe", expect=422)


async def test_events_are_listed_page_by_page(server: InProcessServer) -> None:
    await send(server, [event(str(n)) for n in range(5)], 200)
    await send(server, event("other", type="order.paid"))
    seen: list[str] = []
    cursor = ""
    while cursor is not None:
        page = await server.ask("GET", f"/events?limit=2{cursor and '&cursor=' + cursor}")
        seen += [one["id"] for one in page["items"]]
        cursor = page["next_cursor"]
    assert sorted(seen) == ["0", "1", "2", "3", "4", "other"]
    (paid,) = (await server.ask("GET", "/events?type=order.paid"))["items"]
    assert paid["id"] == "other"
    await server.ask("GET", "/events?cursor=AAAA", expect=422)


async def test_buffered_events_create_one_job(server: InProcessServer) -> None:
    made = await make(server, batch={"size": 3, "wait": "1h"})
    first = await send(server, event("a"))
    assert first["outcomes"][0]["outcome"] == "held"
    shown = await server.ask("GET", f"/triggers/{made['trigger_id']}")
    assert shown["waiting"] == 1
    assert shown["closes_at"] is not None
    shown = await send(server, [event("b"), event("c")], 200)
    (job_id,) = shown["items"][1]["job_ids"]
    payload = await payload_of(server, job_id)
    assert [one["id"] for one in payload["events"]] == ["a", "b", "c"]
    assert {line["job_id"] for line in await decisions(server, made["trigger_id"])} == {job_id}


async def test_a_debounce_window_closes_by_itself(server: InProcessServer) -> None:
    made = await make(server, debounce=0.05)
    await send(server, event())
    async with asyncio.timeout(20):
        while (found := await decisions(server, made["trigger_id"]))[0]["outcome"] != "fired":
            assert found[0]["outcome"] == "held"
            await asyncio.sleep(0.01)


async def test_a_failed_job_fires_a_trigger(server: InProcessServer) -> None:
    made = await make(server, event="rota.job.failed", filter={"name": "j"})
    order = await server.start(await server.register())
    await server.finish(order, "failed", error={"message": "no"})
    (line,) = await decisions(server, made["trigger_id"])
    payload = await payload_of(server, line["job_id"])
    assert payload["data"]["job_id"] == order["job_id"]
    assert payload["data"]["error"] == {"message": "no"}


async def test_an_event_can_be_previewed(server: InProcessServer) -> None:
    made = await make(server, filter="data.size > 100")
    other = await make(server, name="all", event="object.*")
    tried = await server.ask("POST", "/triggers/preview", {"event": event()}, expect=200)
    outcomes = {one["name"]: one["outcome"] for one in tried["items"]}
    assert outcomes == {"uploads": "filtered", "all": "fired"}
    body = {"event": event(), "trigger_id": other["trigger_id"]}
    (one,) = (await server.ask("POST", "/triggers/preview", body, expect=200))["items"]
    assert one["job"]["payload"]["data"]["name"] == "a.csv"
    spec = {"name": "n", "event": "x", "job": JOB, "filter": "data.size == 10"}
    body = {"event": event(), "trigger": spec}
    (one,) = (await server.ask("POST", "/triggers/preview", body, expect=200))["items"]
    assert (one["outcome"], one["trigger_id"]) == ("fired", None)
    body = {"event": event(), "trigger": {**spec, "filter": "("}}
    await server.ask("POST", "/triggers/preview", body, expect=422)
    body = {"event": event(), "trigger_id": NOBODY}
    await server.ask("POST", "/triggers/preview", body, expect=404)
    assert (await server.ask("GET", "/jobs"))["items"] == []
    assert await decisions(server, made["trigger_id"]) == []


async def test_a_deployment_sets_all_triggers_of_an_app(server: InProcessServer) -> None:
    spec = {"name": "a", "event": "x", "job": JOB}
    body = {"owner": "shop", "triggers": [spec, {**spec, "name": "b"}]}
    done = await server.ask("POST", "/triggers/deploy", body, expect=200)
    assert done["created"] == ["a", "b"]
    body = {"owner": "shop", "triggers": [{**spec, "filter": "data.x == 1"}]}
    done = await server.ask("POST", "/triggers/deploy", body, expect=200)
    assert (done["changed"], done["retired"]) == (["a"], ["b"])
    body = {"owner": "shop", "triggers": [{**spec, "filter": "("}]}
    problem = await server.ask("POST", "/triggers/deploy", body, expect=422)
    assert problem["errors"][0]["field"] == "triggers[0].filter"


async def test_metrics_count_events_and_decisions(server: InProcessServer) -> None:
    await make(server, filter="data.size > 100")
    await send(server, event())
    await send(server, event())
    text = (await server.http.get("/metrics")).text
    assert 'rota_events_received_total{outcome="accepted"} 1.0' in text
    assert 'rota_events_received_total{outcome="repeated"} 1.0' in text
    assert 'rota_trigger_decisions_total{outcome="filtered"} 1.0' in text


async def test_a_changed_job_still_says_where_it_came_from(server: InProcessServer) -> None:
    made = await make(server)
    shown = await send(server, event())
    path = f"/jobs/{shown['job_ids'][0]}"
    changed = await server.ask("PATCH", path, {"priority": 5}, expect=200)
    assert changed["trigger_id"] == made["trigger_id"]
