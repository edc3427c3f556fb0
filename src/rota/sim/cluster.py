"""Servers, workers, users and a database, wired together for one run."""

from __future__ import annotations

from collections.abc import Iterator

from rota.core.inputs import Timing
from rota.core.model import JobRecord
from rota.sim.clock import NOWHERE, Machine, VirtualLoop
from rota.sim.dice import dice_for
from rota.sim.disk import Database
from rota.sim.faults import Nemesis
from rota.sim.history import FINAL, History, Record, Run
from rota.sim.network import Network, Weather
from rota.sim.plan import Plan
from rota.sim.server import ServerSite
from rota.sim.trace import Trace
from rota.sim.worker import WorkerSite
from rota.sim.workload import NOOP, User
from rota.store.protocol import Seq
from rota.store.protocols.queries import ExecutionQuery, JobQuery

EVERYTHING = 10**9
FAST, SLOW = 1.01, 0.99
SKEW_MS = 300
"""How far the wall clocks of two servers are apart to begin with."""


class Cluster:
    """All of one run."""

    def __init__(self, plan: Plan, loop: VirtualLoop) -> None:
        self.plan = plan
        self.loop = loop
        self.world: Machine = NOWHERE
        self.trace = Trace()
        self.history = History()
        self.bugs: dict[str, None] = {}
        """What must never happen, and did."""
        options, seed = plan.options, plan.seed
        self.weather = Weather(options.delay_s, options.loss)
        self.network = Network(loop, dice_for(seed, "network"), self.trace, self.complain)
        self.network.weather = self.weather
        self.database = Database(loop, dice_for(seed, "database"), self.trace)
        self.servers = [self._server(number) for number in range(options.servers)]
        addresses = [site.address for site in self.servers]
        self.workers = [
            WorkerSite(
                number, self.network, self.history, addresses, dice_for(seed, "worker", number)
            )
            for number in range(options.workers)
        ]
        for worker in self.workers:
            worker.spare = options.spare
        self.user = User(seed, self.network, self.history, addresses)
        self._nemesis = Nemesis(self)
        if options.clocks_apart:
            self._set_clocks_apart()

    def _set_clocks_apart(self) -> None:
        for server in self.servers:
            server.machine.rate = FAST
        for worker in self.workers:
            worker.machine.rate = worker.guard.rate = SLOW

    def _server(self, number: int) -> ServerSite:
        options = self.plan.options
        dice = dice_for(self.plan.seed, "server", number)
        machine = Machine(f"server-{number}", dice.clock_rate())
        machine.set_by_ms = dice.randint(-SKEW_MS, SKEW_MS)
        site = ServerSite(machine, self.network, self.database, number)
        site.ttl_ms = round(options.leader_ttl_s * 1000)
        site.older = number < options.older
        site.timing = Timing(lease_ttl_ms=round(options.lease_s * 1000), handover_ms=site.ttl_ms)
        return site

    def complain(self, what: str) -> None:
        """Something happened that must never happen."""
        self.bugs.setdefault(what)

    def machines(self) -> Iterator[Machine]:
        """All that send messages."""
        for server in self.servers:
            yield server.machine
        for worker in self.workers:
            yield worker.machine
        yield self.user.machine

    # The run

    def begin(self) -> None:
        """Everything is switched on, and everything planned is set to happen."""
        for server in self.servers:
            server.start()
        for worker in self.workers:
            worker.start()
        self.user.take_up(self.plan)
        for fault in self.plan.faults:
            self._nemesis.strike_at(fault)

    def heal(self) -> None:
        """Nothing is broken any more."""
        self.network.weather = Weather(self.weather.delay_s)
        for server in self.servers:
            server.machine.sting = None
            self.revive_server(server)
        for worker in self.workers:
            worker.machine.sting = worker.guard.sting = None
            self.revive_worker(worker)

    def revive_server(self, site: ServerSite) -> None:
        """It runs again, if it does not."""
        site.machine.sting = None
        if not site.machine.alive:
            site.start()

    def revive_worker(self, site: WorkerSite) -> None:
        """It runs again, if it does not."""
        site.machine.sting = site.guard.sting = None
        if site.session is None or not site.machine.alive:
            site.die()
            site.start()

    def restart_server(self, site: ServerSite, off_s: float) -> None:
        """Stops in good order, is off for a while, and comes back."""

        async def restart() -> None:
            await site.stop()
            # Its own tasks end with it, this one too.
            self.loop.after(off_s, self.world, lambda: self.revive_server(site))
            site.die()

        if site.machine.alive:
            site.machine.spawn(restart())

    def switch_off(self) -> None:
        """The run is over."""
        for server in self.servers:
            server.die()
        for worker in self.workers:
            worker.die()
        self.user.machine.end_tasks()

    # The end

    def unfinished(self) -> list[str]:
        """Jobs that have not ended, by what the database has."""
        tables = self.database.store.catalog._tables  # noqa: SLF001  (no trip: nobody may notice)
        waiting = [str(job.id) for job in tables.jobs.values() if job.life.state not in FINAL]
        inbox = len(self.database.store.ledger._inbox)  # noqa: SLF001
        return waiting + ["in the inbox"] * inbox

    async def gather(self) -> History:
        """What the records say at the end."""
        catalog = self.database.store.catalog
        jobs = await catalog.find_jobs(JobQuery(limit=EVERYTHING))
        runs: dict[str, list[Run]] = {}
        for one in reversed(await catalog.find_executions(ExecutionQuery(limit=EVERYTHING))):
            runs.setdefault(one.job_id, []).append(Run(one.fence, one.state))
        for found in runs.values():
            found.sort(key=lambda run: run.fence)
        keys = {job.id: _key(job) for job in jobs}
        self.history.records = [
            Record(
                job.id,
                keys[job.id],
                job.life.state,
                job.life.fence,
                at_most_once=job.spec.terms.semantics == "at_most_once",
                after=[keys[one.job_id] for one in job.spec.dependencies],
                runs=runs.get(job.id, ()),
                speaks=job.spec.terms.name != NOOP,
                duplicate=job.life.reason == "duplicate",
                made_by=job.spec.origin.schedule_id if job.spec.origin else "",
            )
            for job in jobs
        ]
        ledger = self.database.store.ledger
        self.history.journal = await ledger.records_after(_START, EVERYTHING)
        return self.history


def _key(job: JobRecord) -> str:
    return dict(job.spec.labels).get("key", str(job.id))


_START = Seq(0)
