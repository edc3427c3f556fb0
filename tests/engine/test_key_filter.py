"""The filter of idempotency keys: which keys are certainly new and need no lookup."""

from __future__ import annotations

import asyncio

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.commands import Cancel, Key, Preloaded, Submit
from rota.core.model import JobId, KeyRecord
from rota.core.outcome import PutKey
from rota.engine.key_filter import KeyFilter
from rota.engine.limits import ENGINE_LIMITS, KEY_MARKS, EngineLimits
from rota.store.limits import KEY_AGE_MS
from rota.store.protocol import GENESIS, QueryStore, StoreError
from rota.store.sqlite.memory import MemoryStore
from tests.core.asking import job
from tests.engine.clocks import FakeClock
from tests.engine.rig import running, settle, until

texts = st.text(min_size=1, max_size=12)


def keyed(key: str, at: int = 0) -> Submit:
    made = Key(key=key, fingerprint="f")
    return Submit(jobs=(job(f"job of {key}"),), key=made, preloaded=Preloaded(at=at))


async def store_with(keys: list[str]) -> MemoryStore:
    store = MemoryStore()
    epoch = await store.journal.claim("before")
    writes = [PutKey(KeyRecord(key, "f", b"r", 1)) for key in keys]
    await store.journal.append(epoch, GENESIS, 1, writes)
    return store


async def begun(
    store: MemoryStore, clock: FakeClock | None = None, limits: EngineLimits = ENGINE_LIMITS
) -> KeyFilter:
    keys = KeyFilter(store.queries, clock or FakeClock(), limits)
    keys.begin(has_inbox=False)
    await settle()
    return keys


def test_a_filter_without_marks_takes_no_memory() -> None:
    """Followers have a filter, too, and may never lead."""
    process, store, count = psutil.Process(), MemoryStore(), 32
    before = process.memory_info().rss
    kept = [KeyFilter(store.queries, FakeClock()) for _ in range(count)]
    assert process.memory_info().rss - before < len(kept) * KEY_MARKS // 8 // 4


@given(before=st.lists(texts), since=st.lists(texts), marks=st.sampled_from([8, 1 << 10]))
def test_a_used_key_is_never_taken_for_new(before: list[str], since: list[str], marks: int) -> None:
    """Whether it was used before this server led or since, and however many keys share a mark."""

    async def lead() -> None:
        limits = EngineLimits(key_marks=marks, used_keys_per_look=3, used_keys_look_s=0)
        keys = await begun(await store_with(before), limits=limits)
        for key in since:
            keys.note(keyed(key))
        await until(lambda: keys._complete)
        assert not [key for key in (*before, *since) if keys.is_new(key)]

    asyncio.run(lead())


async def test_a_key_is_new_until_an_input_with_it_is_about_to_be_decided() -> None:
    keys = await begun(await store_with(["used"]))
    assert keys.is_new("never seen")
    assert keys.is_new("never seen"), "asking does not use it"
    keys.note(keyed("never seen"))
    assert not keys.is_new("never seen")
    keys.note(Cancel(job_id=JobId("j")))  # it has none
    await keys.end()
    assert not keys.is_new("another"), "another server may lead"


class FailingQueries:
    """Query store that fails until it is told otherwise."""

    def __init__(self, inner: QueryStore) -> None:
        self.inner = inner
        self.fails = True
        self.asked = 0

    async def keys_after(self, key: str, limit: int) -> list[str]:
        self.asked += 1
        if self.fails:
            raise StoreError("away")
        return await self.inner.keys_after(key, limit)


async def test_no_key_is_new_before_all_used_keys_are_read() -> None:
    queries = FailingQueries((await store_with(["used"])).queries)
    limits = EngineLimits(used_keys_retry_s=0)
    keys = KeyFilter(queries, FakeClock(), limits)  # type: ignore[arg-type]  # the one method that it calls
    assert not keys.is_new("x"), "this server does not lead"
    keys.begin(has_inbox=False)
    await until(lambda: queries.asked > 1)
    assert not keys.is_new("x")
    queries.fails = False
    await until(lambda: keys.is_new("x"))
    assert not keys.is_new("used")
    await keys.end()


async def test_no_key_is_new_for_a_day_where_too_many_keys_were_used() -> None:
    limits = EngineLimits(used_keys_per_look=2, used_keys_read_max=4, used_keys_look_s=0)
    clock = FakeClock()
    keys = await begun(await store_with(["a", "b", "c", "d", "e"]), clock, limits)
    assert not keys.is_new("x")
    clock.pass_by(KEY_AGE_MS - 1)
    keys.note(keyed("late"))
    assert not keys.is_new("x")
    clock.pass_by(1)
    keys.note(keyed("later"))
    assert keys.is_new("x")
    assert not keys.is_new("late")
    clock.pass_by(KEY_AGE_MS)
    keys.note(keyed("much later"))
    assert keys.is_new("late"), "it is too old to count"
    assert not keys.is_new("later"), "it was used less than a day ago"


async def test_no_key_is_new_before_the_inbox_was_empty_once() -> None:
    keys = KeyFilter((await store_with([])).queries, FakeClock())
    keys.begin(has_inbox=True)
    await until(lambda: keys._complete)
    assert not keys.is_new("x")
    keys.inbox_drained()
    assert keys.is_new("x")
    await keys.end()
    keys.begin(has_inbox=True)
    await until(lambda: keys._complete)
    assert not keys.is_new("x"), "other servers may have left more since"
    await keys.end()


async def test_a_key_promised_without_a_leader_is_not_new_when_that_server_leads() -> None:
    keys = KeyFilter((await store_with([])).queries, FakeClock())
    keys.promise("promised")
    keys.begin(has_inbox=False)
    await until(lambda: keys.is_new("x"))
    assert not keys.is_new("promised")
    await keys.end()


async def test_an_engine_knows_a_key_that_it_accepted_also_after_a_reload() -> None:
    async with running() as rig:
        await until(lambda: rig.engine.is_new_key("k"))
        await rig.engine.post(keyed("k", rig.clock.now()))
        assert not rig.engine.is_new_key("k")
        rig.journal.is_away = True
        with pytest.raises(Exception, match="not ready"):
            await rig.submit("lost")
        assert not rig.engine.is_new_key("other"), "it does not lead any more"
        rig.journal.is_away = False
        await rig.until_ready()
        await until(lambda: rig.engine.is_new_key("other"))
        assert not rig.engine.is_new_key("k"), "though it was used in an earlier term"
