from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from rota.api.auth.sessions import open_session, read_session
from rota.api.auth.token_cache import TokenCache, token_digest
from rota.api.ids import mint_token
from rota.api.limits import TOKEN_REFRESH_S, ApiLimits
from rota.store.protocol import StoreError
from rota.store.sqlite.memory import MemoryTokenStore
from rota.store.tokens import Role
from tests.api.in_process_server import ADMIN, TOKEN, InProcessServer, StreamReader
from tests.api.token_headers import bearer, token_headers

SPEC = {"role": "viewer", "name": "dashboard of the lobby"}


async def made(server: InProcessServer, **fields: object) -> dict[str, str]:
    answer: dict[str, str] = await server.ask("POST", "/tokens", {**SPEC, **fields}, expect=201)
    return answer


async def cookie(server: InProcessServer, headers: dict[str, str]) -> dict[str, str]:
    signed = await server.http.post("/session", headers=headers)
    assert signed.status_code == 204
    server.http.cookies.clear()
    return {"Authorization": "", "Cookie": signed.headers["set-cookie"].split(";")[0]}


async def eventually(look: Callable[[], Awaitable[bool]]) -> None:
    deadline = asyncio.get_running_loop().time() + 20
    while not await look():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.01)


def test_a_token_has_a_prefix_that_scanners_know_and_is_always_new() -> None:
    minted = [mint_token() for _ in range(200)]
    assert all(re.fullmatch(r"rota_[0-9A-Za-z]{43}", one) for one in minted)
    assert len(set(minted)) == 200


async def test_a_token_is_shown_once_and_kept_as_a_hash(server: InProcessServer) -> None:
    answer = await made(server)
    text = answer["token"]
    assert (await server.http.get("/jobs", headers=bearer(text))).status_code == 200
    listed = await server.http.get("/tokens")
    assert text not in listed.text
    (shown,) = [one for one in listed.json()["items"] if one["token_id"] == answer["token_id"]]
    assert shown == {**{name: answer[name] for name in shown}}
    assert (shown["status"], shown["created_by"]) == ("live", "tests")
    kept = (await server.store.tokens.load(b"")).tokens
    assert text not in repr(kept)
    assert [one.digest for one in kept if one.id == answer["token_id"]] == [token_digest(text)]


async def test_a_revoked_token_is_refused_with_that_reason(server: InProcessServer) -> None:
    answer = await made(server)
    path, headers = f"/tokens/{answer['token_id']}", bearer(answer["token"])
    for _ in range(2):
        await server.ask("DELETE", path, expect=204)
    refused = await server.ask("GET", "/jobs", headers=headers, expect=401)
    assert "was revoked" in refused["detail"]
    assert (await server.ask("GET", "/tokens"))["items"][0]["status"] == "revoked"
    await server.ask("DELETE", "/tokens/nothing", expect=404)


async def test_a_token_ends_when_it_was_said_to(server: InProcessServer) -> None:
    answer = await made(server, expires_in=0.05)
    headers = bearer(answer["token"])

    async def has_ended() -> bool:
        return (await server.http.get("/jobs", headers=headers)).status_code == 401

    await eventually(has_ended)
    refused = await server.ask("GET", "/jobs", headers=headers, expect=401)
    assert "has expired" in refused["detail"]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"role": "king"}, "role"),
        ({"role": "worker", "tenant": "acme"}, "tenant"),
        ({"role": "operator", "tenant": "acme"}, "tenant"),
        ({"role": "admin", "tenant": "acme"}, "tenant"),
        ({"role": "viewer", "expires_in": 0}, "expires_in"),
        ({"role": "viewer", "tenant": "two words"}, "tenant"),
        ({"role": "viewer", "name": "bell\x07"}, "name"),
        ({"role": "viewer", "token": "mine"}, "token"),
    ],
)
async def test_an_invalid_token_request_is_refused(
    server: InProcessServer, spec: dict[str, object], field: str
) -> None:
    answer = await server.ask("POST", "/tokens", spec, expect=422)
    assert answer["errors"][0]["field"] == field
    assert len((await server.ask("GET", "/tokens"))["items"]) == 1


async def test_tokens_are_listed_page_by_page(server: InProcessServer) -> None:
    ids = [(await made(server, name=f"n{number}"))["token_id"] for number in range(3)]
    page = await server.ask("GET", "/tokens?limit=2")
    rest = await server.ask("GET", f"/tokens?cursor={page['next_cursor']}")
    found = [one["token_id"] for one in (*page["items"], *rest["items"])]
    assert found == [*reversed(ids), ADMIN.id]


async def test_another_server_honours_a_change_within_a_second(server: InProcessServer) -> None:
    elsewhere = TokenCache(server.store.tokens, server.engine.clock)
    await elsewhere.start()
    try:
        answer = await made(server)

        async def is_known() -> bool:
            return elsewhere.find(answer["token"]) is not None

        await eventually(is_known)
        await server.ask("DELETE", f"/tokens/{answer['token_id']}", expect=204)

        async def is_ended() -> bool:
            return not elsewhere.is_live(answer["token_id"])

        await eventually(is_ended)
    finally:
        await elsewhere.stop()
    assert TOKEN_REFRESH_S <= 0.5


async def test_a_token_just_created_on_another_server_is_valid_at_once(
    server: InProcessServer,
) -> None:
    token = replace(ADMIN, id="fresh", digest=token_digest("fresh"))
    await server.store.tokens.add_token(token)
    assert server.deps.access.tokens.find("fresh") is None
    answers = await asyncio.gather(
        *(server.http.get("/jobs", headers=bearer("fresh")) for _ in range(5))
    )
    assert [one.status_code for one in answers] == [200] * 5
    other = replace(token, id="other", digest=token_digest("other"))
    await server.store.tokens.add_token(other)
    await server.ask("DELETE", "/tokens/other", expect=204)


class UnavailableTokenStore(MemoryTokenStore):
    """Token store that can be unavailable."""

    away = False
    asked = asyncio.Event()

    async def revision(self) -> int:
        if self.away:
            self.asked.set()
            raise StoreError("away")
        return await super().revision()


async def test_known_tokens_stay_valid_while_the_store_is_unavailable(
    server: InProcessServer,
) -> None:
    store = UnavailableTokenStore()
    await store.add_token(ADMIN)
    tokens = TokenCache(store, server.engine.clock, ApiLimits(token_refresh_s=0.01))
    await tokens.start()
    try:
        store.away = True
        await asyncio.wait_for(store.asked.wait(), 20)
        assert tokens.find(TOKEN) == ADMIN
        store.away = False
        await store.revoke_token(ADMIN.id, 5)

        async def is_ended() -> bool:
            return not tokens.is_live(ADMIN.id)

        await eventually(is_ended)
    finally:
        await tokens.stop()


async def test_a_session_is_valid_on_every_server(server: InProcessServer) -> None:
    headers = await token_headers(server, Role.VIEWER, tenant="acme")
    browser = await cookie(server, headers)
    assert (await server.http.get("/jobs", headers=browser)).status_code == 200
    body = {"name": "j", "task": {"kind": "noop"}}
    assert (await server.http.post("/jobs", json=body, headers=browser)).status_code == 403
    elsewhere = TokenCache(server.store.tokens, server.engine.clock)
    await elsewhere.refresh()
    value = browser["Cookie"].partition("=")[2]
    found = read_session(elsewhere, value, server.engine.clock.now())
    assert found is not None
    assert (found.role, found.tenant) == (Role.VIEWER, "acme")


async def test_a_session_ends_with_its_token(server: InProcessServer) -> None:
    browser = await cookie(server, await token_headers(server, Role.VIEWER, name="v"))
    await server.ask("DELETE", "/tokens/id-v", expect=204)
    assert (await server.http.get("/jobs", headers=browser)).status_code == 401
    now = server.engine.clock.now()
    short = await token_headers(server, Role.VIEWER, name="short", expires_at=now + 60_000)
    assert short
    tokens = server.deps.access.tokens
    token = tokens.by_id("id-short")
    assert token is not None
    value = open_session(tokens, token, now)
    assert int(value.split(".")[1]) == now + 60_000
    assert read_session(tokens, value, now + 60_000) is None


async def test_a_session_does_not_prolong_itself(server: InProcessServer) -> None:
    browser = await cookie(server, bearer(TOKEN))
    again = await server.http.post("/session", headers=browser)
    assert again.status_code == 401
    assert "set-cookie" not in again.headers


async def test_a_session_of_another_cell_is_refused(server: InProcessServer) -> None:
    stranger = MemoryTokenStore()
    await stranger.add_token(ADMIN)
    tokens = TokenCache(stranger, server.engine.clock)
    await tokens.refresh()
    now = server.engine.clock.now()
    assert read_session(server.deps.access.tokens, open_session(tokens, ADMIN, now), now) is None


async def test_an_open_stream_ends_when_its_token_is_revoked(server: InProcessServer) -> None:
    headers = await token_headers(server, Role.VIEWER, name="v")
    async with StreamReader(server, "/stream", headers) as tap:
        await tap.read_until("retry")
        await server.ask("DELETE", "/tokens/id-v", expect=204)
        await asyncio.wait_for(asyncio.shield(tap._task), 20)


async def test_only_an_admin_sees_tokens(server: InProcessServer) -> None:
    for path in ("/tokens", "/audit"):
        headers = await token_headers(server, Role.OPERATOR, name=path)
        answer = await server.ask("GET", path, headers=headers, expect=403)
        assert "this call needs admin" in answer["detail"]
