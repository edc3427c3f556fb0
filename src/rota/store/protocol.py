"""Protocols of the store, and the records and errors that they speak of; no SQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
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
from rota.store.errors import StoreError as StoreError
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

Epoch = NewType("Epoch", int)
Seq = NewType("Seq", int)


class Dropped(msgspec.Struct, frozen=True):
    """Result of one call of `drop_before`."""

    jobs: int = 0
    """How many were dropped; on PostgreSQL an estimate from its statistics."""
    more: bool = False
    """Whether to call again: there may be more that is old enough."""


class DurabilityLevel(StrEnum):
    """Level of durability: what an accepted job survives. Later ones survive more."""

    SINGLE = "single"
    """A crash of the one database server there is, if its disk survives."""
    ASYNC_HA = "async-ha"
    """The same; a failover to a replica may lose the last moments."""
    SYNC_HA = "sync-ha"
    """A failover too."""

    @property
    def rank(self) -> int:
        """0, 1 or 2, for comparing and for metrics."""
        return list(DurabilityLevel).index(self)


class Durability(msgspec.Struct, frozen=True):
    """Durability of commits: the level, and warnings for the operator."""

    level: DurabilityLevel
    warnings: tuple[str, ...] = ()
    system: str = ""
    """The identifier of the database cluster."""


ONE_DISK = Durability(DurabilityLevel.SINGLE)
"""The durability of a store in one directory."""


class Totals(msgspec.Struct, frozen=True):
    """Counts since the beginning, which deleting a job does not lower."""

    submitted: int = 0
    finished: tuple[tuple[str, str, int], ...] = ()
    """(queue, state, how many)."""
    decided: tuple[tuple[str, str, int], ...] = ()
    """(decision, skip reason, how many) of schedules' instants."""
    reacted: tuple[tuple[str, int], ...] = ()
    """(`accepted`, `repeated` or a decision, how many) of events and triggers."""


class LogPage(msgspec.Struct, frozen=True):
    """A piece of a log."""

    data: bytes
    next_offset: int
    size: int
    """How many bytes there are so far."""
    dropped: int = 0
    """How many bytes came after the log was full, and were left out."""


class Logs(Protocol):
    """Logs of executions; they never go through the journal."""

    async def append(self, execution_id: ExecutionId, offset: int | None, data: bytes) -> int:
        """Adds what is new from `offset` on (None: at the end); returns the size after it.

        Bytes already there are left as they are, so a repeat changes nothing. An offset past the
        end adds nothing and returns the size, so that the sender goes on from there. Bytes past the
        limit are not kept but count in this size, or the sender would offer them for ever.
        """
        ...

    async def read(self, execution_id: ExecutionId, offset: int, limit: int) -> LogPage:
        """Returns at most `limit` bytes from `offset`."""
        ...

    async def forget(self, execution_ids: Sequence[ExecutionId]) -> None:
        """Removes the logs of these; those that have none are no error."""
        ...


class LogAddition(msgspec.Struct, frozen=True):
    """Part of an upload that a log keeps."""

    kept: bytes
    """To be added at the end of what is stored."""
    dropped: int
    """How many bytes came after the log was full."""


class LogExtent(msgspec.Struct, frozen=True):
    """Extent of a log: bytes stored, and bytes dropped since it was full."""

    stored: int = 0
    dropped: int = 0

    @property
    def end(self) -> int:
        """The offset from which the sender goes on."""
        return self.stored + self.dropped

    def place(self, offset: int | None, data: bytes, bytes_max: int) -> LogAddition:
        """Returns what of `data` is new. A gap is refused as a whole, so that the sender fills
        it."""
        start = self.end if offset is None else offset
        if start > self.end:
            return LogAddition(b"", 0)
        fresh = data[self.end - start :]
        free = max(0, bytes_max - self.stored) if self.dropped == 0 else 0
        return LogAddition(fresh[:free], max(0, len(fresh) - free))


class InboxKind(StrEnum):
    """Kind of an inbox entry: who wrote it, and so how its body is encoded."""

    INPUT = "input"
    """A server without a leader: the body is a `Submit` as MessagePack, by the names of its
    fields."""
    SPEC = "spec"
    """An application, by SQL: the body is JSON, `{"job_id": …, "spec": {…}}`."""


class InboxEntry(msgspec.Struct, frozen=True):
    """Submission that no leader has accepted yet; ids give the order of arrival."""

    id: int
    kind: str
    """An InboxKind, or one that only a newer program knows."""
    body: bytes
    job_ids: tuple[JobId, ...] = ()
    """The jobs in it, as its submitter knows them; empty if nobody does."""
    failures: int = 0
    """How many turns that had this entry among their inputs have failed."""
    reason: str = ""
    """Why it was set aside, by this leader or an earlier one."""
    is_refused: bool = False
    """Whether it was set aside for good: only the job that shows the reason is missing."""
    is_too_large: bool = False
    """Whether the body was left out, because no server would have put one so large."""


class Inbox(Protocol):
    """Durable inbox for the next leader; an entry stays until an append consumes it."""

    async def put_inbox(
        self, body: bytes, key: str | None = None, job_ids: Sequence[JobId] = ()
    ) -> InboxEntry:
        """Keeps a submission for the next leader, durably.

        Returns the entry, or the one that has its key already: then nothing was put.
        """
        ...

    async def take_inbox(self, limit: int, epoch: Epoch | None = None) -> list[InboxEntry]:
        """Returns the oldest entries; they stay until an append consumes them.

        Returns fewer than `limit` if their bodies are large, and none that was set aside in
        `epoch`.
        """
        ...

    async def set_aside_inbox(
        self, reasons: Mapping[int, str], at: Instant, epoch: Epoch | None = None
    ) -> None:
        """Keeps, for their submitters, the reasons why entries cannot be accepted.

        The entries stay until they are consumed or dropped. With `epoch`, they are not taken in
        that epoch any more; without, they are about to be consumed or dropped. Reasons of entries
        that are gone are removed when they are old, or too many.
        """
        ...

    async def count_inbox_failures(self, entry_ids: Sequence[int]) -> None:
        """Counts that a turn with these entries among its inputs failed."""
        ...

    async def drop_inbox(self, entry_ids: Sequence[int]) -> None:
        """Removes entries that no append will consume."""
        ...

    async def inbox_key(self, key: str) -> InboxEntry | None:
        """Returns the entry that has this key."""
        ...

    async def inbox_job(self, job_id: JobId) -> InboxEntry | None:
        """Returns the entry that a job is in."""
        ...


class Histories(Protocol):
    """Histories of schedules and triggers, which outlive both, and samples of executions."""

    async def find_occurrences(self, query: OccurrenceQuery) -> list[Occurrence]:
        """Returns a page of a schedule's occurrences, newest (largest nominal instant) first."""
        ...

    async def accepted_events(self, keys: Sequence[str]) -> list[AcceptedEvent]:
        """Returns those of these events that were accepted, in no particular order."""
        ...

    async def find_events(self, query: EventQuery) -> list[AcceptedEvent]:
        """Returns a page of accepted events, newest first."""
        ...

    async def find_trigger_decisions(self, query: TriggerDecisionQuery) -> list[TriggerDecision]:
        """Returns a page of a trigger's decisions, newest first."""
        ...

    async def sample_executions(self, query: SampleQuery) -> list[Sampled]:
        """Counts the first executions of each range of ids, in no particular order.

        Costs as much as the samples have, however many executions there are; with a tenant, a
        lookup of each one's job as well.
        """
        ...


class Head(msgspec.Struct, frozen=True, gc=False):
    """End of the journal: its newest position, and the hash of all records up to there."""

    seq: Seq
    hash: bytes


GENESIS = Head(Seq(0), bytes(16))
"""Head of an empty journal."""


class FencedError(StoreError):
    """Raised when another writer has taken this position in the journal: this one leads no more."""


class UnknownFateError(StoreError):
    """Raised when the append may or may not have happened: read again before deciding anything."""


class StoreFullError(StoreError):
    """Raised when no space is left; the append did not happen."""


class DivergedError(StoreError):
    """Raised when the journal is not the one that was read before: a failover lost or replaced
    records, or they are damaged. What was read is void: read again from the start."""


class TablesBehindError(StoreError):
    """Raised when a read would wait too long for the projection: try again a little later."""


class StoreLockedError(StoreError):
    """Raised when another server uses this data directory."""


class OtherDatabaseError(StoreError):
    """Raised when the store's address leads to another database than before."""


class SchemaError(StoreError):
    """Raised when this program cannot use the database's schema."""


class NewerRecordError(StoreError):
    """Raised when the journal has a record that only a newer program understands."""


class TooManyTokensError(StoreError):
    """Raised when there are as many live tokens as there may be."""


class TokenTakenError(StoreError):
    """Raised when there is a token with this digest, or with an id that ends alike."""


class Snapshot(msgspec.Struct, frozen=True):
    """Snapshot of everything that is not finished, as of the journal's position `head`."""

    head: Head
    jobs: Sequence[JobRecord]
    """Live ones, in order of arrival."""
    executions: Sequence[Execution]
    """Live ones."""
    workers: Sequence[Worker]
    queues: Sequence[Queue]
    next_arrival_number: int
    """One more than the largest `Spec.arrival_number` ever given."""
    totals: Totals
    settings: Settings = Settings()
    spill_counts: Sequence[tuple[int, int]] = ()
    """(spill queue, how many jobs are in it); only the first of each are among `jobs`."""
    schedules: Sequence[Schedule] = ()
    """In order of creation."""
    calendars: Sequence[Calendar] = ()
    triggers: Sequence[Trigger] = ()
    """In order of creation."""
    buffered_events: Sequence[BufferedEvent] = ()
    """In order of arrival."""
    damaged: Sequence[tuple[str, str]] = ()
    """(kind, key) of damaged rows, which are left out."""
    fence_floor: int = 0
    """No execution that a lost record may have named has a higher fence."""
    tail: Sequence[JournalRecord] = ()
    """The newest records, which not all tables have; only where jobs are spilled."""

    @property
    def seq(self) -> Seq:
        """The newest record in it."""
        return self.head.seq


FENCES_PER_LOSS = 1 << 32
"""How much each loss raises the fences of later executions: more than a job ever starts."""


class Loss(msgspec.Struct, frozen=True):
    """Loss of records by a failover of the database, as it was noticed."""

    at: Instant
    records: int
    """How many were lost, as far as any server knows; 0: none is known, but some may be."""
    after: Seq
    """The newest record that was there when it was noticed."""


class Losses(msgspec.Struct, frozen=True):
    """Records that failovers of the database have lost."""

    fence_floor: int = 0
    """Fences of later executions are higher than this."""
    each: tuple[Loss, ...] = ()
    """The oldest first."""

    @property
    def records(self) -> int:
        """How many records were lost, as far as any server knows."""
        return sum(loss.records for loss in self.each)


class SpilledJobs(msgspec.Struct, frozen=True):
    """Jobs of spill queues as the tables have them."""

    jobs: Sequence[tuple[JobRecord, ...]]
    """The next ones of each spill queue that was asked for."""
    positions: Sequence[Seq]
    """How far each shard of the projection is."""
    damaged: Sequence[tuple[int, ...]] = ()
    """Arrival numbers of jobs among them whose rows are damaged, for each spill queue."""


class LeaderRow(msgspec.Struct, frozen=True):
    """Row of leader election: who leads. If it stays the same for a TTL, the leader is gone."""

    holder: str
    """Empty: the last leader resigned, or there never was one."""
    epoch: Epoch
    nonce: int
    """Differs after every claim, renewal and resignation."""
    address: str = ""
    """Where other servers reach the holder."""
    present: bool | None = None
    """Whether the holder's own connection to the store is there; None: nobody can tell."""


class JournalRecord(msgspec.Struct, frozen=True):
    """One record, as a follower reads it."""

    seq: Seq
    epoch: Epoch
    at: Instant
    writes: Sequence[AnyWrite]
    hash: bytes

    @property
    def head(self) -> Head:
        """The journal's end when this record was the newest."""
        return Head(self.seq, self.hash)


class StoredRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One record as it is stored."""

    seq: Seq
    epoch: Epoch
    at: Instant
    hash: bytes
    body: bytes


class Leadership(Protocol):
    """Leader election: says who should append. Safety comes from the journal's positions."""

    async def observe(self) -> LeaderRow | None:
        """Returns the row as it is; None if nobody ever claimed."""
        ...

    async def claim(self, holder: str, seen: LeaderRow | None = None, address: str = "") -> Epoch:
        """Opens a new epoch; the holder of an older one can append no more.

        With `seen`, only if the row is still as it was then; else raises FencedError.
        """
        ...

    async def renew(self, epoch: Epoch) -> bool:
        """Writes, durably, that the holder of `epoch` is alive; False: it no longer leads."""
        ...

    async def resign(self, epoch: Epoch) -> None:
        """Lets another server lead at once; no effect if `epoch` is already over."""
        ...


class ProjectionStatus(msgspec.Struct, frozen=True):
    """Status of the projection: how far the tables are, and what is wrong with them."""

    projected: Seq = Seq(0)
    """The newest record that all tables have."""
    quarantined: int = 0
    """How many jobs are set aside because their writes cannot be projected."""
    trouble: str = ""
    """The reason why it cannot go on; empty: it can."""


class ShownWrite(msgspec.Struct, frozen=True):
    """Write of a job in quarantine, to be shown to an operator."""

    seq: Seq
    size: int
    """Bytes as it is stored."""
    write: AnyWrite | None
    """None: it is too large to be shown."""


class QuarantinedWork(msgspec.Struct, frozen=True):
    """Job in quarantine, with the first of its writes that were set aside."""

    job_id: JobId
    seq: Seq
    """The record whose writes could not be projected."""
    at: Instant
    reason: str
    count: int
    """How many writes are set aside."""
    writes: Sequence[ShownWrite] = ()


class QuarantineStore(Protocol):
    """Jobs that are set aside because their writes cannot be projected."""

    async def quarantine(self) -> list[QuarantinedWork]:
        """Returns all of them, by job id."""
        ...

    async def repair(self, job_ids: Sequence[JobId] = ()) -> dict[JobId, str]:
        """Projects again what was set aside of these jobs, or of all if none is named.

        Returns by job why it failed, empty if it did not. A job that failed stays set aside.
        """
        ...


class JournalStore(Leadership, Inbox, QuarantineStore, Protocol):
    """Journal of the cell, as the engine uses it."""

    @property
    def projection(self) -> ProjectionStatus:
        """Status of the projection, as far as this server knows."""
        ...

    async def load(self, kept: int = FIFO_GROUP_KEPT) -> Snapshot:
        """Reads all that is live: what is in the tables, and in memory what the newer records
        change. Never waits for the projection.

        Of what is spilled, the first `kept` jobs of each spill queue.
        """
        ...

    async def read_spilled(self, wanted: Sequence[Refill]) -> SpilledJobs:
        """Returns the next jobs of each spill queue, in order of arrival, as the tables have
        them.

        Damaged rows do not count against the limit: with fewer jobs, the spill queue has ended.
        """
        ...

    async def append(
        self,
        epoch: Epoch,
        after: Head,
        at: Instant,
        writes: Sequence[AnyWrite],
        consumed: Sequence[int] = (),
    ) -> Head:
        """Appends a record after `after`; durable when it returns the new head. Raises FencedError,
        DivergedError, UnknownFateError or StoreFullError.

        `consumed` are inbox entries that these writes accept: they are removed with it.
        """
        ...

    async def records_after(self, after: Head, limit: int) -> list[JournalRecord]:
        """Returns the next at most `limit` records, for a follower's memory.

        Raises DivergedError if the journal does not have `after` any more.
        """
        ...

    async def heads(self, seqs: Sequence[Seq]) -> dict[Seq, bytes]:
        """Returns the hashes at those of these positions that the journal still has."""
        ...

    async def note_loss(self, loss: Loss) -> None:
        """Records that a failover lost records; from then on no fence repeats a lost one."""
        ...

    async def losses(self) -> Losses:
        """Returns all recorded losses."""
        ...

    async def close(self) -> None:
        """Closes all files and connections."""
        ...


class Direction(StrEnum):
    """Direction in the dependency graph, seen from a job."""

    UPSTREAM = "upstream"
    DOWNSTREAM = "downstream"


class Edge(msgspec.Struct, frozen=True):
    """Edge of the dependency graph: `child` waits for `parent`."""

    parent: JobId
    child: JobId
    when: When


class Change(msgspec.Struct, frozen=True):
    """One write, with its position: record `seq`, number `index` in it."""

    seq: Seq
    index: int
    at: Instant
    write: AnyWrite


class Outline(msgspec.Struct, frozen=True):
    """Name and state of a job: all that a picture of thousands needs."""

    id: JobId
    state: JobState
    queue: str
    tenant: str
    name: str


class QueryStore(Histories, Keys, Protocol):
    """Queries of the tables; every call sees all that was appended before it was made."""

    async def jobs(self, job_ids: Sequence[JobId]) -> list[JobRecord]:
        """Returns those that exist, in any state, in no particular order."""
        ...

    async def outlines(self, job_ids: Sequence[JobId]) -> list[Outline]:
        """Returns the same without what may be large."""
        ...

    async def find_jobs(self, query: JobQuery) -> Page[JobRecord]:
        """Returns a page, newest (largest id) first."""
        ...

    async def find_job_ids(self, query: JobQuery) -> Page[JobId]:
        """Returns the ids of a page, to count jobs or to read them piece by piece."""
        ...

    async def count_jobs(self, tenant: str) -> dict[JobState, int]:
        """Counts jobs of a tenant by state, up to a limit."""
        ...

    async def executions(self, execution_ids: Sequence[ExecutionId]) -> list[Execution]:
        """Returns those that exist."""
        ...

    async def find_executions(self, query: ExecutionQuery) -> Page[Execution]:
        """Returns a page, newest (largest id) first."""
        ...

    async def edges(self, job_ids: Sequence[JobId], direction: Direction) -> list[Edge]:
        """Returns all dependencies that lead into or out of these jobs."""
        ...

    async def changes_after(self, seq: Seq, limit: int) -> list[Change]:
        """Returns all changes of the next at most `limit` journal records after `seq`."""
        ...

    async def head(self) -> tuple[Seq, Seq]:
        """Returns the oldest and the newest journal position kept; (0, 0) if it is empty."""
        ...


class ArtifactError(StoreError):
    """Raised when an artifact was refused; nothing of it was kept."""


class ArtifactNameError(ArtifactError):
    """Raised when a name could not be a plain file name everywhere."""


class ArtifactTooLargeError(ArtifactError):
    """Raised when more bytes came than an artifact may have."""


class Artifact(msgspec.Struct, frozen=True):
    """Output file of an execution."""

    name: str
    size: int


class Artifacts(Protocol):
    """Output files of executions; they never go through the journal."""

    async def write(
        self, execution_id: ExecutionId, name: str, stream: AsyncIterator[bytes], bytes_max: int
    ) -> Artifact:
        """Keeps a file, in place of one of the same name. All of it is there, or nothing is."""
        ...

    async def list(self, execution_id: ExecutionId) -> Sequence[Artifact]:
        """Returns what was kept, by name."""
        ...

    async def list_each(self, execution_ids: Sequence[ExecutionId]) -> Sequence[Sequence[Artifact]]:
        """Returns the same for each of many, in the order given."""
        ...

    async def read(self, execution_id: ExecutionId, name: str) -> AsyncIterator[bytes] | None:
        """Returns the content in pieces; None if there is no such file."""
        ...

    async def forget(self, execution_ids: Sequence[ExecutionId]) -> None:
        """Removes all files of these; those that have none are no error."""
        ...


class Store(Protocol):
    """Store of a cell: the journal, the tables derived from it, and what is kept beside it."""

    @property
    def journal(self) -> JournalStore:
        """The journal, leader election and the inbox, for the engine."""
        ...

    @property
    def queries(self) -> QueryStore:
        """Queries of the tables, for readers."""
        ...

    @property
    def logs(self) -> Logs:
        """Output of jobs."""
        ...

    @property
    def artifacts(self) -> Artifacts:
        """Output files of jobs."""
        ...

    @property
    def objects(self) -> ObjectIndex:
        """References to object storage."""
        ...

    @property
    def hooks(self) -> Hooks:
        """Webhook endpoints."""
        ...

    @property
    def notes(self) -> Notes:
        """Settings that are kept beside the journal."""
        ...

    @property
    def tokens(self) -> TokenStore:
        """Access tokens and the audit log."""
        ...

    @property
    def nodes(self) -> Nodes:
        """Servers that share this store."""
        ...

    async def durability(self) -> Durability:
        """Returns what a commit survives now; refuses a database that takes no writes."""
        ...

    async def name_cell(self, name: str) -> str:
        """Names the cell if it has no name, and returns its name ("": none); refuses another
        one."""
        ...

    async def drop_before(self, before: Instant) -> Dropped:
        """Drops a bounded part of the work that ended before then, with its logs and files.

        What is live, or ended since, stays; what is dropped may stay a day longer than asked.
        """
        ...

    async def close(self) -> None:
        """Closes all files and connections, the journal's too."""
        ...


class CellNameError(StoreError):
    """Raised when the store belongs to another cell than the one that was named."""


def agreed_cell_name(known: str, given: str) -> str:
    """Returns the cell's name; refuses a server that was given another."""
    if given not in ("", known):
        raise CellNameError(
            f"this store is the cell {known!r}, and its ids carry that name:"
            f" start this server with --cell {known}, or give the cell {given!r} a store of its own"
        )
    return known
