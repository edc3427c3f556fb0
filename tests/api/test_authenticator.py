from __future__ import annotations

import pytest

from rota.api.auth.sessions import open_session, read_session
from rota.api.endpoints import OPERATIONS
from tests.api.in_process_server import ADMIN, HOST, TOKEN, InProcessServer, open_server

BARE = {"Authorization": ""}


async def test_every_call_needs_a_token_unless_it_says_so(house: InProcessServer) -> None:
    for operation in OPERATIONS:
        path = operation.path.replace("{", "").replace("}", "")
        answer = await house.http.request(operation.method, path, headers=BARE)
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
async def test_a_wrong_token_is_refused(house: InProcessServer, value: str) -> None:
    answer = await house.http.get("/jobs", headers={"Authorization": value})
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
    house: InProcessServer, host: str, status: int
) -> None:
    for path in ("/jobs", "/healthz", "/"):
        answer = await house.http.get(path, headers={"Host": host})
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
    house: InProcessServer, headers: dict[str, str]
) -> None:
    body = {"name": "a", "task": {"kind": "noop"}}
    answer = await house.http.post("/jobs", json=body, headers=headers)
    assert answer.status_code == 403
    assert (await house.ask("GET", "/jobs"))["items"] == []
    own = {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-origin"}
    assert (await house.http.post("/jobs", json=body, headers=own)).status_code == 201


async def test_the_printed_link_signs_a_browser_in_once(house: InProcessServer) -> None:
    code = house.parts.access.sign_in_codes.issue(ADMIN.id)
    signed = await house.http.get(f"/?token={code}", headers=BARE)
    assert signed.status_code == 303
    assert signed.headers["location"] == "/"
    cookie = signed.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert code not in cookie
    mine = {**BARE, "Cookie": cookie.split(";")[0]}
    house.http.cookies.clear()
    assert (await house.http.get("/jobs", headers=mine)).status_code == 200
    again = await house.http.get(f"/?token={code}", headers=BARE)
    assert again.headers["location"] == "/?signin=expired"
    assert "set-cookie" not in again.headers


async def test_a_session_serves_our_own_page_only(house: InProcessServer) -> None:
    signed = await house.http.post("/session")
    assert signed.status_code == 204
    mine = {**BARE, "Cookie": signed.headers["set-cookie"].split(";")[0]}
    house.http.cookies.clear()
    assert (await house.http.get("/jobs", headers=mine)).status_code == 200
    other = {**mine, "Sec-Fetch-Site": "cross-site"}
    assert (await house.http.get("/jobs", headers=other)).status_code == 403
    assert (await house.http.post("/session", headers=BARE)).status_code == 401
    out = await house.http.delete("/session")
    assert "Max-Age=0" in out.headers["set-cookie"]


async def test_a_forged_or_ended_session_is_refused(house: InProcessServer) -> None:
    roster, now = house.parts.access.tokens, house.engine.clock.now()
    good = open_session(roster, ADMIN, now)
    token_id, ends, signature = good.split(".")
    assert read_session(roster, good, now) == ADMIN
    assert read_session(roster, good, int(ends)) is None
    assert read_session(roster, f"{token_id}.{int(ends) + 1}.{signature}", now) is None
    for forged in ("", "x", "1.", f"{token_id}.{ends}.", "é.é.é", f"{token_id}.{ends}.{'0' * 64}"):
        assert read_session(roster, forged, now) is None
        mine = {**BARE, "Cookie": f"rota_session_7070={forged}".encode()}
        assert (await house.http.get("/jobs", headers=mine)).status_code == 401


async def test_without_access_control_only_this_machine_and_its_own_pages_are_served() -> None:
    async with open_server(no_auth=True) as house:
        assert (await house.http.get("/jobs", headers=BARE)).status_code == 200
        cross = {**BARE, "Sec-Fetch-Site": "cross-site"}
        assert (await house.http.get("/jobs", headers=cross)).status_code == 403
        assert (await house.http.get("/jobs", headers={"Host": "evil"})).status_code == 421
        house.http._transport.client = ("10.0.0.7", 5)  # type: ignore[attr-defined]
        assert (await house.http.get("/jobs", headers=BARE)).status_code == 403


async def test_answers_have_security_headers(house: InProcessServer) -> None:
    for path in ("/", "/jobs", "/nothing", "/docs"):
        headers = (await house.http.get(path)).headers
        assert "default-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers
    assert (await house.http.get("/jobs")).headers["cache-control"] == "no-store"
