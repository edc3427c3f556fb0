"""Browsers at a gateway: pages of any cell, and a session in each of them."""

from __future__ import annotations

from starlette.datastructures import Headers

from rota.gateway.context import request_headers, response_headers
from tests.gateway.fleet import Gateway


def headers(**given: str) -> Headers:
    return Headers({name.replace("_", "-"): value for name, value in given.items()})


def test_a_cell_gets_its_own_cookies_only() -> None:
    given = headers(cookie="north.s=1; south.s=2; other=3")
    assert dict(request_headers({"type": "http"}, given, "south")) == {"cookie": "s=2"}
    assert request_headers({"type": "http"}, given, "west") == []


def test_a_clients_headers_about_addresses_and_connections_are_not_passed_on() -> None:
    given = headers(
        x_forwarded_for="10.0.0.1", connection="x", origin="http://a", host="b", authorization="c"
    )
    scope = {"type": "http", "client": ("192.0.2.7", 1)}
    assert dict(request_headers(scope, given, "south")) == {
        "authorization": "c",
        "x-forwarded-for": "192.0.2.7",
    }


def test_cookies_name_their_cell_and_are_secure_behind_https() -> None:
    answer = [("Set-Cookie", "s=1; HttpOnly"), ("Connection", "close"), ("X-A", "b")]
    assert response_headers(answer, "north", secure=False) == [
        (b"rota-cell", b"north"),
        (b"set-cookie", b"north.s=1; HttpOnly"),
        (b"x-a", b"b"),
    ]
    assert (b"set-cookie", b"north.s=1; HttpOnly; Secure") in response_headers(
        answer, "north", secure=True
    )


async def test_a_browser_signs_in_once_for_all_cells(gateway: Gateway) -> None:
    for path in ("/", "/docs", "/openapi.json"):
        assert (await gateway.http.get(path)).status_code == 200
    signed = await gateway.http.post("/session")
    assert signed.status_code == 204
    names = [line.split("=")[0] for line in signed.headers.get_list("set-cookie")]
    assert sorted(name.split(".")[0] for name in names) == ["north", "south"]
    del gateway.http.headers["Authorization"]
    page = await gateway.ask("GET", "/jobs", expect=200)
    assert "missing_cells" not in page
    assert (await gateway.http.delete("/session")).status_code == 204
    assert (await gateway.http.get("/jobs")).status_code == 401
