"""The OpenAPI document is complete and correct."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from rota.api.endpoints import OPERATIONS
from rota.api.openapi.document import build_document, example
from rota.api.router import Operation
from rota.wire.formats import dec_hook
from tests.api.in_process_server import InProcessServer

DOCUMENT = json.loads(json.dumps(build_document(OPERATIONS, "1.2.3")))
NAMED = [pytest.param(one, id=f"{one.method} {one.path}") for one in OPERATIONS]


def call_in_document(operation: Operation) -> dict[str, Any]:
    call: dict[str, Any] = DOCUMENT["paths"][operation.path][operation.method.lower()]
    return call


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def resolve(reference: str) -> Any:
    node = DOCUMENT
    for key in reference.removeprefix("#/").split("/"):
        node = node[key]
    return node


async def test_the_server_serves_the_document(server: InProcessServer) -> None:
    served = await server.ask("GET", "/openapi.json", expect=200)
    assert (served["openapi"], served["info"]["version"]) == ("3.1.0", "0.0.0")
    assert list(served["paths"]) == list(DOCUMENT["paths"])


def test_every_reference_resolves() -> None:
    found = list(references(DOCUMENT))
    assert len(found) > 100
    for reference in found:
        assert resolve(reference)


def test_no_two_types_share_a_name() -> None:
    """Otherwise their names would contain modules, which mean nothing to a reader."""
    assert [name for name in DOCUMENT["components"]["schemas"] if "." in name] == []


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [call["operationId"] for path in DOCUMENT["paths"].values() for call in path.values()]
    assert len(names) == len(set(names)) == len(OPERATIONS)


@pytest.mark.parametrize("operation", NAMED)
def test_every_operation_is_described_completely(operation: Operation) -> None:
    call = call_in_document(operation)
    assert call["summary"]
    assert str(operation.status) in call["responses"]
    for status in ("400", "421", "422", "429", "500", "503"):
        assert status in call["responses"]
    if not operation.open:
        assert "401" in call["responses"]
    for name in operation.path.split("{")[1:]:
        wanted = name.split("}")[0]
        assert any(p["name"] == wanted and p["in"] == "path" for p in call["parameters"])
    for parameter in call["parameters"]:
        assert "example" in parameter, parameter["name"]
    keyed = any(p["name"] == "Idempotency-Key" for p in call["parameters"])
    assert keyed == operation.writes


@pytest.mark.parametrize("operation", NAMED)
def test_every_example_matches_its_type(operation: Operation) -> None:
    call = call_in_document(operation)
    good = call["responses"][str(operation.status)]
    if operation.status != 204:
        (content,) = good["content"].values()
        assert content["example"]
    if operation.answer is not None:
        decoder = msgspec.json.Decoder(operation.answer, dec_hook=dec_hook)
        decoder.decode(json.dumps(content["example"]))
    if operation.body not in (None, bytes):
        body = next(iter(call["requestBody"]["content"].values()))["example"]
        wanted = operation.body if operation.patch_of is None else dict[str, Any]
        msgspec.json.Decoder(wanted, dec_hook=dec_hook).decode(json.dumps(body))


def test_unknown_fields_are_forbidden_in_the_document_too() -> None:
    for name in ("JobSpec", "BatchJobSpec", "Requirements", "RetrySpec", "LeaseSpec", "QueueSpec"):
        assert DOCUMENT["components"]["schemas"][name]["additionalProperties"] is False


async def test_the_examples_work_when_they_are_sent(server: InProcessServer) -> None:
    submit = next(one for one in OPERATIONS if (one.method, one.path) == ("POST", "/jobs"))
    job = await server.ask("POST", "/jobs", example(submit.examples["body"]), expect=201)
    assert set(job) == set(example(submit.examples["answer"]))
    batch = next(one for one in OPERATIONS if one.path == "/jobs/batch")
    await server.ask("POST", "/jobs/batch", example(batch.examples["body"]), expect=201)
    register = next(one for one in OPERATIONS if one.path == "/workers/register")
    shown = await server.ask(
        "POST", "/workers/register", example(register.examples["body"]), expect=201
    )
    assert set(shown) == set(example(register.examples["answer"]))
    lease = next(one for one in OPERATIONS if one.path.endswith("/lease"))
    answer = await server.lease(shown["worker_id"])
    assert set(answer) == set(example(lease.examples["answer"]))
    assert set(answer["executions"][0]) == set(example(lease.examples["answer"])["executions"][0])


def links_in_document() -> Iterator[tuple[Operation, str, dict[str, Any]]]:
    for operation in OPERATIONS:
        good = call_in_document(operation)["responses"][str(operation.status)]
        for name, link in good.get("links", {}).items():
            yield operation, name, link


def test_creating_an_item_links_to_all_operations_on_it() -> None:
    [submit] = [one for one in OPERATIONS if (one.method, one.path) == ("POST", "/jobs")]
    links = call_in_document(submit)["responses"]["201"]["links"]
    assert {"show_job", "cancel_job", "patch_job", "delete_job"} <= links.keys()
    assert links["show_job"]["parameters"] == {"job_id": "$response.body#/job_id"}
    led_to = {name for _, name, _ in links_in_document()}
    # Named by what the client has itself: a file's digest, or the bundle of its own order.
    apart = ("/bundles/uploads/", "/executions/{execution_id}/bundles/")
    for operation in OPERATIONS:
        takes = "{" in operation.path and not operation.streams_out
        if takes and not operation.path.startswith(apart):
            assert operation.handle.__name__ in led_to, f"{operation.path} is a dead end"


def test_every_link_has_all_parameters_of_its_operation() -> None:
    by_name = {one.handle.__name__: one for one in OPERATIONS}
    for source, name, link in links_in_document():
        assert link["operationId"] == name
        wanted = {part[1:-1] for part in by_name[name].path.split("/") if part.startswith("{")}
        assert link["parameters"].keys() == wanted
        for value in link["parameters"].values():
            if value.startswith("$request.path."):
                assert f"{{{value.rpartition('.')[2]}}}" in source.path
            else:
                assert at_place(example(source.examples["answer"]), value.partition("#/")[2])


def at_place(document: Any, pointer: str) -> Any:
    for step in pointer.split("/"):
        document = document[int(step)] if step.isdigit() else document[step]
    return document
