"""Dependencies of the API: the parts of the server it uses, and its state between requests.

`AppDeps` has the engine, the store and the rest of the server; `RequestState` has caches and
concurrency limits, which are lost with the process.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from rota.alerts.evaluator import AlertEvaluator
from rota.api.auth.audit_log import AuditLog
from rota.api.auth.authenticator import Access
from rota.api.cluster.leaderless_submit import LeaderlessInbox
from rota.api.ids import IdMint
from rota.api.limits import (
    API_LIMITS,
    BULK_REMEMBERED_MAX,
    LONG_PAGES_AT_ONCE,
    SIMULATIONS_MAX,
    STREAM_READS_AT_ONCE,
    STREAMS_MAX,
    TENANTS_REMEMBERED_MAX,
    USAGE_KINDS_MAX,
    USAGE_WORKERS_MAX,
    ApiLimits,
)
from rota.api.metrics import EngineMetrics, MetricsHistory
from rota.api.throttling import BodyBudget, ConnectionLimit
from rota.core.commands import Key
from rota.core.model import ExecutionId, Instant, WorkerId
from rota.engine.durability import DurabilityMonitor
from rota.engine.health import HealthMonitor
from rota.engine.membership import Membership
from rota.engine.ports import Brain
from rota.store.documents import Hooks
from rota.store.files.artifacts import Outputs
from rota.store.files.blobs import Blobs
from rota.store.files.uploads import Spool
from rota.store.object_index import ObjectIndex
from rota.store.protocol import JournalStore, Logs, QueryStore
from rota.traces.spans import PASS_THROUGH, TracePropagator
from rota.wire.jobs import BulkAnswer
from rota.wire.problems import ProblemError
from rota.wire.service import AttentionView

if TYPE_CHECKING:
    from rota.api.cluster.forward import Forwarder


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStores:
    """Stores of uploaded files, output files (artifacts) and bundles."""

    spool: Spool
    outputs: Outputs
    objects: ObjectIndex | None
    """Index of bundles; None in a simulation, which has no files."""
    blobs: Blobs
    """Content of bundles."""
    warnings: tuple[str, ...] = ()
    """Warnings for the operator about where files are stored."""


class LogNotifier:
    """Notifies readers that follow an execution's log of new text."""

    def __init__(self) -> None:
        self._listeners: dict[ExecutionId, list[asyncio.Event]] = {}

    def notify(self, execution_id: ExecutionId) -> None:
        for event in self._listeners.get(execution_id, ()):
            event.set()

    @contextmanager
    def subscribed(self, execution_id: ExecutionId) -> Iterator[asyncio.Event]:
        """Yields an event set at each new text.

        The reader clears it before it reads, so that it misses nothing.
        """
        event = asyncio.Event()
        self._listeners.setdefault(execution_id, []).append(event)
        try:
            yield event
        finally:
            self._listeners[execution_id].remove(event)
            if not self._listeners[execution_id]:
                del self._listeners[execution_id]


class CommitNotifier(Protocol):
    """Tells when a newer journal record is durable."""

    async def wait_beyond(self, seq: int) -> int:
        """Returns the newest committed sequence number once it is larger than `seq`."""
        ...


class SimulatorError(Exception):
    """Simulation that cannot run or took too long; the text says why, and what to do."""


class Simulator(Protocol):
    """Runs a simulation in another process, bounded in time and memory."""

    async def run(self, study: bytes) -> bytes:
        """Takes a `Study`, returns a `SimulationView`, both as JSON; raises SimulatorError."""
        ...


@dataclass(frozen=True, kw_only=True)
class AppDeps:
    """Dependencies of the API: engine, store, access, metrics and the other parts of the server."""

    brain: Brain
    journal: JournalStore
    queries: QueryStore
    logs: Logs
    files: FileStores
    hooks: Hooks
    commits: CommitNotifier
    access: Access
    audit: AuditLog
    metrics: EngineMetrics
    alerts: AlertEvaluator
    node: str
    """Name of this server in the cell."""
    durability: DurabilityMonitor
    """Watches what a commit of the store is worth."""
    health: HealthMonitor
    """Knows why this server cannot make progress."""
    version: str
    started_at: Instant
    limits: ApiLimits = API_LIMITS
    naming: TracePropagator = PASS_THROUGH
    """Names executions in traces."""
    disk_free: Callable[[], int | None] = lambda: None
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server shuts down: streams and waiting polls end."""
    cell: str = ""
    """Name of the cell, which is part of its ids."""
    forwarder: Forwarder | None = None
    """Forwards calls to the leader; None: this is the only server."""
    leaderless_inbox: LeaderlessInbox | None = None
    """Takes submissions while no server leads; None: this is the only server."""
    membership: Membership | None = None
    """Servers of the cell; None: this is the only server."""
    metrics_history: MetricsHistory | None = None
    """Recent metrics for the overview; None: not recorded."""
    connections: ConnectionLimit = field(default_factory=ConnectionLimit)
    """Open connections of clients."""
    simulator: Simulator | None = None
    """Runs simulations; None: not available on this server."""


class WorkerUsage:
    """Last usage that each worker reported; never stored, so lost with the process."""

    def __init__(self) -> None:
        self._by_worker: OrderedDict[WorkerId, dict[str, float]] = OrderedDict()

    def record(self, worker_id: WorkerId, usage: Mapping[str, Any]) -> None:
        """Keeps a report; the worker whose report is oldest is forgotten first."""
        if not usage:
            return
        figures = {
            kind: float(value)
            for kind, value in list(usage.items())[:USAGE_KINDS_MAX]
            if isinstance(value, int | float) and len(kind) <= 64 and kind.isprintable()
        }
        self._by_worker[worker_id] = figures
        self._by_worker.move_to_end(worker_id)
        if len(self._by_worker) > USAGE_WORKERS_MAX:
            self._by_worker.popitem(last=False)

    def of(self, worker_id: WorkerId) -> dict[str, float]:
        return self._by_worker.get(worker_id, {})

    def forget(self, worker_id: WorkerId) -> None:
        self._by_worker.pop(worker_id, None)


class ConcurrencyLimit:
    """Limits how many long calls run at the same time, so that they cannot take the whole
    server."""

    def __init__(
        self,
        limit: int = STREAMS_MAX,
        code: str = "too_many_streams",
        taken: str = "streams are open already: close one, or ask again later",
    ) -> None:
        self._limit = limit
        self._code = code
        self._full = f"{limit} {taken}"
        self._taken = 0

    def check(self) -> None:
        """Refuses the next call if the limit is reached."""
        if self._taken >= self._limit:
            raise ProblemError(
                429,
                self._code,
                self._full,
                headers={"Retry-After": "5"},
            )

    @contextmanager
    def acquired(self) -> Iterator[None]:
        """Counts one call for as long as the context lasts."""
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1


class BulkMemory:
    """Remembers answers of bulk actions by idempotency key.

    A bulk action is many inputs, so the journal has no answer for it.
    """

    def __init__(self) -> None:
        self._answers: OrderedDict[str, tuple[str, BulkAnswer]] = OrderedDict()

    def recall(self, key: Key) -> BulkAnswer | None:
        """Returns the first answer, if this key was used before."""
        fingerprint, answer = self._answers.get(key.key, ("", None))
        if answer is not None and fingerprint != key.fingerprint:
            detail = f"the idempotency key {key.key!r} was used for another request"
            raise ProblemError(409, "idempotency_key_reused", detail)
        return answer

    def keep(self, key: Key, answer: BulkAnswer) -> None:
        """Remembers an answer; the oldest is forgotten first."""
        self._answers[key.key] = (key.fingerprint, answer)
        if len(self._answers) > BULK_REMEMBERED_MAX:
            self._answers.popitem(last=False)


class TenantCache:
    """Cache of the tenants of jobs, schedules and triggers, for the streams of tenants.

    The least recently recorded are forgotten.
    """

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, str] = OrderedDict()

    def record(self, thing_id: str, tenant: str) -> None:
        self._tenants[thing_id] = tenant
        self._tenants.move_to_end(thing_id)
        if len(self._tenants) > TENANTS_REMEMBERED_MAX:
            self._tenants.popitem(last=False)

    def of(self, thing_id: str) -> str | None:
        return self._tenants.get(thing_id)


@dataclass
class AnswerCache:
    """Cache of answers that are the same for everybody, with the steady milliseconds they were made
    at."""

    digest: bytes | None = None
    digest_at: int = 0
    attention: AttentionView | None = None
    attention_at: int = 0


@dataclass(frozen=True)
class RequestState:
    """State that the API keeps between calls: caches, concurrency limits and notifiers."""

    ids: IdMint = field(default_factory=IdMint)
    usage: WorkerUsage = field(default_factory=WorkerUsage)
    streams: ConcurrencyLimit = field(default_factory=ConcurrencyLimit)
    simulations: ConcurrencyLimit = field(
        default_factory=lambda: ConcurrencyLimit(
            SIMULATIONS_MAX, "too_many_simulations", "simulation is under way: ask again later"
        )
    )
    bulk: BulkMemory = field(default_factory=BulkMemory)
    log_notifier: LogNotifier = field(default_factory=LogNotifier)
    tenants: TenantCache = field(default_factory=TenantCache)
    answers: AnswerCache = field(default_factory=AnswerCache)
    body_budget: BodyBudget = field(default_factory=BodyBudget)
    long_pages: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(LONG_PAGES_AT_ONCE)
    )
    stream_reads: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(STREAM_READS_AT_ONCE)
    )
