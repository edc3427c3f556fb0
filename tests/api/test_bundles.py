"""Bundles over HTTP: uploaded whole or in pieces, named by jobs, fetched by workers."""

from __future__ import annotations

import asyncio
import hashlib
import os
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from rota.engine.retention import StorageSweep
from rota.store.limits import OBJECT_BYTES_MIN
from rota.store.protocol import StoreError
from rota.store.sqlite.memory import MemoryBlobs
from rota.store.tokens import Role
from tests.api.in_process_server import HOST, InProcessServer
from tests.api.token_headers import ACME, OTHER, token_headers
from tests.archives import zip_of
from tests.stand_in import stand_in

SCRIPT = b"#!/bin/sh\necho hello\n"
LARGE = os.urandom(OBJECT_BYTES_MIN + 1000)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def push(server: InProcessServer, content: bytes, **query: Any) -> httpx2.Response:
    params = {"name": "run.sh", **query}
    return await server.http.post("/bundles", params=params, content=content)


async def pushed(server: InProcessServer, content: bytes = SCRIPT, **query: Any) -> dict[str, Any]:
    answer = await push(server, content, **query)
    assert answer.status_code in (200, 201), answer.text
    bundle: dict[str, Any] = answer.json()
    return bundle


def running(bundle: dict[str, Any], **task: Any) -> dict[str, Any]:
    return {"name": "a", "task": {"kind": "bundle", "bundle_id": bundle["bundle_id"], **task}}


async def cut_off(
    server: InProcessServer, method: str, path: str, content: bytes, **query: str
) -> None:
    """Sends a request whose client disconnects in the middle of its body."""
    messages = [
        {"type": "http.request", "body": content, "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Any:
        return messages.pop(0) if len(messages) > 1 else messages[0]

    async def send(message: Any) -> None:
        raise AssertionError("nobody is there to be told")

    headers = {**server.http.headers, "host": HOST, "content-length": "99999999"}
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(),
        "query_string": urlencode(query).encode(), "http_version": "1.1", "scheme": "http",
        "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
        "server": ("127.0.0.1", 7070), "client": ("127.0.0.1", 5),
    }  # fmt: skip
    await server.app(scope, receive, send)


async def test_a_bundle_is_uploaded_shown_listed_fetched_and_removed(
    server: InProcessServer,
) -> None:
    answer = await push(server, SCRIPT, sha256=sha256(SCRIPT))
    bundle = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/bundles/{bundle['bundle_id']}"
    assert (bundle["name"], bundle["size"], bundle["format"]) == ("run.sh", len(SCRIPT), "file")
    assert (await server.ask("GET", "/bundles"))["items"] == [bundle]
    path = f"/bundles/{bundle['bundle_id']}"
    assert await server.ask("GET", path) == bundle
    fetched = await server.http.get(f"{path}/content")
    assert fetched.content == SCRIPT
    assert fetched.headers["etag"] == f'"{sha256(SCRIPT)}"'
    assert fetched.headers["content-length"] == str(len(SCRIPT))
    part = await server.http.get(f"{path}/content", headers={"Range": "bytes=2-5"})
    assert (part.status_code, part.content) == (206, SCRIPT[2:6])
    assert part.headers["content-range"] == f"bytes 2-5/{len(SCRIPT)}"
    beyond = await server.http.get(f"{path}/content", headers={"Range": "bytes=99-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{len(SCRIPT)}")
    await server.ask("DELETE", path, expect=204)
    await server.ask("GET", path, expect=404)


async def test_the_same_content_again_is_the_same_bundle(server: InProcessServer) -> None:
    first = await push(server, SCRIPT)
    again = await push(server, SCRIPT, name="other.sh")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    shown = await server.ask("GET", f"/bundles/uploads/{sha256(SCRIPT)}")
    assert shown["bundle"] == first.json()


async def test_parallel_uploads_of_the_same_content_make_one_bundle(
    server: InProcessServer,
) -> None:
    answers = await asyncio.gather(*(push(server, LARGE, sha256=sha256(LARGE)) for _ in range(6)))
    assert {answer.status_code for answer in answers} <= {200, 201}
    assert len({answer.json()["bundle_id"] for answer in answers}) == 1
    assert len((await server.ask("GET", "/bundles"))["items"]) == 1


async def test_a_bundle_may_come_in_pieces(server: InProcessServer) -> None:
    whole = {"sha256": sha256(LARGE), "size": len(LARGE)}
    first = await push(server, LARGE[:1000], **whole)
    assert (first.status_code, first.json()) == (202, {"offset": 1000})
    wrong = await push(server, LARGE[999:], **whole, offset=999)
    assert (wrong.status_code, wrong.headers["upload-offset"]) == (409, "1000")
    upload = await server.ask("GET", f"/bundles/uploads/{whole['sha256']}")
    assert upload == {"offset": 1000, "bundle": None}
    last = await push(server, LARGE[1000:], **whole, offset=1000)
    assert last.status_code == 201
    assert (await server.http.get(f"{last.headers['location']}/content")).content == LARGE


async def test_an_interrupted_upload_continues_where_it_stopped(server: InProcessServer) -> None:
    query = {"name": "a", "sha256": sha256(LARGE)}
    await cut_off(server, "POST", "/bundles", LARGE[:5000], **query)
    upload = await server.ask("GET", f"/bundles/uploads/{sha256(LARGE)}")
    assert upload["offset"] == 5000
    answer = await push(server, LARGE[5000:], **query, offset=5000)
    assert (answer.status_code, answer.json()["sha256"]) == (201, sha256(LARGE))


async def test_an_upload_with_a_wrong_checksum_is_refused_and_dropped(
    server: InProcessServer,
) -> None:
    whole = {"sha256": sha256(LARGE), "size": len(LARGE)}
    await push(server, b"X" + LARGE[1:1000], **whole)
    answer = await push(server, LARGE[1000:], **whole, offset=1000)
    assert answer.status_code == 422
    assert "not the one in the request" in answer.json()["detail"]
    assert (await server.ask("GET", f"/bundles/uploads/{sha256(LARGE)}"))["offset"] == 0
    assert (await server.ask("GET", "/bundles"))["items"] == []


@pytest.mark.parametrize(
    ("query", "content"),
    [
        ({"name": "../x"}, b"x"),
        ({"name": "a/b"}, b"x"),
        ({"name": ".hidden"}, b"x"),
        ({"size": 5}, b"x"),
        ({"offset": 5}, b"x"),
        ({"sha256": "abc"}, b"x"),
        ({"size": 1 << 50, "sha256": "0" * 64}, b"x"),
        ({"format": "rar"}, b"x"),
        ({"tenant": "a b"}, b"x"),
        ({}, b""),
    ],
)
async def test_invalid_uploads_are_refused(
    server: InProcessServer, query: dict[str, Any], content: bytes
) -> None:
    answer = await push(server, content, **query)
    assert answer.status_code == 422, answer.text
    assert (await server.ask("GET", "/bundles"))["items"] == []


async def test_an_upload_larger_than_declared_is_refused(server: InProcessServer) -> None:
    answer = await push(server, b"123456", sha256=sha256(b"12345"), size=5)
    assert answer.status_code == 413


async def test_a_job_may_use_only_bundles_of_its_tenant(server: InProcessServer) -> None:
    acme, other = [
        await token_headers(server, Role.SUBMITTER, tenant=name) for name in (ACME, OTHER)
    ]
    theirs = await server.http.post("/bundles", params={"name": "a"}, content=b"x", headers=acme)
    bundle = theirs.json()
    assert bundle["tenant"] == ACME
    await server.ask("POST", "/jobs", running(bundle), headers=acme, expect=201)
    unknown = {"bundle_id": "019a85c2-0000-7000-8000-000000000000"}
    for headers in (other, None):
        problem = await server.ask("POST", "/jobs", running(bundle), headers=headers, expect=422)
        assert problem["errors"][0]["field"] == "task.bundle_id"
        same = await server.ask("POST", "/jobs", running(unknown), headers=headers, expect=422)
        assert same["detail"] == problem["detail"]
    inputs = {"kind": "command", "argv": ["x"], "inputs": {"data": bundle["bundle_id"]}}
    jobs = {"jobs": [{"name": "a", "task": {"kind": "noop"}}, {"name": "a", "task": inputs}]}
    problem = await server.ask("POST", "/jobs/batch", jobs, headers=other, expect=422)
    assert problem["errors"][0]["field"] == "jobs[1].task.inputs.data"
    schedule = {"name": "s", "cron": "0 0 * * *", "job": running(bundle)}
    problem = await server.ask("POST", "/schedules", schedule, headers=other, expect=422)
    assert problem["errors"][0]["field"] == "job.task.bundle_id"


async def test_a_worker_gets_the_bundles_of_its_jobs_tenant_and_no_others(
    server: InProcessServer,
) -> None:
    mine, theirs = await pushed(server), await pushed(server, b"theirs", tenant=ACME)
    worker = await server.register(capabilities=["bundle"])
    order = await server.start(worker, **running(mine))
    assert order["task"]["bundle_id"] == mine["bundle_id"]
    role = await token_headers(server, Role.WORKER)
    path = f"/executions/{order['execution_id']}/bundles"
    own = await server.http.get(f"{path}/{mine['bundle_id']}", headers=role)
    assert (own.status_code, own.json()) == (200, mine)
    content = await server.http.get(f"{path}/{mine['bundle_id']}/content", headers=role)
    assert content.content == SCRIPT
    for more in ("", "/content"):
        foreign = await server.http.get(f"{path}/{theirs['bundle_id']}{more}", headers=role)
        assert foreign.status_code == 404


async def test_jobs_with_bundles_or_containers_wait_for_capable_workers(
    server: InProcessServer,
) -> None:
    bundle = await pushed(server)
    made = await server.ask("POST", "/jobs", running(bundle), expect=201)
    assert made["requirements"]["capabilities"] == ["bundle"]
    image = {"kind": "container", "image": "alpine", "inputs": {"d": bundle["bundle_id"]}}
    body = {"name": "c", "task": image, "requirements": {"capabilities": ["arm64"]}}
    made = await server.ask("POST", "/jobs", body, expect=201)
    assert made["requirements"]["capabilities"] == ["arm64", "bundle", "container"]
    path = f"/jobs/{made['job_id']}"
    changed = await server.ask("PATCH", path, {"task": {"kind": "noop"}})
    assert changed["requirements"]["capabilities"] == ["arm64"]


async def test_a_repeated_submission_is_answered_though_its_bundle_is_gone(
    server: InProcessServer,
) -> None:
    bundle, again = await pushed(server), {"Idempotency-Key": "one"}
    first = await server.ask("POST", "/jobs", running(bundle), headers=again, expect=201)
    await server.ask("DELETE", f"/bundles/{bundle['bundle_id']}", expect=204)
    await server.ask("POST", "/jobs", running(bundle), expect=422)
    repeated = await server.ask("POST", "/jobs", running(bundle), headers=again, expect=201)
    assert repeated["job_id"] == first["job_id"]


async def test_an_upload_that_the_storage_refused_need_not_be_sent_again(
    server: InProcessServer,
) -> None:
    async def refuse(*_: object) -> None:
        raise StoreError("the bucket is away")

    files = server.deps.files
    server.change(files=replace(files, blobs=stand_in(files.blobs, put=refuse)))
    whole = {"sha256": sha256(LARGE), "size": len(LARGE)}
    assert (await push(server, LARGE, **whole)).status_code == 503
    server.change(files=files)
    upload = await server.ask("GET", f"/bundles/uploads/{sha256(LARGE)}")
    assert upload["offset"] == len(LARGE)
    assert (await push(server, b"", **whole, offset=len(LARGE))).status_code == 201


async def test_a_bundle_that_is_an_archive_needs_argv(server: InProcessServer) -> None:
    archive = await pushed(server, zip_of({"run.sh": SCRIPT}), name="a.zip")
    assert archive["format"] == "zip"
    problem = await server.ask("POST", "/jobs", running(archive), expect=422)
    assert "task.argv" in problem["detail"]
    await server.ask("POST", "/jobs", running(archive, argv=["./run.sh"]), expect=201)


@pytest.mark.parametrize(
    "task",
    [
        {"kind": "container", "image": "--privileged"},
        {"kind": "container", "image": "a b"},
        {"kind": "container", "image": "alpine", "env": {"A": "x\ny"}},
        {"kind": "container", "image": "alpine", "env": {"A=B": "x"}},
        {"kind": "bundle", "bundle_id": "../../etc"},
        {"kind": "command", "argv": ["x"], "inputs": {"../x": "0" * 8}},
        {"kind": "http", "url": "http://a.example", "inputs": {}},
    ],
)
async def test_bundle_tasks_with_unsafe_paths_are_refused(
    server: InProcessServer, task: dict[str, Any]
) -> None:
    await server.ask("POST", "/jobs", {"name": "a", "task": task}, expect=422)


async def test_a_large_output_file_is_kept_outside_the_store_and_fetched_in_parts(
    server: InProcessServer,
) -> None:
    order = await server.start(await server.register())
    path = f"/executions/{order['execution_id']}/artifacts/model.bin"
    kept = await server.http.put(path, params={"sha256": sha256(LARGE)}, content=LARGE)
    assert kept.json() == {"name": "model.bin", "size": len(LARGE), "sha256": sha256(LARGE)}
    (listed,) = (await server.ask("GET", path.rpartition("/")[0]))["items"]
    assert listed == kept.json()
    storage = server.deps.files.blobs
    assert isinstance(storage, MemoryBlobs)
    assert list(storage.objects.values()) == [LARGE]
    whole = await server.http.get(path)
    assert whole.content == LARGE
    assert whole.headers["accept-ranges"] == "bytes"
    half = len(LARGE) // 2
    tag = {"Range": f"bytes={half}-", "If-Range": f'"{sha256(LARGE)}"'}
    rest = await server.http.get(path, headers=tag)
    assert (rest.status_code, rest.content) == (206, LARGE[half:])
    stale = await server.http.get(path, headers={**tag, "If-Range": '"another"'})
    assert (stale.status_code, stale.content) == (200, LARGE)
    link = await server.ask("GET", f"{path}/link")
    assert link == {"url": path, "signed": False, "expires_in": None}


async def test_an_output_file_with_a_wrong_checksum_is_refused(
    server: InProcessServer,
) -> None:
    order = await server.start(await server.register())
    path = f"/executions/{order['execution_id']}/artifacts/out"
    for content in (b"small", LARGE):
        answer = await server.http.put(path, params={"sha256": "0" * 64}, content=content)
        assert answer.status_code == 422
    assert (await server.ask("GET", path.rpartition("/")[0]))["items"] == []


async def test_an_interrupted_upload_of_an_output_file_continues(server: InProcessServer) -> None:
    order = await server.start(await server.register())
    path = f"/executions/{order['execution_id']}/artifacts/out"

    digest = {"sha256": sha256(LARGE)}
    await cut_off(server, "PUT", path, LARGE[:7000], **digest)
    assert (await server.http.get(f"{path}/upload", params=digest)).json() == {"offset": 7000}
    rest = {**digest, "offset": 7000}
    assert (await server.http.put(path, params=rest, content=LARGE[7000:])).status_code == 200
    assert (await server.http.get(path)).content == LARGE


async def test_unneeded_objects_are_removed_from_the_storage(server: InProcessServer) -> None:
    files = server.deps.files
    assert isinstance(files.blobs, MemoryBlobs)
    sweeping = StorageSweep(files.objects, files.blobs, files.spool, server.engine, None)
    bundle = await pushed(server, LARGE)
    order = await server.start(await server.register())
    path = f"/executions/{order['execution_id']}/artifacts/out"
    await server.http.put(path, content=LARGE)
    now = server.engine.clock.now()
    assert (await sweeping.sweep(now), len(files.blobs.objects)) == (0, 2)
    await server.ask("DELETE", f"/bundles/{bundle['bundle_id']}", expect=204)
    await server.finish(order)
    await server.ask("DELETE", f"/jobs/{order['job_id']}", expect=204)
    await server.ask("GET", f"/jobs/{order['job_id']}", expect=404)
    assert (await sweeping.sweep(now), len(files.blobs.objects)) == (2, 0)


async def test_unused_bundles_are_removed_after_the_configured_time(
    server: InProcessServer,
) -> None:
    files = server.deps.files
    bundle = await pushed(server)
    day = 24 * 3600 * 1000
    sweeping = StorageSweep(files.objects, files.blobs, files.spool, server.engine, day)
    now = server.engine.clock.now()
    await sweeping.sweep(now + day - 1000)
    await server.ask("GET", f"/bundles/{bundle['bundle_id']}")
    await sweeping.sweep(now + day + 60_000)
    await server.ask("GET", f"/bundles/{bundle['bundle_id']}", expect=404)


async def test_a_file_lost_by_the_storage_is_reported_as_lost(server: InProcessServer) -> None:
    bundle = await pushed(server)
    storage = server.deps.files.blobs
    assert isinstance(storage, MemoryBlobs)
    storage.objects.clear()
    answer = await server.http.get(f"/bundles/{bundle['bundle_id']}/content")
    assert (answer.status_code, answer.json()["type"]) == (410, "urn:rota:problem:lost")


async def test_an_upload_as_a_form_is_refused(server: InProcessServer) -> None:
    answer = await server.http.post("/bundles", files={"file": ("run.sh", SCRIPT)})
    assert answer.status_code == 415
    assert "curl --data-binary @FILE" in answer.json()["detail"]
    assert (await server.ask("GET", "/bundles"))["items"] == []
