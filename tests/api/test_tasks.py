"""Kinds of task over HTTP: what is accepted, what is refused, and jobs that run a function."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.in_process_server import InProcessServer


async def submitted(server: InProcessServer, **job: Any) -> dict[str, Any]:
    view: dict[str, Any] = await server.ask("POST", "/jobs", {"name": "a", **job}, expect=201)
    return view


async def refused(server: InProcessServer, **job: Any) -> dict[str, Any]:
    problem: dict[str, Any] = await server.ask("POST", "/jobs", {"name": "a", **job}, expect=422)
    return problem


async def worker(server: InProcessServer, name: str, **said: Any) -> str:
    body = {"name": name, "resources": {"cpu": 4}, **said}
    answer = await server.ask("POST", "/workers/register", body, expect=201)
    worker_id: str = answer["worker_id"]
    return worker_id


async def leased(server: InProcessServer, worker_id: str) -> list[dict[str, Any]]:
    body = {"max": 10, "wait": 0}
    answer = await server.ask("POST", f"/workers/{worker_id}/lease", body, expect=200)
    orders: list[dict[str, Any]] = answer["executions"]
    return orders


async def test_a_python_task_is_stored_unchanged(server: InProcessServer) -> None:
    task = {"kind": "python", "entry": "shop.billing:Desk.invoice", "args": [2**70, {"a": None}]}
    view = await submitted(server, task=task)
    assert view["task"] == {**task, "kwargs": {}}
    assert view["requirements"]["capabilities"] == []


@pytest.mark.parametrize(
    "entry",
    ["shop", "shop:", ":f", "shop:f()", "shop/x:f", "1shop:f", "shop:f\n", "a b:f", "a:b:c"],
)
async def test_an_entry_that_names_no_function_is_refused(
    server: InProcessServer, entry: str
) -> None:
    problem = await refused(server, task={"kind": "python", "entry": entry})
    assert problem["errors"][0]["field"] == "task.entry"


async def test_arguments_that_nest_too_deeply_are_refused(server: InProcessServer) -> None:
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    problem = await refused(server, task={"kind": "python", "entry": "a:b", "args": [deep]})
    assert problem["errors"][0]["field"] == "task"
    problem = await refused(server, task={"kind": "http", "url": "http://a", "body": deep})
    assert problem["errors"][0]["field"] == "task.body"


async def test_an_http_task_is_stored_unchanged(server: InProcessServer) -> None:
    task = {
        "kind": "http",
        "url": "https://shop.example:8443/hooks?x=1",
        "method": "POST",
        "headers": {"X-Token": "t"},
        "body": {"paid": 42},
    }
    assert (await submitted(server, task=task))["task"] == task


@pytest.mark.parametrize(
    ("task", "hint"),
    [
        ({"url": "ftp://shop.example/"}, "url"),
        ({"url": "file:///etc/passwd"}, "url"),
        ({"url": "http://"}, "url"),
        ({"url": "http:///path"}, "names no host"),
        ({"url": "http://shop.example:99999/"}, "makes no sense"),
        ({"url": "http://user:pass@shop.example/"}, "Authorization"),
        ({"url": "http://shop.example/ x"}, "url"),
        ({"url": "http://shop.example/\r\nX: y"}, "url"),
        ({"url": "http://a", "method": "TRACE"}, "method"),
        ({"url": "http://a", "headers": {"X\r\nY": "z"}}, "headers"),
        ({"url": "http://a", "headers": {"X": "a\r\nY: b"}}, "headers"),
        ({"url": "http://a", "headers": {"Host": "b"}}, "set by the worker"),
        ({"url": "http://a", "timeout": 5}, "timeout"),
    ],
)
async def test_an_invalid_http_task_is_refused(
    server: InProcessServer, task: dict[str, Any], hint: str
) -> None:
    problem = await refused(server, task={"kind": "http", **task})
    assert hint in problem["detail"]


async def test_a_job_without_a_task_runs_the_function_of_its_name(server: InProcessServer) -> None:
    view = await submitted(server, name="invoice", payload={"customer": 42})
    assert view["task"] is None
    assert view["requirements"]["capabilities"] == ["fn:invoice"]
    plain = await worker(server, "plain")
    assert await leased(server, plain) == []
    able = await worker(server, "able", capabilities=["fn:invoice", "fn:other"])
    [order] = await leased(server, able)
    assert (order["name"], order["task"]) == ("invoice", None)
    assert order["payload"] == {"customer": 42}


async def test_a_job_of_a_function_that_no_worker_has_waits_with_that_reason(
    server: InProcessServer,
) -> None:
    await worker(server, "plain")
    await worker(server, "other", capabilities=["fn:other"])
    view = await submitted(server, name="invoice")
    assert view["status"] == "queued"
    why = await server.ask("GET", f"/jobs/{view['job_id']}/why", expect=200)
    assert why["cause"]["code"] == "no_function"
    assert why["cause"]["message"].startswith("no worker has the function invoice;")
    assert "--app" in why["cause"]["message"]


@pytest.mark.parametrize("payload", ["text", 42, True])
async def test_a_function_takes_a_list_or_an_object(
    server: InProcessServer, payload: object
) -> None:
    problem = await refused(server, payload=payload)
    assert problem["errors"][0]["field"] == "payload"
    for fine in ([1], {"a": 1}, {"args": [1], "kwargs": {}}, None):
        await submitted(server, payload=fine)


async def test_another_name_means_another_function(server: InProcessServer) -> None:
    view = await submitted(server, name="invoice", requirements={"capabilities": ["linux"]})
    path = f"/jobs/{view['job_id']}"
    view = await server.ask("PATCH", path, {"name": "refund"}, expect=200)
    assert view["requirements"]["capabilities"] == ["fn:refund", "linux"]
    view = await server.ask("PATCH", path, {"task": {"kind": "noop"}}, expect=200)
    assert view["requirements"]["capabilities"] == ["linux"]
    view = await server.ask("PATCH", path, {"task": None}, expect=200)
    assert view["requirements"]["capabilities"] == ["fn:refund", "linux"]


async def test_an_app_may_have_many_functions_and_long_names(server: InProcessServer) -> None:
    names = [f"fn:{'x' * 250}{number}" for number in range(2000)]
    await worker(server, "rich", capabilities=names)
    body = {"name": "too rich", "capabilities": [*names, "one more"]}
    await server.ask("POST", "/workers/register", body, expect=422)
