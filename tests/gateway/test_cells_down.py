"""Cells that are down, frozen or of another name; and requests that a gateway refuses."""

from __future__ import annotations

import asyncio
import socket

from rota.gateway.cells import CellDirectory, Connections
from rota.gateway.config import make_config
from rota.gateway.limits import PROBE_ANSWER_S
from tests.api.in_process_server import ADMIN, NOOP
from tests.gateway.fleet import Gateway, TestFleet, until


async def test_a_cell_that_is_down_affects_only_its_own_tenants(
    fleet: TestFleet, gateway: Gateway
) -> None:
    here, there = gateway.tenant_of("north"), gateway.tenant_of("south")
    far = (await gateway.submit(there))["job_id"]
    await fleet.cells["south"].listening.stop()
    await gateway.submit(here)
    job = {"name": "j", "task": NOOP, "tenant": there}
    answer = await gateway.http.post("/jobs", json=job)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "2"
    assert answer.headers["rota-cell"] == "south"
    assert "cell south is down" in answer.json()["detail"]
    assert "nothing was changed" in answer.json()["detail"]
    await gateway.ask("GET", f"/jobs/{far}", expect=503)
    await fleet.cells["south"].listening.start()

    async def back() -> bool:
        return (await gateway.http.get(f"/jobs/{far}")).status_code == 200

    await until(back, "the cell is used again by itself")
    await gateway.submit(there)


async def test_a_cell_that_accepts_connections_and_never_answers_is_reported_as_down(
    fleet: TestFleet, gateway: Gateway
) -> None:
    """So does a frozen server: the kernel still accepts connections."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        fleet.cells["south"].listening.port = silent.getsockname()[1]
        frozen = await fleet.gateway()
        tenant = frozen.tenant_of("south")
        loop = asyncio.get_running_loop()
        began = loop.time()
        problem = await frozen.ask(
            "POST", "/jobs", {"name": "j", "task": NOOP, "tenant": tenant}, expect=503
        )
        # Far below the time that an answer may take: the watch found it dead meanwhile.
        assert loop.time() - began < 10 * PROBE_ANSWER_S
        assert "cell south is down" in problem["detail"]
        began = loop.time()
        for _ in range(5):
            await frozen.ask("GET", "/stats", expect=200)
        assert loop.time() - began < PROBE_ANSWER_S


async def test_another_server_of_the_cell_is_asked_when_one_is_down(fleet: TestFleet) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    south = fleet.cells["south"].listening.url
    two = CellDirectory(make_config([("south", dead), ("south", south)]), Connections())
    cell = two.cells["south"]
    try:
        assert [server.url for server in cell.candidates()] == [dead, south]
        await two.start()
        assert [server.url for server in cell.candidates()] == [south]
        assert cell.ready
    finally:
        await two.stop()
        await two.connections.close()


async def test_a_server_of_another_cell_is_not_used(fleet: TestFleet) -> None:
    await fleet.add_cell("west", called="east")
    await fleet.add_cell("void", called="")
    gateway = await fleet.gateway()
    cells = gateway.context.directory.cells
    assert not cells["west"].up
    assert "it is of the cell east: start its servers with --cell west" in cells["west"].why
    assert "it has no cell name" in cells["void"].why
    job = {"name": "j", "task": NOOP, "tenant": gateway.tenant_of("west")}
    await gateway.ask("POST", "/jobs", job, expect=503)
    assert (await fleet.cells["west"].server.ask("GET", "/jobs", expect=200))["items"] == []


async def test_a_gateway_is_ready_while_one_cell_is(fleet: TestFleet, gateway: Gateway) -> None:
    await gateway.ask("GET", "/readyz", expect=200)
    await fleet.cells["north"].listening.stop()
    await gateway.ask("GET", "/stats", expect=200)
    await gateway.ask("GET", "/readyz", expect=200)
    await fleet.cells["south"].listening.stop()
    await gateway.ask("GET", "/stats", expect=503)
    await gateway.ask("GET", "/readyz", expect=503)
    await gateway.ask("GET", "/healthz", expect=200)
    text = (await gateway.http.get("/metrics")).text
    assert 'rota_gateway_cell_up{cell="north"} 0.0' in text
    assert 'rota_gateway_requests_total{method="GET",status="503"}' in text


async def test_calls_of_workers_and_for_tokens_are_refused_with_a_hint_to_the_cell(
    gateway: Gateway,
) -> None:
    for method, path in (
        ("POST", "/workers/register"),
        ("POST", "/workers/w/lease"),
        ("POST", "/workers/w/heartbeat"),
        ("POST", "/executions/e/complete"),
        ("PUT", "/executions/e/artifacts/a.txt"),
        ("POST", "/tokens"),
    ):
        problem = await gateway.ask(method, path, {}, expect=421)
        assert "rota worker --server URL" in problem["detail"]


async def test_only_known_calls_to_the_gateways_own_names_pass(
    fleet: TestFleet, gateway: Gateway
) -> None:
    for path in ("/elsewhere", "/jobs/", "/jobs/a/b/c", "/jobs/..%2f..%2ftokens"):
        await gateway.ask("GET", path, expect=404)
    await gateway.ask("PUT", "/jobs", {}, expect=405)
    await gateway.ask("GET", "/jobs", expect=421, headers={"Host": "evil.example"})
    for other in ("http://evil.example", "http://["):
        await gateway.ask("GET", "/jobs", expect=403, headers={"Origin": other})
    await gateway.ask("GET", "/jobs", expect=403, headers={"Sec-Fetch-Site": "cross-site"})
    options = await gateway.http.options("/jobs")
    assert options.headers["allow"] == "GET, HEAD, OPTIONS, POST"


async def test_the_cells_check_the_token(gateway: Gateway) -> None:
    for path in ("/jobs", "/stats", "/cluster", "/stream"):
        answer = await gateway.http.get(path, headers={"Authorization": "Bearer wrong"})
        assert answer.status_code == 401
        assert answer.json()["type"] == "urn:rota:problem:unauthenticated"
    made = await gateway.submit("acme")
    path = f"/jobs/{made['job_id']}"
    assert (await gateway.http.get(path, headers={"Authorization": ""})).status_code == 401


async def test_a_cell_is_not_asked_again_for_a_token_that_it_does_not_know(
    fleet: TestFleet, gateway: Gateway
) -> None:
    south = fleet.cells["south"].server
    await south.store.tokens.revoke_token(ADMIN.id, 1)

    async def unknown() -> bool:
        return (await south.http.get("/jobs")).status_code == 401

    await until(unknown, "the token is revoked there")
    for _ in range(40):
        page = await gateway.ask("GET", "/jobs", expect=200)
        assert page["missing_cells"][0]["why"] == "this token is not known there"
        assert page["next_cursor"] is None
    tries, now = south.deps.access.throttle.wrong_tokens, south.engine.clock.steady()
    number, _ = tries.note("127.0.0.1", now)
    assert number < 10, "nearly all of the lists asked only the other cell"


async def test_request_bodies_are_limited_one_by_one_and_together(gateway: Gateway) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.http.base_url.port)
    writer.write(b"POST /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 41943040\r\n\r\n")
    assert b" 413 " in await reader.readline()
    writer.close()
    await writer.wait_closed()
    gateway.context.bodies._limit = 1000
    job = {"name": "j", "task": NOOP, "payload": {"text": "x" * 2000}}
    answer = await gateway.http.post("/jobs", json=job)
    assert answer.status_code == 429
    assert gateway.context.bodies._held == 0
    await gateway.submit("acme")
