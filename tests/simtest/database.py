"""Simulated database, as each server reaches it: slow, away, full, or losing its answers.

Behind it is the in-memory store, which passes the same conformance tests as the others; its tables
are projected in shards by simulated projectors. A call goes there, is carried out, and its answer
comes back; each way can fail. A call that was sent is carried out even if its sender is dead by
then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

import msgspec

from rota.store.limits import PROJECTION_WAIT_S
from rota.store.protocol import (
    Head,
    JournalStore,
    NewerRecordError,
    ProjectionStatus,
    QueryStore,
    Seq,
    Store,
    StoreError,
    StoreFullError,
    TablesBehindError,
    UnknownFateError,
)
from rota.store.sqlite.memory import MemoryStore
from rota.store.sqlite.projection import read_positions
from tests.simtest.clock import Machine, VirtualLoop
from tests.simtest.damage import DatabaseDamage
from tests.simtest.rng import Rng
from tests.simtest.trace import Trace

SHARDS = 4
"""Shards of the projection, as PostgreSQL has them."""
WRITES = (
    *("append", "claim", "renew", "resign", "put_inbox", "drop_inbox"),
    *("set_aside_inbox", "count_inbox_failures", "note_loss", "project"),
)
GROWS = ("append", "put_inbox", "set_aside_inbox", "project")
"""Calls that a full disk refuses."""
DEADLINES_S = {"append": 10.0, "claim": 1.5, "renew": 1.5, "observe": 1.5, "resign": 1.5}
DEADLINE_S = 5.0
"""Deadline of all other calls."""
UNPROJECTED_S = 2.0
"""For so long an older program cannot read past a newer one's record; then it is in the tables."""


@dataclass(slots=True)
class FaultMode:
    """Faults of the database at present."""

    delay_s: float = 0.001
    failing: float = 0.0
    """Share of calls that fail without an effect."""
    losing_answers: float = 0.0
    """Share of calls that are carried out and whose answer is lost."""
    late: float = 0.0
    """Share of calls that are carried out long after the caller gave up."""
    full: bool = False


Work: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]
"""Carries a call out in the database."""


@dataclass(slots=True)
class Database:
    """Database that all servers share."""

    loop: VirtualLoop
    rng: Rng
    trace: Trace
    store: MemoryStore = field(init=False)
    damage: DatabaseDamage = field(init=False)
    machine: Machine = field(default_factory=lambda: Machine("database"))
    fault_mode: FaultMode = field(default_factory=FaultMode)
    unreachable_from: dict[str, int] = field(default_factory=dict)
    """Machines that cannot reach it, with the number of faults that cause it."""
    holder: tuple[Machine, int] | None = None
    """Machine and boot of the last claim; None: an older server's, whose connection is hidden."""
    newer: dict[int, float] = field(default_factory=dict)
    """Journal records that only newer programs can read, with the time of writing."""
    held: dict[int, int] = field(default_factory=dict)
    """Shards that nobody can project now, with the number of faults that cause it."""
    _waiting: list[tuple[Seq, asyncio.Future[None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = MemoryStore(shards=SHARDS, reached=self.reached)
        self.damage = DatabaseDamage(self.store.journal, self.rng)

    # Projection

    @property
    def lags(self) -> bool:
        """Whether the tables lack records of the journal."""
        journal = self.store.journal
        return journal.projection.projected < journal.head().seq

    async def reached(self, seq: Seq) -> None:
        """Returns when the tables have a record; raises TablesBehindError if that takes long."""
        if self.store.journal.projection.projected >= seq:
            return
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiting.append((seq, waiter))
        try:
            async with asyncio.timeout(PROJECTION_WAIT_S):
                await waiter
        except TimeoutError:
            raise TablesBehindError(f"record {seq} is not in the tables yet") from None
        finally:
            self._waiting = [one for one in self._waiting if one[1] is not waiter]

    async def project(self, believed: Mapping[int, Head], records_max: int) -> bool:
        """Projects records into these shards, as a process does that believes them to be there;
        False: it cannot, or they are elsewhere."""
        free = {shard: head for shard, head in believed.items() if shard not in self.held}
        if not free or not self.store.journal.project_some(free, records_max):
            return False
        projected = self.store.journal.projection.projected
        for seq, waiter in self._waiting:
            if seq <= projected and not waiter.done():
                waiter.set_result(None)
        return True

    async def progress(self) -> tuple[dict[int, Head], Seq]:
        """Returns how far the shards and the journal are."""
        journal = self.store.journal
        return read_positions(journal.connection), journal.head().seq

    def hold(self, shards: tuple[int, ...]) -> Callable[[], None]:
        """Lets nobody project these shards; returns the function that ends it."""
        for shard in shards:
            self.held[shard] = self.held.get(shard, 0) + 1

        def release() -> None:
            for shard in shards:
                self.held[shard] -= 1
                if not self.held[shard]:
                    del self.held[shard]

        return release

    # Connections

    def cut(self, machine: str) -> None:
        """Makes the database unreachable from a machine."""
        self.unreachable_from[machine] = self.unreachable_from.get(machine, 0) + 1

    def heal(self, machine: str) -> None:
        """Ends one cut."""
        self.unreachable_from[machine] -= 1
        if not self.unreachable_from[machine]:
            del self.unreachable_from[machine]

    def as_seen_by(self, machine: Machine, *, newer: bool = False, older: bool = False) -> Store:
        """Returns the store as one server sees it."""
        return cast(Store, _RemoteStore(self, machine, _Version(newer, older)))

    def as_projected_by(self, machine: Machine) -> RemoteTables:
        """Returns the tables as one projector reaches them."""
        return cast(RemoteTables, _RemotePart(self, machine, self, PRESENT))

    def is_present(self) -> bool:
        """Whether the database sees a connection of the leader.

        That of a process that has ended is closed. That of a live one may be closed, too: cut off,
        or broken.
        """
        if self.holder is None:
            return False
        machine, boots = self.holder
        if not machine.alive or machine.boots != boots:
            return False
        broken = 0.5 if machine.name in self.unreachable_from else self.fault_mode.failing
        return not self.rng.chance(broken)

    def unreadable_after(self, seq: int) -> bool:
        """Whether an older program that has read up to `seq` cannot read on."""
        fresh = self.loop.true_s - UNPROJECTED_S
        return any(place > seq and at > fresh for place, at in self.newer.items())


class RemoteTables(Protocol):
    """Tables as a projector reaches them."""

    async def progress(self) -> tuple[dict[int, Head], Seq]:
        """Returns how far the shards and the journal are."""
        ...

    async def project(self, believed: Mapping[int, Head], records_max: int) -> bool:
        """Projects records into these shards; False: another projector has."""
        ...


class _Version(NamedTuple):
    """Version of a server, if it is not the present one."""

    newer: bool
    older: bool


PRESENT = _Version(newer=False, older=False)


class _RemoteStore:
    """Store as a server sees it: each part behind a network."""

    def __init__(self, database: Database, machine: Machine, version: _Version) -> None:
        store = database.store
        self.journal = cast(JournalStore, _RemotePart(database, machine, store.journal, version))
        self.queries = cast(QueryStore, _RemotePart(database, machine, store.queries, version))
        self.tokens = store.tokens
        self.hooks = store.hooks
        self.notes = store.notes
        self.logs = store.logs
        self.artifacts = store.artifacts
        self.nodes = store.nodes
        self.durability = store.durability


class _RemotePart:
    """Part of the store: each call on it goes to the database and back."""

    def __init__(self, database: Database, machine: Machine, real: Any, version: _Version) -> None:
        self._database = database
        self._machine = machine
        self._real = real
        self._newer, self._older = version

    @property
    def projection(self) -> ProjectionStatus:
        # Read without a call: every server is told of it.
        return cast(ProjectionStatus, self._real.projection)

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        method = getattr(self._real, name)

        async def call(*args: Any, **named: Any) -> Any:
            return await _RemoteCall(self._database, self._machine, name).go(
                partial(self._work, name, partial(method, *args, **named), args)
            )

        setattr(self, name, call)
        return call

    async def _work(self, name: str, method: Work, args: tuple[Any, ...]) -> Any:
        """Carries the call out; nothing comes between the parts of one that changes something."""
        if not self._newer:
            self._refuse_newer(name, args)
        self._database.damage.note_call(name)
        answer = await method()
        if name == "append" and self._newer:
            self._database.newer[answer.seq] = self._database.loop.true_s
        answer = self._database.damage.note_done(name, args, answer)
        return self._seen(name, answer)

    def _seen(self, name: str, answer: Any) -> Any:
        """Adds to the leader's row whether the database sees its connection."""
        if name == "claim":
            holder = (self._machine, self._machine.boots)
            self._database.holder = None if self._older else holder
        if name == "observe" and answer is not None and not self._older:
            return msgspec.structs.replace(answer, present=self._database.is_present())
        return answer

    def _refuse_newer(self, name: str, args: tuple[Any, ...]) -> None:
        seq = args[0].seq if name == "records_after" else 0
        if name in ("records_after", "load") and self._database.unreadable_after(seq):
            raise NewerRecordError("a newer program wrote it")


class _RemoteCall:
    """Call to the database and back."""

    def __init__(self, database: Database, machine: Machine, name: str) -> None:
        self._database = database
        self._machine = machine
        self._name = name
        self._answer: asyncio.Future[Any] = database.loop.create_future()

    async def go(self, work: Work) -> Any:
        """Returns or raises what the caller gets."""
        self._machine.step()
        self._send(work)
        deadline_s = DEADLINES_S.get(self._name, DEADLINE_S)
        timer = self._database.loop.call_later(deadline_s, self._give_up)
        try:
            return await self._answer
        finally:
            timer.cancel()
            self._answer.cancel()
            self._machine.step()

    def _give_up(self) -> None:
        if not self._answer.done():
            self._answer.set_exception(self._unknown_fate("no answer in time"))

    def _send(self, work: Work) -> None:
        database, rng = self._database, self._database.rng
        fault_mode = database.fault_mode
        if self._machine.name in database.unreachable_from:
            if rng.chance(0.5):
                self._come_back(None, self._unknown_fate("the connection is cut"))
            return
        if rng.chance(fault_mode.failing):
            self._come_back(None, self._unknown_fate("the connection broke on the way there"))
            return
        delay_s = rng.about(fault_mode.delay_s)
        if self._name in WRITES and rng.chance(fault_mode.late):
            delay_s += rng.uniform(0.0, 8.0)
            if rng.chance(0.5):
                self._come_back(None, self._unknown_fate("the connection broke, the call did not"))
        connection = database.damage.connections
        database.loop.after(
            delay_s,
            database.machine,
            lambda: database.machine.spawn(self._carry_out(work, connection)),
        )

    async def _carry_out(self, work: Work, connection: int) -> None:
        database = self._database
        result, error = None, None
        try:
            if database.damage.connections != connection:
                raise self._unknown_fate("the connection broke on the way there")
            if database.fault_mode.full and self._name in GROWS:
                raise StoreFullError("no space left")
            result = await work()
        except Exception as failure:  # noqa: BLE001  (goes to the caller)
            error = failure
        if self._name in WRITES:
            answer = "done" if error is None else "refused"
            called = self._name if error is None else f"{self._name} {type(error).__name__}"
            at = database.loop.true_s
            database.trace.note(at, "store", self._machine.name, answer, unhashed=called)
        if self._machine.name in database.unreachable_from:
            return
        if database.rng.chance(database.fault_mode.losing_answers):
            result, error = None, self._unknown_fate("the connection broke on the way back")
        self._come_back(result, error)

    def _come_back(self, result: Any, error: Exception | None) -> None:
        def arrive() -> None:
            if self._answer.done():
                return
            if error is None:
                self._answer.set_result(result)
            else:
                self._answer.set_exception(error)

        database = self._database
        database.loop.after(database.rng.about(database.fault_mode.delay_s), self._machine, arrive)

    def _unknown_fate(self, why: str) -> StoreError:
        """Makes the error for a lost call: an append may be done, any other can be repeated."""
        kind = UnknownFateError if self._name == "append" else StoreError
        return kind(f"{self._name}: {why}")
