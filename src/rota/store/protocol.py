"""What the rest of the house may ask of a store: a few small protocols, and no SQL in them."""

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
from rota.core.schedule_model import Calendar, Schedule
from rota.core.trigger_model import BufferedEvent, Trigger
from rota.store.protocols.access import TokenStore
from rota.store.protocols.dropping import Dropped
from rota.store.protocols.durability import Durability
from rota.store.protocols.histories import Histories
from rota.store.protocols.hooks import Hooks
from rota.store.protocols.inbox import Inbox
from rota.store.protocols.key_desk import Keys
from rota.store.protocols.key_desk import KeyStatus as KeyStatus
from rota.store.protocols.logs import LogPage as LogPage
from rota.store.protocols.logs import Logs as Logs
from rota.store.protocols.nodes import Nodes
from rota.store.protocols.notes import Notes
from rota.store.protocols.objects import ObjectIndex
from rota.store.protocols.queries import ExecutionQuery as ExecutionQuery
from rota.store.protocols.queries import JobQuery as JobQuery
from rota.store.protocols.queries import OccurrenceQuery as OccurrenceQuery
from rota.store.protocols.queries import Page as Page
from rota.store.protocols.settings import Settings
from rota.store.protocols.totals import Totals as Totals

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
