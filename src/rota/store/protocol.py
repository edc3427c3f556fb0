"""The store's protocol: what may be asked of a store, its records and its errors; no SQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import NewType, Protocol

import msgspec

from rota.core.limits import FIFO_GROUP_KEPT
from rota.core.model import (
    Execution,
    ExecutionId,
    Instant,
    JobId,
    JobRecord,
    JobState,
    Queue,
    When,
    Worker,
)
from rota.core.outcome import AnyWrite, Refill
from rota.core.schedule_model import Calendar, Occurrence, Schedule
from rota.core.trigger_model import AcceptedEvent, BufferedEvent, Trigger, TriggerDecision
from rota.store.batched_lookup import Keys
from rota.store.documents import Hooks, Nodes, Notes, Settings
from rota.store.object_index import ObjectIndex
from rota.store.queries import (
    EventQuery,
    ExecutionQuery,
    JobQuery,
    OccurrenceQuery,
    Page,
    Sampled,
    SampleQuery,
    TriggerDecisionQuery,
)
from rota.store.tokens import TokenStore


class Dropped(msgspec.Struct, frozen=True):
    """What one call of `drop_before` did."""

    jobs: int = 0
    """How many went; on PostgreSQL as many as its statistics say."""
    more: bool = False
    """Whether to call again: there may be more that is old enough."""


class DurabilityLevel(StrEnum):
    """What an accepted job survives; later ones survive more."""

    SINGLE = "single"
    """A crash of the one database server there is, if its disk survives."""
    ASYNC_HA = "async-ha"
    """The same; a failover to a replica may lose the last moments."""
    SYNC_HA = "sync-ha"
    """A failover too."""

    @property
    def rank(self) -> int:
        """0, 1, 2: for comparing, and for graphs."""
        return list(DurabilityLevel).index(self)


class Durability(msgspec.Struct, frozen=True):
    """The level, and what should worry an operator about it."""

    level: DurabilityLevel
    warnings: tuple[str, ...] = ()
    system: str = ""
    """The database cluster's own identity."""


ONE_DISK = Durability(DurabilityLevel.SINGLE)
"""Of a store in one directory."""


class Totals(msgspec.Struct, frozen=True):
    """Counts since the beginning, which deleting a job does not lower."""

    submitted: int = 0
    finished: tuple[tuple[str, str, int], ...] = ()
    """(queue, state, how many)."""
    decided: tuple[tuple[str, str, int], ...] = ()
    """(decision, why, how many) of schedules' instants."""
    reacted: tuple[tuple[str, int], ...] = ()
    """(word, how many) of events and what triggers made of them."""


class LogPage(msgspec.Struct, frozen=True):
    """A piece of a log."""

    data: bytes
    next_offset: int
    size: int
    """How many bytes there are so far."""
    dropped: int = 0
    """How many came after the log was full, and were left out."""


class Logs(Protocol):
    """Bulk text of executions; never goes through the journal."""

    async def append(self, execution_id: ExecutionId, offset: int | None, data: bytes) -> int:
        """Adds what is new from `offset` on (None: at the end); answers the size after it.

        Bytes already there are left as they are, so a repeat changes nothing; an offset past the
        end adds nothing and answers the size, so that the sender goes on from there. Bytes past the
        cap are not kept but count in this answer, or the sender would offer them for ever.
        """
        ...

    async def read(self, execution_id: ExecutionId, offset: int, limit: int) -> LogPage:
        """At most `limit` bytes from `offset`."""
        ...

    async def forget(self, execution_ids: Sequence[ExecutionId]) -> None:
        """Removes the logs of these; those that have none are no error."""
        ...


class LogAddition(msgspec.Struct, frozen=True):
    """What an upload adds to a log."""

    kept: bytes
    """Goes to the end of what is stored."""
    dropped: int
    """Came after the log was full."""


class LogExtent(msgspec.Struct, frozen=True):
    """How much of a log was kept and how much was left out since; the sender has seen both."""

    stored: int = 0
    dropped: int = 0

    @property
    def end(self) -> int:
        """Where the sender goes on."""
        return self.stored + self.dropped

    def place(self, offset: int | None, data: bytes, bytes_max: int) -> LogAddition:
        """A repeat brings nothing new; a gap is refused as a whole, so that the sender fills it."""
        start = self.end if offset is None else offset
        if start > self.end:
            return LogAddition(b"", 0)
        fresh = data[self.end - start :]
        room = max(0, bytes_max - self.stored) if self.dropped == 0 else 0
        return LogAddition(fresh[:room], max(0, len(fresh) - room))


class InboxKind(StrEnum):
    """Who wrote an inbox entry, and so what its body is."""

    INPUT = "input"
    """A server without a leader: the body is its own encoding."""
    SPEC = "spec"
    """An application, by SQL: the body is JSON, `{"job_id": …, "spec": {…}}`."""


class InboxEntry(msgspec.Struct, frozen=True):
    """A submission that no leader has seen yet; ids give the order of arrival."""

    id: int
    kind: InboxKind
    body: bytes


class Inbox(Protocol):
    """Entries stay until an append consumes them."""

    async def put_inbox(
        self, body: bytes, key: str | None = None, job_ids: Sequence[JobId] = ()
    ) -> InboxEntry:
        """Keeps a submission for the next leader, durably.

        Answers the entry, or the one that has its key already: then nothing was put.
        """
        ...

    async def take_inbox(self, limit: int) -> list[InboxEntry]:
        """The oldest entries; they stay until an append consumes them."""
        ...

    async def drop_inbox(self, entry_ids: Sequence[int]) -> None:
        """Removes entries that no append will consume."""
        ...

    async def inbox_key(self, key: str) -> InboxEntry | None:
        """The entry that has this key."""
        ...

    async def inbox_job(self, job_id: JobId) -> InboxEntry | None:
        """The entry that a job is in."""
        ...


class Histories(Protocol):
    """The ledgers of schedules and triggers, which outlive whom they are of, and samples."""

    async def find_occurrences(self, query: OccurrenceQuery) -> list[Occurrence]:
        """A page of a schedule's ledger, newest (largest nominal instant) first."""
        ...

    async def accepted_events(self, keys: Sequence[str]) -> list[AcceptedEvent]:
        """Those of these events that were accepted, in no particular order."""
        ...

    async def find_events(self, query: EventQuery) -> list[AcceptedEvent]:
        """A page of accepted events, newest first."""
        ...

    async def find_trigger_decisions(self, query: TriggerDecisionQuery) -> list[TriggerDecision]:
        """A page of a trigger's ledger, newest first."""
        ...

    async def sample_executions(self, query: SampleQuery) -> list[Sampled]:
        """What the first executions of each stretch are, counted; in no particular order.

        Costs what is looked at, however many there are; with a tenant, a look at each one's job.
        """
        ...


Epoch = NewType("Epoch", int)
Seq = NewType("Seq", int)


class StoreError(Exception):
    """The store could not do it; nothing is known to have happened unless a subclass says so."""


class FencedError(StoreError):
    """Another writer took this place in the journal: this one no longer leads."""


class UnknownFateError(StoreError):
    """The append may or may not have happened: read again before deciding anything."""


class StoreFullError(StoreError):
    """No space left; the append did not happen."""


class StoreLockedError(StoreError):
    """Another server uses this data directory."""


class OtherDatabaseError(StoreError):
    """Behind the store's address there is another database than before: nothing here is ours."""


class SchemaError(StoreError):
    """The database's schema is not one this program can use."""


class NewerRecordError(StoreError):
    """The journal has a record that only a newer program understands."""


class TooManyTokensError(StoreError):
    """There are as many live tokens as there may be."""


class Snapshot(msgspec.Struct, frozen=True):
    """Everything that is not finished, as of journal position `seq`."""

    seq: Seq
    jobs: Sequence[JobRecord]
    """Live ones, in order of arrival."""
    executions: Sequence[Execution]
    """Live ones."""
    workers: Sequence[Worker]
    queues: Sequence[Queue]
    next_arrival_number: int
    """One more than the largest `Spec.order` ever given."""
    totals: Totals
    settings: Settings = Settings()
    spill_counts: Sequence[tuple[int, int]] = ()
    """(line, how many jobs are on its shelf); only the first of each line are among `jobs`."""
    schedules: Sequence[Schedule] = ()
    """In order of creation."""
    calendars: Sequence[Calendar] = ()
    triggers: Sequence[Trigger] = ()
    """In order of creation."""
    buffered_events: Sequence[BufferedEvent] = ()
    """In order of arrival."""


class LeaderRow(msgspec.Struct, frozen=True):
    """Who leads. Whoever sees two equal rows a TTL apart has seen a leader that is gone."""

    holder: str
    """Empty: the last leader resigned, or there never was one."""
    epoch: Epoch
    nonce: int
    """Another one after every claim, renewal and resignation."""
    address: str = ""
    """Where the others reach the holder."""
    present: bool | None = None
    """Whether the holder's own connection to the store is there; None: nobody can tell."""


class JournalRecord(msgspec.Struct, frozen=True):
    """One record, as a follower reads it."""

    seq: Seq
    epoch: Epoch
    at: Instant
    writes: Sequence[AnyWrite]


class Leadership(Protocol):
    """Who may append. Safety comes from the journal's places; this only says who should try."""

    async def observe(self) -> LeaderRow | None:
        """The row as it is; None if nobody ever claimed."""
        ...

    async def claim(self, holder: str, seen: LeaderRow | None = None, address: str = "") -> Epoch:
        """Opens a new epoch; whoever held an older one can append no more.

        With `seen`, only if the row is still as it was then; else raises FencedError.
        """
        ...

    async def renew(self, epoch: Epoch) -> bool:
        """Writes, durably, that the holder of `epoch` is alive; False: it no longer leads."""
        ...

    async def resign(self, epoch: Epoch) -> None:
        """Lets the next one lead at once; no effect if `epoch` is already over."""
        ...


class JournalStore(Leadership, Inbox, Protocol):
    """The engine's side: the journal."""

    @property
    def projected(self) -> Seq:
        """The newest record that is in the tables."""
        ...

    def deciding(self) -> None:
        """A turn begins: what this store does beside the loop, and can wait, gives way to it."""
        ...

    async def load(self, kept: int = FIFO_GROUP_KEPT) -> Snapshot:
        """Folds what is left to fold, then reads all that is live.

        Of what is on the shelf, the first `kept` jobs of each line.
        """
        ...

    async def read_spilled(
        self, wanted: Sequence[Refill], seen: Seq
    ) -> list[tuple[JobRecord, ...]]:
        """The next jobs of each line, in order of arrival, as of record `seen` or a later one."""
        ...

    async def append(
        self,
        epoch: Epoch,
        seq: Seq,
        at: Instant,
        writes: Sequence[AnyWrite],
        consumed: Sequence[int] = (),
    ) -> None:
        """Durable when it returns. Raises FencedError, UnknownFateError or StoreFullError.

        `consumed` are inbox entries these writes accept: they go in the same moment.
        """
        ...

    async def records_after(self, seq: Seq, limit: int) -> list[JournalRecord]:
        """The next at most `limit` records after `seq`, for a follower's memory."""
        ...

    async def close(self) -> None:
        """Gives everything back."""
        ...


class Direction(StrEnum):
    """Which neighbours of a job in the dependency graph."""

    UPSTREAM = "upstream"
    DOWNSTREAM = "downstream"


class Edge(msgspec.Struct, frozen=True):
    """`child` waits for `parent`."""

    parent: JobId
    child: JobId
    when: When


class Change(msgspec.Struct, frozen=True):
    """One write, with its place: record `seq`, number `index` in it."""

    seq: Seq
    index: int
    at: Instant
    write: AnyWrite


class Outline(msgspec.Struct, frozen=True):
    """What a job is called and where it is: all that a picture of thousands needs."""

    id: JobId
    state: JobState
    queue: str
    tenant: str
    name: str


class QueryStore(Histories, Keys, Protocol):
    """The readers' side: every call sees all that was appended before it was made."""

    async def jobs(self, job_ids: Sequence[JobId]) -> list[JobRecord]:
        """Those that exist, in any state, in no particular order."""
        ...

    async def outlines(self, job_ids: Sequence[JobId]) -> list[Outline]:
        """The same without what may be large."""
        ...

    async def find_jobs(self, query: JobQuery) -> Page[JobRecord]:
        """A page, newest (largest id) first."""
        ...

    async def find_job_ids(self, query: JobQuery) -> Page[JobId]:
        """The ids of a page, for whoever counts, or reads the jobs piece by piece."""
        ...

    async def count_jobs(self, tenant: str) -> dict[JobState, int]:
        """How many jobs of a tenant are in which state; counts no further than a bound."""
        ...

    async def executions(self, execution_ids: Sequence[ExecutionId]) -> list[Execution]:
        """Those that exist."""
        ...

    async def find_executions(self, query: ExecutionQuery) -> Page[Execution]:
        """A page, newest (largest id) first."""
        ...

    async def edges(self, job_ids: Sequence[JobId], direction: Direction) -> list[Edge]:
        """All dependencies that lead into or out of these jobs."""
        ...

    async def changes_after(self, seq: Seq, limit: int) -> list[Change]:
        """All changes of the next at most `limit` journal records after `seq`."""
        ...

    async def head(self) -> tuple[Seq, Seq]:
        """The oldest and the newest journal position kept; (0, 0) before the first append."""
        ...


class ArtifactError(StoreError):
    """The artifact was refused; nothing of it was kept."""


class ArtifactNameError(ArtifactError):
    """The name could not be a plain file name everywhere."""


class ArtifactTooLargeError(ArtifactError):
    """More bytes came than an artifact may have."""


class Artifact(msgspec.Struct, frozen=True):
    """An output file of an execution."""

    name: str
    size: int


class Artifacts(Protocol):
    """Output files of executions; never go through the journal."""

    async def write(
        self, execution_id: ExecutionId, name: str, stream: AsyncIterator[bytes], bytes_max: int
    ) -> Artifact:
        """Keeps a file, in place of one of the same name. All of it is there, or nothing is."""
        ...

    async def list(self, execution_id: ExecutionId) -> Sequence[Artifact]:
        """What was kept, by name."""
        ...

    async def list_each(self, execution_ids: Sequence[ExecutionId]) -> Sequence[Sequence[Artifact]]:
        """The same of many, each in its place."""
        ...

    async def read(self, execution_id: ExecutionId, name: str) -> AsyncIterator[bytes] | None:
        """The content in pieces; None if there is no such file."""
        ...

    async def forget(self, execution_ids: Sequence[ExecutionId]) -> None:
        """Removes all files of these; those that have none are no error."""
        ...


class Store(Protocol):
    """Everything that is remembered, under one roof."""

    @property
    def ledger(self) -> JournalStore:
        """For the engine."""
        ...

    @property
    def catalog(self) -> QueryStore:
        """For readers."""
        ...

    @property
    def logs(self) -> Logs:
        """For what jobs print."""
        ...

    @property
    def artifacts(self) -> Artifacts:
        """For what jobs leave behind."""
        ...

    @property
    def objects(self) -> ObjectIndex:
        """For what is in object storage."""
        ...

    @property
    def hooks(self) -> Hooks:
        """For who may send webhooks."""
        ...

    @property
    def notes(self) -> Notes:
        """For what is set beside the journal."""
        ...

    @property
    def access(self) -> TokenStore:
        """For tokens and the audit trail."""
        ...

    @property
    def nodes(self) -> Nodes:
        """For the servers that share it."""
        ...

    async def durability(self) -> Durability:
        """What a commit is worth now; refuses a database that takes no writes."""
        ...

    async def name_cell(self, name: str) -> str:
        """The cell's name ("": it has none). The first one given stays, another is refused."""
        ...

    async def drop_before(self, before: Instant) -> Dropped:
        """Drops a bounded part of the work that ended before then, with all that is its own.

        What is live, or ended since, stays; what goes may stay up to a day longer than asked.
        """
        ...

    async def close(self) -> None:
        """Gives everything back, the ledger too."""
        ...


class CellNameError(StoreError):
    """The store is another cell than the one that was named."""


def agreed_cell_name(known: str, given: str) -> str:
    """The cell's name; refuses a server that thinks it serves another."""
    if given not in ("", known):
        raise CellNameError(
            f"this store is the cell {known!r} and stays so, for its ids carry that name:"
            f" start this server with --cell {known}, or give the cell {given!r} a store of its own"
        )
    return known
