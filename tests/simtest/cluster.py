"""Cluster of one run: servers, workers, users and a database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rota.core.commands import MemoryWindow, Timing
from rota.core.model import Array, Gang, GroupMember, JobRecord, JobState
from rota.core.outcome import PutExecution, PutJob
from rota.store.projection.shards import job_of
from rota.store.protocol import GENESIS, JournalRecord, Seq, TablesBehindError
from rota.store.queries import ExecutionQuery, JobQuery
from rota.verify.history import FINAL, Failover, History, ObservedExecution, ObservedJob
from tests.simtest.clock import SIMULATION, Machine, VirtualLoop
from tests.simtest.database import Database
from tests.simtest.nemesis import Nemesis
from tests.simtest.network import Network, NetworkConditions
from tests.simtest.plan import FAILOVER, SimulationPlan
from tests.simtest.rng import rng_for
from tests.simtest.server import SimulatedServer
from tests.simtest.tables import TableAudit
from tests.simtest.trace import Trace
from tests.simtest.worker import SimulatedWorker
from tests.simtest.workload import NOOP, SimulatedUser

EVERYTHING = 10**9
FAST, SLOW = 1.01, 0.99
AUDIT_S = 2.0
"""Longest pause between two audits of what a load brings."""
SKEW_MS = 300
"""Largest difference of the servers' wall clocks from true time at the beginning."""


class Cluster:
    """Cluster with its network, database, users and faults."""

    def __init__(self, plan: SimulationPlan, loop: VirtualLoop) -> None:
        self.plan = plan
        self.loop = loop
        self.simulation: Machine = SIMULATION
        self.trace = Trace()
        self.history = History()
        self.bugs: dict[str, None] = {}
        """Events that must never happen and have happened."""
        options, seed = plan.options, plan.seed
        self.conditions = NetworkConditions(options.delay_s, options.loss)
        self.network = Network(loop, rng_for(seed, "network"), self.trace, self.report_bug)
        self.network.conditions = self.conditions
        self.database = Database(loop, rng_for(seed, "database"), self.trace)
        self.servers = [self._server(number) for number in range(options.servers)]
        addresses = [server.address for server in self.servers]
        self.workers = [
            SimulatedWorker(
                number, self.network, self.history, addresses, rng_for(seed, "worker", number)
            )
            for number in range(options.workers)
        ]
        for worker in self.workers:
            worker.spare = options.spare
        self.user = SimulatedUser(seed, self.network, self.history, addresses)
        self._nemesis = Nemesis(self)
        self.database.damage.keeps_dumps = any(one.kind == FAILOVER for one in plan.faults)
        self.audit = TableAudit(self.database.store.journal)
        self._failovers: list[tuple[Failover, list[tuple[SimulatedServer, int, Seq]]]] = []
        """Each with the newest lost record that each server, with its boot, knew."""
        self.wrong_tables: list[str] = []
        """Differences between what a reader got and the naive projection."""
        if options.clocks_apart:
            self._set_clocks_apart()

    def _set_clocks_apart(self) -> None:
        for server in self.servers:
            server.machine.rate = server.projector.machine.rate = FAST
        for worker in self.workers:
            worker.machine.rate = worker.supervisor.rate = SLOW

    def _server(self, number: int) -> SimulatedServer:
        options = self.plan.options
        rng = rng_for(self.plan.seed, "server", number)
        machine = Machine(f"server-{number}", rng.clock_rate())
        machine.set_by_ms = rng.randint(-SKEW_MS, SKEW_MS)
        projector_rng = rng_for(self.plan.seed, "projector", number)
        server = SimulatedServer(machine, self.network, self.database, number, projector_rng)
        server.ttl_ms = round(options.leader_ttl_s * 1000)
        server.older = number < options.older
        memory_jobs = options.memory_jobs
        server.timing = Timing(
            lease_ttl_ms=round(options.lease_s * 1000),
            handover_ms=server.ttl_ms,
            window=MemoryWindow(
                jobs=memory_jobs, fifo_group=memory_jobs // 3, refill=memory_jobs // 2
            ),
        )
        return server

    def report_bug(self, what: str) -> None:
        """Records an event that must never happen."""
        self.bugs.setdefault(what)

    def machines(self) -> Iterator[Machine]:
        """Yields all machines that send messages."""
        for server in self.servers:
            yield server.machine
            yield server.projector.machine
        for worker in self.workers:
            yield worker.machine
        yield self.user.machine

    # The run

    def begin(self) -> None:
        """Starts all machines, and schedules all that is planned."""
        for server in self.servers:
            server.start()
        for worker in self.workers:
            worker.start()
        self.user.start(self.plan)
        for fault in self.plan.faults:
            self._nemesis.schedule(fault)

    def heal(self) -> None:
        """Ends all faults."""
        self.network.conditions = NetworkConditions(self.conditions.delay_s)
        for server in self.servers:
            server.machine.crash_at = None
            self.revive_server(server)
            server.projector.start()
        for worker in self.workers:
            worker.machine.crash_at = worker.supervisor.crash_at = None
            self.revive_worker(worker)

    def revive_server(self, server: SimulatedServer) -> None:
        """Starts a server that is down."""
        server.machine.crash_at = None
        if not server.machine.alive:
            server.start()

    def revive_worker(self, worker: SimulatedWorker) -> None:
        """Starts a worker that is down."""
        worker.machine.crash_at = worker.supervisor.crash_at = None
        if worker.session is None or not worker.machine.alive:
            worker.die()
            worker.start()

    def restart_server(self, server: SimulatedServer, off_s: float) -> None:
        """Stops a server gracefully, and starts it again after a while."""

        async def restart() -> None:
            await server.stop()
            # `die` also ends this task.
            self.loop.after(off_s, self.simulation, lambda: self.revive_server(server))
            server.die()

        if server.machine.alive:
            server.machine.spawn(restart())

    async def watch_tables(self) -> None:
        """Compares what a load brings with the naive projection, again and again."""
        rng = rng_for(self.plan.seed, "audit")
        while not self.wrong_tables:
            await asyncio.sleep(rng.uniform(0.0, AUDIT_S))
            if not self.database.damage.flipped:
                self.wrong_tables += await self.audit.check_load()

    async def audit_tables(self) -> list[str]:
        """Compares the tables at the end, and the copies with which servers follow."""
        try:
            await self.database.reached(self.database.store.journal.head().seq)
        except TablesBehindError as error:
            return [*self.wrong_tables, str(error)]
        found = [*self.wrong_tables, *await self.audit.check_tables()]
        for server in self.servers:
            copy = server.copy()
            if copy is not None:
                found += await self.audit.check_copy(server.machine.name, copy)
        return found

    def switch_off(self) -> None:
        """Ends all machines."""
        for server in self.servers:
            server.die()
        for worker in self.workers:
            worker.die()
        self.user.machine.end_tasks()

    # Failovers of the database

    def fail_over(self, records_max: int) -> None:
        """Lets the database fail over and lose at most so many of its newest records."""
        kept, lost, promised = self.database.damage.fail_over(records_max)
        seqs = {record.hash: record.seq for record in lost}
        knew = [
            (
                server,
                server.machine.boots,
                max([seqs.get(head.hash, GENESIS.seq) for head in known]),
            )
            for server in self.servers
            if (known := server.known_heads())
        ]
        jobs = dict.fromkeys((*promised, *_jobs_in(lost)))
        put = [w for record in lost for w in record.writes if isinstance(w, PutJob)]
        keys = [_key(JobRecord(write.id, write.spec, write.life)) for write in put]
        failover = Failover(kept, list(jobs), keys, _fences_in(lost))
        self._failovers.append((failover, knew))

    def _noted_failovers(self) -> list[Failover]:
        """Returns all failovers, each with the newest lost record that a server remembers which has
        run ever since."""
        return [
            replace(
                failover,
                remembered=max(
                    (
                        seq
                        for server, boots, seq in knew
                        if server.machine.alive and server.machine.boots == boots
                    ),
                    default=GENESIS.seq,
                ),
            )
            for failover, knew in self._failovers
        ]

    # The end

    async def unfinished(self) -> list[str]:
        """Returns jobs that have not ended, by the database."""
        store = self.database.store
        live = tuple(state for state in JobState if state not in FINAL)
        try:
            waiting = await store.queries.find_job_ids(JobQuery(states=live, limit=EVERYTHING))
        except TablesBehindError as error:
            return [str(error)]
        return [*map(str, waiting)] + ["in the inbox"] * store.journal.inbox_size

    async def gather(self) -> History:
        """Collects the history of the run."""
        catalog = self.database.store.queries
        jobs = await catalog.find_jobs(JobQuery(limit=EVERYTHING))
        executions: dict[str, list[ObservedExecution]] = {}
        for one in reversed(await catalog.find_executions(ExecutionQuery(limit=EVERYTHING))):
            executions.setdefault(one.job_id, []).append(ObservedExecution(one.fence, one.state))
        for found in executions.values():
            found.sort(key=lambda execution: execution.fence)
        keys = {job.id: _key(job) for job in jobs}
        self.history.jobs = [
            ObservedJob(
                job.id,
                keys[job.id],
                job.life.state,
                job.life.fence,
                at_most_once=job.spec.terms.semantics == "at_most_once",
                after=[keys[one.job_id] for one in job.spec.dependencies if one.job_id in keys],
                executions=executions.get(job.id, ()),
                has_witness=job.spec.terms.name != NOOP,
                duplicate=job.life.reason == "duplicate",
                created_by=_creator(job),
                is_group=isinstance(job.spec.group, Array | Gang),
                in_gang=isinstance(job.spec.group, GroupMember) and job.spec.group.in_gang,
            )
            for job in jobs
        ]
        journal = self.database.store.journal
        self.history.journal = await journal.records_after(GENESIS, EVERYTHING)
        self.history.losses = self.database.damage.losses
        self.history.failovers = self._noted_failovers()
        return self.history


def _key(job: JobRecord) -> str:
    key = dict(job.spec.labels).get("key", str(job.id))
    group = job.spec.group
    return f"{key}-{group.index}" if isinstance(group, GroupMember) else key


def _creator(job: JobRecord) -> str:
    """Returns what created a job that no client submitted: a schedule, an array or a gang."""
    group = job.spec.group
    if isinstance(group, GroupMember):
        return group.parent
    return job.spec.origin.schedule_id if job.spec.origin else ""


def _jobs_in(records: Sequence[JournalRecord]) -> list[str]:
    """Returns the jobs of which records say something."""
    written = [job_of(write) for record in records for write in record.writes]
    return [job_id for job_id in written if job_id is not None]


def _fences_in(records: Sequence[JournalRecord]) -> dict[str, int]:
    """Returns, by job, the highest fence of its executions in these records."""
    fences: dict[str, int] = {}
    for record in records:
        for write in record.writes:
            if isinstance(write, PutExecution):
                job_id, fence = write.execution.job_id, write.execution.fence
                fences[job_id] = max(fence, fences.get(job_id, 0))
    return fences
