"""Planted bugs (mutants): each switches off one rule that a promise needs; the simulator must find
it.

They are patches from outside, for the length of a run; the product has no switch for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from rota.core import ids, restore, workers
from rota.core.entries import WorkerEntry
from rota.core.jobs import finish, plain, reports, start
from rota.core.outcome import MoveSchedule
from rota.core.recently_finished import RecentlyFinished
from rota.core.scheduler import Scheduler
from rota.core.state import SchedulerState
from rota.engine.callers import Callers
from rota.engine.leadership import LeaderElection
from rota.engine.loop import Engine
from rota.engine.refills import SpillTail
from rota.engine.standby import Standby
from rota.store.batched_lookup import KeyStatus
from rota.store.journal import ChainReader, decode_record, encode_record, next_head
from rota.store.projection import quarantine
from rota.store.projection.shards import Window, job_of, shard_of
from rota.store.protocol import Epoch, Head, JournalRecord, JournalStore, Losses, UnknownFateError
from rota.store.sqlite import journal_store, load, projection
from rota.store.sqlite.journal_store import SqliteJournalStore
from rota.store.sqlite.memory import MemoryJournalStore
from rota.store.sqlite.projection import read_positions
from rota.store.sqlite.query_store import SqliteQueryStore
from rota.worker import session as worker_session
from rota.worker.session import Session

Patch = tuple[object, str, Any]


@dataclass(frozen=True, slots=True)
class Mutant:
    """Planted bug."""

    rule: str
    """The rule that it switches off, for the table."""
    patches: Callable[[], list[Patch]]
    within: int
    """Number of seeds, from 1 on, within which it must be found."""
    profile: str = "all"

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Puts the bug into the product until the block ends."""
        with ExitStack() as stack:
            for owner, name, changed in self.patches():
                stack.callback(setattr, owner, name, owner.__dict__[name])
                setattr(owner, name, changed)
            yield


def _anybody_appends() -> list[Patch]:
    async def append(self: MemoryJournalStore, *record: Any) -> Head:
        epoch, _after, at, writes, *consumed = record
        head = self.land_late(epoch, at, encode_record(writes))
        await self.drop_inbox(*consumed or [()])
        return head

    return [(MemoryJournalStore, "append", append)]


def _stale_reports_count() -> list[Patch]:
    complete, minted = finish.complete_execution, ids.execution_id
    job_of: dict[str, Any] = {}

    def note(job_id: Any, fence: Any, now: Any) -> Any:
        execution_id = minted(job_id, fence, now)
        job_of[execution_id] = job_id
        return execution_id

    def take(t: Any, done: Any, now: Any) -> Any:
        job = t.jobs.get(job_of.get(done.execution_id))
        if done.execution_id not in t.executions and job is not None and job.life.execution_id:
            live = t.executions.get(job.life.execution_id)
            if live is not None:
                done = msgspec.structs.replace(
                    done, execution_id=live.execution.id, fence=live.execution.fence
                )
        return complete(t, done, now)

    modules = (start, plain)
    return [
        *((module, "execution_id", note) for module in modules),
        (reports, "complete_execution", take),
    ]


def _keys_forgotten() -> list[Patch]:
    async def unknown(self: SqliteQueryStore, key: str) -> None:
        return None

    async def none_at_once(self: SqliteQueryStore, key: str) -> KeyStatus:
        return KeyStatus(None, None)

    return [
        (RecentlyFinished, "key", lambda self, key: None),
        (SqliteQueryStore, "key", unknown),
        (SqliteQueryStore, "key_at_once", none_at_once),
    ]


def _released_early() -> list[Patch]:
    consumed = Callers.consumed

    def release_first(self: Callers, outcome: Any) -> list[int]:
        entries = consumed(self, outcome)
        self.release(outcome)
        return entries

    return [(Callers, "consumed", release_first)]


def _no_margins() -> list[Patch]:
    init = SchedulerState.__init__

    def without_grace(self: SchedulerState, timing: Any, *args: Any, **more: Any) -> None:
        init(self, timing, *args, **more)
        self.lease_ms = timing.lease_ttl_ms

    return [(worker_session, "LEASE_MARGIN", 0.0), (SchedulerState, "__init__", without_grace)]


def _lease_from_receipt() -> list[Patch]:
    answered = Session.answered

    def from_now(self: Session, call: Any, answer: Any, now: float) -> Any:
        return answered(self, msgspec.structs.replace(call, sent_at=now), answer, now)

    return [(Session, "answered", from_now)]


def _trusts_for_ever() -> list[Patch]:
    return [(LeaderElection, "trusted", property(lambda self: self._held))]


def _unknown_fate_ignored() -> list[Patch]:
    class TrustingLedger:
        def __init__(self, journal: Any) -> None:
            self._journal = journal

        def __getattr__(self, name: str) -> Any:
            return getattr(self._journal, name)

        async def append(self, *args: Any) -> Head:
            epoch, after, at, writes, *_ = args
            try:
                head: Head = await self._journal.append(*args)
            except UnknownFateError:
                return next_head(after, epoch, at, encode_record(writes))
            return head

    init = Engine.__init__

    def trustingly(self: Engine, *args: Any) -> None:
        init(self, *args)
        self._journal = cast(JournalStore, TrustingLedger(self._journal))

    return [(Engine, "__init__", trustingly)]


def _no_handover() -> list[Patch]:
    modules = (start, workers, restore)
    return [(module, "lease_until_after_failover", lambda t, now: now + 1) for module in modules]


def _starts_repeats() -> list[Patch]:
    take = Session._take

    def forgetful(self: Session, order: Any, granted_at: float, now: float) -> None:
        self._ended.pop(order.execution_id, None)
        take(self, order, granted_at, now)

    return [(Session, "_take", forgetful)]


def _once_runs_again() -> list[Patch]:
    class Never:
        AT_MOST_ONCE = "nothing is"

    return [(finish, "Semantics", Never), (workers, "Semantics", Never)]


def _watermark_unwritten() -> list[Patch]:
    turn = Scheduler.turn

    def forgetful(self: Scheduler, events: Any, now: Any) -> Any:
        outcome = turn(self, events, now)
        outcome.writes[:] = [one for one in outcome.writes if not isinstance(one, MoveSchedule)]
        return outcome

    return [(Scheduler, "turn", forgetful)]


def _memory_kept() -> list[Patch]:
    reset = Engine._reset

    async def stubbornly(self: Engine, error: Exception) -> None:
        kept = self._scheduler
        await reset(self, error)
        if isinstance(error, UnknownFateError) and kept is not None:
            self._scheduler = kept
            self._renewal.start()
            self._open()

    return [(Engine, "_reset", stubbornly)]


def _inbox_emptied_early() -> list[Patch]:
    take_inbox = SqliteJournalStore.take_inbox

    async def take(self: SqliteJournalStore, limit: int, epoch: Epoch) -> Any:
        entries = await take_inbox(self, limit, epoch)
        await self.drop_inbox([entry.id for entry in entries])
        return entries

    return [(SqliteJournalStore, "take_inbox", take)]


def _cancel_presumed() -> list[Patch]:
    ask = finish.request_stop

    def presume(t: Any, entry: Any, kind: Any, now: Any) -> None:
        ask(t, entry, kind, now)
        if kind == "cancel":
            finish.lose_execution(t, entry, now, "presumed to have stopped")

    return [(finish, "request_stop", presume)]


def _prefetched_in_haste() -> list[Patch]:
    take = Session._take

    def at_once(self: Session, order: Any, granted_at: float, now: float) -> None:
        take(self, msgspec.structs.replace(order, behind=None), granted_at, now)

    return [(Session, "_take", at_once)]


def _prefetched_forgotten() -> list[Patch]:
    return [(WorkerEntry, "take_over", lambda self, prefetched_id, amount: None)]


def _load_replays_all() -> list[Patch]:
    def every(records: Any, positions: Any, shards: int) -> list[Any]:
        return [record.writes for record in records]

    return [(load, "writes_due", every)]


def _load_replays_nothing() -> list[Patch]:
    def none(records: Any, positions: Any, shards: int) -> list[Any]:
        return [() for _ in records]

    return [(load, "writes_due", none)]


def _shards_take_all() -> list[Patch]:
    return [(Window, "due", lambda self: [record.writes for record in self.records])]


def _shard_skipped() -> list[Patch]:
    due = Window.due

    def without_last(self: Window) -> list[Any]:
        last = max(self.positions)
        if len(self.positions) == self.shards:
            return due(self)
        return [
            [write for write in writes if shard_of(job_of(write), self.shards) != last]
            for writes in due(self)
        ]

    return [(Window, "due", without_last)]


def _positions_believed() -> list[Patch]:
    project = MemoryJournalStore.project_some

    def trustingly(self: MemoryJournalStore, believed: Any, records_max: int) -> bool:
        there = read_positions(self.connection)
        for shard, head in believed.items():
            self.connection.execute(
                "UPDATE projection_shards SET folded_seq = ?, folded_hash = ? WHERE shard = ?",
                (head.seq, head.hash, shard),
            )
        done = project(self, believed, records_max)
        return done or there != believed

    return [(MemoryJournalStore, "project_some", trustingly)]


def _quarantine_unread() -> list[Patch]:
    return [(load, "read_quarantined_writes", lambda *_: [])]


def _set_aside_dropped() -> list[Patch]:
    set_aside = quarantine.set_aside

    def forget(records: Any, due: Any, known: Any) -> list[Any]:
        set_aside(records, due, known)
        return []

    return [(projection, "set_aside", forget)]


def _reads_do_not_wait() -> list[Patch]:
    async def at_once(self: SqliteQueryStore, read: Any) -> Any:
        return await self._pool.run(read)

    return [(SqliteQueryStore, "_read", at_once)]


def _spill_tail_ignored() -> list[Patch]:
    return [(SpillTail, "complete", lambda self, wanted, read, at: list(read))]


def _bytes_trusted() -> list[Patch]:
    def unverified(self: ChainReader, *row: Any) -> None:
        seq, _epoch, _at, stored, _body = row
        self.head = Head(seq, stored)

    return [(ChainReader, "verify", unverified)]


def _copy_kept() -> list[Patch]:
    def uncompared(after: Head, found: Any, limit: int) -> list[JournalRecord]:
        newer = [row for row in found if row[0] > after.seq]
        return [
            JournalRecord(seq, epoch, at, decode_record(body), digest)
            for seq, epoch, at, digest, body in newer[:limit]
        ]

    return [(journal_store, "follow_chain", uncompared)]


def _appended_blindly() -> list[Patch]:
    append = """
    INSERT INTO journal (seq, epoch, at, body, hash)
    SELECT ?1, ?2, ?3, ?4, ?5 FROM leader WHERE epoch = ?2 AND ?6 IS NOT NULL
    """
    return [(journal_store, "_APPEND", append)]


def _fences_repeated() -> list[Patch]:
    async def no_floor(self: SqliteJournalStore) -> Losses:
        return Losses()

    return [(SqliteJournalStore, "losses", no_floor)]


def _loss_not_said() -> list[Patch]:
    async def silently(self: Standby) -> None:
        self.lineage._heads.clear()

    return [(Standby, "_find_loss", silently)]


MUTANTS = {
    "anybody appends": Mutant(
        "a record at a taken place, or of an epoch that is over, is refused",
        _anybody_appends,
        20,
        "leader",
    ),
    "stale reports count": Mutant(
        "a report under an old fence is refused", _stale_reports_count, 20, "leases"
    ),
    "keys forgotten": Mutant(
        "a key that was used is answered with the first answer", _keys_forgotten, 20
    ),
    "released early": Mutant("effects leave after the commit", _released_early, 20),
    "no margins": Mutant(
        "a worker stops a share of the lease early, the server waits longer",
        _no_margins,
        50,
        "leases",
    ),
    "lease from receipt": Mutant(
        "a lease is counted from the sending of the call", _lease_from_receipt, 50, "leases"
    ),
    "trusts for ever": Mutant(
        "a leader stops answering before another may lead", _trusts_for_ever, 100, "quiet"
    ),
    "unknown fate ignored": Mutant(
        "an append of unknown fate is never taken for done", _unknown_fate_ignored, 20
    ),
    "memory kept": Mutant(
        "memory is thrown away after an append of unknown fate", _memory_kept, 20
    ),
    "no handover": Mutant("a new leader waits for leases it knows nothing of", _no_handover, 20),
    "starts repeats": Mutant("an order that comes twice starts once", _starts_repeats, 20),
    "once runs again": Mutant("a lost at_most_once job is not queued again", _once_runs_again, 20),
    "watermark unwritten": Mutant(
        "how far a schedule has come is written with what it made", _watermark_unwritten, 20
    ),
    "inbox emptied early": Mutant(
        "an inbox entry goes in the same moment as the record that accepts it",
        _inbox_emptied_early,
        50,
        "leader",
    ),
    "cancel presumed": Mutant(
        "a running job is cancelled when its worker says that it stopped", _cancel_presumed, 20
    ),
    "prefetched in haste": Mutant(
        "a prefetched order begins when the one before it has ended",
        _prefetched_in_haste,
        20,
        "ahead",
    ),
    "prefetched forgotten": Mutant(
        "the place of what has ended is the prefetched one's, not free",
        _prefetched_forgotten,
        20,
        "ahead",
    ),
    "load replays all": Mutant(
        "a load replays of each shard only what its tables lack",
        _load_replays_all,
        10,
        "projection",
    ),
    "load replays nothing": Mutant(
        "a load replays what the journal has beyond the tables",
        _load_replays_nothing,
        10,
        "projection",
    ),
    "shards take all": Mutant(
        "a window brings each shard only what it lacks", _shards_take_all, 10, "projection"
    ),
    "shard skipped": Mutant(
        "a shard says how far it is together with its rows", _shard_skipped, 10, "projection"
    ),
    "positions believed": Mutant(
        "a projector goes on from where the tables are, not from where it knew them to be",
        _positions_believed,
        10,
        "projection",
    ),
    "quarantine unread": Mutant(
        "a load applies the writes of jobs in quarantine", _quarantine_unread, 20, "projection"
    ),
    "set aside and dropped": Mutant(
        "later writes of a job in quarantine are kept", _set_aside_dropped, 20, "projection"
    ),
    "reads do not wait": Mutant(
        "a reader sees what was durable before it asked", _reads_do_not_wait, 10, "projection"
    ),
    "spill tail ignored": Mutant(
        "a refill puts newer records over what the tables have",
        _spill_tail_ignored,
        20,
        "projection",
    ),
    "bytes trusted": Mutant(
        "a record is read only if its hash is right", _bytes_trusted, 20, "projection"
    ),
    "copy kept": Mutant(
        "a follower drops its copy when the journal is another one", _copy_kept, 20, "failover"
    ),
    "appended blindly": Mutant(
        "a record follows the one that its writer knows", _appended_blindly, 20, "failover"
    ),
    "fences repeated": Mutant(
        "fences after a loss are higher than all that were lost", _fences_repeated, 20, "failover"
    ),
    "loss not said": Mutant(
        "a server says which records that it knew are lost", _loss_not_said, 20, "failover"
    ),
}
