"""Simulated server: the real engine behind the real application, on a simulated machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import aiohttp

from rota.alerts.conditions import Sampler
from rota.alerts.evaluator import AlertEvaluator
from rota.alerts.notifier import Notifier
from rota.api.app import AppDeps, create_app
from rota.api.auth.audit_log import AuditLog
from rota.api.auth.authenticator import Access
from rota.api.auth.token_cache import TokenCache
from rota.api.cluster.forward import Forwarder
from rota.api.cluster.leaderless_submit import LeaderlessInbox, SubmittedSpecs
from rota.api.cluster.reach import Reach
from rota.api.deps import FileStores
from rota.api.throttling import Throttle
from rota.core.commands import Timing
from rota.core.model import Millis
from rota.core.outcome import Outcome
from rota.engine.durability import DurabilityMonitor
from rota.engine.health import HealthMonitor
from rota.engine.leadership import CellMember
from rota.engine.limits import PULSE_S
from rota.engine.loop import Engine
from rota.engine.membership import Membership
from rota.engine.metrics import Metrics
from rota.store.documents import Node
from rota.store.files.artifacts import Outputs
from rota.store.files.uploads import Spool
from rota.store.protocol import Head, Losses, Snapshot, Store, StoreError
from rota.store.sqlite.memory import MemoryBlobs
from tests.simtest.clock import SIMULATION, Machine, MachineClock
from tests.simtest.database import Database
from tests.simtest.network import Listener, Network, PeerSession
from tests.simtest.projector import SimulatedProjector
from tests.simtest.rng import Rng

RESTART_S = 0.5
"""A server that could not start is started again after so long."""


class SimulatedMetrics(Metrics):
    """Metrics of a simulated engine; they also check the scheduler's invariants each turn."""

    def __init__(self, server: SimulatedServer) -> None:
        super().__init__()
        self._server = server

    def estimates(self) -> Mapping[str, int]:
        """Returns nothing: no user asks for forecasts."""
        return {}

    def projection_lag_seconds(self) -> float:
        """Returns zero: the in-memory store's tables never lag."""
        return 0.0

    def quarantined_jobs(self) -> int:
        """Returns zero: the in-memory store refuses no write."""
        return 0

    def losses(self) -> Losses:
        """Returns none: the simulated database never fails over."""
        return Losses()

    def processes(self) -> Mapping[str, int]:
        """Returns the one process of a simulated server."""
        return {"main": 1}

    def turn_committed(self, outcome: Outcome) -> None:
        super().turn_committed(outcome)
        self._server.check_memory()


class SimulatedServer:
    """Server machine, on which server processes start and end."""

    def __init__(
        self, machine: Machine, network: Network, database: Database, number: int, rng: Rng
    ) -> None:
        self.machine = machine
        self.projector = SimulatedProjector(
            Machine(f"projector-{number}", machine.rate), database, self._holds_leadership, rng
        )
        self.address = f"http://127.0.0.1:{7000 + number}"
        self.newer = False
        """Whether it runs a program of the next version."""
        self.older = False
        """Whether it runs one of the last version, without step-down requests and promised ids."""
        self.engine: Engine | None = None
        self.ttl_ms: Millis = 3_000
        self.timing = Timing()
        self._network = network
        self._database = database
        self._closing = asyncio.Event()
        network.listeners[self.address] = Listener(machine, None)

    def _holds_leadership(self) -> bool:
        engine = self.engine
        return self.machine.alive and engine is not None and engine._election.is_held

    @property
    def leads(self) -> bool:
        """Whether it leads and decides now."""
        return self.machine.alive and self.engine is not None and self.engine.ready

    def start(self) -> None:
        self.machine.boot()
        self.machine.spawn(self._live())
        self.projector.start()

    def _start_again(self) -> None:
        if not self.machine.alive:
            self.start()

    def die(self) -> None:
        """Kills its process in the middle of its work."""
        self.machine.alive = False
        self.engine = None
        self._network.listeners[self.address].app = None
        self.projector.die()
        self.machine.end_tasks()

    async def stop(self) -> None:
        """Stops it gracefully, as on SIGTERM."""
        engine = self.engine
        self._closing.set()
        if engine is not None:
            await engine.stop()

    def copy(self) -> Snapshot | None:
        """Returns the copy with which it follows the journal, if it has one."""
        standby = None if self.engine is None else self.engine._standby
        if standby is None or standby._copy is None:
            return None
        return standby._copy.snapshot()

    def known_heads(self) -> Sequence[Head]:
        """Returns the ends of the journal that it remembers."""
        return [] if self.engine is None else list(self.engine._standby.lineage._heads)

    def check_memory(self) -> None:
        """Checks the scheduler's invariants."""
        engine = self.engine
        scheduler = None if engine is None else engine._scheduler
        if scheduler is None:
            return
        try:
            scheduler.check()
        except AssertionError as broken:
            self._network.report_bug(f"the memory of {self.machine.name} is wrong: {broken}")

    async def _live(self) -> None:
        clock = MachineClock(self.machine, self._network.loop)
        store = self._database.as_seen_by(self.machine, newer=self.newer, older=self.older)
        member = CellMember(node=self.machine.name, address=self.address, ttl_ms=self.ttl_ms)
        metrics = SimulatedMetrics(self)
        self.engine = engine = Engine(store, clock, self.timing, metrics, member)
        try:
            await engine.start(SubmittedSpecs(clock))
        except StoreError:
            # The process ends; its supervisor starts another.
            self._network.loop.after(RESTART_S, SIMULATION, self._start_again)
            self.die()
            return
        self._closing = asyncio.Event()
        token_cache = TokenCache(store.tokens, clock)
        await token_cache.refresh()
        deps = self._deps(engine, store, metrics, token_cache)
        listener = self._network.listeners[self.address]
        listener.newer, listener.older = self.newer, self.older
        http = cast(aiohttp.ClientSession, PeerSession(self._network, self.machine, listener))
        forwarder = Forwarder(engine, token_cache, member.node, self._closing, http)
        membership = None
        if not self.older:
            membership = Membership(store, engine, Node(node=member.node, address=self.address))
            await membership.start()
            Reach(engine, membership, http)  # its task ends with the machine
        inbox = LeaderlessInbox(store, clock)
        app = create_app(
            replace(deps, forwarder=forwarder, leaderless_inbox=inbox, membership=membership)
        )
        listener.app = app
        while True:
            await asyncio.sleep(PULSE_S)
            engine.pulse()

    def _deps(
        self, engine: Engine, store: Store, metrics: SimulatedMetrics, token_cache: TokenCache
    ) -> AppDeps:
        clock = engine.clock
        return AppDeps(
            brain=engine,
            journal=store.journal,
            queries=store.queries,
            logs=store.logs,
            files=_files(store),
            hooks=store.hooks,
            commits=engine.journal_notifier,
            access=Access(tokens=token_cache, no_auth=True, throttle=Throttle()),
            audit=AuditLog(store.tokens, clock),
            metrics=metrics,
            alerts=AlertEvaluator(
                engine, Sampler(engine, metrics, lambda: None), store.notes, Notifier()
            ),
            node=self.machine.name,
            durability=DurabilityMonitor(store),
            health=HealthMonitor(engine, metrics.projection_lag_seconds),
            version="0.0.0",
            started_at=clock.now(),
            closing=self._closing,
        )


def _files(store: Store) -> FileStores:
    """Makes storage that stays empty: no simulated job has files."""
    blobs = MemoryBlobs()
    outputs = Outputs(store.artifacts, None, blobs)
    return FileStores(spool=Spool(Path(os.devnull)), outputs=outputs, objects=None, blobs=blobs)
