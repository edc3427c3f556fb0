"""Null for a field with a default means the default, in every body, and the document says so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rota.api.endpoints import OPERATIONS
from rota.api.parsing.null_defaults import without_nulls
from rota.api.parsing.request import decode_json
from rota.wire.formats import dec_hook
from rota.wire.jobs import BatchSpec, JobSpec
from tests.api.in_process_server import InProcessServer

NOOP = {"kind": "noop"}
PLAIN: dict[str, Any] = {"name": "plain", "task": NOOP}
OPTIONAL = [one.encode_name for one in msgspec.structs.fields(JobSpec) if not one.required]


async def test_a_job_of_nulls_equals_one_that_leaves_everything_out(
    server: InProcessServer,
) -> None:
    left_out = await server.ask("POST", "/jobs", PLAIN, expect=201)
    nulls = {**dict.fromkeys(OPTIONAL), **PLAIN, "payload": {}}
    sent = await server.ask("POST", "/jobs", nulls, expect=201)
    own = ("job_id", "created_at", "scheduled_at", "traceparent")
    assert {k: v for k, v in sent.items() if k not in own} == {
        k: v for k, v in left_out.items() if k not in own
    }


async def test_nulls_inside_mean_defaults_too_and_a_payload_keeps_its_own(
    server: InProcessServer,
) -> None:
    job = {
        **PLAIN,
        "task": {"kind": "command", "argv": ["true"], "env": None},
        "retry": {"max_attempts": 3, "delay": None},
        "requirements": {"cpu": None, "memory": "1MiB", "custom": None},
        "payload": {"kept": None, "list": [None]},
    }
    made = await server.ask("POST", "/jobs", job, expect=201)
    assert (made["retry"]["max_attempts"], made["retry"]["delay"]) == (3, 1)
    assert made["requirements"]["cpu"] == 1
    assert made["payload"] == {"kept": None, "list": [None]}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/jobs/batch", {"jobs": [{**PLAIN, "priority": None, "ref": None}]}),
        ("PUT", "/alerts/wait", {"threshold": None, "for": None, "enabled": None}),
        ("PUT", "/queues/q", {"weight": None}),
        ("POST", "/workers/register", {"name": "w", "capabilities": None, "resources": None}),
        (
            "POST",
            "/schedules",
            {"name": "s", "cron": "0 3 * * *", "timezone": None, "catch_up": None, "job": PLAIN},
        ),
        ("POST", "/triggers", {"name": "t", "event": "x", "filter": None, "job": PLAIN}),
    ],
)
async def test_every_body_accepts_null_for_optional_fields(
    server: InProcessServer, method: str, path: str, body: dict[str, Any]
) -> None:
    answer = await server.http.request(method, path, json=body)
    assert answer.is_success, answer.text


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": None, "task": NOOP}, "name"),
        ({**PLAIN, "priority": None, "queue": 7}, "queue"),
        ({**PLAIN, "labels": {"team": None}}, "labels"),
        ({**PLAIN, "task": {"kind": "command", "argv": None}}, "argv"),
    ],
)
async def test_null_for_a_required_field_is_refused(
    server: InProcessServer, body: dict[str, Any], field: str
) -> None:
    answer = await server.http.post("/jobs", json=body)
    assert answer.status_code == 422
    assert field in answer.json()["errors"][0]["field"]


async def test_the_document_says_what_may_be_null(server: InProcessServer) -> None:
    schemas = (await server.http.get("/openapi.json")).json()["components"]["schemas"]
    job = schemas["JobSpec"]["properties"]
    assert {"type": "null"} in job["priority"]["anyOf"]
    assert {"type": "null"} in schemas["RetrySpec"]["properties"]["max_attempts"]["anyOf"]
    assert {"type": "null"} not in job["name"].get("anyOf", [])
    assert job["priority"]["default"] == 0


def test_null_fields_are_found_in_every_type_of_body() -> None:
    for operation in OPERATIONS:
        if operation.body is not None and not operation.streams_in:
            without_nulls(b'{"nothing": null, "of": [null]}', operation.body)


def test_a_payload_beside_a_removed_null_is_the_same_to_the_byte() -> None:
    decode = msgspec.json.Decoder(BatchSpec, dec_hook=dec_hook).decode
    body = b'{"jobs": [{"name": "a", "task": {"kind": "noop"}, "payload":  {"x": null}}]}'
    raw = decode_json(decode, BatchSpec, body.replace(b'"a"', b'"a", "priority": null'))
    assert bytes(raw.jobs[0].payload) == b'{"x": null}'
