"""Definition of a store: leader election, records for followers, the durable inbox."""

from __future__ import annotations

import pytest

from rota.core.model import Instant, JobId
from rota.store.documents import Node
from rota.store.limits import StoreLimits
from rota.store.protocol import (
    FENCES_PER_LOSS,
    GENESIS,
    CellNameError,
    Epoch,
    FencedError,
    Loss,
    Losses,
    Seq,
)
from tests.store.conformance import StoreMaker, leading, put, run_of


def an_id(number: int) -> str:
    """An id as long as all are."""
    return f"01900000-0000-7000-8000-{number:012d}"


class LeadershipConformance:
    """Leader election, records for followers, the inbox."""

    async def test_nobody_leads_an_empty_store(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            assert await store.journal.observe() is None

    async def test_a_claim_is_seen_with_its_address(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            epoch = await store.journal.claim("a", None, "http://a")
            row = await store.journal.observe()
        assert row is not None
        assert (row.holder, row.epoch, row.address) == ("a", epoch, "http://a")

    async def test_one_of_two_servers_that_saw_the_same_row_leads(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            await store.journal.claim("old")
            seen = await store.journal.observe()
            new = await store.journal.claim("b", seen)
            with pytest.raises(FencedError):
                await store.journal.claim("c", seen)
            row = await store.journal.observe()
        assert row is not None
        assert (row.holder, row.epoch) == ("b", new)

    async def test_a_leader_that_renews_cannot_be_replaced_by_a_server_that_saw_it_before(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            epoch = await store.journal.claim("a")
            seen = await store.journal.observe()
            assert await store.journal.renew(epoch)
            assert await store.journal.observe() != seen
            with pytest.raises(FencedError):
                await store.journal.claim("b", seen)

    async def test_a_deposed_leader_cannot_renew_nor_resign_for_the_new_one(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            old = await store.journal.claim("a")
            await store.journal.claim("b")
            assert not await store.journal.renew(old)
            await store.journal.resign(old)
            row = await store.journal.observe()
        assert row is not None
        assert row.holder == "b"

    async def test_a_leader_that_resigned_holds_nothing_and_its_epoch_is_not_used_again(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            epoch = await store.journal.claim("a", None, "http://a")
            await store.journal.resign(epoch)
            row = await store.journal.observe()
            assert row is not None
            assert (row.holder, row.address) == ("", "")
            assert not await store.journal.renew(epoch)
            assert await store.journal.claim("b", row) > epoch

    async def test_a_follower_reads_the_journal_from_any_place(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            for number in range(1, 5):
                await leader.append(put(number), run_of(number), at=number)
            first = (await store.journal.records_after(GENESIS, 1))[0]
            records = await store.journal.records_after(first.head, 2)
        assert [(r.seq, r.epoch, r.at) for r in records] == [
            (2, leader.epoch, 2),
            (3, leader.epoch, 3),
        ]
        assert list(records[0].writes) == [put(2), run_of(2)]

    async def test_each_loss_is_recorded_once_and_raises_the_fences(
        self, make_store: StoreMaker
    ) -> None:
        first, second = Loss(5, 2, Seq(7)), Loss(9, 1, Seq(30))
        async with make_store() as store:
            assert await store.journal.losses() == Losses()
            for loss in (first, first, second):
                await store.journal.note_loss(loss)
            losses = await store.journal.losses()
            assert losses == Losses(2 * FENCES_PER_LOSS, (first, second))
            assert (await store.journal.load()).fence_floor == losses.fence_floor

    async def test_the_inbox_keeps_the_order_until_it_is_dropped(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            ids = [(await store.journal.put_inbox(body)).id for body in (b"a", b"b", b"c")]
            assert ids == sorted(ids)
            taken = await store.journal.take_inbox(2)
            assert [(entry.id, entry.body) for entry in taken] == [(ids[0], b"a"), (ids[1], b"b")]
            assert await store.journal.take_inbox(2) == taken
            await store.journal.drop_inbox(ids[:2])
            assert [entry.body for entry in await store.journal.take_inbox(9)] == [b"c"]

    async def test_an_append_consumes_the_entries_it_accepts_and_a_refused_one_none(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            first, second = [(await store.journal.put_inbox(body)).id for body in (b"a", b"b")]
            await store.journal.append(leader.epoch, GENESIS, 1, [put(1)], [first])
            head = (await store.journal.load()).head
            for epoch, after in ((leader.epoch, GENESIS), (Epoch(leader.epoch - 1), head)):
                with pytest.raises(FencedError):
                    await store.journal.append(epoch, after, 1, [put(2)], [second])
            assert [entry.id for entry in await store.journal.take_inbox(9)] == [second]

    async def test_of_two_entries_with_one_key_the_first_stays_and_is_answered(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            first = await store.journal.put_inbox(b"a", "key")
            again = await store.journal.put_inbox(b"b", "key")
            assert again == first
            assert await store.journal.inbox_key("key") == first
            assert await store.journal.inbox_key("other") is None
            assert await store.journal.put_inbox(b"b", "other") != first
            await store.journal.drop_inbox([first.id])
            assert (await store.journal.put_inbox(b"b", "key")).body == b"b"

    async def test_a_key_is_free_again_when_an_append_has_consumed_its_entry(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            first = await store.journal.put_inbox(b"a", "key", [JobId(an_id(1))])
            await store.journal.append(leader.epoch, GENESIS, 1, [put(1)], [first.id])
            assert await store.journal.inbox_job(JobId(an_id(1))) is None
            assert (await store.journal.put_inbox(b"b", "key")).body == b"b"

    async def test_a_job_that_waits_for_a_leader_is_found_by_its_id(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            await store.journal.put_inbox(b"a")
            entry = await store.journal.put_inbox(b"b", None, [JobId(an_id(1)), JobId(an_id(2))])
            assert await store.journal.inbox_job(JobId(an_id(2))) == entry
            assert await store.journal.inbox_job(JobId(an_id(3))) is None

    async def test_an_entry_set_aside_in_an_epoch_is_taken_again_in_the_next(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            bad = await store.journal.put_inbox(b"bad", "key", [JobId(an_id(1))])
            good = await store.journal.put_inbox(b"good")
            await store.journal.set_aside_inbox({bad.id: "unreadable"}, Instant(1), Epoch(3))
            assert await store.journal.take_inbox(9, Epoch(3)) == [good]
            again, other = await store.journal.take_inbox(9, Epoch(4))
            assert (again.body, again.reason, again.is_refused) == (b"bad", "unreadable", False)
            assert other == good
            assert await store.journal.inbox_key("key") == again
            assert await store.journal.inbox_job(JobId(an_id(1))) == again
            assert await store.journal.put_inbox(b"once more", "key") == again

    async def test_entries_set_aside_do_not_count_towards_the_limit(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            ids = [(await store.journal.put_inbox(b"x")).id for _ in range(7)]
            reasons = {number: f"reason {number}" for number in ids[:5]}
            await store.journal.set_aside_inbox(reasons, Instant(1), Epoch(1))
            taken = await store.journal.take_inbox(2, Epoch(1))
            assert [entry.id for entry in taken] == ids[5:]

    async def test_a_refused_entry_is_taken_with_the_reason_until_it_is_consumed(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            entry = await store.journal.put_inbox(b"x", "key")
            for reason in ("first", "then"):
                await store.journal.set_aside_inbox({entry.id: reason}, Instant(1))
            (taken,) = await store.journal.take_inbox(9, leader.epoch)
            assert (taken.reason, taken.is_refused) == ("then", True)
            await store.journal.append(leader.epoch, leader.head, Instant(1), [put(1)], [entry.id])
            assert await store.journal.take_inbox(9, leader.epoch) == []
            assert (await store.journal.put_inbox(b"y", "key")).reason == "", "the key is free"

    async def test_a_reason_for_an_entry_that_is_gone_changes_nothing(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            entry = await store.journal.put_inbox(b"x")
            await store.journal.drop_inbox([entry.id])
            await store.journal.set_aside_inbox({entry.id: "too late"}, Instant(1), Epoch(1))
            await store.journal.count_inbox_failures([entry.id])
            assert await store.journal.take_inbox(9) == []

    async def test_failed_turns_are_counted_at_each_entry(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            first, second = [(await store.journal.put_inbox(b"x")).id for _ in range(2)]
            await store.journal.count_inbox_failures([first, second])
            await store.journal.count_inbox_failures([second])
            taken = await store.journal.take_inbox(9)
            assert [(entry.id, entry.failures) for entry in taken] == [(first, 1), (second, 2)]

    async def test_large_entries_are_taken_a_few_at_a_time_and_never_none(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store(StoreLimits(inbox_take_bytes=100)) as store:
            sizes = (500, 40, 40, 40, 40)
            ids = [(await store.journal.put_inbox(b"x" * size)).id for size in sizes]
            found = []
            while taken := await store.journal.take_inbox(9):
                found.append([entry.id for entry in taken])
                assert all(len(entry.body) in (40, 500) for entry in taken)
                await store.journal.drop_inbox(found[-1])
            assert found == [ids[:1], ids[1:4], ids[4:]]

    async def test_servers_are_listed_with_their_newest_announcement(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            for node in (Node(node="b", seq=1), Node(node="a"), Node(node="b", seq=7, leads=True)):
                await store.nodes.announce(node)
            seen = await store.nodes.everyone()
            assert [one.announced for one in seen] == [
                Node(node="a"),
                Node(node="b", seq=7, leads=True),
            ]
            assert all(0 <= one.silent_ms < 60_000 for one in seen)
            await store.nodes.leave("b")
            assert [one.announced.node for one in await store.nodes.everyone()] == ["a"]

    async def test_a_cell_has_no_name_until_it_is_given_one(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            assert await store.name_cell("") == ""
            assert await store.name_cell("north") == "north"
            assert await store.name_cell("") == "north"

    async def test_a_cell_keeps_its_first_name_and_refuses_another(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            await store.name_cell("north")
            with pytest.raises(CellNameError, match=r"is the cell 'north'.*--cell north"):
                await store.name_cell("south")
            assert await store.name_cell("north") == "north"
