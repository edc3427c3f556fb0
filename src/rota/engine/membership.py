"""Cell membership: announces this server to the others, measures how far it is behind the journal,
and lists all servers.

A leader also learns whether the other servers reach it; one that no other reaches steps down.
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
    """Measures for how long a follower has been behind the journal.

    It remembers when each end of the journal was seen first.
    """

    def __init__(self) -> None:
        self._ends: deque[tuple[int, Millis]] = deque(maxlen=LAG_SAMPLES)

    def measure(self, end: int, own: int, now: Millis) -> Millis:
        """Returns the lag when the journal ends at `end` and this server has read up to `own`."""
        if not self._ends or end > self._ends[-1][0]:
            self._ends.append((end, now))
        while self._ends and self._ends[0][0] <= own:
            self._ends.popleft()
        return now - self._ends[0][1] if self._ends else 0


class Membership:
    """Announces this server to its cell every second, and checks that a leader is reachable."""

    def __init__(
        self, store: Store, brain: Brain, me: Node, limits: EngineLimits = ENGINE_LIMITS
    ) -> None:
        self._limits = limits
        self.announced = me
        """The newest announcement."""
        self._store = store
        self._brain = brain
        self._meter = LagMeter()
        self._announcing: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._announced_at = self._seen_from = -limits.seen_after_ms
        self._alone_in: int | None = None
        """The epoch in which this leader saw no other server; None: there may be some."""
        self._store_away = False

    @property
    def is_alone(self) -> bool:
        """Whether this server leads and has seen no other server at its last check."""
        return self._alone_in is not None and self._alone_in == self._brain.epoch

    async def start(self) -> None:
        """Announces it at once, then every second."""
        with suppress(StoreError):  # the next announcement makes up for it
            await self.announce()
        self._announcing = asyncio.create_task(self._announce_periodically(), name="rota-announce")
        self._checking = asyncio.create_task(self._check_periodically(), name="rota-reachability")

    async def stop(self) -> None:
        """Removes the announcement, if the store can be reached."""
        if self._announcing is not None and self._checking is not None:
            self._announcing.cancel()
            self._checking.cancel()
            await asyncio.gather(self._announcing, self._checking, return_exceptions=True)
            with suppress(StoreError):
                await self._store.nodes.leave(self.announced.node)

    async def announce(self) -> None:
        # The leader writes the journal itself and need not read where it ends.
        end = 0 if self._brain.standing().leads else (await self._store.queries.head())[1]
        status = self._brain.standing()
        behind_ms = self._meter.measure(end, status.seq, self._brain.clock.steady())
        self.announced = replace(
            self.announced,
            leads=status.leads,
            epoch=status.epoch,
            seq=status.seq,
            behind_records=0 if status.leads else max(0, end - status.seq),
            behind_ms=0 if status.leads else behind_ms,
        )
        await self._store.nodes.announce(self.announced)
        now = self._brain.clock.steady()
        if now - self._announced_at >= REACHABILITY_SILENT_MS:
            self._seen_from = now + self._limits.seen_after_ms
        self._announced_at = now

    async def wait_until_seen(self) -> None:
        """Waits until also a leader that believed itself alone must have seen this server."""
        await asyncio.sleep(max(0, self._seen_from - self._brain.clock.steady()) / 1000)

    async def report_unreachable(self, epoch: int) -> None:
        """Announces that the leader of `epoch` does not answer; 0: it does, or there is none."""
        if epoch != self.announced.unreached:
            self.announced = replace(self.announced, unreached=epoch)
            with suppress(StoreError):  # it is announced again within a second
                await self._store.nodes.announce(self.announced)

    async def all_nodes(self) -> Sequence[SeenNode]:
        """Returns all servers of the cell, this one as it is now."""
        others = [
            one
            for one in await self._store.nodes.everyone()
            if one.announced.node != self.announced.node
        ]
        return sorted((*others, SeenNode(self.announced, 0)), key=lambda one: one.announced.node)

    async def check_reachability(self) -> None:
        """Steps down if this server leads and no other server reaches it any more."""
        status = self._brain.standing()
        if not status.leads:
            self._alone_in = None
            return
        others = [
            one.announced
            for one in await self._store.nodes.everyone()
            if one.announced.node != self.announced.node and one.silent_ms < REACHABILITY_SILENT_MS
        ]
        self._alone_in = None if others else status.epoch
        if others and all(one.unreached == status.epoch for one in others):
            self._brain.step_aside(status.epoch)

    async def _check_periodically(self) -> None:
        while True:
            await beat(
                self._limits.reachability_alone_look_s if self.is_alone else REACHABILITY_LOOK_S
            )
            try:
                await self.check_reachability()
            except StoreError:  # then no announcement can be read, and no other server could lead
                self._alone_in = None

    async def _announce_periodically(self) -> None:
        while True:
            await beat(ANNOUNCE_S)
            try:
                await self.announce()
            except StoreError as error:
                if not self._store_away:
                    log.warning("server_not_announced", reason=str(error))
                self._store_away = True
            else:
                self._store_away = False
