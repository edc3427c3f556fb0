"""Signed headers between servers of a cell: whose are accepted, and whose are not."""

from __future__ import annotations

import pytest

from rota.api.auth.forwarded import read_forwarded, sign
from rota.api.endpoints import OPERATIONS
from rota.api.throttling import Rate, RateLimiter, Throttle
from tests.api.in_process_server import open_server

SECRET = b"shared by all servers of a cell"


def scope(value: str | None) -> dict[str, object]:
    headers = [] if value is None else [(b"rota-forwarded", value.encode("latin-1"))]
    return {"headers": headers}


@pytest.mark.parametrize("remote", ["192.0.2.7", "2001:db8::7", "", "fe80::1%eth0"])
def test_a_header_signed_by_a_server_of_the_cell_is_accepted(remote: str) -> None:
    shown = read_forwarded(scope(sign(SECRET, "knoten ü 1", remote)), SECRET)
    assert shown == ("knoten ü 1", remote)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "a",
        "a 192.0.2.7",
        "a 192.0.2.7 ",
        "a 192.0.2.7 ÿÿ",
        sign(b"another cell's", "a", "192.0.2.7"),
        sign(SECRET, "a", "192.0.2.7").replace("192.0.2.7", "192.0.2.8"),
    ],
)
def test_a_header_signed_by_anybody_else_is_ignored(value: str | None) -> None:
    assert read_forwarded(scope(value), SECRET) is None


def test_a_server_without_a_secret_accepts_no_header() -> None:
    assert read_forwarded(scope(sign(b"", "a", "192.0.2.7")), b"") is None


async def test_a_forwarded_call_counts_for_its_client_not_the_forwarding_server() -> None:
    throttle = Throttle(by_address=RateLimiter(Rate(1, 60_000)))
    async with open_server(throttle=throttle) as server:
        secret = server.deps.access.tokens.secret
        statuses = []
        for remote in ("192.0.2.1", "192.0.2.2", "192.0.2.1"):
            headers = {"Rota-Forwarded": sign(secret, "b", remote)}
            statuses.append((await server.http.get("/queues", headers=headers)).status_code)
        forged = {"Rota-Forwarded": sign(b"guessed", "b", "192.0.2.1")}
        statuses.append((await server.http.get("/queues", headers=forged)).status_code)
    assert statuses == [200, 200, 429, 200]


def test_operations_for_any_server_are_listed_here() -> None:
    """A new operation goes to the leader unless it is listed here."""
    anywhere = {f"{one.method} {one.path}" for one in OPERATIONS if one.any_server}
    assert anywhere == {
        "GET /audit",
        "GET /bundles",
        "GET /bundles/{bundle_id}",
        "GET /bundles/{bundle_id}/content",
        "GET /cluster",
        "GET /dead-letters",
        "GET /dead-letters/groups",
        "GET /executions",
        "GET /executions/{execution_id}",
        "GET /executions/{execution_id}/artifacts",
        "GET /executions/{execution_id}/artifacts/{name}",
        "GET /executions/{execution_id}/artifacts/{name}/link",
        "GET /executions/{execution_id}/bundles/{bundle_id}",
        "GET /executions/{execution_id}/bundles/{bundle_id}/content",
        "GET /executions/{execution_id}/logs",
        "GET /healthz",
        "GET /hooks",
        "GET /hooks/{name}",
        "PUT /hooks/{name}",
        "DELETE /hooks/{name}",
        "GET /jobs",
        "GET /jobs/{job_id}",
        "GET /jobs/{job_id}/graph",
        "GET /jobs/{job_id}/logs",
        "GET /metrics",
        "GET /quarantine",
        "POST /quarantine/repair",
        "GET /readyz",
        "GET /stream",
        "GET /tokens",
        "POST /tokens",
        "DELETE /tokens/{token_id}",
        "GET /session",
        "POST /session",
        "DELETE /session",
    }
    without = {f"{one.method} {one.path}" for one in OPERATIONS if one.without_leader}
    assert without == {"POST /jobs", "POST /jobs/batch", "GET /jobs/{job_id}/why"}
