"""HTTP tasks: requests to real listeners, reports of their responses, and forbidden addresses."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web

from rota.wire.jobs import HttpCall
from rota.wire.workers import CompletedReport
from rota.worker.runners.http_call import AddressPolicy, HttpRunner, HttpSessions, is_public
from tests.worker.orders import order


class Listener:
    """A web server that notes what it is asked and answers as told."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        self.arrived = asyncio.Event()
        self.silent = asyncio.Event()
        self.url = ""
        self.port = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """By the path."""
        self.asked.append((request.method, dict(request.headers), await request.read()))
        self.arrived.set()
        match request.path.strip("/").split("/"):
            case ["status", code]:
                headers = {"Retry-After": "17"} if code in ("429", "503") else {}
                return web.Response(status=int(code), text=f"it is {code}", headers=headers)
            case ["moved"]:
                return web.Response(status=302, headers={"Location": "http://127.0.0.1/secret"})
            case ["large"]:
                return web.Response(body=b"x" * (3 * 1024 * 1024), content_type="text/plain")
            case ["binary"]:
                return web.Response(body=b"\xff\x00\x01" * 400_000)
            case ["wrong"]:
                return web.Response(text="{not json", content_type="application/json")
            case ["torn"]:
                response = web.StreamResponse(headers={"Content-Length": "100"})
                await response.prepare(request)
                await response.write(b"half")
                assert request.transport is not None
                request.transport.abort()
                return response
            case ["silent"]:
                await self.silent.wait()
                return web.Response()
            case _:
                return web.json_response({"ok": [1, 2]})


@pytest.fixture
async def listener() -> AsyncIterator[Listener]:
    listener = Listener()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", listener.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    listener.port = runner.addresses[0][1]
    listener.url = f"http://127.0.0.1:{listener.port}"
    yield listener
    listener.silent.set()
    await runner.cleanup()


@pytest.fixture
async def sessions() -> AsyncIterator[HttpSessions]:
    sessions = HttpSessions(AddressPolicy(["127.0.0.0/8"]))
    yield sessions
    await sessions.close()


def run_of(sessions: HttpSessions, task: dict[str, Any], **changes: object) -> HttpRunner:
    full = {"kind": "http", **task}
    call = msgspec.convert(full, HttpCall)
    return HttpRunner(order("e1", full, **changes), call, sessions)


async def ran(sessions: HttpSessions, url: str, **task: Any) -> CompletedReport:
    return await run_of(sessions, {"url": url, **task}).run()


def error(report: CompletedReport) -> dict[str, Any]:
    assert report.status != "succeeded", bytes(report.result)
    found: dict[str, Any] = msgspec.json.decode(report.error)
    return found


def result(report: CompletedReport) -> dict[str, Any]:
    assert report.status == "succeeded", bytes(report.error)
    found: dict[str, Any] = msgspec.json.decode(report.result)
    return found


async def test_a_successful_response_is_the_job_s_result(
    listener: Listener, sessions: HttpSessions
) -> None:
    document = result(await ran(sessions, listener.url + "/fine?secret=1"))
    assert (document["status"], document["body"]) == (200, {"ok": [1, 2]})
    assert document["headers"]["content-type"].startswith("application/json")
    method, headers, _ = listener.asked[0]
    assert method == "GET"
    assert headers["Idempotency-Key"] == headers["X-Rota-Job-Id"] == "job-of-e1"
    assert (headers["X-Rota-Fence"], headers["X-Rota-Attempt"]) == ("7", "1")


async def test_a_request_carries_the_body_and_headers_of_its_task(
    listener: Listener, sessions: HttpSessions
) -> None:
    headers = {"Content-Type": "text/csv", "idempotency-key": "mine", "x-rota-fence": "99"}
    await ran(sessions, listener.url, method="POST", body="a,b", headers=headers)
    await ran(sessions, listener.url, method="PUT", body={"a": [1]})
    (_, first, text), (method, second, document) = listener.asked
    assert (first["Content-Type"], first["idempotency-key"], text) == ("text/csv", "mine", b"a,b")
    assert first["X-Rota-Fence"] == "7", "nobody forges the fence"
    assert "x-rota-fence" not in first
    assert (method, second["Content-Type"], document) == ("PUT", "application/json", b'{"a":[1]}')


@pytest.mark.parametrize(
    ("code", "retryable"),
    [(404, False), (408, True), (410, False), (425, True), (429, True), (500, True), (503, True)],
)
async def test_an_error_response_fails_the_job_and_decides_whether_it_is_retried(
    listener: Listener, sessions: HttpSessions, code: int, retryable: bool
) -> None:
    report = await ran(sessions, f"{listener.url}/status/{code}")
    assert (report.status, report.retryable) == ("failed", retryable)
    document = error(report)
    assert (document["status"], document["body"]) == (code, f"it is {code}")
    after = None if report.retry_after is None else report.retry_after.ms
    assert after == (17_000 if code in (429, 503) else None)


async def test_redirects_are_not_followed(listener: Listener, sessions: HttpSessions) -> None:
    report = await ran(sessions, listener.url + "/moved")
    assert "redirects are not followed (to http://127.0.0.1/secret)" in error(report)["message"]
    assert not report.retryable
    assert len(listener.asked) == 1


async def test_a_large_response_is_truncated(listener: Listener, sessions: HttpSessions) -> None:
    report = await ran(sessions, listener.url + "/large")
    assert len(bytes(report.result)) <= 1024 * 1024
    document = result(report)
    assert document["truncated"] is True
    assert set(document["body"]) == {"x"}
    report = await ran(sessions, listener.url + "/binary")
    assert len(bytes(report.result)) <= 1024 * 1024
    assert result(report)["truncated"] is True
    assert result(await ran(sessions, listener.url + "/wrong"))["body"] == "{not json"


async def test_a_silent_server_holds_the_job_until_its_timeout_only(
    listener: Listener, sessions: HttpSessions
) -> None:
    report = await run_of(sessions, {"url": listener.url + "/silent"}, timeout=0.2).run()
    assert report.status == "timed_out"
    assert "timed out after 0.2 s" in error(report)["message"]


async def test_a_cancelled_request_is_aborted(listener: Listener, sessions: HttpSessions) -> None:
    run = run_of(sessions, {"url": listener.url + "/silent"})
    running = asyncio.create_task(run.run())
    await listener.arrived.wait()
    run.stop("cancelled")
    report = await running
    assert report.status == "cancelled"
    assert "was aborted" in error(report)["message"]


async def test_a_refused_connection_can_be_retried(sessions: HttpSessions) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    report = await ran(sessions, f"http://127.0.0.1:{port}/")
    assert report.retryable
    assert "cannot be reached" in error(report)["message"]


async def test_an_incomplete_response_can_be_retried(
    listener: Listener, sessions: HttpSessions
) -> None:
    report = await ran(sessions, listener.url + "/torn")
    assert report.retryable
    assert "GET http://127.0.0.1" in error(report)["message"]


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "127.1", "0.0.0.0"],
)
async def test_a_private_address_is_refused_in_every_notation(
    listener: Listener, host: str
) -> None:
    sessions = HttpSessions(AddressPolicy())
    report = await ran(sessions, f"http://{host}:{listener.port}/")
    await sessions.close()
    assert listener.asked == []
    assert not report.retryable or "cannot be reached" in error(report)["message"]
    if host in ("127.0.0.1", "localhost"):
        assert "--http-allow" in error(report)["message"]


async def test_a_name_is_checked_by_the_address_it_resolves_to(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a name answers well while it is looked at, and otherwise when it is used."""
    loop = asyncio.get_running_loop()

    async def look_up(host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
        assert host == "rebound.example"
        place = ("127.0.0.1", port)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", place)]

    monkeypatch.setattr(loop, "getaddrinfo", look_up)
    sessions = HttpSessions(AddressPolicy())
    report = await ran(sessions, f"http://rebound.example:{listener.port}/")
    await sessions.close()
    assert "127.0.0.1 is a private address" in error(report)["message"]
    assert (report.retryable, listener.asked) == (False, [])


async def test_an_address_that_the_operator_allows_is_reached(listener: Listener) -> None:
    for allowed in ("127.0.0.1", "127.0.0.0/8", "localhost"):
        sessions = HttpSessions(AddressPolicy([allowed]))
        host = "localhost" if allowed == "localhost" else "127.0.0.1"
        assert result(await ran(sessions, f"http://{host}:{listener.port}/"))["status"] == 200
        other = "127.0.0.1" if allowed == "localhost" else "[::1]"
        report = await ran(sessions, f"http://{other}:{listener.port}/")
        assert "private address" in error(report)["message"], "and nothing else is"
        await sessions.close()


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.0.0.1", "172.16.5.5", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
        *("0.0.0.0", "224.0.0.1", "255.255.255.255", "198.18.0.1", "240.0.0.1"),
        *("::", "::1", "fe80::1", "fc00::1", "fec0::1", "ff02::1", "::ffff:10.0.0.1"),
        *("64:ff9b::7f00:1", "2002:7f00:1::", "2001:db8::1", "::7f00:1"),
    ],
)
def test_private_addresses_are_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))
