"""Fault injection: injects the planned faults into a cluster, and heals them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rota.verify.history import FreezePeriod
from tests.simtest.clock import Machine
from tests.simtest.database import SHARDS, FaultMode
from tests.simtest.network import NetworkConditions
from tests.simtest.plan import Fault
from tests.simtest.rng import Rng, rng_for
from tests.simtest.server import SimulatedServer
from tests.simtest.worker import SimulatedWorker

if TYPE_CHECKING:
    from tests.simtest.cluster import Cluster

Heal = Callable[[], None]
LOST_RECORDS_MAX = 5
"""Records that a failover of the database loses at most."""


class Nemesis:
    """Injects faults at the planned moments; every fault has its end."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._loop = cluster.loop
        self._injections: dict[str, Callable[[Rng, float], Heal]] = {
            "server killed": self._kill_server,
            "server dies at its next step": self._crash_server_at_step,
            "server frozen": self._freeze_server,
            "server stopped in order": self._stop_server,
            "server's clock set": self._set_clock,
            "server upgraded": self._upgrade,
            "worker loses power": lambda rng, _: self._down(self._worker(rng), SimulatedWorker.die),
            "worker dies at its next step": self._crash_worker_at_step,
            "job's machine dies at its next word": self._crash_supervisor_at_step,
            "agent killed": lambda rng, _: self._down(
                self._worker(rng), SimulatedWorker.lose_agent
            ),
            "agent frozen": lambda rng, _: self._freeze(self._worker(rng).machine),
            "supervisor frozen": lambda rng, _: self._freeze_worker(self._worker(rng), whole=False),
            "worker frozen": lambda rng, _: self._freeze_worker(self._worker(rng), whole=True),
            "worker drained": self._drain,
            "cut between server and worker": self._cut_worker,
            "worker not heard": self._not_heard,
            "worker hears nothing": self._hears_nothing,
            "worker hears late, then nothing": self._late_then_nothing,
            "cut between servers": self._cut_servers,
            "cut between client and server": self._cut_client,
            "server alone": self._isolate,
            "server without database": self._cut_store,
            "database away": self._store_away,
            "database slow": self._store_slow,
            "database forgetful": self._lose_answers,
            "database late": self._store_late,
            "disk full": self._disk_full,
            "network storm": self._storm,
            "network stalls": self._stalls,
            "requests doubled": self._doubling,
            **self._projection_faults(),
        }

    def _projection_faults(self) -> dict[str, Callable[[Rng, float], Heal]]:
        return {
            "projector killed": self._kill_projector,
            "projector frozen": lambda rng, _: self._freeze(self._server(rng).projector.machine),
            "two projectors at once": self._double_projector,
            "projector far behind": lambda rng, _: self._hold(tuple(range(SHARDS))),
            "one shard behind": lambda rng, _: self._hold((rng.randrange(SHARDS),)),
            "poison entry": self._poison,
            "bytes flipped": self._flip,
            "database fails over": self._fail_over,
        }

    def schedule(self, fault: Fault) -> None:
        self._loop.after(fault.at_s, self._cluster.simulation, lambda: self._inject(fault))

    def _inject(self, fault: Fault) -> None:
        rng = rng_for(self._cluster.plan.seed, "strike", fault.number)
        self._cluster.trace.note(self._loop.true_s, "fault", fault.number, unhashed=fault.kind)
        heal = self._injections[fault.kind](rng, fault.for_s)
        self._loop.after(fault.for_s, self._cluster.simulation, heal)

    # Targets

    def _server(self, rng: Rng) -> SimulatedServer:
        chosen = rng.choice(self._cluster.servers)
        if rng.chance(self._cluster.plan.options.leader_bias):
            return next((one for one in self._cluster.servers if one.leads), chosen)
        return chosen

    def _worker(self, rng: Rng) -> SimulatedWorker:
        return rng.choice(self._cluster.workers)

    # Processes

    def _down(self, worker: SimulatedWorker, how: Callable[[SimulatedWorker], None]) -> Heal:
        how(worker)
        return lambda: self._cluster.revive_worker(worker)

    def _kill_server(self, rng: Rng, for_s: float) -> Heal:
        server = self._server(rng)
        server.die()
        return lambda: self._cluster.revive_server(server)

    def _crash_server_at_step(self, rng: Rng, for_s: float) -> Heal:
        server = self._server(rng)
        server.machine.crash_at = (server.machine.steps + rng.randint(1, 40), server.die)
        return lambda: self._cluster.revive_server(server)

    def _freeze_server(self, rng: Rng, for_s: float) -> Heal:
        return self._freeze(self._server(rng).machine)

    def _stop_server(self, rng: Rng, for_s: float) -> Heal:
        self._cluster.restart_server(self._server(rng), for_s)
        return _nothing

    def _upgrade(self, rng: Rng, for_s: float) -> Heal:
        """Restarts one server as a newer program."""
        server = self._server(rng)
        server.newer, server.older = True, False
        self._cluster.restart_server(server, for_s)
        return _nothing

    def _set_clock(self, rng: Rng, for_s: float) -> Heal:
        machine = self._server(rng).machine
        by_ms = rng.randint(-60_000, 60_000)
        machine.set_by_ms += by_ms

        def set_right() -> None:
            machine.set_by_ms -= by_ms

        return set_right

    def _crash_worker_at_step(self, rng: Rng, for_s: float) -> Heal:
        worker = self._worker(rng)
        worker.machine.crash_at = (worker.machine.steps + rng.randint(1, 12), worker.lose_agent)
        return lambda: self._cluster.revive_worker(worker)

    def _crash_supervisor_at_step(self, rng: Rng, for_s: float) -> Heal:
        worker = self._worker(rng)
        worker.supervisor.crash_at = (worker.supervisor.steps + rng.randint(1, 12), worker.die)
        return lambda: self._cluster.revive_worker(worker)

    def _drain(self, rng: Rng, for_s: float) -> Heal:
        self._worker(rng).drain()
        return _nothing

    def _freeze(self, machine: Machine) -> Heal:
        self._loop.freeze(machine)
        return lambda: self._loop.thaw(machine)

    def _freeze_worker(self, worker: SimulatedWorker, *, whole: bool) -> Heal:
        """Freezes the supervisor with its jobs; with `whole` the agent, too."""
        began = self._loop.true_s
        self._loop.freeze(worker.supervisor)
        if whole:
            self._loop.freeze(worker.machine)

        def thaw() -> None:
            freeze = FreezePeriod(worker.machine.name, began, self._loop.true_s)
            self._cluster.history.freezes.append(freeze)
            self._loop.thaw(worker.supervisor)
            self._loop.thaw(worker.machine)

        return thaw

    # Connections

    def _cut(self, *ways: tuple[str, str]) -> Heal:
        for source, target in ways:
            self._cluster.network.cut(source, target)

        def heal() -> None:
            for source, target in ways:
                self._cluster.network.heal(source, target)

        return heal

    def _cut_worker(self, rng: Rng, for_s: float) -> Heal:
        one, other = self._server(rng).machine.name, self._worker(rng).machine.name
        return self._cut((one, other), (other, one))

    def _not_heard(self, rng: Rng, for_s: float) -> Heal:
        """Cuts all ways from a worker: it hears others, they do not hear it."""
        worker = self._worker(rng).machine.name
        return self._cut(*((worker, server.machine.name) for server in self._cluster.servers))

    def _hears_nothing(self, rng: Rng, for_s: float) -> Heal:
        """Cuts all ways to a worker."""
        worker = self._worker(rng).machine.name
        return self._cut(*((server.machine.name, worker) for server in self._cluster.servers))

    def _late_then_nothing(self, rng: Rng, for_s: float) -> Heal:
        """Delays answers to one worker, then cuts them: the worst case for a lease."""
        worker = self._worker(rng).machine.name
        network, late_s = self._cluster.network, rng.uniform(0.5, 3.0)
        network.late_to[worker] = late_s
        names = [server.machine.name for server in self._cluster.servers]
        heals: list[Heal] = []

        def cut() -> None:
            network.late_to.pop(worker, None)
            heals.append(self._cut(*((name, worker) for name in names)))

        def heal() -> None:
            for one in heals:
                one()

        self._loop.after(min(for_s / 2, 2 * late_s), self._cluster.simulation, cut)
        return heal

    def _cut_servers(self, rng: Rng, for_s: float) -> Heal:
        one, other = (
            self._server(rng).machine.name,
            rng.choice(self._cluster.servers).machine.name,
        )
        return self._cut((one, other), (other, one))

    def _cut_client(self, rng: Rng, for_s: float) -> Heal:
        server = self._server(rng).machine.name
        return self._cut(("client", server), (server, "client"))

    def _isolate(self, rng: Rng, for_s: float) -> Heal:
        """Cuts a server off from all but the database."""
        name = self._server(rng).machine.name
        others = [machine.name for machine in self._cluster.machines() if machine.name != name]
        return self._cut(*((name, other) for other in others), *((one, name) for one in others))

    # The database

    def _cut_store(self, rng: Rng, for_s: float) -> Heal:
        return self._cut_from_store([self._server(rng)])

    def _store_away(self, rng: Rng, for_s: float) -> Heal:
        return self._cut_from_store(self._cluster.servers)

    def _cut_from_store(self, servers: Sequence[SimulatedServer]) -> Heal:
        """Cuts servers, with their projectors, from the database."""
        machines = [one for server in servers for one in (server.machine, server.projector.machine)]
        names = [machine.name for machine in machines]
        for name in names:
            self._cluster.database.cut(name)

        def heal() -> None:
            for name in names:
                self._cluster.database.heal(name)

        return heal

    def _store_slow(self, rng: Rng, for_s: float) -> Heal:
        self._cluster.database.fault_mode.delay_s = rng.choice((0.05, 0.3, 1.0))
        return self._heal_store

    def _lose_answers(self, rng: Rng, for_s: float) -> Heal:
        fault_mode = self._cluster.database.fault_mode
        fault_mode.failing, fault_mode.losing_answers = (
            rng.uniform(0.0, 0.2),
            rng.uniform(0.05, 0.3),
        )
        return self._heal_store

    def _store_late(self, rng: Rng, for_s: float) -> Heal:
        self._cluster.database.fault_mode.late = rng.uniform(0.05, 0.3)
        return self._heal_store

    def _disk_full(self, rng: Rng, for_s: float) -> Heal:
        self._cluster.database.fault_mode.full = True
        return self._heal_store

    def _heal_store(self) -> None:
        self._cluster.database.fault_mode = FaultMode()

    def _fail_over(self, rng: Rng, for_s: float) -> Heal:
        self._cluster.fail_over(rng.randint(0, LOST_RECORDS_MAX))
        return _nothing

    def _flip(self, rng: Rng, for_s: float) -> Heal:
        self._cluster.database.damage.flip_next()
        return self._cluster.database.damage.mend

    # The projection

    def _kill_projector(self, rng: Rng, for_s: float) -> Heal:
        server = self._server(rng)
        server.projector.die()

        def start() -> None:
            if server.machine.alive:
                server.projector.start()

        return start

    def _double_projector(self, rng: Rng, for_s: float) -> Heal:
        """Lets the projector of one more server project."""
        projector = rng.choice(self._cluster.servers).projector
        projector.is_eager = True

        def end() -> None:
            projector.is_eager = False

        return end

    def _hold(self, shards: tuple[int, ...]) -> Heal:
        return self._cluster.database.hold(shards)

    def _poison(self, rng: Rng, for_s: float) -> Heal:
        """Lets no row of some jobs be written: those whose ids end in one letter."""
        damage = self._cluster.database.damage
        damage.poison(rng.choice("0123456789abcdef"))
        return damage.cure

    # The network

    def _storm(self, rng: Rng, for_s: float) -> Heal:
        usual = self._cluster.conditions
        stormy = NetworkConditions(usual.delay_s * 10, rng.uniform(0.05, 0.4), 0.1, 0.05)
        self._cluster.network.conditions = stormy
        return self._heal_network

    def _stalls(self, rng: Rng, for_s: float) -> Heal:
        usual = self._cluster.conditions
        stalling = rng.uniform(0.05, 0.3)
        worst_s = rng.choice((1.0, 4.0, 15.0))
        self._cluster.network.conditions = NetworkConditions(
            usual.delay_s, usual.loss, 0.0, stalling, worst_s
        )
        return self._heal_network

    def _doubling(self, rng: Rng, for_s: float) -> Heal:
        usual = self._cluster.conditions
        self._cluster.network.conditions = NetworkConditions(usual.delay_s, usual.loss, 0.5, 0.1)
        return self._heal_network

    def _heal_network(self) -> None:
        self._cluster.network.conditions = self._cluster.conditions


def _nothing() -> None:
    """Heals nothing: the fault ends by itself."""
