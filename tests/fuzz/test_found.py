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
