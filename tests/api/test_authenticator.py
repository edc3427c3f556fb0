from __future__ import annotations

import pytest

from rota.api.auth.sessions import open_session, read_session
from rota.api.endpoints import OPERATIONS
from tests.api.in_process_server import ADMIN, HOST, TOKEN, InProcessServer, open_server

BARE = {"Authorization": ""}


async def test_every_call_needs_a_token_unless_it_says_so(server: InProcessServer) -> None:
    for operation in OPERATIONS:
        path = operation.path.replace("{", "").replace("}", "")
        answer = await server.http.request(operation.method, path, headers=BARE)
        if operation.path == "/hooks/{name}" and operation.open:
            # A webhook is let in to show its signature, and there is no such endpoint.
            assert answer.status_code == 404
        elif operation.open:
            assert answer.status_code < 300, path
        else:
            assert answer.status_code == 401, path
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "value", ["Bearer wrong", "Bearer ", "Basic YTpi", TOKEN, "Bearer " + TOKEN + "x"]
)
async def test_a_wrong_token_is_refused(server: InProcessServer, value: str) -> None:
    answer = await server.http.get("/jobs", headers={"Authorization": value})
    assert answer.status_code == 401
    assert TOKEN not in answer.text


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:7070", 200),
        ("[::1]:7070", 200),
        ("127.0.0.1", 200),
        ("LOCALHOST", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:7070", 421),
        ("", 421),
    ],
)
async def test_requests_for_another_host_name_are_refused(
    server: InProcessServer, host: str, status: int
) -> None:
    for path in ("/jobs", "/healthz", "/"):
        answer = await server.http.get(path, headers={"Host": host})
        assert answer.status_code == status, path


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://["},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_writes_from_other_pages_are_refused(
    server: InProcessServer, headers: dict[str, str]
) -> None:
    body = {"name": "a", "task": {"kind": "noop"}}
    answer = await server.http.post("/jobs", json=body, headers=headers)
    assert answer.status_code == 403
    assert (await server.ask("GET", "/jobs"))["items"] == []
    own = {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-origin"}
    assert (await server.http.post("/jobs", json=body, headers=own)).status_code == 201


async def test_the_printed_link_signs_a_browser_in_once(server: InProcessServer) -> None:
    code = server.deps.access.sign_in_codes.issue(ADMIN.id)
    signed = await server.http.get(f"/?token={code}", headers=BARE)
    assert signed.status_code == 303
    assert signed.headers["location"] == "/"
    cookie = signed.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert code not in cookie
    mine = {**BARE, "Cookie": cookie.split(";")[0]}
    server.http.cookies.clear()
    assert (await server.http.get("/jobs", headers=mine)).status_code == 200
    again = await server.http.get(f"/?token={code}", headers=BARE)
    assert again.headers["location"] == "/?signin=expired"
    assert "set-cookie" not in again.headers


async def test_a_session_serves_our_own_page_only(server: InProcessServer) -> None:
    signed = await server.http.post("/session")
    assert signed.status_code == 204
    mine = {**BARE, "Cookie": signed.headers["set-cookie"].split(";")[0]}
    server.http.cookies.clear()
    assert (await server.http.get("/jobs", headers=mine)).status_code == 200
    other = {**mine, "Sec-Fetch-Site": "cross-site"}
    assert (await server.http.get("/jobs", headers=other)).status_code == 403
    assert (await server.http.post("/session", headers=BARE)).status_code == 401
    out = await server.http.delete("/session")
    assert "Max-Age=0" in out.headers["set-cookie"]


async def test_a_forged_or_ended_session_is_refused(server: InProcessServer) -> None:
    tokens, now = server.deps.access.tokens, server.engine.clock.now()
    good = open_session(tokens, ADMIN, now)
    token_id, ends, signature = good.split(".")
    assert read_session(tokens, good, now) == ADMIN
    assert read_session(tokens, good, int(ends)) is None
    assert read_session(tokens, f"{token_id}.{int(ends) + 1}.{signature}", now) is None
    for forged in ("", "x", "1.", f"{token_id}.{ends}.", "é.é.é", f"{token_id}.{ends}.{'0' * 64}"):
        assert read_session(tokens, forged, now) is None
        mine = {**BARE, "Cookie": f"rota_session_7070={forged}".encode()}
        assert (await server.http.get("/jobs", headers=mine)).status_code == 401


async def test_without_access_control_only_this_machine_and_its_own_pages_are_served() -> None:
    async with open_server(no_auth=True) as server:
        assert (await server.http.get("/jobs", headers=BARE)).status_code == 200
        cross = {**BARE, "Sec-Fetch-Site": "cross-site"}
        assert (await server.http.get("/jobs", headers=cross)).status_code == 403
        assert (await server.http.get("/jobs", headers={"Host": "evil"})).status_code == 421
        server.http._transport.client = ("10.0.0.7", 5)  # type: ignore[attr-defined]
        assert (await server.http.get("/jobs", headers=BARE)).status_code == 403


async def test_answers_have_security_headers(server: InProcessServer) -> None:
    for path in ("/", "/jobs", "/nothing", "/docs"):
        headers = (await server.http.get(path)).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers
    assert (await server.http.get("/jobs")).headers["cache-control"] == "no-store"
