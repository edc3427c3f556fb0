"""Simulated database, as each server reaches it: slow, away, full, or losing its answers.

Behind it is the in-memory store, which passes the same conformance tests as the others. A call goes
there, is carried out, and its answer comes back; each way can fail. A call that was sent is carried
out even if its sender is dead by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import msgspec

from rota.store.protocol import (
    JournalStore,
    NewerRecordError,
    ProjectionStatus,
    QueryStore,
    Store,
    StoreError,
    StoreFullError,
    UnknownFateError,
)
from rota.store.sqlite.memory import MemoryStore
from tests.simtest.clock import Machine, VirtualLoop
from tests.simtest.rng import Rng
from tests.simtest.trace import Trace

WRITES = (
    *("append", "claim", "renew", "resign", "put_inbox", "drop_inbox"),
    *("set_aside_inbox", "count_inbox_failures"),
)
GROWS = ("append", "put_inbox", "set_aside_inbox")
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


@dataclass(slots=True)
class Database:
    """Database that all servers share."""

    loop: VirtualLoop
    rng: Rng
    trace: Trace
    store: MemoryStore = field(default_factory=MemoryStore)
    machine: Machine = field(default_factory=lambda: Machine("database"))
    fault_mode: FaultMode = field(default_factory=FaultMode)
    unreachable_from: dict[str, int] = field(default_factory=dict)
    """Machines that cannot reach it, with the number of faults that cause it."""
    holder: tuple[Machine, int] | None = None
    """Machine and boot of the last claim; None: an older server's, whose connection is hidden."""
    newer: dict[int, float] = field(default_factory=dict)
    """Journal records that only newer programs can read, with the time of writing."""

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


class _Version(NamedTuple):
    """Version of a server, if it is not the present one."""

    newer: bool
    older: bool


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
        # Read without a call: every server keeps this for itself.
        return cast(ProjectionStatus, self._real.projection)

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        method = getattr(self._real, name)

        async def call(*args: Any, **named: Any) -> Any:
            def work() -> Any:
                if not self._newer:
                    self._refuse_newer(name, args)
                return self._seen(name, _at_once(method(*args, **named)))

            return await _RemoteCall(self._database, self._machine, name).go(
                self._noting(name, work)
            )

        setattr(self, name, call)
        return call

    def _seen(self, name: str, answer: Any) -> Any:
        """Adds to the leader's row whether the database sees its connection."""
        if name == "claim":
            holder = (self._machine, self._machine.boots)
            self._database.holder = None if self._older else holder
        if name == "observe" and answer is not None and not self._older:
            return msgspec.structs.replace(answer, present=self._database.is_present())
        return answer

    def _noting(self, name: str, work: Callable[[], Any]) -> Callable[[], Any]:
        """Remembers which records only newer programs can read."""
        if name != "append" or not self._newer:
            return work

        def append() -> Any:
            head = work()
            self._database.newer[head.seq] = self._database.loop.true_s
            return head

        return append

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

    async def go(self, work: Callable[[], Any]) -> Any:
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

    def _send(self, work: Callable[[], Any]) -> None:
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
        database.loop.after(delay_s, database.machine, lambda: self._carry_out(work))

    def _carry_out(self, work: Callable[[], Any]) -> None:
        database = self._database
        result, error = None, None
        try:
            if database.fault_mode.full and self._name in GROWS:
                raise StoreFullError("no space left")
            result = work()
        except StoreError as refusal:
            error = refusal
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


def _at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine that never waits: a call of the in-memory store."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the in-memory store waited")
