"""Model of a store: random stories, projected, crashed and taken over between any two records.

The naive tables say what every load, every read of spilled jobs, and in the end every table must
have. A stepped store leaves each projection to the model: nothing is projected by itself.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from rota.core.model import Instant, JobState, Life
from rota.core.outcome import AnyWrite, Refill
from rota.engine.refills import SpillTail
from rota.store.projection.live_state import JournalGapError, LiveState
from rota.store.projection.quarantine import QUARANTINED_JOBS_MAX, Quarantine
from rota.store.projection.shards import shard_of
from rota.store.protocol import Head, JournalStore, QueryStore, Seq, StoreError
from tests.store.conformance import put
from tests.store.conformance_set_aside import Poison
from tests.store.full_story import TINY, TURNS, WIDE, FullStory
from tests.store.naive_tables import DAY_MS, NaiveTables, assert_loaded, assert_tables

KEPT = 2
"""Jobs of each spill queue that a load brings."""
WIDE_EVERY = 3
"""One seed of so many spills nothing, so that a follower can be compared too."""


POISONED_MAX = 3
"""Jobs whose rows are refused at a time."""


class CrashError(StoreError):
    """Raised in the middle of a projection, as the model asked."""


class SteppedStore(Protocol):
    """Store whose projection is made step by step."""

    @property
    def journal(self) -> JournalStore: ...

    @property
    def queries(self) -> QueryStore: ...

    @property
    def poison(self) -> Poison: ...

    async def quarantine(self) -> Quarantine:
        """Returns the jobs that are set aside."""
        ...

    async def positions(self) -> Sequence[Seq]:
        """Returns how far each shard is."""
        ...

    async def project_all(self) -> None:
        """Projects the whole journal into all shards."""
        ...

    async def project_some(self, shards: Sequence[int], upto: Seq) -> None:
        """Projects into these shards up to this record."""
        ...

    async def project_twice(self, rng: random.Random) -> None:
        """Has two projectors project at once."""
        ...

    async def crash_projecting(self, shards: Sequence[int], statements: int) -> None:
        """Projects into these shards, and crashes after so many statements."""
        ...

    async def crash(self, rng: random.Random) -> None:
        """Opens the store anew, as the same server or another one; nothing is projected before."""
        ...

    async def drop_before(self, before: Instant) -> None:
        """Drops all that is old."""
        ...


class ProjectionModel:
    """One story on one store."""

    def __init__(self, seed: int, store: SteppedStore) -> None:
        self.rng = random.Random(f"model/{seed}")
        self.store = store
        self.naive = NaiveTables()
        self.window = WIDE if seed % WIDE_EVERY == 0 else TINY
        self.story = FullStory(seed, self.window)
        self.tail = SpillTail()
        self.follower: LiveState | None = None
        self.done: dict[str, int] = {}
        """How often each step was made."""

    async def run(self, turns: int = TURNS) -> None:
        """Plays the story; checks the store between its records, and at the end."""
        journal = self.store.journal
        epoch, head = await journal.claim("model"), (await journal.load()).head
        for at, writes in self.story.records(turns):
            head = await self.store.journal.append(epoch, head, at, writes)
            self.take(at, writes, head)
            while self.rng.random() < 0.5:
                await self.step()
        await self.heal()
        await self.project_all()
        assert_loaded(await self.store.journal.load(KEPT), self.naive, KEPT)
        assert not await self.store.quarantine()
        await assert_tables(self.store.queries, self.naive)

    def take(self, at: Instant, writes: Sequence[AnyWrite], head: Head) -> None:
        self.naive.take(at, writes)
        self.tail.note(head.seq, writes)

    async def step(self) -> None:
        """Makes one random step."""
        steps = (
            *(self.project_some,) * 4,
            self.project_all,
            self.project_twice,
            *(self.crash, self.crash_projecting),
            *(self.load, self.load, self.read_spilled, self.read_spilled, self.follow),
            *(self.drop, self.read_tables, self.refuse, self.heal),
        )
        rare = (self.drop, self.read_tables, self.refuse, self.heal)
        (step,) = self.rng.choices(steps, [1 if step in rare else 3 for step in steps])
        self.done[step.__name__] = self.done.get(step.__name__, 0) + 1
        await step()

    async def project_all(self) -> None:
        await self.store.project_all()
        assert set(await self.store.positions()) == {self.naive.seq}

    async def some_shards(self) -> list[int]:
        shards = len(await self.store.positions())
        return sorted(self.rng.sample(range(shards), self.rng.randint(1, shards)))

    async def project_some(self) -> None:
        shards, before = await self.some_shards(), await self.store.positions()
        upto = Seq(self.rng.randint(min(before[one] for one in shards), self.naive.seq))
        await self.store.project_some(shards, upto)
        after = await self.store.positions()
        for shard, (was, now) in enumerate(zip(before, after, strict=True)):
            assert now == (max(was, upto) if shard in shards else was)

    async def project_twice(self) -> None:
        await self.store.project_twice(self.rng)
        assert set(await self.store.positions()) == {self.naive.seq}

    async def crash(self) -> None:
        before = await self.store.positions()
        await self.store.crash(self.rng)
        assert await self.store.positions() == before
        self.follower = None

    async def crash_projecting(self) -> None:
        shards, before = await self.some_shards(), await self.store.positions()
        await self.store.crash_projecting(shards, self.rng.randrange(12))
        for shard, (was, now) in enumerate(zip(before, await self.store.positions(), strict=True)):
            assert now in (was, self.naive.seq) if shard in shards else now == was

    async def load(self) -> None:
        """Loads; goes on with the tail of spilled jobs that a new leader would have."""
        before = min(await self.store.positions())
        snapshot = await self.store.journal.load(KEPT)
        assert_loaded(snapshot, self.naive, KEPT)
        if snapshot.spill_counts:
            assert [record.seq for record in snapshot.tail] == list(
                range(before + 1, self.naive.seq + 1)
            )
        self.tail = SpillTail()
        for record in snapshot.tail:
            self.tail.note(record.seq, record.writes)

    async def read_spilled(self) -> None:
        """Reads on in each spill queue; what newer records say is laid over it."""
        spill_queues = self.naive.spill_queues()
        if self.rng.random() < 0.5:
            self.tail.forget(min(await self.store.positions()))
        wanted = []
        for line, jobs in spill_queues.items():
            place = self.rng.choice([-1, *(job.spec.arrival_number for job in jobs)])
            wanted.append(Refill(line, place, self.rng.randint(1, 4), 1))
        if not wanted:
            return
        found = await self.store.journal.read_spilled(wanted)
        for refill, read in zip(wanted, found.jobs, strict=True):
            behind = [
                job
                for job in spill_queues[refill.spill_queue]
                if job.spec.arrival_number > refill.after
            ][: refill.limit]
            answer = self.tail.complete(refill, read, found)
            assert answer == behind[: len(answer)]
            # With as many as were asked for, the next read goes on behind them.
            assert len(answer) == len(behind) or len(read) == refill.limit

    async def follow(self) -> None:
        """Compares a follower's copy with a load, as long as no job is spilled."""
        if self.window is not WIDE:
            return
        if self.follower is None:
            self.follower = LiveState(await self.store.journal.load())
        follower = self.follower
        try:
            while records := await self.store.journal.records_after(
                follower.head, self.rng.randint(1, 9)
            ):
                looked_up = await self.store.queries.jobs(follower.unknown(records))
                follower.apply(records, looked_up)
        except JournalGapError:
            self.follower = None
            return
        assert not follower.is_partial
        assert_loaded(follower.snapshot(), self.naive, KEPT)

    async def drop(self) -> None:
        """Drops what is old at a random age."""
        before = self.naive.at - self.rng.choice((0, DAY_MS // 2, DAY_MS, 3 * DAY_MS))
        positions = await self.store.positions()
        known = {one: positions[shard_of(one, len(positions))] for one in self.naive.lives}
        for job_id, entry in (await self.store.quarantine()).items():
            known[job_id] = min(known[job_id], Seq(entry.seq - 1))
        self.naive.drop_before(before, known)
        await self.store.drop_before(before)

    async def read_tables(self) -> None:
        """Reads all tables, as readers do: they wait until these have all."""
        await self.store.project_all()
        aside = list(await self.store.quarantine())
        await assert_tables(self.store.queries, self.naive, aside)

    async def refuse(self) -> None:
        """Refuses the rows of some of the newest jobs from now on."""
        newest = list(self.naive.jobs)[-20:]
        count = min(len(newest), self.rng.randint(1, POISONED_MAX))
        if len(await self.store.quarantine()) < QUARANTINED_JOBS_MAX // 2:
            await self.store.poison.refuse(*self.rng.sample(newest, count))

    async def heal(self) -> None:
        """Refuses nothing more, and projects what was set aside."""
        await self.store.poison.relent()
        await self.store.poison.repair()


async def further_than_a_window(store: SteppedStore) -> None:
    """Projects one shard to the end, and then all shards only up to the first record."""
    epoch, head = await store.journal.claim("model"), (await store.journal.load()).head
    ended = Life(JobState.CANCELLED, finished_at=1)
    for writes in ([put(number) for number in range(8)], [put(8)], [put(9, life=ended)]):
        head = await store.journal.append(epoch, head, 1, writes)
    await store.project_some([2], Seq(3))
    await store.project_some([0, 1, 2, 3], Seq(1))
    assert await store.positions() == [1, 1, 3, 1]
    await store.project_all()
    assert (await store.journal.load()).totals.submitted == 10
