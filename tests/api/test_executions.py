from __future__ import annotations

import hashlib

import pytest

from tests.api.in_process_server import InProcessServer, StreamReader

NOBODY = "019a85c2-7d40-7b11-8a2c-90f1c3d2e4a5"


async def test_an_execution_is_shown_and_listed(server: InProcessServer) -> None:
    worker = await server.register()
    order = await server.start(worker)
    shown = await server.ask("GET", f"/executions/{order['execution_id']}", expect=200)
    assert (shown["job_id"], shown["worker_id"], shown["status"]) == (
        order["job_id"],
        worker,
        "claimed",
    )
    for query in (f"job_id={order['job_id']}", f"worker_id={worker}", "status=claimed,running", ""):
        page = await server.ask("GET", f"/executions?{query}", expect=200)
        assert [one["execution_id"] for one in page["items"]] == [order["execution_id"]]
    assert (await server.ask("GET", "/executions?status=failed"))["items"] == []
    await server.ask("GET", "/executions?status=dead", expect=422)
    await server.ask("GET", f"/executions/{NOBODY}", expect=404)
    await server.ask("GET", "/executions/nonsense", expect=404)


async def test_a_completion_may_be_repeated_but_not_changed(server: InProcessServer) -> None:
    order = await server.start(await server.register())
    path = f"/executions/{order['execution_id']}/complete"
    done = {"status": "succeeded", "fence": order["fence"], "exit_code": 0, "usage": {"cpu_s": 1}}
    first = await server.ask("POST", path, done, expect=200)
    assert (first["status"], first["job_id"]) == ("succeeded", order["job_id"])
    shown = await server.ask("GET", f"/executions/{order['execution_id']}")
    assert (shown["status"], shown["exit_code"], shown["usage"]) == ("succeeded", 0, {"cpu_s": 1})
    again = await server.ask("POST", path, done, expect=200)
    assert (again["status"], again["end_time"]) == (first["status"], first["end_time"])
    await server.ask("POST", path, {**done, "status": "failed"}, expect=409)
    await server.ask("POST", path, {**done, "fence": 99}, expect=409)
    await server.ask("POST", f"/executions/{NOBODY}/complete", done, expect=404)
    await server.ask("POST", path, {"status": "succeeded"}, expect=422)


async def test_progress_is_visible_at_once(server: InProcessServer) -> None:
    order = await server.start(await server.register())
    path = f"/executions/{order['execution_id']}/progress"
    for number in range(1, 4):
        body = {"progress": number / 10, "message": f"page\n{number}", "fence": order["fence"]}
        await server.ask("POST", path, body, expect=200)
        job = await server.ask("GET", f"/jobs/{order['job_id']}")
        assert (job["progress"], job["message"]) == (number / 10, f"page {number}")
    await server.ask("POST", path, {"progress": 2}, expect=422)
    await server.ask("POST", path, {"progress": 0.5, "fence": 99}, expect=409)
    await server.ask("POST", f"/executions/{NOBODY}/progress", {"progress": 0.1}, expect=404)
    await server.finish(order)
    await server.ask("POST", path, {"progress": 0.9, "fence": order["fence"]}, expect=409)


async def test_the_answer_to_progress_says_when_to_stop(server: InProcessServer) -> None:
    order = await server.start(await server.register())
    path = f"/executions/{order['execution_id']}/progress"
    assert (await server.ask("POST", path, {"progress": 0.1}))["cancel"] == []
    await server.ask("PUT", f"/jobs/{order['job_id']}/cancel", expect=200)
    answer = await server.ask("POST", path, {"progress": 0.2}, expect=200)
    assert answer["cancel"] == [order["execution_id"]]


async def test_logs_are_kept_once_however_often_they_are_sent(server: InProcessServer) -> None:
    order = await server.start(await server.register())
    path = f"/executions/{order['execution_id']}/logs"
    for _ in range(2):
        answer = await server.http.post(f"{path}?offset=0&fence=1", content=b"one\n")
        assert (answer.status_code, answer.json()) == (200, {"size": 4})
    assert (await server.http.post(f"{path}?offset=4", content=b"two\n")).json() == {"size": 8}
    assert (await server.http.post(path, content=b"three\n")).json() == {"size": 14}
    for where in (path, f"/jobs/{order['job_id']}/logs"):
        answer = await server.http.get(where)
        assert answer.text == "one\ntwo\nthree\n"
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert (await server.http.get(f"{path}?offset=4")).text == "two\nthree\n"
    named = f"/jobs/{order['job_id']}/logs?execution_id={order['execution_id']}"
    assert (await server.http.get(named)).text == "one\ntwo\nthree\n"


async def test_logs_of_unknown_executions_stale_fences_and_large_chunks_are_refused(
    server: InProcessServer,
) -> None:
    order = await server.start(await server.register())
    path = f"/executions/{order['execution_id']}/logs"
    assert (await server.http.post(f"{path}?fence=9", content=b"x")).status_code == 409
    assert (await server.http.post(f"{path}?offset=-1", content=b"x")).status_code == 422
    assert (await server.http.post(path, content=b"x" * (1024**2 + 1))).status_code == 413
    nobody = f"/executions/{NOBODY}/logs"
    assert (await server.http.post(nobody, content=b"x")).status_code == 404
    assert (await server.http.get(nobody)).status_code == 404
    assert (await server.http.get(f"/jobs/{NOBODY}/logs")).status_code == 404
    other = f"/jobs/{order['job_id']}/logs?execution_id={NOBODY}"
    assert (await server.http.get(other)).status_code == 404


async def test_a_job_that_has_not_run_has_an_empty_log(server: InProcessServer) -> None:
    job = await server.submit()
    answer = await server.http.get(f"/jobs/{job['job_id']}/logs")
    assert (answer.status_code, answer.text) == (200, "")


async def test_a_followed_log_continues_through_retries_until_the_job_finishes(
    server: InProcessServer,
) -> None:
    worker = await server.register()
    retry = {"max_attempts": 2, "delay": 0, "jitter": 0}
    first = await server.start(worker, retry=retry)
    async with StreamReader(server, f"/jobs/{first['job_id']}/logs?follow=true") as tap:
        path = f"/executions/{first['execution_id']}/logs"
        await server.http.post(path, content=b"try one\n")
        await tap.read_until("try one\n")
        await server.finish(first, "failed")
        (second,) = (await server.lease(worker, wait="5s"))["executions"]
        await server.http.post(f"/executions/{second['execution_id']}/logs", content=b"try two\n")
        await tap.read_until("try two\n")
        await server.finish(second)
        assert await tap.read_all() == "try one\ntry two\n"


async def test_a_shutdown_ends_a_followed_log_properly(server: InProcessServer) -> None:
    order = await server.start(await server.register())
    path = f"/executions/{order['execution_id']}/logs"
    await server.http.post(path, content=b"so far\n")
    async with StreamReader(server, f"{path}?follow=true") as tap:
        await tap.read_until("so far\n")
        server.deps.closing.set()
        assert await tap.read_all() == "so far\n"


async def test_artifacts_are_kept_listed_and_fetched(server: InProcessServer) -> None:
    order = await server.start(await server.register())
    path = f"/executions/{order['execution_id']}/artifacts"

    async def pieces():  # type: ignore[no-untyped-def]
        for _ in range(3):
            yield b"x" * 1000

    kept = await server.http.put(f"{path}/r%C3%A9port.pdf", content=pieces())
    digest = hashlib.sha256(b"x" * 3000).hexdigest()
    whole = {"name": "r\u00e9port.pdf", "size": 3000, "sha256": digest}
    assert (kept.status_code, kept.json()) == (200, whole)
    listed = {**whole, "sha256": None}
    assert (await server.ask("GET", path))["items"] == [listed]
    shown = await server.ask("GET", f"/executions/{order['execution_id']}")
    assert shown["artifacts"] == [listed]
    fetched = await server.http.get(f"{path}/r%C3%A9port.pdf")
    assert fetched.content == b"x" * 3000
    assert fetched.headers["etag"] == f'"{digest}"'
    assert fetched.headers["content-disposition"].startswith("attachment;")
    assert fetched.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("written", ["plots%2F2026%2fa%20b.png", "plots/2026/a%20b.png"])
async def test_a_file_in_folders_is_fetched_by_its_whole_name(
    server: InProcessServer, written: str
) -> None:
    order = await server.start(await server.register())
    path = f"/executions/{order['execution_id']}/artifacts"
    kept = await server.http.put(f"{path}/{written}", content=b"png")
    assert (kept.status_code, kept.json()["name"]) == (200, "plots/2026/a b.png")
    assert [one["name"] for one in (await server.ask("GET", path))["items"]] == [
        kept.json()["name"]
    ]
    fetched = await server.http.get(f"{path}/{written}")
    assert (fetched.status_code, fetched.content) == (200, b"png")
    assert fetched.headers["content-disposition"].endswith("''a%20b.png")
    assert (await server.http.head(f"{path}/{written}")).headers["content-length"] == "3"
    link = await server.ask("GET", f"{path}/plots%2F2026%2Fa%20b.png/link", expect=200)
    assert link["url"] == f"{path}/plots%2F2026%2Fa%20b.png"
    assert (await server.http.get(link["url"])).content == b"png"


async def test_an_artifact_may_have_the_name_of_an_operation(server: InProcessServer) -> None:
    order = await server.start(await server.register())
    path = f"/executions/{order['execution_id']}/artifacts"
    for name in ("plots", "plots%2Flink", "plots%2Fupload"):
        assert (await server.http.put(f"{path}/{name}", content=name.encode())).status_code == 200
        assert (await server.http.get(f"{path}/{name}")).content == name.encode()
    link = await server.ask("GET", f"{path}/plots/link", expect=200)
    assert link["url"] == f"{path}/plots"
    assert len((await server.ask("GET", path))["items"]) == 3


_ELSEWHERE = ["a%2F..%2Fb", "a/%2e%2e/b", "%2Fetc", "a%2F", "a/", "a%2F%2Fb", "a%2F.b", "a%5Cb"]


@pytest.mark.parametrize("name", [".hidden", "a%00b", "..", "%2e%2e%2fetc", "a%0Ab", *_ELSEWHERE])
async def test_artifact_names_cannot_leave_their_folder(server: InProcessServer, name: str) -> None:
    order = await server.start(await server.register())
    path = f"/executions/{order['execution_id']}/artifacts/{name}"
    answer = await server.http.put(path, content=b"x")
    assert answer.status_code in (404, 405, 422)
    assert (await server.ask("GET", f"/executions/{order['execution_id']}"))["artifacts"] == []


async def test_missing_artifacts_are_not_found(server: InProcessServer) -> None:
    order = await server.start(await server.register())
    path = f"/executions/{order['execution_id']}/artifacts/no.txt"
    assert (await server.http.get(path)).status_code == 404
    nobody = f"/executions/{NOBODY}/artifacts"
    assert (await server.http.get(nobody)).status_code == 404
    assert (await server.http.put(f"{nobody}/a.txt", content=b"x")).status_code == 404
