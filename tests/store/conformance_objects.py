"""The store's definition, another part: references to bundles and large output files."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from rota.core.model import ExecutionId, ExecutionState, Instant, JobId
from rota.core.outcome import DropJob
from rota.store.object_index import Bundle, BundleQuery, LargeOutput, ObjectIndex
from rota.store.protocol import Store
from tests.store.conformance import StoreMaker, leading, put, run_of
from tests.store.conformance_logs_and_files import eventually

RUN, OTHER = ExecutionId("execution-0001"), ExecutionId("execution-0002")
LATER: Instant = 10_000


def book_of(store: Store) -> ObjectIndex:
    assert store.objects is not None
    return store.objects


def kept(execution_id: ExecutionId = RUN, name: str = "out", key: str = "outputs/a") -> LargeOutput:
    return LargeOutput(execution_id=execution_id, name=name, size=9, sha256="ab" * 32, key=key)


def bundle(number: int, tenant: str = "default", content: int | None = None) -> Bundle:
    sha256 = f"{number if content is None else content:064x}"
    return Bundle(
        id=f"0000000{number}-0000-7000-8000-000000000000",
        tenant=tenant,
        name="app.zip",
        size=10,
        sha256=sha256,
        format="zip",
        key=f"bundles/{number}",
        created_at=number,
        used_at=number,
    )


class ObjectsConformance:
    """What is in object storage, and what is to go from there."""

    async def test_what_is_kept_is_found_by_its_execution(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            book = book_of(store)
            for one in (kept(name="b"), kept(name="a", key=""), kept(OTHER, key="outputs/c")):
                await book.keep(one)
            assert await book.large_outputs([RUN]) == [kept(name="a", key=""), kept(name="b")]
            assert len(await book.large_outputs([RUN, OTHER])) == 3
            assert list(await book.large_outputs([])) == []

    async def test_what_is_put_and_never_taken_up_is_doomed_in_time(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            book = book_of(store)
            await book.intend("outputs/a", LATER)
            await book.intend("outputs/b", LATER)
            assert list(await book.deletions_due(LATER - 1, 10)) == []
            await book.keep(kept(key="outputs/b"))
            assert list(await book.deletions_due(LATER, 10)) == ["outputs/a"]
            await book.confirm_deleted(["outputs/a"])
            assert list(await book.deletions_due(LATER, 10)) == []

    async def test_what_is_replaced_or_forgotten_is_doomed_at_once(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            book = book_of(store)
            await book.keep(kept(key="outputs/a"))
            await book.keep(kept(key="outputs/b"))
            assert list(await book.deletions_due(0, 10)) == ["outputs/a"]
            await book.forget(RUN, "out")
            await book.forget(RUN, "nothing")
            assert sorted(await book.deletions_due(0, 10)) == ["outputs/a", "outputs/b"]
            assert len(await book.deletions_due(0, 1)) == 1, "no more than asked for"

    async def test_the_objects_of_a_deleted_job_are_doomed(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            book, leader = book_of(store), await leading(store)
            await leader.append(put(1), run_of(1, ExecutionState.SUCCEEDED), put(2), run_of(2))
            await book.keep(kept(RUN))
            await book.keep(kept(OTHER, key="outputs/b"))
            await leader.append(DropJob(JobId("job-0001")))
            await store.ledger.load()

            async def doomed() -> bool:
                return list(await book.deletions_due(0, 10)) == ["outputs/a"]

            await eventually(doomed)
            assert await book.large_outputs([RUN, OTHER]) == [kept(OTHER, key="outputs/b")]

    async def test_the_same_content_of_a_tenant_is_one_bundle(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            book = book_of(store)
            await book.intend("bundles/2", LATER)
            assert await book.add_bundle(bundle(1)) == bundle(1)
            assert await book.add_bundle(bundle(2, content=1)) == bundle(1)
            assert list(await book.deletions_due(LATER, 10)) == ["bundles/2"], "nobody took it up"
            other = bundle(3, tenant="acme", content=1)
            assert await book.add_bundle(other) == other, "tenants share nothing"

    async def test_of_those_that_add_the_same_at_once_one_wins(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            book = book_of(store)
            added = await asyncio.gather(
                *(book.add_bundle(bundle(number, content=7)) for number in range(1, 9))
            )
            assert len({one.id for one in added}) == 1
            assert len(await book.find_bundles(BundleQuery())) == 1

    async def test_bundles_are_listed_newest_first_by_what_is_asked(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            book = book_of(store)
            one, two, three = bundle(1), bundle(2, tenant="acme"), bundle(3)
            for each in (one, two, three):
                await book.add_bundle(each)
            assert list(await book.find_bundles(BundleQuery())) == [three, two, one]
            assert list(await book.find_bundles(BundleQuery(tenant="acme"))) == [two]
            assert list(await book.find_bundles(BundleQuery(sha256=one.sha256))) == [one]
            assert list(await book.find_bundles(BundleQuery(before=three.id, limit=1))) == [two]
            assert list(await book.bundles([one.id, "no"])) == [one]
            await book.use_bundles([one.id], LATER)
            await book.use_bundles([one.id], 5)
            assert list(await book.bundles([one.id])) == [replace(one, used_at=LATER)]
            unused = await book.find_bundles(BundleQuery(unused_since=LATER))
            assert list(unused) == [three, two]

    async def test_a_dropped_bundle_is_gone_and_its_content_doomed(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            book = book_of(store)
            await book.add_bundle(bundle(1))
            assert await book.drop_bundle(bundle(1).id)
            assert not await book.drop_bundle(bundle(1).id)
            assert list(await book.bundles([bundle(1).id])) == []
            assert list(await book.deletions_due(0, 10)) == ["bundles/1"]
            again = bundle(4, content=1)
            assert await book.add_bundle(again) == again

    async def test_a_storage_is_marked_once_unless_it_is_replaced(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            book = book_of(store)
            assert await book.mark_storage("a") == "a"
            assert await book.mark_storage("b") == "a"
            assert await book.mark_storage("b", replace=True) == "b"
            assert await book.mark_storage("a") == "b"
