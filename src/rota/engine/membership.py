"""Cell membership: announces this server to the others, measures how far it is behind, and lists
all servers.

A leader also learns whether the others reach it: one that none of them reaches lets another
lead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

import structlog
from msgspec.structs import replace

from rota.core.model import Millis
from rota.engine.beat import beat
from rota.engine.limits import (
    ANNOUNCE_S,
    ENGINE_LIMITS,
    LAG_SAMPLES,
    REACHABILITY_LOOK_S,
    REACHABILITY_SILENT_MS,
    EngineLimits,
)
from rota.engine.ports import Brain
from rota.store.documents import Node, SeenNode
from rota.store.protocol import Store, StoreError

log = structlog.get_logger("rota.engine")


class LagMeter:
    """How long a follower has not had what the journal had: looks at the journal's end now and
    then, and remembers when each end was seen first."""

    def __init__(self) -> None:
        self._ends: deque[tuple[int, Millis]] = deque(maxlen=LAG_SAMPLES)

    def measure(self, end: int, own: int, now: Millis) -> Millis:
        """The journal goes to `end`, this server has `own`."""
        if not self._ends or end > self._ends[-1][0]:
            self._ends.append((end, now))
        while self._ends and self._ends[0][0] <= own:
            self._ends.popleft()
        return now - self._ends[0][1] if self._ends else 0


class Membership:
    """Announces this server every second for as long as it runs."""

    def __init__(
        self, store: Store, brain: Brain, me: Node, limits: EngineLimits = ENGINE_LIMITS
    ) -> None:
        self._limits = limits
        self.announced = me
        """What was said last."""
        self._store = store
        self._brain = brain
        self._meter = LagMeter()
        self._announcing: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._announced_at = self._seen_from = -limits.seen_after_ms
        self._alone_in: int | None = None
        """The reign in which this server looked and saw no other; None: there may be some."""
        self._away = False

    @property
    def is_alone(self) -> bool:
        """This server leads, and there was no other at the last look since it began to."""
        return self._alone_in is not None and self._alone_in == self._brain.epoch

    async def start(self) -> None:
        """Tells at once, and from then on every second."""
        with suppress(StoreError):  # then the next time
            await self.announce()
        self._announcing = asyncio.create_task(self._announce_periodically(), name="rota-presence")
        self._checking = asyncio.create_task(self._check_periodically(), name="rota-pleas")

    async def stop(self) -> None:
        """Says goodbye, if the store still listens."""
        if self._announcing is not None and self._checking is not None:
            self._announcing.cancel()
            self._checking.cancel()
            await asyncio.gather(self._announcing, self._checking, return_exceptions=True)
            with suppress(StoreError):
                await self._store.nodes.leave(self.announced.node)

    async def announce(self) -> None:
        """Measures, and announces."""
        # Whoever leads writes the journal itself, and need not read where it ends.
        end = 0 if self._brain.standing().leads else (await self._store.catalog.head())[1]
        standing = self._brain.standing()
        behind_ms = self._meter.measure(end, standing.seq, self._brain.clock.steady())
        self.announced = replace(
            self.announced,
            leads=standing.leads,
            epoch=standing.epoch,
            seq=standing.seq,
            behind_records=0 if standing.leads else max(0, end - standing.seq),
            behind_ms=0 if standing.leads else behind_ms,
        )
        await self._store.nodes.announce(self.announced)
        now = self._brain.clock.steady()
        if now - self._announced_at >= REACHABILITY_SILENT_MS:
            self._seen_from = now + self._limits.seen_after_ms
        self._announced_at = now

    async def wait_until_seen(self) -> None:
        """Returns when even a leader that believed itself alone knows of this server."""
        await asyncio.sleep(max(0, self._seen_from - self._brain.clock.steady()) / 1000)

    async def report_unreachable(self, epoch: int) -> None:
        """The leader of that epoch does not answer here; 0: it does, or nobody leads."""
        if epoch != self.announced.unreached:
            self.announced = replace(self.announced, unreached=epoch)
            with suppress(StoreError):  # it is said again within a second
                await self._store.nodes.announce(self.announced)

    async def all_nodes(self) -> Sequence[SeenNode]:
        """All servers of the cell, this one as it is now."""
        others = [
            one
            for one in await self._store.nodes.everyone()
            if one.announced.node != self.announced.node
        ]
        return sorted((*others, SeenNode(self.announced, 0)), key=lambda one: one.announced.node)

    async def check_reachability(self) -> None:
        """While this server leads: lets another, if none of the others reaches it any more."""
        standing = self._brain.standing()
        if not standing.leads:
            self._alone_in = None
            return
        others = [
            one.announced
            for one in await self._store.nodes.everyone()
            if one.announced.node != self.announced.node and one.silent_ms < REACHABILITY_SILENT_MS
        ]
        self._alone_in = None if others else standing.epoch
        if others and all(one.unreached == standing.epoch for one in others):
            self._brain.step_aside(standing.epoch)

    async def _check_periodically(self) -> None:
        while True:
            await beat(
                self._limits.reachability_alone_look_s if self.is_alone else REACHABILITY_LOOK_S
            )
            try:
                await self.check_reachability()
            except StoreError:  # then nobody can be heard, and nobody could lead
                self._alone_in = None

    async def _announce_periodically(self) -> None:
        while True:
            await beat(ANNOUNCE_S)
            try:
                await self.announce()
            except StoreError as error:
                if not self._away:
                    log.warning("not_announced", reason=str(error))
                self._away = True
            else:
                self._away = False
