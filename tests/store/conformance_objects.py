"""Definition of a store: the index of object storage."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from rota.core.model import ExecutionId, ExecutionState, Instant, JobId
from rota.core.outcome import DropJob
from rota.store.object_index import Bundle, BundleQuery, LargeOutput, ObjectIndex
from rota.store.protocol import Store
from tests.store.conformance import StoreMaker, leading, project_all, put, run_of
from tests.store.conformance_logs_and_files import eventually

RUN, OTHER = ExecutionId("execution-0001"), ExecutionId("execution-0002")
LATER: Instant = 10_000


def index_of(store: Store) -> ObjectIndex:
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
    """References to object storage, and deletions."""

    async def test_a_large_output_is_found_by_its_execution(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            index = index_of(store)
            for one in (kept(name="b"), kept(name="a", key=""), kept(OTHER, key="outputs/c")):
                await index.keep(one)
            assert await index.large_outputs([RUN]) == [kept(name="a", key=""), kept(name="b")]
            assert len(await index.large_outputs([RUN, OTHER])) == 3
            assert list(await index.large_outputs([])) == []

    async def test_an_object_that_nothing_refers_to_is_deleted_in_time(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            index = index_of(store)
            await index.intend("outputs/a", LATER)
            await index.intend("outputs/b", LATER)
            assert list(await index.deletions_due(LATER - 1, 10)) == []
            await index.keep(kept(key="outputs/b"))
            assert list(await index.deletions_due(LATER, 10)) == ["outputs/a"]
            await index.confirm_deleted(["outputs/a"])
            assert list(await index.deletions_due(LATER, 10)) == []

    async def test_a_replaced_or_forgotten_object_is_to_be_deleted_at_once(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            index = index_of(store)
            await index.keep(kept(key="outputs/a"))
            await index.keep(kept(key="outputs/b"))
            assert list(await index.deletions_due(0, 10)) == ["outputs/a"]
            await index.forget(RUN, "out")
            await index.forget(RUN, "nothing")
            assert sorted(await index.deletions_due(0, 10)) == ["outputs/a", "outputs/b"]
            assert len(await index.deletions_due(0, 1)) == 1, "no more than asked for"

    async def test_the_objects_of_a_deleted_job_are_to_be_deleted(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            index, leader = index_of(store), await leading(store)
            await leader.append(put(1), run_of(1, ExecutionState.SUCCEEDED), put(2), run_of(2))
            await index.keep(kept(RUN))
            await index.keep(kept(OTHER, key="outputs/b"))
            await leader.append(DropJob(JobId("job-0001")))
            await project_all(store)

            async def to_delete() -> bool:
                return list(await index.deletions_due(0, 10)) == ["outputs/a"]

            await eventually(to_delete)
            assert await index.large_outputs([RUN, OTHER]) == [kept(OTHER, key="outputs/b")]

    async def test_the_same_content_of_a_tenant_is_one_bundle(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            index = index_of(store)
            await index.intend("bundles/2", LATER)
            assert await index.add_bundle(bundle(1)) == bundle(1)
            assert await index.add_bundle(bundle(2, content=1)) == bundle(1)
            assert list(await index.deletions_due(LATER, 10)) == ["bundles/2"], "nobody took it up"
            other = bundle(3, tenant="acme", content=1)
            assert await index.add_bundle(other) == other, "tenants share nothing"

    async def test_one_of_several_that_add_the_same_bundle_at_once_wins(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            index = index_of(store)
            added = await asyncio.gather(
                *(index.add_bundle(bundle(number, content=7)) for number in range(1, 9))
            )
            assert len({one.id for one in added}) == 1
            assert len(await index.find_bundles(BundleQuery())) == 1

    async def test_bundles_are_listed_newest_first_by_what_is_asked(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            index = index_of(store)
            one, two, three = bundle(1), bundle(2, tenant="acme"), bundle(3)
            for each in (one, two, three):
                await index.add_bundle(each)
            assert list(await index.find_bundles(BundleQuery())) == [three, two, one]
            assert list(await index.find_bundles(BundleQuery(tenant="acme"))) == [two]
            assert list(await index.find_bundles(BundleQuery(sha256=one.sha256))) == [one]
            assert list(await index.find_bundles(BundleQuery(before=three.id, limit=1))) == [two]
            assert list(await index.bundles([one.id, "no"])) == [one]
            await index.use_bundles([one.id], LATER)
            await index.use_bundles([one.id], 5)
            assert list(await index.bundles([one.id])) == [replace(one, used_at=LATER)]
            unused = await index.find_bundles(BundleQuery(unused_since=LATER))
            assert list(unused) == [three, two]

    async def test_a_dropped_bundle_is_gone_and_its_content_to_be_deleted(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            index = index_of(store)
            await index.add_bundle(bundle(1))
            assert await index.drop_bundle(bundle(1).id)
            assert not await index.drop_bundle(bundle(1).id)
            assert list(await index.bundles([bundle(1).id])) == []
            assert list(await index.deletions_due(0, 10)) == ["bundles/1"]
            again = bundle(4, content=1)
            assert await index.add_bundle(again) == again

    async def test_a_storage_is_marked_once_unless_it_is_replaced(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            index = index_of(store)
            assert await index.mark_storage("a") == "a"
            assert await index.mark_storage("b") == "a"
            assert await index.mark_storage("b", replace=True) == "b"
            assert await index.mark_storage("a") == "b"
