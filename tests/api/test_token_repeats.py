from __future__ import annotations

import asyncio
from typing import Any

from rota.api.auth.token_cache import TokenCache, caller_from
from rota.api.endpoints.tokens import new_token
from rota.api.ids import IdMint, TokenSeed
from rota.core.model import Instant
from rota.store.limits import KEY_AGE_MS, TOKEN_KEPT_MS
from rota.store.sqlite.memory import MemoryStore, MemoryTokenStore
from rota.store.tokens import Role, Token
from rota.wire.tokens import TokenSpec
from tests.api.in_process_server import ADMIN, TOKEN, InProcessServer, open_server
from tests.api.token_headers import bearer, token_headers

SPEC = {"role": "viewer", "name": "lobby", "expires_in": "30d"}


async def ask(
    server: InProcessServer,
    under: str,
    spec: dict[str, Any] | None = None,
    *,
    as_: dict[str, str] | None = None,
    expect: int = 201,
) -> dict[str, Any]:
    headers = {**(as_ or bearer(TOKEN)), "idempotency-key": under}
    answer: dict[str, Any] = await server.ask(
        "POST", "/tokens", spec or SPEC, headers=headers, expect=expect
    )
    return answer


async def made(server: InProcessServer) -> list[str]:
    items = (await server.ask("GET", "/tokens"))["items"]
    return [one["token_id"] for one in items if one["token_id"] != ADMIN.id]


async def test_a_repeat_under_the_same_key_gets_the_same_token_and_makes_no_second(
    server: InProcessServer,
) -> None:
    first = await ask(server, "k")
    assert await ask(server, "k") == first
    assert await made(server) == [first["token_id"]]
    assert (await server.http.get("/jobs", headers=bearer(first["token"]))).status_code == 200
    assert first["token"] not in repr((await server.store.tokens.load(b"")).tokens)
    assert (await ask(server, "another"))["token"] != first["token"]


class SlowTokenStore(MemoryTokenStore):
    """Token store that adds a token only when all parallel callers have arrived."""

    def __init__(self, expected: int) -> None:
        super().__init__()
        self._door = asyncio.Barrier(expected)

    async def add_token(self, token: Token) -> None:
        if token.id != ADMIN.id:
            await self._door.wait()
        await super().add_token(token)


async def test_parallel_repeats_create_one_token() -> None:
    store = MemoryStore()
    store.tokens = SlowTokenStore(expected=5)
    async with open_server(store=store) as server, asyncio.timeout(20):
        answers = await asyncio.gather(*(ask(server, "k") for _ in range(5)))
    assert answers == [answers[0]] * 5


def under_key(tokens: TokenCache, under: str, at: Instant) -> tuple[Token, str]:
    """Makes a token as a server of the cell does at a time, with its text."""
    seed = TokenSeed(tokens.secret, TOKEN, under)
    token_id = seed.id_from(IdMint().mint(at))
    text = seed.token_of(token_id)
    return new_token(TokenSpec(role="viewer", name="lobby"), token_id, text, at, "tests"), text


async def test_a_repeat_on_another_server_of_the_cell_gets_the_same_token(
    server: InProcessServer,
) -> None:
    elsewhere = TokenCache(server.store.tokens, server.engine.clock)
    await elsewhere.refresh()
    # By a clock that is ahead, and not seen here yet.
    token, text = under_key(elsewhere, "k", server.engine.clock.now() + 5_000)
    await server.store.tokens.add_token(token)
    answer = await ask(server, "k", {"role": "viewer", "name": "lobby"})
    assert (answer["token_id"], answer["token"]) == (token.id, text)


async def test_an_idempotency_key_belongs_to_the_token_it_was_sent_with(
    server: InProcessServer,
) -> None:
    first = await ask(server, "k")
    alice = await token_headers(server, Role.ADMIN, name="alice")
    assert (await ask(server, "k", as_=alice))["token"] != first["token"]


async def test_the_same_caller_is_recognised_however_it_writes_its_header(
    server: InProcessServer,
) -> None:
    first = await ask(server, "k")
    for header in (f"bearer {TOKEN}", f"BEARER {TOKEN}", f"Bearer  {TOKEN}", f"Bearer {TOKEN} "):
        assert await ask(server, "k", as_={"authorization": header}) == first


async def test_a_session_takes_no_identity_from_an_invalid_header_beside_it(
    server: InProcessServer,
) -> None:
    for header in ("undefined", "Bearer"):
        made = []
        for name in ("alice", "bob"):
            admin = await token_headers(server, Role.ADMIN, name=f"{name}-{header}")
            cookie = await sign_in(server, admin)
            made.append(await ask(server, header, as_={"authorization": header, **cookie}))
            assert await ask(server, header, as_={"authorization": "", **cookie}) == made[-1]
        assert made[0]["token"] != made[1]["token"]
        assert [one["created_by"] for one in made] == [f"alice-{header}", f"bob-{header}"]


async def test_keys_are_shared_without_access_control() -> None:
    async with open_server(no_auth=True) as server:
        first = await ask(server, "k")
        assert await ask(server, "k", as_=bearer("another")) == first


async def test_the_store_alone_does_not_reveal_a_token(server: InProcessServer) -> None:
    first = await ask(server, "k")
    secret, of = server.deps.access.tokens.secret, first["token_id"]
    known = ("", ADMIN.digest.hex(), ADMIN.digest.decode("latin-1"), ADMIN.id, ADMIN.name)
    assert first["token"] not in [TokenSeed(secret, one, "k").token_of(of) for one in known]
    assert TokenSeed(secret, TOKEN, "k").token_of(of) == first["token"]
    assert TokenSeed(b"another cell's", TOKEN, "k").token_of(of) != first["token"]


async def test_the_text_of_a_caller_contains_no_credential(
    server: InProcessServer,
) -> None:
    found = server.deps.access.tokens.find(TOKEN)
    assert found is not None
    assert TOKEN not in repr(caller_from(found, TOKEN))


async def test_the_same_key_for_another_token_is_refused(server: InProcessServer) -> None:
    await ask(server, "k")
    for change in ({"role": "submitter"}, {"name": "hall"}, {"tenant": "t"}, {"expires_in": "1d"}):
        refused = await ask(server, "k", {**SPEC, **change}, expect=409)
        assert refused["type"].endswith("idempotency_key_reused")
    assert len(await made(server)) == 1


async def test_a_token_that_has_ended_is_not_shown_again(server: InProcessServer) -> None:
    first = await ask(server, "k")
    await server.ask("DELETE", f"/tokens/{first['token_id']}", expect=204)
    refused = await ask(server, "k", expect=409)
    assert first["token_id"] in refused["detail"]
    assert "has ended: send a new key" in refused["detail"]


async def test_after_a_day_a_token_is_not_shown_again(server: InProcessServer) -> None:
    tokens = server.deps.access.tokens
    token, _ = under_key(tokens, "k", server.engine.clock.now() - KEY_AGE_MS - 1)
    await tokens.add(token)
    refused = await ask(server, "k", {"role": "viewer", "name": "lobby"}, expect=409)
    assert f"{token.id} more than 24 hours ago" in refused["detail"]


async def test_a_token_that_was_revoked_and_forgotten_does_not_come_back_under_its_key(
    server: InProcessServer,
) -> None:
    tokens, spec = server.deps.access.tokens, {"role": "viewer", "name": "lobby"}
    long_ago = server.engine.clock.now() - TOKEN_KEPT_MS - 10_000
    leaked, text = under_key(tokens, "k", long_ago)
    await tokens.add(leaked)
    await tokens.revoke(leaked.id, long_ago + 1)
    assert leaked.id in (await ask(server, "k", spec, expect=409))["detail"]
    await ask(server, "another")
    assert tokens.by_id(leaked.id) is None, "the record is gone, as is that of every ended token"
    again = await ask(server, "k", spec)
    assert again["token"] != text
    assert again["token_id"] != leaked.id
    assert (await server.http.get("/jobs", headers=bearer(text))).status_code == 401
    assert (await server.http.get("/jobs", headers=bearer(again["token"]))).status_code == 200


async def sign_in(server: InProcessServer, headers: dict[str, str]) -> dict[str, str]:
    """Signs a browser in; returns its cookie."""
    signed = await server.http.post("/session", headers=headers)
    server.http.cookies.clear()
    return {"cookie": signed.headers["set-cookie"].split(";")[0]}


async def test_a_browsers_session_repeats_as_well(server: InProcessServer) -> None:
    browser = {"authorization": "", **await sign_in(server, bearer(TOKEN))}
    first = await ask(server, "k", as_=browser)
    other = {**browser, "cookie": f"theme=dark; {browser['cookie']}"}
    assert await ask(server, "k", as_=other) == first
