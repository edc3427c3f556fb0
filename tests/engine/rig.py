"""Test rig: an engine on an in-memory store whose appends a test can hold up, and its callers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from rota.core.commands import (
    Completion,
    MemoryWindow,
    Poll,
    Preloaded,
    Register,
    Submit,
    Tick,
    Timing,
)
from rota.core.model import ExecutionState, Instant, JobId, JobRecord, JobState, WorkerId
from rota.core.outcome import AnyReceipt, AnyWrite, Order, PollAnswer, Refill
from rota.engine.leadership import CellMember
from rota.engine.limits import ENGINE_LIMITS, EngineLimits
from rota.engine.loop import Engine
from rota.engine.metrics import Metrics
from rota.engine.ports import AnswerEncoder, Clock
from rota.store.protocol import (
    Epoch,
    FencedError,
    Head,
    InboxEntry,
    JournalRecord,
    LeaderRow,
    Loss,
    Losses,
    ProjectionStatus,
    QuarantinedWork,
    Seq,
    Snapshot,
    SpilledJobs,
    StoreError,
)
from rota.store.sqlite.memory import MemoryStore
from tests.core.asking import job, resources
from tests.engine.clocks import FakeClock

PATIENCE_S = 10.0


class SlowJournalStore:
    """Journal store that can hold appends up, and fail."""

    def __init__(self, store: MemoryStore) -> None:
        self.inner = store.journal
        self.records: list[Sequence[AnyWrite]] = []
        """Writes of every append, also of failed ones."""
        self.load_errors: list[Exception] = []
        """Errors of the next loads."""
        self.loads = 0
        """Number of loads."""
        self.is_away = False
        """Whether calls fail."""
        self.may_claim = True
        """Whether leadership can be claimed."""
        self.is_present: Callable[[LeaderRow], bool] | None = None
        """Whether the leader has a connection; None: the store cannot know."""
        self.refills: list[Refill] = []
        """Spilled jobs that were asked for."""
        self.refill_errors: list[Exception] = []
        """Errors of the next reads of spilled jobs."""
        self.refills_pass = asyncio.Event()
        """Whether spilled jobs that were read arrive; while not, they are as they were read."""
        self.refills_pass.set()
        self._open = asyncio.Event()
        self._open.set()
        self._arrived = asyncio.Event()

    @property
    def projection(self) -> ProjectionStatus:
        return self.inner.projection

    async def heads(self, seqs: Sequence[Seq]) -> dict[Seq, bytes]:
        self._refuse_if_away()
        return await self.inner.heads(seqs)

    async def note_loss(self, loss: Loss) -> None:
        await self.inner.note_loss(loss)

    async def losses(self) -> Losses:
        return await self.inner.losses()

    async def quarantine(self) -> list[QuarantinedWork]:
        return await self.inner.quarantine()

    async def repair(self, job_ids: Sequence[JobId] = ()) -> dict[JobId, str]:
        return await self.inner.repair(job_ids)

    def shut(self) -> None:
        """Holds up appends from now on."""
        self._open.clear()
        self._arrived.clear()

    def let_go(self) -> None:
        """Lets held appends go on."""
        self._open.set()

    async def reached(self) -> None:
        """Waits until an append is held up."""
        await asyncio.wait_for(self._arrived.wait(), PATIENCE_S)

    async def observe(self) -> LeaderRow | None:
        self._refuse_if_away()
        row = await self.inner.observe()
        if row is None or self.is_present is None:
            return row
        return replace(row, present=self.is_present(row))

    async def claim(self, holder: str, seen: LeaderRow | None = None, address: str = "") -> Epoch:
        self._refuse_if_away()
        if not self.may_claim:
            raise FencedError("somebody else is always first, as the test asked")
        return await self.inner.claim(holder, seen, address)

    async def renew(self, epoch: Epoch) -> bool:
        self._refuse_if_away()
        return await self.inner.renew(epoch)

    async def resign(self, epoch: Epoch) -> None:
        self._refuse_if_away()
        await self.inner.resign(epoch)

    async def records_after(self, after: Head, limit: int) -> list[JournalRecord]:
        self._refuse_if_away()
        return await self.inner.records_after(after, limit)

    async def put_inbox(
        self, body: bytes, key: str | None = None, job_ids: Sequence[JobId] = ()
    ) -> InboxEntry:
        self._refuse_if_away()
        return await self.inner.put_inbox(body, key, job_ids)

    async def inbox_key(self, key: str) -> InboxEntry | None:
        self._refuse_if_away()
        return await self.inner.inbox_key(key)

    async def inbox_job(self, job_id: JobId) -> InboxEntry | None:
        self._refuse_if_away()
        return await self.inner.inbox_job(job_id)

    async def take_inbox(self, limit: int, epoch: Epoch | None = None) -> list[InboxEntry]:
        self._refuse_if_away()
        return await self.inner.take_inbox(limit, epoch)

    async def set_aside_inbox(
        self, reasons: Mapping[int, str], at: Instant, epoch: Epoch | None = None
    ) -> None:
        self._refuse_if_away()
        await self.inner.set_aside_inbox(reasons, at, epoch)

    async def count_inbox_failures(self, entry_ids: Sequence[int]) -> None:
        self._refuse_if_away()
        await self.inner.count_inbox_failures(entry_ids)

    async def drop_inbox(self, entry_ids: Sequence[int]) -> None:
        await self.inner.drop_inbox(entry_ids)

    def _refuse_if_away(self) -> None:
        if self.is_away:
            raise StoreError("the store is away, as the test asked")

    async def load(self, kept: int) -> Snapshot:
        if self.load_errors:
            raise self.load_errors.pop(0)
        self._refuse_if_away()
        self.loads += 1
        return await self.inner.load(kept)

    async def read_spilled(self, wanted: Sequence[Refill]) -> SpilledJobs:
        self.refills += wanted
        if self.refill_errors:
            raise self.refill_errors.pop(0)
        found = await self.inner.read_spilled(wanted)
        await self.refills_pass.wait()
        return found

    async def append(
        self,
        epoch: Epoch,
        after: Head,
        at: Instant,
        writes: Sequence[AnyWrite],
        consumed: Sequence[int] = (),
    ) -> Head:
        self.records.append(writes)
        self._arrived.set()
        await self._open.wait()
        self._refuse_if_away()
        return await self.inner.append(epoch, after, at, writes, consumed)

    async def close(self) -> None:
        await self.inner.close()


class SlowStore:
    """Store with such a journal store; several of them may share one in-memory store."""

    def __init__(self, store: MemoryStore) -> None:
        self.journal = SlowJournalStore(store)
        self.queries = store.queries
        self.logs = store.logs
        self.artifacts = store.artifacts
        self.objects = store.objects
        self.tokens = store.tokens
        self.nodes = store.nodes
        self.hooks = store.hooks
        self.notes = store.notes
        self.durability = store.durability

    async def close(self) -> None:
        """Does nothing."""


class Rig:
    """Engine with its store, clock and metrics, and methods that act as its callers."""

    def __init__(
        self,
        clock: Clock | None = None,
        store: MemoryStore | None = None,
        member: CellMember | None = None,
        window: MemoryWindow | None = None,
        limits: EngineLimits = ENGINE_LIMITS,
    ) -> None:
        self.store = store or MemoryStore()
        self.slow = SlowStore(self.store)
        self.journal = self.slow.journal
        self.fake_clock = FakeClock()
        self.clock = clock or self.fake_clock
        self.metrics = Metrics()
        timing = Timing(window=window or MemoryWindow())
        member = replace(member or CellMember(node="node-1"), limits=limits)
        self.engine = Engine(self.slow, self.clock, timing, self.metrics, member)

    async def submit(self, job_id: str, **given: Any) -> AnyReceipt:
        new = job(job_id, created_at=self.clock.now(), **given)
        return await self.engine.post(Submit(jobs=(new,)))

    async def register(self, worker_id: str = "w1", session: str = "s1") -> None:
        """Registers a worker with 4 cpu."""
        await self.engine.post(
            Register(
                worker_id=WorkerId(worker_id),
                session=session,
                name=worker_id,
                capacity=resources(cpu=4),
            )
        )

    def poll(self, worker_id: str = "w1", **given: Any) -> asyncio.Task[PollAnswer]:
        """Begins a worker's poll."""
        encoder: AnswerEncoder | None = given.pop("encoder", None)
        event = Poll(
            poll_id=self.engine.next_poll_id(),
            worker_id=WorkerId(worker_id),
            max_orders=given.pop("max_orders", 10),
            until=self.clock.now() + given.pop("wait_ms", 5_000),
            **given,
        )
        return asyncio.create_task(self.engine.poll(event, asyncio.Event(), encoder))

    async def pass_by(self, ms: int) -> None:
        """Lets time pass, and the engine look at the clock."""
        self.fake_clock.pass_by(ms)
        await self.engine.post(Tick())

    async def recall(self, key: str | None = None) -> Preloaded:
        """Looks a key up in the tables."""
        known = None if key is None else await self.store.queries.key(key)
        return Preloaded(at=self.clock.now(), key=known)

    async def record(self, job_id: str) -> JobRecord | None:
        """Reads a job from the tables."""
        found = await self.store.queries.jobs([JobId(job_id)])
        return found[0] if found else None

    async def state(self, job_id: str) -> JobState | None:
        """Reads a job's state from the tables."""
        record = await self.record(job_id)
        return None if record is None else record.life.state

    async def until_ready(self) -> None:
        """Waits until the engine is ready."""
        await until(lambda: self.engine.ready)


def succeeded(order: Order) -> Completion:
    """Reports that an order's execution succeeded."""
    execution = order.execution
    state = ExecutionState.SUCCEEDED
    return Completion(execution_id=execution.id, fence=execution.fence, state=state)


async def until(is_so: Callable[[], bool]) -> None:
    """Waits until it is so, for as long as a slow machine may need."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110  (there is no event to wait for)
            await asyncio.sleep(0.002)


async def settle() -> None:
    """Lets every task go as far as it can without waiting for anything."""
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def running(
    clock: Clock | None = None, window: MemoryWindow | None = None, **limits: Any
) -> AsyncIterator[Rig]:
    """Starts a rig's engine, and stops it in the end."""
    rig = Rig(clock, window=window, limits=EngineLimits(**limits))
    await rig.engine.start()
    try:
        yield rig
    finally:
        rig.journal.let_go()
        await asyncio.wait_for(rig.engine.stop(), PATIENCE_S)
