"""What made-up requests found once, kept so that it stays found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.process.cell import Cell

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    with Cell(tmp_path_factory.mktemp("found")) as cell:
        cell.up()
        yield cell.http()


@pytest.fixture(scope="module")
def document(http: httpx2.Client) -> dict[str, Any]:
    read: dict[str, Any] = http.get("/openapi.json").json()
    return read


@pytest.mark.parametrize(
    "query",
    [
        "priority=null",
        "limit=NULL",
        "created_before=null",
        "created_before=0.5",
        "created_after=1700000000",
    ],
)
def test_a_query_takes_no_word_for_something_else(http: httpx2.Client, query: str) -> None:
    answer = http.get(f"/jobs?{query}")
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == query.partition("=")[0]


@pytest.mark.parametrize("name", ["cpu", "memory", "target"])
def test_a_size_or_a_time_in_a_query_is_no_null(http: httpx2.Client, name: str) -> None:
    answer = http.get(f"/autoscale?{name}=null")
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == name


def test_a_choice_in_a_query_is_no_null(http: httpx2.Client) -> None:
    answer = http.post("/bundles?format=null", content=b"#!/bin/sh")
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == "format"
    assert http.get("/jobs?name=null").status_code == 200


def test_a_filter_beyond_the_stores_numbers_is_refused(http: httpx2.Client) -> None:
    assert http.get(f"/jobs?priority={1 << 80}").status_code == 422
    filtered = {"action": "cancel", "filter": {"priority": 1 << 80}}
    assert http.post("/jobs/bulk", json=filtered).status_code == 422


@pytest.mark.parametrize("path", ["/jobs", "/executions", "/workers"])
def test_a_wrong_status_is_answered_with_the_right_ones(http: httpx2.Client, path: str) -> None:
    detail = http.get(f"{path}?status=sleeping").json()["detail"]
    assert "," in detail
    assert "State" not in detail


@pytest.mark.parametrize("path", ["/jobs", "/executions", "/workers"])
def test_the_documents_own_example_of_a_status_works(
    http: httpx2.Client, document: dict[str, Any], path: str
) -> None:
    parameters = document["paths"][path]["get"]["parameters"]
    [status] = [one for one in parameters if one["name"] == "status"]
    assert http.get(path, params={"status": status["example"]}).status_code == 200


def test_the_document_does_not_offer_null_for_what_has_no_default(document: dict[str, Any]) -> None:
    patch = document["paths"]["/jobs/{job_id}"]["patch"]["requestBody"]["content"]
    for media in patch.values():
        fields = media["schema"]["properties"]
        assert {"type": "null"} not in fields["name"].get("anyOf", [])
        assert {"type": "null"} in fields["priority"]["anyOf"]


def test_a_patch_may_change_the_kind_of_a_task(http: httpx2.Client) -> None:
    command = {"kind": "command", "argv": ["true"]}
    job_id = http.post("/jobs", json={"name": "n", "task": command}).json()["job_id"]
    for task in ({"kind": "noop"}, command):
        changed = http.patch(f"/jobs/{job_id}", json={"task": task})
        assert changed.status_code == 200, changed.text
        assert changed.json()["task"]["kind"] == task["kind"]
    longer = http.patch(f"/jobs/{job_id}", json={"task": {"env": {"A": "b"}}}).json()["task"]
    assert (longer["argv"], longer["env"]) == (["true"], {"A": "b"})
    odd = http.post("/jobs", json={"name": "n", "task": {"kind": "noop", "argv": ["true"]}})
    assert odd.json()["detail"] == "task.argv: `argv` does not go with this kind"


@pytest.mark.parametrize("text", ["90", "1.5h", "5 m", "1h 30m"])
def test_durations_are_as_the_document_says(
    http: httpx2.Client, document: dict[str, Any], text: str
) -> None:
    job = {"name": "n", "task": {"kind": "noop"}, "timeout": text}
    assert http.post("/jobs", json=job).status_code == 201
    assert "maxLength" in str(document["components"]["schemas"]["JobSpec"]["properties"]["timeout"])


@pytest.mark.parametrize(
    "bands",
    [
        {},
        {"count": 2},
        {"count": 2, "max_parallel": 1},
        {"count": 2, "max_parallel": None, "gang": None},
        {"max_parallel": None},
        {"max_parallel": 1},
        {"max_parallel": 1, "count": None},
        {"gang": {"size": 2}},
        {"gang": {"size": 2}, "count": None},
        {"gang": {"size": 2}, "count": 2},
        {"gang": {"size": 2}, "max_parallel": 1},
    ],
    ids=str,
)
def test_the_document_knows_what_goes_with_an_array(
    http: httpx2.Client, document: dict[str, Any], bands: dict[str, Any]
) -> None:
    schemas = pytest.importorskip("jsonschema_rs", reason="make fuzz installs it")
    job = {"name": "n", "task": {"kind": "noop"}, **bands}
    for kind, path, body in (("JobSpec", "/jobs", job), ("BatchSpec", "/jobs/batch", [job])):
        schema = {"$ref": f"#/components/schemas/{kind}", "components": document["components"]}
        sent = {"jobs": body} if isinstance(body, list) else body
        taken = http.post(path, json=sent).status_code == 201
        assert schemas.is_valid(schema, sent) == taken, path


def test_the_document_says_which_parameter_must_be_given(document: dict[str, Any]) -> None:
    path = "/executions/{execution_id}/artifacts/{name}/upload"
    parameters = document["paths"][path]["get"]["parameters"]
    assert [one["name"] for one in parameters if one["required"]] == [
        "execution_id",
        "name",
        "sha256",
    ]


def test_a_part_that_is_not_understood_is_all_of_it(
    http: httpx2.Client, document: dict[str, Any]
) -> None:
    bundle = http.post("/bundles?name=part", content=b"0123456789").json()["bundle_id"]
    parameters = document["paths"]["/bundles/{bundle_id}/content"]["get"]["parameters"]
    [asked] = [one for one in parameters if one["name"] == "Range"]
    assert asked["schema"] == {"type": "string"}
    for range_, status in (("bytes=0-3", 206), ("lines=1-2", 200), ("-", 200)):
        answer = http.get(f"/bundles/{bundle}/content", headers={"Range": range_})
        assert answer.status_code == status


def test_a_deadline_of_no_length_is_against_the_document(
    http: httpx2.Client, document: dict[str, Any]
) -> None:
    schemas = pytest.importorskip("jsonschema_rs", reason="make fuzz installs it")
    schema = document["components"]["schemas"]["JobSpec"]["properties"]["finish_by"]
    for length in (0, "0s", "0h 0m", 1, "10s", "0h 5m", "2100-01-01T00:00:00Z"):
        job = {"name": "n", "task": {"kind": "noop"}, "finish_by": length}
        taken = http.post("/jobs", json=job).status_code == 201
        assert schemas.is_valid(schema, length, validate_formats=True) == taken, length
