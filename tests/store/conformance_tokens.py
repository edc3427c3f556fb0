"""Definition of a store: tokens, the audit log and counts of a tenant."""

from __future__ import annotations

import asyncio

import pytest

from rota.core.model import JobState, Life
from rota.store import rows
from rota.store.limits import TOKEN_KEPT_MS, StoreLimits
from rota.store.protocol import Store, TooManyTokensError
from rota.store.tokens import AuditEntry, AuditQuery, Role, Token
from tests.store.conformance import StoreMaker, leading, put
from tests.store.naive import terms

SECRET = b"s" * 32


def token(number: int, **given: object) -> Token:
    known = {
        "id": f"token-{number:04}",
        "name": f"name {number}",
        "digest": number.to_bytes(32, "big"),
        "role": Role.VIEWER,
        "created_at": 1_000,
        "created_by": "test",
    }
    return Token(**{**known, **given})  # type: ignore[arg-type]


def entry(at: int, **given: object) -> AuditEntry:
    known = {
        "at": at,
        "token_id": "token-0001",
        "token_name": "name 1",
        "method": "PUT",
        "route": "/jobs/{job_id}/cancel",
        "target": f"job-{at:04}",
        "status": 200,
        "remote": "127.0.0.1",
        "node": "a",
    }
    return AuditEntry(**{**known, **given})  # type: ignore[arg-type]


async def found(store: Store, **query: object) -> list[int]:
    found = await store.tokens.audit(AuditQuery(**query))  # type: ignore[arg-type]
    return [one.at for one in found]


class TokenConformance:
    """Tokens and audit."""

    async def test_a_token_is_kept_as_it_was_made(self, make_store: StoreMaker) -> None:
        whole = token(1, tenant="acme", expires_at=9_000, role=Role.SUBMITTER)
        async with make_store() as store:
            await store.tokens.add_token(whole)
            await store.tokens.add_token(token(2))
            loaded = await store.tokens.load(SECRET)
        assert list(loaded.tokens) == [whole, token(2)]

    async def test_the_first_secret_is_everybodys(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            assert (await store.tokens.load(SECRET)).secret == SECRET
            assert (await store.tokens.load(b"another")).secret == SECRET

    async def test_every_change_of_tokens_has_its_own_revision(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            seen = [await store.tokens.revision()]
            await store.tokens.add_token(token(1))
            seen.append(await store.tokens.revision())
            await store.tokens.revoke_token("token-0001", 5_000)
            seen.append(await store.tokens.revision())
            assert len(dict.fromkeys(seen)) == 3
            await store.tokens.revoke_token("token-0001", 6_000)
            await store.tokens.revoke_token("token-0009", 6_000)
            await store.tokens.add_audit([entry(1)], 0)
            assert await store.tokens.revision() == seen[-1]
            assert (await store.tokens.load(SECRET)).revision == seen[-1]

    async def test_the_first_revocation_stands(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            await store.tokens.add_token(token(1))
            first = await store.tokens.revoke_token("token-0001", 5_000)
            again = await store.tokens.revoke_token("token-0001", 6_000)
            assert first == again == token(1, revoked_at=5_000)
            assert await store.tokens.revoke_token("token-0002", 5_000) is None

    async def test_the_same_token_is_not_kept_twice(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            await store.tokens.add_token(token(1))
            for twin in (token(1, digest=b"other"), token(2, digest=token(1).digest)):
                with pytest.raises(rows.TokenTakenError):
                    await store.tokens.add_token(twin)
            assert list((await store.tokens.load(SECRET)).tokens) == [token(1)]

    async def test_the_first_of_several_tokens_whose_ids_end_alike_is_kept(
        self, make_store: StoreMaker
    ) -> None:
        end = "8000-0123456789ab"
        twins = [token(number, id=f"0190000{number}-0000-7000-{end}") for number in range(5)]
        async with make_store() as store:
            found = await asyncio.gather(
                *(store.tokens.add_token(twin) for twin in twins), return_exceptions=True
            )
            kept = (await store.tokens.load(SECRET)).tokens
            await store.tokens.add_token(token(9, id="01900000-0000-7000-8000-0123456789ac"))
        refused = [one for one in found if one is not None]
        assert all(isinstance(one, rows.TokenTakenError) for one in refused)
        assert [len(refused), len(kept)] == [4, 1]

    async def test_live_tokens_are_bounded_and_long_dead_ones_forgotten(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store(StoreLimits(tokens_max=2)) as store:
            await store.tokens.add_token(token(1, expires_at=2_000))
            await store.tokens.add_token(token(2))
            with pytest.raises(TooManyTokensError):
                await store.tokens.add_token(token(3))
            await store.tokens.add_token(token(3, created_at=2_000))
            later = 2_000 + TOKEN_KEPT_MS + 1
            await store.tokens.revoke_token("token-0002", later)
            await store.tokens.add_token(token(4, created_at=later))
            left = [one.id for one in (await store.tokens.load(SECRET)).tokens]
        assert left == ["token-0002", "token-0003", "token-0004"]

    async def test_the_audit_log_is_read_newest_first_and_by_filters(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            await store.tokens.add_audit([entry(1), entry(2, token_id="token-0002")], 0)
            await store.tokens.add_audit([entry(3)], 0)
            assert await found(store) == [3, 2, 1]
            assert await found(store, limit=1) == [3]
            assert await found(store, token_id="token-0001") == [3, 1]
            assert await found(store, target="job-0002") == [2]
            assert await found(store, after=1, before=3) == [2]
            newest = (await store.tokens.audit(AuditQuery(limit=1)))[0]
            assert await found(store, below_id=newest.id) == [2, 1]
            assert rows.audit_row(newest) == rows.audit_row(entry(3))

    async def test_old_audit_entries_are_removed_a_bounded_number_at_a_time(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store(StoreLimits(audit_drops_min=2)) as store:
            await store.tokens.add_audit([entry(at) for at in range(1, 6)], 0)
            await store.tokens.add_audit([], 5)
            assert await found(store) == [5, 4, 3]
            await store.tokens.add_audit([], 5)
            await store.tokens.add_audit([], 5)
            assert await found(store) == [5]

    async def test_servers_that_start_together_agree_on_the_secret(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            loads = (store.tokens.load(bytes([one]) * 32) for one in range(4))
            secrets = [one.secret for one in await asyncio.gather(*loads)]
        assert len(dict.fromkeys(secrets)) == 1

    async def test_a_tenants_jobs_are_counted_by_state(self, make_store: StoreMaker) -> None:
        done = Life(state=JobState.SUCCEEDED, finished_at=5)
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(
                put(1, terms=terms(tenant="acme")),
                put(2, terms=terms(tenant="acme")),
                put(3, done, terms=terms(tenant="acme")),
                put(4, terms=terms(tenant="other")),
            )
            counted = await store.queries.count_jobs("acme")
            assert counted == {JobState.QUEUED: 2, JobState.SUCCEEDED: 1}
            assert await store.queries.count_jobs("nobody") == {}
