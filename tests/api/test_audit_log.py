from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
import structlog

from rota.api.auth.audit_log import AuditLog
from rota.api.limits import ApiLimits
from rota.core.model import Instant
from rota.engine.clock import SystemClock
from rota.store.protocol import StoreError
from rota.store.sqlite.memory import MemoryTokenStore
from rota.store.tokens import AuditEntry, AuditQuery, Role
from tests.api.in_process_server import TOKEN, InProcessServer
from tests.api.token_headers import bearer, token_headers
from tests.store.conformance_tokens import entry


async def audit_entries(server: InProcessServer, query: str = "") -> list[dict[str, object]]:
    items: list[dict[str, object]] = (await server.ask("GET", f"/audit{query}", expect=200))[
        "items"
    ]
    return items


async def test_every_change_says_who_did_what_to_what(server: InProcessServer) -> None:
    alice = await token_headers(server, Role.OPERATOR, name="alice")
    job = await server.submit()
    path = f"/jobs/{job['job_id']}"
    await server.ask("PUT", f"{path}/cancel", headers=alice, expect=200)
    await server.ask("PUT", f"{path}/cancel", headers=alice, expect=409)
    await server.ask("PUT", "/queues/q", {"priority": 1}, headers=alice, expect=200)
    await server.ask("POST", "/tokens", {"role": "viewer"}, headers=alice, expect=403)
    found = await audit_entries(server)
    assert [(one["token"], one["method"], one["route"], one["status"]) for one in found] == [
        ("alice", "POST", "/tokens", 403),
        ("alice", "PUT", "/queues/{name}", 200),
        ("alice", "PUT", "/jobs/{job_id}/cancel", 409),
        ("alice", "PUT", "/jobs/{job_id}/cancel", 200),
        ("tests", "POST", "/jobs", 201),
    ]
    assert [one["target"] for one in found] == ["", "q", *[job["job_id"]] * 3]
    assert {one["token_id"] for one in found[:4]} == {"id-alice"}
    assert {(one["remote"], one["node"]) for one in found} == {("127.0.0.1", "node-a")}


async def test_reads_and_the_traffic_of_workers_leave_no_entry(server: InProcessServer) -> None:
    worker = await server.register()
    order = await server.start(worker)
    await server.ask("POST", f"/workers/{worker}/heartbeat", {}, expect=200)
    await server.http.post(f"/executions/{order['execution_id']}/logs", content=b"text")
    await server.finish(order)
    await server.ask("GET", "/jobs")
    routes = [one["route"] for one in await audit_entries(server)]
    assert routes == ["/jobs", "/workers/register"]


async def test_the_audit_log_is_filtered_by_token_target_and_time(server: InProcessServer) -> None:
    alice = await token_headers(server, Role.OPERATOR, name="alice")
    for name in ("a", "b", "a"):
        await server.ask("PUT", f"/queues/{name}", {}, headers=alice, expect=200)
    await server.submit()
    assert len(await audit_entries(server, "?token_id=id-alice")) == 3
    assert len(await audit_entries(server, "?target=a")) == 2
    assert await audit_entries(server, "?before=2020-01-01T00:00:00Z") == []
    assert len(await audit_entries(server, "?after=2020-01-01T00:00:00Z")) == 4
    page = await server.ask("GET", "/audit?limit=3")
    rest = await server.ask("GET", f"/audit?cursor={page['next_cursor']}")
    assert (len(page["items"]), len(rest["items"])) == (3, 1)
    for wrong in ("cursor=bm8", "target=%00", "after=yesterday", "limit=0"):
        await server.ask("GET", f"/audit?{wrong}", expect=422)


async def test_characters_that_would_break_a_database_or_terminal_are_replaced(
    server: InProcessServer,
) -> None:
    await server.http.put("/queues/%00%1b[2J" + "x" * 900, json={})
    (one,) = await audit_entries(server)
    assert one["target"] == "??[2J" + "x" * 250
    assert one["status"] == 422


async def test_answers_logs_and_audit_entries_contain_no_secret(
    server: InProcessServer, capsys: pytest.CaptureFixture[str]
) -> None:
    made = await server.ask("POST", "/tokens", {"role": "viewer", "name": "v"}, expect=201)
    code = server.deps.access.sign_in_codes.issue("id-v")
    secret = server.deps.access.tokens.secret.hex()
    said = []
    for headers in (bearer(made["token"]), bearer(TOKEN), bearer("rota_guess")):
        for method, path in (
            ("POST", "/jobs"),
            ("GET", "/nowhere"),
            ("GET", "/metrics"),
            ("GET", "/openapi.json"),
            ("POST", "/session"),
            ("DELETE", "/tokens/unknown"),
            ("GET", "/tokens"),
            ("GET", "/audit"),
            ("GET", f"/?token={code}x"),
        ):
            answer = await server.http.request(method, path, headers=headers)
            said.append(answer.text + str(answer.headers))
    await server.deps.audit.flush()
    said.append(repr(await server.store.tokens.audit(AuditQuery(limit=1000))))
    said.append(repr((await server.store.tokens.load(b"")).tokens))
    printed = capsys.readouterr()
    text = "\n".join([*said, printed.out, printed.err])
    for one in (made["token"], TOKEN, "rota_guess", code, secret):
        assert one not in text


class CountingTokenStore(MemoryTokenStore):
    """Token store that counts its writes, and fails when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.wrote = asyncio.Event()
        self.failed = asyncio.Event()
        self.batches: list[int] = []

    async def add_audit(self, entries: Sequence[AuditEntry], drop_before: Instant) -> None:
        if self.away:
            self.failed.set()
            raise StoreError("away")
        await super().add_audit(entries, drop_before)
        self.batches.append(len(entries))
        self.wrote.set()


QUICK = ApiLimits(audit_gather_s=0.01, audit_retry_s=0.01)


async def stored_entries(store: CountingTokenStore) -> int:
    return len(await store.audit(AuditQuery(limit=100_000)))


async def test_entries_are_written_in_batches_by_themselves() -> None:
    store = CountingTokenStore()
    audit = AuditLog(store, SystemClock(), limits=QUICK)
    await audit.start()
    now = SystemClock().now()
    for _ in range(2500):
        audit.add(entry(now))
    await asyncio.wait_for(store.wrote.wait(), 20)
    await audit.stop()
    assert await stored_entries(store) == 2500
    assert max(store.batches) == 1000


async def test_a_clean_stop_loses_no_entry() -> None:
    store = CountingTokenStore()
    audit = AuditLog(store, SystemClock())
    await audit.start()
    audit.add(entry(SystemClock().now()))
    await audit.stop()
    assert await stored_entries(store) == 1


async def test_entries_wait_for_an_unavailable_store() -> None:
    store = CountingTokenStore()
    store.away = True
    audit = AuditLog(store, SystemClock(), limits=QUICK)
    await audit.start()
    audit.add(entry(SystemClock().now()))
    await asyncio.wait_for(store.failed.wait(), 20)
    store.away = False
    await asyncio.wait_for(store.wrote.wait(), 20)
    await audit.stop()
    assert await stored_entries(store) == 1


async def test_entries_beyond_the_limit_are_lost_and_logged() -> None:
    store, now = CountingTokenStore(), SystemClock().now()
    audit = AuditLog(store, SystemClock(), limits=ApiLimits(audit_pending_max=3))
    with structlog.testing.capture_logs() as said:
        for number in range(5):
            audit.add(entry(now + number))
        await audit.flush()
    assert [one.at - now for one in await store.audit(AuditQuery())] == [4, 3, 2]
    assert [one["count"] for one in said] == [2]


async def test_old_entries_are_removed_and_an_age_of_zero_keeps_none() -> None:
    store, now = CountingTokenStore(), SystemClock().now()
    audit = AuditLog(store, SystemClock(), age_ms=1000)
    audit.add(entry(now - 5000))
    audit.add(entry(now + 60_000))
    await audit.flush()
    assert [one.at for one in await store.audit(AuditQuery())] == [now + 60_000]
    off = AuditLog(store, SystemClock(), age_ms=0)
    off.add(entry(now))
    await off.flush()
    assert await stored_entries(store) == 1
