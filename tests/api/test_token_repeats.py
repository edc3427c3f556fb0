from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.api.ids import keyed_token
from rota.api.roster import Roster, digest
from rota.api.tokens import new_token
from rota.store.access import Role, Token
from rota.store.limits import KEY_AGE_MS
from rota.store.memory_access import MemoryAccess
from rota.wire.tokens import TokenSpec
from tests.api.house import ADMIN, TOKEN, House
from tests.api.keys import bearer, key

SPEC = {"role": "viewer", "name": "lobby", "expires_in": "30d"}


async def ask(
    house: House,
    under: str,
    spec: dict[str, Any] | None = None,
    *,
    as_: dict[str, str] | None = None,
    expect: int = 201,
) -> dict[str, Any]:
    headers = {**(as_ or bearer(TOKEN)), "idempotency-key": under}
    answer: dict[str, Any] = await house.ask(
        "POST", "/tokens", spec or SPEC, headers=headers, expect=expect
    )
    return answer


async def made(house: House) -> list[str]:
    items = (await house.ask("GET", "/tokens"))["items"]
    return [one["token_id"] for one in items if one["token_id"] != ADMIN.id]


async def test_a_repeat_under_the_same_key_gets_the_same_token_and_makes_no_second(
    house: House,
) -> None:
    first = await ask(house, "k")
    assert await ask(house, "k") == first
    assert await made(house) == [first["token_id"]]
    assert (await house.http.get("/jobs", headers=bearer(first["token"]))).status_code == 200
    assert first["token"] not in repr((await house.store.access.load(b"")).tokens)
    assert (await ask(house, "another"))["token"] != first["token"]


class SlowBook(MemoryAccess):
    """A store that keeps a token only when all who came at once are at its door."""

    def __init__(self, expected: int) -> None:
        super().__init__()
        self._door = asyncio.Barrier(expected)

    async def add_token(self, token: Token) -> None:
        await self._door.wait()
        await super().add_token(token)


async def test_repeats_that_come_at_once_make_one_token(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house.parts.access.roster, "_book", SlowBook(expected=5))
    monkeypatch.setattr(house.parts.access.roster, "_revision", 0)
    async with asyncio.timeout(20):
        answers = await asyncio.gather(*(ask(house, "k") for _ in range(5)))
    assert answers == [answers[0]] * 5


async def test_a_repeat_on_another_server_of_the_cell_gets_the_same_token(house: House) -> None:
    elsewhere = Roster(house.store.access, house.engine.clock)
    await elsewhere.refresh()
    now = house.engine.clock.now()
    text = keyed_token(elsewhere.secret, f"Bearer {TOKEN}".encode(), "k")
    spec = TokenSpec(role="viewer", name="lobby")
    # Made by a server whose change this one has not seen yet.
    await house.store.access.add_token(new_token(spec, "made-elsewhere", text, now, "tests"))
    answer = await ask(house, "k", {"role": "viewer", "name": "lobby"})
    assert (answer["token_id"], answer["token"]) == ("made-elsewhere", text)


async def test_a_key_is_that_of_the_token_it_was_sent_with(house: House) -> None:
    first = await ask(house, "k")
    alice = await key(house, Role.ADMIN, name="alice")
    assert (await ask(house, "k", as_=alice))["token"] != first["token"]


async def test_who_has_the_store_alone_cannot_make_out_a_token(house: House) -> None:
    first = await ask(house, "k")
    secret = house.parts.access.roster.secret
    known = (b"", TOKEN.encode(), ADMIN.digest, ADMIN.id.encode())
    assert first["token"] not in [keyed_token(secret, shown, "k") for shown in known]
    assert keyed_token(secret, f"Bearer {TOKEN}".encode(), "k") == first["token"]
    assert keyed_token(b"another cell's", f"Bearer {TOKEN}".encode(), "k") != first["token"]


async def test_the_same_key_for_another_token_is_refused(house: House) -> None:
    await ask(house, "k")
    for change in ({"role": "submitter"}, {"name": "hall"}, {"tenant": "t"}, {"expires_in": "1d"}):
        refused = await ask(house, "k", {**SPEC, **change}, expect=409)
        assert refused["type"].endswith("idempotency_key_reused")
    assert len(await made(house)) == 1


async def test_a_token_that_has_ended_is_not_shown_again(house: House) -> None:
    first = await ask(house, "k")
    await house.ask("DELETE", f"/tokens/{first['token_id']}", expect=204)
    refused = await ask(house, "k", expect=409)
    assert first["token_id"] in refused["detail"]
    assert "has ended: send a new key" in refused["detail"]


async def test_after_a_day_a_token_is_not_shown_again(house: House) -> None:
    text = keyed_token(house.parts.access.roster.secret, f"Bearer {TOKEN}".encode(), "k")
    long_ago = house.engine.clock.now() - KEY_AGE_MS - 1
    token = new_token(TokenSpec(role="viewer", name="n"), "old", text, long_ago, "tests")
    assert token.digest == digest(text)
    await house.parts.access.roster.add(token)
    refused = await ask(house, "k", {"role": "viewer", "name": "n"}, expect=409)
    assert "old more than 24 hours ago" in refused["detail"]


async def test_a_browsers_session_repeats_as_well(house: House) -> None:
    signed = await house.http.post("/session", headers=bearer(TOKEN))
    house.http.cookies.clear()
    browser = {"authorization": "", "cookie": signed.headers["set-cookie"].split(";")[0]}
    first = await ask(house, "k", as_=browser)
    other = {**browser, "cookie": f"theme=dark; {browser['cookie']}"}
    assert await ask(house, "k", as_=other) == first
