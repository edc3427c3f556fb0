"""Does to a cluster what the plan says goes wrong, and mends it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rota.sim.clock import Machine
from rota.sim.dice import Dice, dice_for
from rota.sim.disk import Mood
from rota.sim.history import Freeze
from rota.sim.network import Weather
from rota.sim.plan import Fault
from rota.sim.server import ServerSite
from rota.sim.worker import WorkerSite

if TYPE_CHECKING:
    from rota.sim.cluster import Cluster

Mend = Callable[[], None]


class Nemesis:
    """Strikes at the planned moments; every strike has its end."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._loop = cluster.loop
        self._strikes: dict[str, Callable[[Dice, float], Mend]] = {
            "server killed": self._kill_server,
            "server dies at its next step": self._sting_server,
            "server frozen": self._freeze_server,
            "server stopped in order": self._stop_server,
            "server's clock set": self._set_clock,
            "server upgraded": self._upgrade,
            "worker loses power": lambda d, s: self._down(self._worker(d), WorkerSite.die),
            "worker dies at its next step": self._sting_worker,
            "job's machine dies at its next word": self._sting_guard,
            "agent killed": lambda d, s: self._down(self._worker(d), WorkerSite.lose_agent),
            "agent frozen": lambda d, s: self._freeze(self._worker(d).machine),
            "guard frozen": lambda d, s: self._freeze_site(self._worker(d), whole=False),
            "worker frozen": lambda d, s: self._freeze_site(self._worker(d), whole=True),
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
            "database forgetful": self._store_forgetful,
            "database late": self._store_late,
            "disk full": self._disk_full,
            "network storm": self._storm,
            "network stalls": self._stalls,
            "requests doubled": self._doubling,
        }

    def strike_at(self, fault: Fault) -> None:
        """Plans one."""
        self._loop.after(fault.at_s, self._cluster.world, lambda: self._strike(fault))

    def _strike(self, fault: Fault) -> None:
        dice = dice_for(self._cluster.plan.seed, "strike", fault.number)
        self._cluster.trace.note(self._loop.true_s, "fault", fault.kind)
        mend = self._strikes[fault.kind](dice, fault.for_s)
        self._loop.after(fault.for_s, self._cluster.world, mend)

    # Whom

    def _server(self, dice: Dice) -> ServerSite:
        chosen = dice.choice(self._cluster.servers)
        if dice.chance(self._cluster.plan.options.leader_bias):
            return next((one for one in self._cluster.servers if one.leads), chosen)
        return chosen

    def _worker(self, dice: Dice) -> WorkerSite:
        return dice.choice(self._cluster.workers)

    # Processes

    def _down(self, site: WorkerSite, how: Callable[[WorkerSite], None]) -> Mend:
        how(site)
        return lambda: self._cluster.revive_worker(site)

    def _kill_server(self, dice: Dice, for_s: float) -> Mend:
        site = self._server(dice)
        site.die()
        return lambda: self._cluster.revive_server(site)

    def _sting_server(self, dice: Dice, for_s: float) -> Mend:
        site = self._server(dice)
        site.machine.sting = (site.machine.touches + dice.randint(1, 40), site.die)
        return lambda: self._cluster.revive_server(site)

    def _freeze_server(self, dice: Dice, for_s: float) -> Mend:
        return self._freeze(self._server(dice).machine)

    def _stop_server(self, dice: Dice, for_s: float) -> Mend:
        self._cluster.restart_server(self._server(dice), for_s)
        return _nothing

    def _upgrade(self, dice: Dice, for_s: float) -> Mend:
        """One server comes back as a newer program."""
        site = self._server(dice)
        site.newer, site.older = True, False
        self._cluster.restart_server(site, for_s)
        return _nothing

    def _set_clock(self, dice: Dice, for_s: float) -> Mend:
        machine = self._server(dice).machine
        by_ms = dice.randint(-60_000, 60_000)
        machine.set_by_ms += by_ms

        def set_right() -> None:
            machine.set_by_ms -= by_ms

        return set_right

    def _sting_worker(self, dice: Dice, for_s: float) -> Mend:
        site = self._worker(dice)
        site.machine.sting = (site.machine.touches + dice.randint(1, 12), site.lose_agent)
        return lambda: self._cluster.revive_worker(site)

    def _sting_guard(self, dice: Dice, for_s: float) -> Mend:
        site = self._worker(dice)
        site.guard.sting = (site.guard.touches + dice.randint(1, 12), site.die)
        return lambda: self._cluster.revive_worker(site)

    def _drain(self, dice: Dice, for_s: float) -> Mend:
        self._worker(dice).drain()
        return _nothing

    def _freeze(self, machine: Machine) -> Mend:
        self._loop.freeze(machine)
        return lambda: self._loop.thaw(machine)

    def _freeze_site(self, site: WorkerSite, *, whole: bool) -> Mend:
        """The guard with its jobs, and with `whole` the agent beside it."""
        began = self._loop.true_s
        self._loop.freeze(site.guard)
        if whole:
            self._loop.freeze(site.machine)

        def thaw() -> None:
            freeze = Freeze(site.machine.name, began, self._loop.true_s)
            self._cluster.history.freezes.append(freeze)
            self._loop.thaw(site.guard)
            self._loop.thaw(site.machine)

        return thaw

    # Ways

    def _cut(self, *ways: tuple[str, str]) -> Mend:
        for source, target in ways:
            self._cluster.network.cut(source, target)

        def mend() -> None:
            for source, target in ways:
                self._cluster.network.mend(source, target)

        return mend

    def _cut_worker(self, dice: Dice, for_s: float) -> Mend:
        one, other = self._server(dice).machine.name, self._worker(dice).machine.name
        return self._cut((one, other), (other, one))

    def _not_heard(self, dice: Dice, for_s: float) -> Mend:
        """What is said to it arrives, what it says does not."""
        worker = self._worker(dice).machine.name
        return self._cut(*((worker, site.machine.name) for site in self._cluster.servers))

    def _hears_nothing(self, dice: Dice, for_s: float) -> Mend:
        """The other way round."""
        worker = self._worker(dice).machine.name
        return self._cut(*((site.machine.name, worker) for site in self._cluster.servers))

    def _late_then_nothing(self, dice: Dice, for_s: float) -> Mend:
        """Answers to one worker come ever later, and then no more: the worst for a lease."""
        worker = self._worker(dice).machine.name
        network, late_s = self._cluster.network, dice.uniform(0.5, 3.0)
        network.late_to[worker] = late_s
        names = [site.machine.name for site in self._cluster.servers]
        mends: list[Mend] = []

        def cut() -> None:
            network.late_to.pop(worker, None)
            mends.append(self._cut(*((name, worker) for name in names)))

        def mend() -> None:
            for one in mends:
                one()

        self._loop.after(min(for_s / 2, 2 * late_s), self._cluster.world, cut)
        return mend

    def _cut_servers(self, dice: Dice, for_s: float) -> Mend:
        one, other = (
            self._server(dice).machine.name,
            dice.choice(self._cluster.servers).machine.name,
        )
        return self._cut((one, other), (other, one))

    def _cut_client(self, dice: Dice, for_s: float) -> Mend:
        server = self._server(dice).machine.name
        return self._cut(("client", server), (server, "client"))

    def _isolate(self, dice: Dice, for_s: float) -> Mend:
        """It reaches the database and nobody else."""
        name = self._server(dice).machine.name
        others = [machine.name for machine in self._cluster.machines() if machine.name != name]
        return self._cut(*((name, other) for other in others), *((one, name) for one in others))

    # The database

    def _cut_store(self, dice: Dice, for_s: float) -> Mend:
        name = self._server(dice).machine.name
        self._cluster.database.cut(name)
        return lambda: self._cluster.database.mend(name)

    def _store_away(self, dice: Dice, for_s: float) -> Mend:
        names = [site.machine.name for site in self._cluster.servers]
        for name in names:
            self._cluster.database.cut(name)

        def mend() -> None:
            for name in names:
                self._cluster.database.mend(name)

        return mend

    def _store_slow(self, dice: Dice, for_s: float) -> Mend:
        self._cluster.database.mood.delay_s = dice.choice((0.05, 0.3, 1.0))
        return self._calm_store

    def _store_forgetful(self, dice: Dice, for_s: float) -> Mend:
        mood = self._cluster.database.mood
        mood.failing, mood.forgetting = dice.uniform(0.0, 0.2), dice.uniform(0.05, 0.3)
        return self._calm_store

    def _store_late(self, dice: Dice, for_s: float) -> Mend:
        self._cluster.database.mood.late = dice.uniform(0.05, 0.3)
        return self._calm_store

    def _disk_full(self, dice: Dice, for_s: float) -> Mend:
        self._cluster.database.mood.full = True
        return self._calm_store

    def _calm_store(self) -> None:
        self._cluster.database.mood = Mood()

    # The weather

    def _storm(self, dice: Dice, for_s: float) -> Mend:
        usual = self._cluster.weather
        stormy = Weather(usual.delay_s * 10, dice.uniform(0.05, 0.4), 0.1, 0.05)
        self._cluster.network.weather = stormy
        return self._calm_down

    def _stalls(self, dice: Dice, for_s: float) -> Mend:
        usual = self._cluster.weather
        stalling = dice.uniform(0.05, 0.3)
        worst_s = dice.choice((1.0, 4.0, 15.0))
        self._cluster.network.weather = Weather(usual.delay_s, usual.loss, 0.0, stalling, worst_s)
        return self._calm_down

    def _doubling(self, dice: Dice, for_s: float) -> Mend:
        usual = self._cluster.weather
        self._cluster.network.weather = Weather(usual.delay_s, usual.loss, 0.5, 0.1)
        return self._calm_down

    def _calm_down(self) -> None:
        self._cluster.network.weather = self._cluster.weather


def _nothing() -> None:
    """What ends by itself."""
