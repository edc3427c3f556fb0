from __future__ import annotations

from rota.api import limits
from rota.api.limits import ApiLimits
from rota.api.throttling import (
    Rate,
    RateLimiter,
    Throttle,
    WrongTokenLimiter,
    address_group,
)
from rota.store.tokens import AuditQuery
from tests.api.in_process_server import TOKEN, open_server
from tests.api.token_headers import bearer


def test_a_token_bucket_empties_and_fills_evenly() -> None:
    buckets = RateLimiter(Rate(4, 1000))
    assert [buckets.take("a", 0) for _ in range(4)] == [0, 0, 0, 0]
    assert buckets.take("a", 0) == 250
    assert buckets.take("b", 0) == 0
    assert buckets.take("a", 249) == 1
    assert buckets.take("a", 250) == 0
    assert buckets.take("a", 250) == 250
    assert [buckets.take("a", 99_000) for _ in range(5)] == [0, 0, 0, 0, 250]


def test_a_rate_of_none_limits_nobody() -> None:
    buckets = RateLimiter(None)
    assert not any(buckets.take("a", 0) for _ in range(100_000))


def test_token_buckets_of_many_callers_take_bounded_memory() -> None:
    buckets = RateLimiter(Rate(1, 1000), keys_max=10)
    for number in range(100):
        assert buckets.take(str(number), 0) == 0
    assert len(buckets._used_until) == 10
    assert buckets.take("99", 0) > 0


def test_wrong_tokens_make_an_address_wait_longer_and_longer() -> None:
    tries, now = WrongTokenLimiter(), 0
    assert {tries.note("a", now)[1] for _ in range(limits.WRONG_TOKENS_FREE)} == {0}
    waits = []
    for _ in range(9):
        waits.append(tries.note("a", now)[1])
        assert tries.note("a", now + 1)[1] == waits[-1] - 1, "one within the wait is not counted"
        now += waits[-1]
    assert waits == [1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000]
    assert tries.note("b", now)[1] == 0
    assert tries.note("a", now + limits.WRONG_TOKENS_QUIET_MS + 1)[1] == 0


def test_wrong_tokens_of_many_addresses_take_bounded_memory() -> None:
    tries = WrongTokenLimiter()
    for number in range(limits.WRONG_TOKENS_ADDRESSES_MAX + 50):
        tries.note(str(number), 0)
    assert len(tries._by_address) == limits.WRONG_TOKENS_ADDRESSES_MAX


def test_addresses_of_one_machine_are_one_group() -> None:
    assert (
        address_group("2001:db8::1")
        == address_group("2001:db8::ffff")
        != address_group("2001:db8:0:1::1")
    )
    assert address_group("::ffff:10.0.0.7") == address_group("10.0.0.7") == "10.0.0.7"
    assert address_group("::1") == "::1"
    assert address_group("fe80::1%eth0") == address_group("fe80::2")
    assert address_group("no:address") == "no:address"


async def test_an_address_that_guesses_has_to_wait_and_a_valid_token_still_works() -> None:
    free = limits.WRONG_TOKENS_FREE
    async with open_server(limits=ApiLimits(token_refresh_soon_s=0)) as server:
        answers = [
            await server.http.get("/jobs", headers=bearer(f"guess {number}"))
            for number in range(free + 2)
        ]
        assert [one.status_code for one in answers] == [401] * free + [429] * 2
        assert answers[-1].headers["retry-after"] == "1"
        assert answers[-1].json()["type"].endswith(":too_many_tries")
        assert (await server.http.get("/jobs")).status_code == 200
        nobody = await server.http.get("/jobs", headers={"Authorization": ""})
        assert nobody.status_code == 401


async def test_a_token_over_its_rate_limit_gets_429() -> None:
    throttle = Throttle(by_token=RateLimiter(Rate(3, 60_000)))
    async with open_server(throttle=throttle) as server:
        statuses = [(await server.http.get("/queues")).status_code for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        refused = await server.http.post("/jobs", json={})
        assert refused.json()["type"].endswith(":rate_limited")
        assert 1 <= int(refused.headers["retry-after"]) <= 20
        await server.deps.audit.flush()
        assert await server.store.tokens.audit(AuditQuery()) == [], "a flood leaves no entries"
        assert (await server.http.get("/healthz")).status_code == 200
        beat = await server.http.post("/workers/x/heartbeat", json={})
        assert beat.status_code == 404, "what workers send is not counted"


async def test_an_address_over_its_rate_limit_gets_429() -> None:
    throttle = Throttle(by_address=RateLimiter(Rate(2, 60_000)))
    async with open_server(throttle=throttle) as server:
        for _ in range(5):
            assert (await server.http.get("/queues")).status_code == 200
        server.http._transport.client = ("10.0.0.7", 5)  # type: ignore[attr-defined]
        statuses = [(await server.http.get("/healthz")).status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        assert TOKEN
