"""Faults of a cluster: each is injected, checked to have hit, repaired, and described in a line."""

from __future__ import annotations

import asyncio
import random
import signal
import threading
import time
from collections.abc import Mapping, Sequence

import asyncpg

from rota.verify.history import FreezePeriod, History
from tests.chaos.chaos_run import Choice, MissedError, WorkerPool, freeze
from tests.chaos.cluster import Cluster, Node, freeze_tree, tree
from tests.chaos.proxy import Mode, Proxy
from tests.postgres.server import PostgresServer

LEASE_S = 4.0
LEADER_TTL_S = 3.0
LOCKED_S = 4.0
"""Longer than a statement of ours waits for a lock."""
GREETING_S = 20.0
BACKENDS = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'rota%' ORDER BY pid"


class Faults:
    def __init__(
        self, cluster: Cluster, worker_pool: WorkerPool, history: History, seed: int
    ) -> None:
        self._cluster = cluster
        self._worker_pool = worker_pool
        self._history = history
        self._rng = random.Random(seed)
        self._servers = threading.Lock()
        """Two faults at once may hit anything, but a server is started by one of them."""
        self._database = threading.Lock()

    def every(self) -> dict[str, Choice]:
        return {**self.servers(), **self.workers(), **self.database()}

    def servers(self) -> Mapping[str, Choice]:
        return {
            "leader killed": Choice(4, lambda: self._end_leader(signal.SIGKILL)),
            "leader stopped": Choice(2, lambda: self._end_leader(signal.SIGTERM)),
            "leader frozen": Choice(3, self._freeze_leader),
            "follower killed": Choice(2, self._kill_follower),
            "all servers killed": Choice(1, self._kill_all),
            "workers cut from the leader": Choice(2, lambda: self._front(Mode.CUT)),
            "workers' words swallowed": Choice(1, lambda: self._front(Mode.HOLE)),
            "leader's answers swallowed": Choice(1, lambda: self._front(Mode.DEAF)),
            "leader cut from the database": Choice(2, lambda: self._back(Mode.CUT)),
            "leader's database silent": Choice(2, lambda: self._back(Mode.HOLE)),
            "leader's database slow": Choice(1, lambda: self._back(Mode.PASS, 0.3)),
        }

    def workers(self) -> Mapping[str, Choice]:
        return {
            "worker killed": Choice(
                4, lambda: self._worker_pool.replace(self._anyone(), signal.SIGKILL)
            ),
            "worker drained": Choice(
                2, lambda: self._worker_pool.replace(self._anyone(), signal.SIGTERM)
            ),
            "worker's agent frozen": Choice(2, self._freeze_agent),
            "worker's machine frozen": Choice(2, self._freeze_machine),
        }

    def database(self) -> Mapping[str, Choice]:
        return {
            "database restarted": Choice(2, lambda: self._restart("fast")),
            "database restarted at once": Choice(2, lambda: self._restart("immediate")),
            "database killed": Choice(1, self._kill_database),
            "database frozen": Choice(1, self._freeze_database),
            "a connection's backend frozen": Choice(2, self._freeze_backend),
            "journal locked": Choice(2, self._lock_journal),
            "connections exhausted": Choice(1, self._exhaust),
        }

    # Servers

    def _leading(self) -> tuple[Node, int]:
        seen = self._cluster.known_leader()
        if seen is None:
            raise MissedError
        return seen

    def _end_leader(self, number: int) -> str:
        with self._servers:
            node, epoch = self._leading()
            return self._end(node, number) + self._wait_for_new_leader(node, epoch)

    def _end(self, node: Node, number: int) -> str:
        daemon = node.daemon
        assert daemon is not None
        daemon.signal(number)
        code = daemon.wait()
        return f"{node.name} ({daemon.pid}) ended with {code}"

    def _wait_for_new_leader(self, node: Node, epoch: int) -> str:
        """Waits for a new leader; then starts the old one again."""
        began = time.monotonic()
        new_leader, newer = self._cluster.leader(after_epoch=epoch)
        seconds = time.monotonic() - began
        self._cluster.start(node)
        return f"; {new_leader.name} led with epoch {newer} after {seconds:.1f} s"

    def _freeze_leader(self) -> str:
        with self._servers:
            node, epoch = self._leading()
            assert node.daemon is not None
            effect = freeze(node.daemon, LEADER_TTL_S * self._rng.uniform(1.5, 2.5))
            new_leader, newer = self._cluster.leader(after_epoch=epoch)
            return f"{node.name}: {effect}; {new_leader.name} led with epoch {newer}"

    def _kill_follower(self) -> str:
        with self._servers:
            node, _ = self._leading()
            others = [one for one in self._cluster.nodes if one is not node]
            follower = self._rng.choice(others)
            effect = self._end(follower, signal.SIGKILL)
            self._cluster.start(follower)
            return effect

    def _kill_all(self) -> str:
        with self._servers:
            effect = [self._end(node, signal.SIGKILL) for node in self._cluster.nodes]
            time.sleep(self._rng.uniform(0.0, LEASE_S))
            self._cluster.start(*self._cluster.nodes)
            new_leader, epoch = self._cluster.leader()
            return f"{'; '.join(effect)}; {new_leader.name} led with epoch {epoch}"

    def _front(self, mode: Mode) -> str:
        node, _ = self._leading()
        seconds = LEASE_S * self._rng.choice((0.4, 2.0))
        before = _hurt([node.front])
        node.front.become(mode)
        time.sleep(seconds)
        node.front.heal()
        if _hurt([node.front]) == before:
            raise MissedError
        return f"{mode} between the others and {node.name} for {seconds:.1f} s"

    def _back(self, mode: Mode, delay_s: float = 0.0) -> str:
        node, epoch = self._leading()
        seconds = LEADER_TTL_S * self._rng.choice((0.3, 2.0))
        before = _hurt(node.backs)
        for back in node.backs:
            back.become(mode, delay_s)
        time.sleep(seconds)
        for back in node.backs:
            back.heal()
        if not delay_s and _hurt(node.backs) == before:
            raise MissedError
        new_leader, newer = self._cluster.leader()
        how = f"{delay_s:g} s late" if delay_s else str(mode)
        return (
            f"{how} between {node.name} and the database for {seconds:.1f} s;"
            f" {new_leader.name} leads, epoch {epoch} became {newer}"
        )

    # Workers

    def _anyone(self) -> int:
        return self._rng.randrange(len(self._worker_pool.members))

    def _freeze_agent(self) -> str:
        """Freezes the agent only: supervisor and jobs continue, and must end by themselves."""
        name, daemon = self._worker_pool.members[self._anyone()]
        return f"{name}: {freeze(daemon, 2.0 * LEASE_S)}"

    def _freeze_machine(self) -> str:
        """Freezes all processes of a worker; the history excuses what they do when they wake."""
        name, daemon = self._worker_pool.members[self._anyone()]
        pids = tree(daemon)
        began, ended = freeze_tree(pids, 2.5 * LEASE_S)
        self._history.freezes.append(FreezePeriod(name, began, ended))
        return f"{name}: {len(pids)} processes stood still for {ended - began:.1f} s"

    # The database

    @property
    def _postgres(self) -> PostgresServer:
        assert isinstance(self._cluster.database_server, PostgresServer), (
            "a pair has faults of its own"
        )
        return self._cluster.database_server

    def _restart(self, mode: str) -> str:
        with self._database:
            before = self._postgres.pid
            self._postgres.stop(mode)
            time.sleep(self._rng.uniform(0.0, 2.0))
            self._postgres.start()
            return f"{mode}: {before} became {self._postgres.pid}{self._led_again()}"

    def _kill_database(self) -> str:
        with self._database:
            before = self._postgres.pid
            self._postgres.kill()
            self._postgres.start()
            return f"{before} and all of it killed{self._led_again()}"

    def _led_again(self) -> str:
        began = time.monotonic()
        new_leader, epoch = self._cluster.leader()
        return f"; {new_leader.name} led with epoch {epoch} after {time.monotonic() - began:.1f} s"

    def _freeze_database(self) -> str:
        with self._database:
            pids = [process.pid for process in self._postgres.processes()]
            began, ended = freeze_tree(pids, LEADER_TTL_S * self._rng.choice((0.5, 2.0)))
            return f"{len(pids)} processes for {ended - began:.1f} s{self._led_again()}"

    def _freeze_backend(self) -> str:
        """Freezes the backend of one connection, which TCP does not notice."""
        with self._database:
            pids = self._postgres.sql(BACKENDS, self._cluster.database).split()
            if not pids:
                raise MissedError
            pid = int(self._rng.choice(pids))
            duty = self._duty(pid)
            freeze_tree([pid], 2.0 * LEADER_TTL_S)
            return f"{duty} ({pid}) stood still{self._led_again()}"

    def _duty(self, pid: int) -> str:
        return self._postgres.sql(
            f"SELECT application_name FROM pg_stat_activity WHERE pid = {pid}"
        )

    def _lock_journal(self) -> str:
        with self._database:
            seconds = LOCKED_S * self._rng.choice((0.3, 1.0))
            asyncio.run(_lock(self._cluster.dsn, seconds))
            return f"for {seconds:.1f} s{self._led_again()}"

    def _exhaust(self) -> str:
        """Takes every free connection, then ends those of the servers."""
        with self._database:
            taken, thrown = asyncio.run(_hog(self._cluster.dsn, LEADER_TTL_S * 1.5))
            return f"{taken} places taken, {thrown} connections thrown off{self._led_again()}"


def _hurt(wires: Sequence[Proxy]) -> int:
    return sum(wire.resets + wire.swallowed for wire in wires)


async def _lock(dsn: str, seconds: float) -> None:
    connection = await asyncpg.connect(dsn, timeout=GREETING_S)
    async with connection.transaction():
        # As a careless migration does; it waits for its turn as long as it must.
        await connection.execute("LOCK TABLE rota.journal IN ACCESS EXCLUSIVE MODE")
        await asyncio.sleep(seconds)
    await connection.close(timeout=5)


async def _hog(dsn: str, seconds: float) -> tuple[int, int]:
    hogs: list[asyncpg.Connection[asyncpg.Record]] = []
    thrown = 0
    until_s = asyncio.get_running_loop().time() + seconds
    try:
        while asyncio.get_running_loop().time() < until_s:
            try:
                hogs.append(await asyncpg.connect(dsn, timeout=GREETING_S))
            except (asyncpg.PostgresError, OSError):
                thrown += await hogs[0].fetchval(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                    " WHERE application_name LIKE 'rota%'"
                )
                await asyncio.sleep(0.1)
    finally:
        for hog in hogs:
            hog.terminate()
    return len(hogs), thrown
