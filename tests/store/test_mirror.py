"""A follower's copy of what is live: the same as a load would bring, wherever it began."""

from __future__ import annotations

import random

import pytest

from rota.core.errors import Refusal
from rota.core.inputs import Delete, Retry
from rota.core.model import JobId, JobState
from rota.core.outcome import Outcome
from rota.store.memory import MemoryStore
from rota.store.mirror import JournalGapError, Mirror
from rota.store.protocol import Epoch, Seq, Snapshot, Totals
from tests.core.story import Story
from tests.store.conformance import put

AT_ONCE = 7


class Recorded(Story):
    """A story with second lives and removals in it, and all its records."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.records: list[Outcome] = []

    def note(self, outcome: Outcome) -> None:
        self.records.append(outcome)

    def turn(self) -> None:
        super().turn()
        ended = [
            record.id
            for record in self.world.ledger.jobs.values()
            if record.life.state in (JobState.FAILED, JobState.CANCELLED, JobState.SUCCEEDED)
        ]
        if ended and self.dice.random() < 0.5:
            self.disturb(self.dice.choice(ended))

    def disturb(self, job_id: JobId) -> None:
        kind = self.dice.choice((Retry, Delete))
        event = kind(job_id=job_id, recall=self.world.recall())
        outcome = self.world.turn([event])
        if not isinstance(outcome.replies[0], Refusal):
            self.note(outcome)


async def written(seed: int) -> MemoryStore:
    """A store with a whole story in it."""
    story = Recorded(seed)
    story.play()
    store = MemoryStore()
    epoch = await store.ledger.claim("a")
    for outcome in story.records:
        if outcome.writes:
            newest = (await store.catalog.head())[1]
            await store.ledger.append(epoch, Seq(newest + 1), 1, outcome.writes)
    return store


async def follow(store: MemoryStore, mirror: Mirror, upto: int, size: int) -> None:
    """Reads on, as a follower does."""
    while mirror.seq < upto:
        records = await store.ledger.records_after(mirror.seq, min(size, upto - mirror.seq))
        mirror.apply(records, await store.catalog.jobs(mirror.unknown(records)))


def empty() -> Snapshot:
    """Before the first record."""
    return Snapshot(Seq(0), (), (), (), (), 0, Totals())


def plain(snapshot: Snapshot) -> tuple[object, ...]:
    """Where the order says nothing it must not matter."""
    return (
        snapshot.seq,
        list(snapshot.jobs),
        {x.id: x for x in snapshot.executions},
        {x.id: x for x in snapshot.workers},
        {x.name: x for x in snapshot.queues},
        snapshot.order_next,
        snapshot.totals.submitted,
        set(snapshot.totals.finished),
    )


@pytest.mark.parametrize("seed", range(6))
async def test_a_copy_that_follows_is_what_a_load_brings(seed: int) -> None:
    store = await written(seed)
    newest = (await store.catalog.head())[1]
    mirror = Mirror(empty())
    await follow(store, mirror, newest, size=AT_ONCE)
    assert plain(mirror.snapshot()) == plain(await store.ledger.load())


@pytest.mark.parametrize("seed", range(3))
async def test_it_may_begin_anywhere_and_read_any_number_at_once(seed: int) -> None:
    store = await written(seed)
    newest = (await store.catalog.head())[1]
    dice = random.Random(seed)
    first = Mirror(empty())
    await follow(store, first, dice.randrange(newest), size=AT_ONCE)
    second = Mirror(first.snapshot())
    for mirror, size in ((first, 1), (second, newest)):
        await follow(store, mirror, newest, size=size)
    assert plain(first.snapshot()) == plain(second.snapshot())


async def test_a_copy_that_fell_behind_what_is_kept_says_so() -> None:
    store = MemoryStore()
    epoch: Epoch = await store.ledger.claim("a")
    for seq in (1, 2):
        await store.ledger.append(epoch, Seq(seq), 1, [put(seq)])
    records = await store.ledger.records_after(Seq(1), 10)
    with pytest.raises(JournalGapError):
        Mirror(empty()).apply(records)
