"""Simulated projector of a server: a process of its own that keeps the tables up to date.

It does as `store/postgres/projector.py` does: the one of the leader's server projects, another one
stands in when the tables have not moved for a while. It projects some of the shards at a time and
few records, so that shards are at different records most of the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rota.store.limits import PROJECTION_RETRY_S, PROJECTION_STAND_IN_S, PROJECTION_WATCH_S
from rota.store.protocol import Head, StoreError
from tests.simtest.clock import Machine
from tests.simtest.database import SHARDS, Database
from tests.simtest.rng import Rng

PAUSE_S = 0.1
"""Longest pause of a projector that projects."""
RECORDS = (1, 2, 3, 5, 20, 200)
"""How many records it projects at once."""
KEEPS_POSITIONS = 0.2
"""Share of its steps after which it does not look how far the tables are."""
ALL_SHARDS = 0.5
"""Share of its steps in which it projects all shards."""


class SimulatedProjector:
    """Projector of one server, which starts and dies with it, or alone."""

    def __init__(
        self, machine: Machine, database: Database, leads: Callable[[], bool], rng: Rng
    ) -> None:
        self.machine = machine
        self.machine.alive = False
        self.is_eager = False
        """Whether it projects though another one does."""
        self._database = database
        self._tables = database.as_projected_by(machine)
        self._leads = leads
        self._rng = rng
        self._positions: dict[int, Head] = {}
        """How far it believes the shards to be; empty: it must look."""
        self._seen: dict[int, Head] = {}
        """How far they were when it looked last."""
        self._advanced_at = 0.0
        self._stands_in = False

    def start(self) -> None:
        if not self.machine.alive:
            self.machine.boot()
            self._positions, self._stands_in = {}, False
            self.machine.spawn(self._live())

    def die(self) -> None:
        """Kills its process in the middle of its work."""
        self.machine.alive = False
        self.machine.end_tasks()

    @property
    def _projects(self) -> bool:
        return self.is_eager or self._stands_in or self._leads()

    async def _live(self) -> None:
        while True:
            pause_s = self._rng.uniform(0.0, PAUSE_S) if self._projects else PROJECTION_WATCH_S
            await asyncio.sleep(pause_s)
            # The leader tells its projector of each record: an idle one need not ask.
            if not self._database.lags:
                self._stands_in, self._seen = False, {}
                continue
            try:
                await self._look()
            except StoreError:
                self._positions = {}
                await asyncio.sleep(PROJECTION_RETRY_S)

    async def _look(self) -> None:
        if not self._positions or not self._projects:
            self._positions, _ = await self._tables.progress()
            self._judge_others()
        if self._projects and not await self._tables.project(
            self._some_shards(), self._rng.choice(RECORDS)
        ):
            self._stands_in, self._positions = False, {}
        # Mostly it looks again; at times it goes on with what it knew.
        if not self._rng.chance(KEEPS_POSITIONS):
            self._positions = {}

    def _judge_others(self) -> None:
        """Stands in for another projector if the tables have not moved for too long."""
        now = asyncio.get_running_loop().time()
        if self._positions != self._seen:
            self._seen, self._advanced_at = self._positions, now
        if self._leads():
            self._stands_in = False
        elif now - self._advanced_at >= PROJECTION_STAND_IN_S:
            self._stands_in = True

    def _some_shards(self) -> dict[int, Head]:
        if self._rng.chance(ALL_SHARDS):
            return self._positions
        chosen = self._rng.sample(range(SHARDS), self._rng.randint(1, SHARDS - 1))
        return {shard: self._positions[shard] for shard in chosen}
