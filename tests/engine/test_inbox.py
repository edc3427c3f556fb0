"""The durable inbox: an entry that cannot be accepted is set aside, and all else goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import structlog

from rota.core.commands import AnyInput, Key, Reject, Submit
from rota.core.errors import Conflict, StalePreload
from rota.core.model import Instant, JobId, JobRecord, JobState
from rota.core.outcome import AnyReceipt, AnyWrite, CountReceipt, PutJob
from rota.engine.inbox import InboxReader, encode_submission
from rota.engine.leadership import CellMember
from rota.engine.limits import EngineLimits
from rota.engine.ports import UnavailableError
from rota.store.protocol import Epoch, InboxEntry, InboxKind, StoreError
from rota.store.sqlite.memory import MemoryStore
from tests.core.asking import job
from tests.engine.clocks import FakeClock
from tests.engine.rig import PATIENCE_S, Rig, settle, until
from tests.stand_in import stand_in

SOON = {"durable_inbox_look_s_min": 0.001, "durable_inbox_look_s_max": 0.001}
UNREADABLE = {
    "nothing": b"",
    "no MessagePack": b"\xc1",
    "another type": msgspec.msgpack.encode(["a"]),
    "a field of a newer program in place of an old one": msgspec.msgpack.encode({"jobz": []}),
    "text that is not UTF-8": b"\x81\xa4jobs\xa1\xff",
    "nesting without end": b"\x81\xa4more" + b"\x91" * 100_000 + b"\xc0",
    "a text that ends too early": encode_submission(Submit(jobs=(job("x"),)))[:-5],
}


def reading(entry: InboxEntry) -> Submit | Reject:
    """Reads the tests' own entries of applications: refuses all of them."""
    return Reject(jobs=(job(entry.job_ids[0]),), why=entry.body.decode("utf-8", "surrogateescape"))


@asynccontextmanager
async def serving(
    store: MemoryStore, prepare: Callable[[Rig], None] | None = None, **limits: Any
) -> AsyncIterator[Rig]:
    """Starts a server that takes entries; `prepare` may change its store before."""
    member = CellMember(node="a", address="http://a", ttl_ms=60_000)
    rig = Rig(None, store, member, None, EngineLimits(**(SOON | limits)))
    if prepare is not None:
        prepare(rig)
    await rig.engine.start(reading)
    try:
        yield rig
    finally:
        await asyncio.wait_for(rig.engine.stop(), PATIENCE_S)


async def put(store: MemoryStore, job_id: str, **asked: Any) -> int:
    """Leaves a job in the inbox; returns its entry."""
    body = encode_submission(Submit(jobs=(job(job_id, **asked),)))
    return (await store.journal.put_inbox(body, None, [JobId(job_id)])).id


async def waiting(store: MemoryStore, epoch: int = 0) -> list[InboxEntry]:
    return await store.journal.take_inbox(99, Epoch(epoch))


async def known(rig: Rig, job_id: str) -> JobRecord:
    """Waits for a job to be in the tables."""
    async with asyncio.timeout(PATIENCE_S):
        while (found := await rig.record(job_id)) is None:  # noqa: ASYNC110  (nobody announces it)
            await asyncio.sleep(0.002)
    return found


def appends_that_fail(*job_ids: str, only: JobState | None = None) -> Callable[[Rig], None]:
    """Makes appends of these jobs fail as by a bug; `only`: in this state."""

    def prepare(rig: Rig) -> None:
        inner = rig.journal.inner

        async def append(*given: Any) -> Any:
            writes: list[AnyWrite] = [one for arg in given if isinstance(arg, list) for one in arg]
            jobs = [write for write in writes if isinstance(write, PutJob)]
            if any(one.id in job_ids and only in (None, one.life.state) for one in jobs):
                raise RuntimeError("a bug")
            return await inner.append(*given)

        rig.journal.inner = stand_in(inner, append=append)

    return prepare


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE.keys())
async def test_an_entry_that_cannot_be_read_keeps_neither_others_nor_the_leader(
    body: bytes,
) -> None:
    store = MemoryStore()
    bad = await store.journal.put_inbox(body, "k", [JobId("bad")])
    await put(store, "before")
    for _ in range(2):  # the second server finds the entry that the first one left
        with structlog.testing.capture_logs() as logs:
            async with serving(store) as rig:
                await rig.until_ready()
                assert (await known(rig, "before")).life.state is JobState.QUEUED
                await until(lambda: rig.store.journal.inbox_size == 1)
        (said,) = [one for one in logs if one["event"] == "inbox_entry_set_aside"]
        assert (said["entry"], said["log_level"]) == (bad.id, "error")
        assert "cannot read it" in said["reason"]
    (left,) = await waiting(store)
    assert (left.body, left.reason) == (body, said["reason"])
    assert await store.journal.inbox_key("k") == left


async def test_entries_that_cannot_be_read_do_not_starve_later_ones() -> None:
    store = MemoryStore()
    for _ in range(7):
        await store.journal.put_inbox(b"\xc1")
    await put(store, "later")
    async with serving(store, durable_inbox_entries=2) as rig:
        await rig.until_ready()
        assert (await known(rig, "later")).life.state is JobState.QUEUED
        await put(store, "last")
        assert (await known(rig, "last")).life.state is JobState.QUEUED
        assert await waiting(store, rig.engine.epoch) == []
    assert len(await waiting(store)) == 7


async def test_an_entry_of_a_newer_program_is_accepted_once_that_leads() -> None:
    store = MemoryStore()
    await put(store, "x")

    def knows_no_such_kind(rig: Rig) -> None:
        inner = rig.journal.inner

        async def take(limit: int, epoch: Epoch) -> list[InboxEntry]:
            found = await inner.take_inbox(limit, epoch)
            return [msgspec.structs.replace(entry, kind="later") for entry in found]

        rig.journal.inner = stand_in(inner, take_inbox=take)

    async with serving(store, knows_no_such_kind) as older:
        await older.until_ready()
        assert await older.record("x") is None
    (left,) = await waiting(store)
    assert left.reason == "this server knows no inbox entries of kind 'later'"
    async with serving(store) as newer:
        assert (await known(newer, "x")).life.state is JobState.QUEUED
    assert store.journal.inbox_size == 0


async def test_an_error_while_an_entry_is_prepared_leaves_only_that_one() -> None:
    store = MemoryStore()
    await put(store, "x", after=["upstream"])
    await put(store, "y")

    def cannot_read_jobs(rig: Rig) -> None:
        async def jobs(job_ids: Sequence[JobId]) -> list[JobRecord]:
            if "upstream" in job_ids:
                raise RuntimeError("a bug")
            return await store.queries.jobs(job_ids)

        rig.slow.queries = stand_in(store.queries, jobs=jobs)

    async with serving(store, cannot_read_jobs) as rig:
        await rig.until_ready()
        await known(rig, "y")
    (left,) = await waiting(store)
    assert (left.job_ids, left.reason) == (("x",), "RuntimeError: a bug")


async def test_an_entry_that_makes_turns_fail_is_refused_and_its_neighbours_are_accepted() -> None:
    store = MemoryStore()
    for job_id in ("a", "poison", "b"):
        await put(store, job_id)
    async with serving(store, appends_that_fail("poison", only=JobState.QUEUED)) as rig:
        poison = await known(rig, "poison")
        assert poison.life.state is JobState.FAILED
        assert b"the server failed 3 times while it accepted this" in (poison.life.error or b"")
        assert await rig.state("a") is JobState.QUEUED
        assert (await known(rig, "b")).life.state is JobState.QUEUED
        await rig.until_ready()
        assert rig.metrics.reloads == {"RuntimeError": 3}
        assert rig.metrics.submitted() == 3
    assert store.journal.inbox_size == 0


async def test_failed_turns_are_counted_over_restarts() -> None:
    store = MemoryStore()
    await put(store, "poison")
    for count in (1, 2, 3):
        async with serving(store, appends_that_fail("poison", only=JobState.QUEUED)) as rig:
            await until(lambda: bool(rig.metrics.reloads))
            rig.journal.load_errors = [StoreError("away")] * 99
        assert [entry.failures for entry in await waiting(store)] == [count]
    async with serving(store, appends_that_fail("poison", only=JobState.QUEUED)) as rig:
        assert (await known(rig, "poison")).life.state is JobState.FAILED
        assert not rig.metrics.reloads


async def test_an_entry_that_cannot_even_be_refused_stays_and_the_server_leads() -> None:
    store = MemoryStore()
    await put(store, "poison")
    async with serving(store, appends_that_fail("poison")) as rig:
        await put(store, "later")
        assert (await known(rig, "later")).life.state is JobState.QUEUED
        await rig.until_ready()
        assert rig.metrics.reloads == {"RuntimeError": 4}
        assert await rig.record("poison") is None
    (left,) = await waiting(store)
    assert left.reason.startswith("the server failed 4 times")
    assert not left.is_refused


async def test_no_entry_is_blamed_for_turns_that_fail_without_it() -> None:
    store = MemoryStore()
    entry = await put(store, "x")
    await store.journal.count_inbox_failures([entry])
    posted: list[tuple[AnyInput, int | None]] = []

    async def post(event: AnyInput, number: int | None) -> AnyReceipt:
        posted.append((event, number))
        raise UnavailableError("not ready: the turn failed")

    async with reader(store, post):
        await until(lambda: len(posted) > 2)
    assert {number for _, number in posted} == {None}, "the entry itself was never posted"


@asynccontextmanager
async def reader(
    store: MemoryStore,
    post: Callable[[AnyInput, int | None], Awaitable[AnyReceipt]],
    *,
    journal: Any = None,
    calls: list[str] | None = None,
) -> AsyncIterator[None]:
    """Runs a reader that posts to the test, which gets the names of its calls."""
    heard: list[str] = [] if calls is None else calls
    limits = EngineLimits(**SOON)
    seen: Any = stand_in(store, journal=journal) if journal else store
    task = asyncio.create_task(
        InboxReader(seen, FakeClock(), reading, post, limits).run(
            Epoch(1), lambda: heard.append("caught up"), lambda: heard.append("emptied")
        )
    )
    try:
        yield
    finally:
        assert not task.done(), "the reader ended"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def consume(store: MemoryStore, entry: int | None) -> AnyReceipt:
    """Accepts an entry as an append does."""
    if entry is not None:
        await store.journal.drop_inbox([entry])
    return CountReceipt(1)


async def test_an_error_of_the_store_that_is_a_bug_does_not_end_the_reader() -> None:
    store, calls, failing = MemoryStore(), list[str](), [True]
    await put(store, "x")

    async def take(limit: int, epoch: Epoch) -> list[InboxEntry]:
        if failing[0]:
            raise ValueError("a bug")
        return await store.journal.take_inbox(limit, epoch)

    async def post(_event: AnyInput, entry: int | None) -> AnyReceipt:
        return await consume(store, entry)

    with structlog.testing.capture_logs() as logs:
        async with reader(
            store, post, journal=stand_in(store.journal, take_inbox=take), calls=calls
        ):
            await until(lambda: calls[:3] == ["caught up"] * 3)
            failing[0] = False
            await until(lambda: "emptied" in calls)
    assert store.journal.inbox_size == 0
    (said,) = [one for one in logs if one["event"] == "inbox_not_read"]
    assert (said["reason"], said["exc_info"]) == ("a bug", True)


async def test_one_entry_that_fails_does_not_cancel_the_others_that_are_posted() -> None:
    store, posted = MemoryStore(), list[int | None]()
    entries = [await put(store, job_id) for job_id in ("a", "b", "c")]

    async def post(_event: AnyInput, entry: int | None) -> AnyReceipt:
        posted.append(entry)
        await settle()
        if entry == entries[0]:
            raise RuntimeError("a bug")
        return await consume(store, entry)

    async with reader(store, post):
        await until(lambda: store.journal.inbox_size == 1)
    assert posted[:3] == entries, "in their order"
    assert [entry.id for entry in await waiting(store)] == entries[:1]


async def test_an_entry_whose_upstream_keeps_changing_is_tried_again_and_holds_up_nobody() -> None:
    store, calls, changing = MemoryStore(), list[str](), [True]
    entry = await put(store, "x")
    await put(store, "y")

    async def post(_event: AnyInput, number: int | None) -> AnyReceipt:
        if number == entry and changing[0]:
            raise StalePreload("it changed")
        return await consume(store, number)

    async with reader(store, post, calls=calls):
        await until(lambda: "caught up" in calls and store.journal.inbox_size == 1)
        assert "emptied" not in calls
        changing[0] = False
        await until(lambda: "emptied" in calls)


async def test_a_refused_job_whose_id_is_taken_is_dropped_with_the_reason() -> None:
    store = MemoryStore()
    entry = await put(store, "x")

    async def post(_event: AnyInput, _entry: int | None) -> AnyReceipt:
        raise Conflict("there is a job x already")

    with structlog.testing.capture_logs() as logs:
        async with reader(store, post):
            await until(lambda: not store.journal.inbox_size)
    (said,) = [one for one in logs if one["event"] == "inbox_entry_set_aside"]
    assert said["entry"] == entry
    assert said["reason"] == (
        "there is a job x already; no job shows this: there is a job x already"
    )


async def test_the_reason_for_an_application_is_kept_before_its_entry_is_consumed() -> None:
    store, kept = MemoryStore(), dict[int, str]()
    body = b"bad \0 \xff" + b"x" * 5_000
    number = (await store.journal.put_inbox(body, None, [JobId("x")])).id
    await store.journal.put_inbox(encode_submission(Submit(jobs=())), "of a server")

    async def take(limit: int, epoch: Epoch) -> list[InboxEntry]:
        found = await store.journal.take_inbox(limit, epoch)
        return [
            msgspec.structs.replace(one, kind=InboxKind.SPEC) if one.id == number else one
            for one in found
        ]

    async def set_aside(
        reasons: Mapping[int, str], at: Instant, epoch: Epoch | None = None
    ) -> None:
        kept.update(reasons)
        await store.journal.set_aside_inbox(reasons, at, epoch)

    async def post(event: AnyInput, entry: int | None) -> AnyReceipt:
        if isinstance(event, Reject):
            assert kept == {number: event.why}
        return await consume(store, entry)

    journal = stand_in(store.journal, take_inbox=take, set_aside_inbox=set_aside)
    async with reader(store, post, journal=journal):
        await until(lambda: not store.journal.inbox_size)
    assert kept[number].startswith("bad \N{REPLACEMENT CHARACTER} ?xxx")
    assert len(kept[number]) == 1_000


async def test_a_submission_refused_in_an_earlier_term_is_not_accepted_later() -> None:
    store, posted = MemoryStore(), list[AnyInput]()
    entry = await put(store, "x")
    await store.journal.set_aside_inbox({entry: "no such job"}, Instant(1))

    async def post(event: AnyInput, number: int | None) -> AnyReceipt:
        posted.append(event)
        return await consume(store, number)

    async with reader(store, post):
        await until(lambda: not store.journal.inbox_size)
    (event,) = posted
    assert isinstance(event, Reject)
    assert event.why == "no such job"


async def test_a_repeat_of_a_request_in_the_inbox_is_rejected_as_a_duplicate() -> None:
    store = MemoryStore()
    async with serving(store) as rig:
        await rig.until_ready()
        key = Key(key="k", fingerprint="f")
        await rig.engine.post(Submit(jobs=(job("x"),), key=key, preloaded=await rig.recall("k")))
        await store.journal.put_inbox(encode_submission(Submit(jobs=(job("y"),), key=key)), "k")
        assert (await known(rig, "y")).life.reason == "duplicate"
