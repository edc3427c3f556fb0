"""Follows every link of the OpenAPI document: the next call uses the objects of the last answer.

From each call that makes something to each that can follow, and from there to each that can follow
that, so that things are asked for after they were paused, ended, drained or removed. Every answer
is as the document says. What chance makes of such chains is in test_document.py.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.process.cell import Cell

schemathesis = pytest.importorskip("schemathesis", reason="make fuzz installs it")

PARAMETER = re.compile(r"{(\w+)}")
NOOP = {"name": "walked", "task": {"kind": "noop"}}
BODIES: dict[str, Any] = {
    "POST /jobs": NOOP,
    "POST /workers/{worker_id}/lease": {"max": 1, "wait": 0},
    "PUT /alerts/{name}": {"condition": "wait", "threshold": 1800, "for": "5m"},
    # Nobody listens there, and it is soon known.
    "PUT /alert-channels/{name}": {"url": "http://127.0.0.1:9/", "secret": "x" * 32},
}
"""Instead of the document's example: what has an effect here, and no effect elsewhere."""
UNREACHED = {
    "POST /hooks/{name}": "it wants a signature",
    "PUT /executions/{execution_id}/artifacts/{name}": "no answer has an execution and a file",
    "POST /schedules/{schedule_id}/backfills/{backfill_id}/cancel": "its id may be null",
}
"""What no link leads to with success, and so nothing is followed from; by their reasons."""


class Step(NamedTuple):
    label: str
    path: dict[str, str]
    status: int
    body: Any


class Walk:
    """Makes calls as the OpenAPI document describes them, and checks every answer."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell
        self.http = cell.http()
        self.document: dict[str, Any] = self.http.get("/openapi.json").json()
        self._schema = schemathesis.openapi.from_dict(self.document)
        checks = schemathesis.checks
        self._checks = [
            checks.not_a_server_error,
            checks.status_code_conformance,
            checks.content_type_conformance,
            checks.response_schema_conformance,
            checks.response_headers_conformance,
        ]
        self._numbers = itertools.count(1)
        self.by_name = {
            call["operationId"]: f"{method.upper()} {path}"
            for path, calls in self.document["paths"].items()
            for method, call in calls.items()
        }
        self.walked: set[tuple[str, str]] = set()

    def call_of(self, label: str) -> dict[str, Any]:
        method, _, path = label.partition(" ")
        found: dict[str, Any] = self.document["paths"][path][method.lower()]
        return found

    def links(self, label: str) -> dict[str, Any]:
        answers = self.call_of(label)["responses"].values()
        return next((one["links"] for one in answers if "links" in one), {})

    def unwalked(self, label: str) -> list[str]:
        return [name for name in self.links(label) if (label, name) not in self.walked]

    def makers(self) -> Iterator[str]:
        """Calls that need no existing object, or only a name."""
        for label in self.by_name.values():
            names = PARAMETER.findall(label)
            if self.links(label) and (
                not names or (label.startswith("PUT ") and names == ["name"])
            ):
                yield label

    def make(self, label: str, path: dict[str, str] | None = None) -> Step:
        """Makes the call with its example and a new name, unless `path` has one."""
        method, _, place = label.partition(" ")
        given = {one: f"walked-{next(self._numbers)}" for one in PARAMETER.findall(place)}
        given |= path or {}
        more: dict[str, Any] = {}
        content = self.call_of(label).get("requestBody", {}).get("content", {})
        for media, described in content.items():
            body = BODIES.get(label, described["example"])
            if isinstance(body, dict) and isinstance(body.get("name"), str) and method == "POST":
                body = {**body, "name": f"{body['name']}-{next(self._numbers)}"}
            plain = isinstance(body, str) and media == "application/octet-stream"
            more = {"body": body.encode() if plain else body, "media_type": media}
        case = self._schema[place][method].Case(path_parameters=given, **more)
        token = {"Authorization": f"Bearer {self._cell.token}"}
        response = case.call(base_url=self._cell.url, headers=token)
        case.validate_response(response, checks=self._checks)
        is_json = "json" in str(response.headers.get("content-type"))
        return Step(label, given, response.status_code, response.json() if is_json else None)

    def follow(self, step: Step, name: str) -> Step | None:
        """Makes the call of a link; None if the answer lacks a value for it."""
        if str(step.status) not in self.call_of(step.label)["responses"] or step.status >= 400:
            return None
        wanted = self.links(step.label)[name]["parameters"]
        path = {one: found_at(step, place) for one, place in wanted.items()}
        if None in path.values():
            return None
        self.walked.add((step.label, name))
        return self.make(self.by_name[name], {one: str(value) for one, value in path.items()})


def found_at(step: Step, expression: str) -> Any:
    """The value of a link's expression after a step."""
    if expression.startswith("$request.path."):
        return step.path[expression.removeprefix("$request.path.")]
    here = step.body
    for part in expression.partition("#/")[2].split("/"):
        try:
            here = here[int(part)] if isinstance(here, list) else here[part]
        except (KeyError, IndexError, TypeError):
            return None
    return here


def a_worker(walk: Walk) -> str:
    """Registers a worker with enough capacity for all jobs."""
    spec = {"name": "roomy", "resources": {"cpu": 10_000, "memory": "1TiB", "storage": "1TiB"}}
    answer = walk.http.post("/workers/register", json=spec).json()
    return str(answer["worker_id"])


def walk_from(walk: Walk, maker: str, first: str, second: str) -> None:
    """Makes three calls, and a fourth for each link of the third that was not followed."""
    while True:
        walk.make("POST /jobs")  # so that whoever asks for work gets some
        if "execute_job" in (first, second):
            BODIES["POST /jobs/{job_id}/execute"] = {"worker_id": a_worker(walk)}
        step = walk.follow(walk.make(maker), first)
        if step is not None and second:
            step = walk.follow(step, second)
        if step is None or not any(walk.follow(step, name) for name in walk.unwalked(step.label)):
            return


@pytest.mark.process
@pytest.mark.slow
def test_every_link_leads_to_an_answer_that_matches_the_document(tmp_path: Path) -> None:
    with Cell(tmp_path, lease_ttl="10m") as cell:
        cell.up("--rate-limit", "none")
        walk = Walk(cell)
        for maker in walk.makers():
            for first in walk.links(maker):
                for second in walk.links(walk.by_name[first]) or [""]:
                    walk_from(walk, maker, first, second)
        missed = {
            label: names for label in walk.by_name.values() if (names := walk.unwalked(label))
        }
        assert not missed.keys() - UNREACHED.keys(), missed
        assert "Traceback" not in cell.server.text()
