"""Naive store: every write applied at once, without optimisation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec
from hypothesis import strategies as st

from rota.core.lifecycle import EXECUTION_FINAL, JOB_FINAL
from rota.core.model import (
    Dependency,
    Execution,
    ExecutionId,
    ExecutionState,
    JobId,
    JobRecord,
    JobState,
    KeyRecord,
    Life,
    Needs,
    Queue,
    Quota,
    Resources,
    RetryPolicy,
    RuntimeStats,
    Spec,
    Tenant,
    Terms,
    When,
    Worker,
    WorkerId,
)
from rota.core.outcome import (
    AnyWrite,
    DropJob,
    DropWorker,
    MoveJob,
    PutExecution,
    PutJob,
    PutKey,
    PutPolicy,
    PutQueue,
    PutRuntime,
    PutTenant,
    PutWorker,
)
from rota.core.policy import DEFAULT, STRICT, Policy
from rota.store.protocol import Direction, Edge, Store
from rota.store.queries import ExecutionQuery, JobQuery

JOB_IDS = [JobId(f"job-{n}") for n in range(5)]
EXECUTION_IDS = [ExecutionId(f"execution-{n}") for n in range(8)]
"""An execution is of one job for ever."""
WORKER_IDS = [WorkerId(f"worker-{n}") for n in range(3)]
LABELS = [("team", "billing"), ("team", "search"), ("tier", "1")]


def terms(**given: object) -> Terms:
    usual: dict[str, object] = {
        "name": "invoice",
        "queue": "default",
        "tenant": "default",
        "priority": 0,
        "needs": Needs(Resources(cpu_milli=1000)),
        "retry": RetryPolicy(),
    }
    return Terms(**(usual | given))  # type: ignore[arg-type]


def spec(order: int = 0, **given: object) -> Spec:
    usual: dict[str, object] = {
        "terms": terms(),
        "task": b"{}",
        "created_at": 1,
        "arrival_number": order,
    }
    return Spec(**(usual | given))  # type: ignore[arg-type]


QUEUED = Life(JobState.QUEUED)


class NaiveStore:
    """Naive tables after the writes."""

    def __init__(self, writes: Iterable[AnyWrite] = ()) -> None:
        self.jobs: dict[JobId, JobRecord] = {}
        self.executions: dict[ExecutionId, Execution] = {}
        self.workers: dict[WorkerId, Worker] = {}
        self.queues: dict[str, Queue] = {}
        self.keys: dict[str, KeyRecord] = {}
        self.policy: Policy | None = None
        self.tenants: dict[str, Tenant] = {}
        self.runtimes: dict[tuple[str, str], RuntimeStats] = {}
        self.submitted = 0
        self.finished: Counter[tuple[str, str]] = Counter()
        self.order_next = 0
        for write in writes:
            self.apply(write)

    def apply(self, write: AnyWrite) -> None:
        match write:
            case PutJob(job_id, job_spec, life):
                self.submitted += job_id not in self.jobs and life.lives == 1
                self.order_next = max(self.order_next, job_spec.arrival_number + 1)
                self._set(JobRecord(job_id, job_spec, life))
            case MoveJob(job_id, life):
                self._move(job_id, life)
            case DropJob(job_id):
                self._drop(job_id)
            case PutExecution(execution):
                self.executions[execution.id] = execution
            case PutWorker(worker):
                self.workers[worker.id] = worker
            case DropWorker(worker_id):
                self.workers.pop(worker_id, None)
            case PutQueue(queue):
                self.queues[queue.name] = queue
            case PutKey(record):
                self.keys[record.key] = record
            case _:
                self._put(write)

    def _put(self, write: PutPolicy | PutTenant | PutRuntime) -> None:
        match write:
            case PutPolicy(policy):
                self.policy = policy
            case PutTenant(tenant):
                self.tenants[tenant.name] = tenant
            case PutRuntime(runtime):
                self.runtimes[runtime.tenant, runtime.name] = runtime

    def _move(self, job_id: JobId, life: Life) -> None:
        if job_id in self.jobs:
            life = msgspec.structs.replace(life, line=0)
            self._set(JobRecord(job_id, self.jobs[job_id].spec, life))

    def _drop(self, job_id: JobId) -> None:
        self.jobs.pop(job_id, None)
        for gone in [x for x in self.executions.values() if x.job_id == job_id]:
            del self.executions[gone.id]

    def _set(self, job: JobRecord) -> None:
        before = self.jobs.get(job.id)
        new_end = (
            before is None
            or before.life.state not in JOB_FINAL
            or job.life.lives > before.life.lives
        )
        if job.life.state in JOB_FINAL and new_end:
            self.finished[job.spec.terms.queue, job.life.state.value] += 1
        self.jobs[job.id] = job

    def spill_queues(self) -> dict[int, list[JobRecord]]:
        """Spilled jobs by spill queue, in order of arrival."""
        found: dict[int, list[JobRecord]] = {}
        for job in sorted(self.jobs.values(), key=lambda job: job.spec.arrival_number):
            if job.life.line and job.life.state is JobState.QUEUED:
                found.setdefault(job.life.line, []).append(job)
        return found

    def find_jobs(self, query: JobQuery) -> list[JobRecord]:
        found = []
        for job in sorted(self.jobs.values(), key=lambda job: job.id, reverse=True):
            asked, had = job.spec.terms, job.spec
            wrong = [
                query.before is not None and not job.id < query.before,
                query.after is not None and not job.id > query.after,
                bool(query.states) and job.life.state not in query.states,
                query.priority is not None and asked.priority != query.priority,
                query.not_priority is not None and asked.priority == query.not_priority,
                query.queue is not None and asked.queue != query.queue,
                query.tenant is not None and asked.tenant != query.tenant,
                query.name is not None and asked.name != query.name,
                any(label not in had.labels for label in query.labels),
                query.created_after is not None and had.created_at <= query.created_after,
                query.created_before is not None and had.created_at >= query.created_before,
            ]
            if not any(wrong):
                found.append(job)
        return found[: query.limit]

    def find_executions(self, query: ExecutionQuery) -> list[Execution]:
        found = sorted(self.executions.values(), key=lambda x: x.id, reverse=True)
        found = [x for x in found if query.before is None or x.id < query.before]
        found = [x for x in found if query.job_id is None or x.job_id == query.job_id]
        found = [x for x in found if query.worker_id is None or x.worker_id == query.worker_id]
        found = [x for x in found if not query.states or x.state in query.states]
        return found[: query.limit]

    @property
    def edges(self) -> list[Edge]:
        found = {
            (needed.job_id, job.id, needed.when)
            for job in self.jobs.values()
            for needed in job.spec.dependencies
        }
        return [Edge(*edge) for edge in sorted(found)]


async def assert_same(store: Store, naive: NaiveStore) -> None:
    """The store's tables and its snapshot are what the naive one says."""
    catalog = store.queries
    all_jobs = await catalog.find_jobs(JobQuery(limit=1000))
    assert all_jobs == naive.find_jobs(JobQuery(limit=1000))
    everything = ExecutionQuery(limit=1000)
    assert await catalog.find_executions(everything) == naive.find_executions(everything)
    for label in LABELS:
        query = JobQuery(labels=(label,), limit=1000)
        assert await catalog.find_jobs(query) == naive.find_jobs(query)
    ids = JOB_IDS + [job.id for job in all_jobs if job.id not in JOB_IDS]
    for direction in Direction:
        edges = await catalog.edges(ids, direction)
        wanted = [e for e in naive.edges if direction is Direction.UPSTREAM or e.parent in ids]
        assert sorted(edges, key=_edge_order) == wanted
    for key in ("key-0", "key-1"):
        assert await catalog.key(key) == naive.keys.get(key)
    await _assert_same_snapshot(store, naive)


async def _assert_same_snapshot(store: Store, naive: NaiveStore) -> None:
    snapshot = await store.journal.load()
    spill_queues = naive.spill_queues()
    assert dict(snapshot.spill_counts) == {line: len(jobs) for line, jobs in spill_queues.items()}
    live = [job for job in naive.jobs.values() if job.life.state not in JOB_FINAL]
    assert sorted(snapshot.jobs, key=lambda job: job.id) == sorted(live, key=lambda job: job.id)
    orders = [job.spec.arrival_number for job in snapshot.jobs]
    assert orders == sorted(orders)
    live_executions = {x.id: x for x in naive.executions.values() if x.state not in EXECUTION_FINAL}
    assert {x.id: x for x in snapshot.executions} == live_executions
    assert {worker.id: worker for worker in snapshot.workers} == naive.workers
    assert {queue.name: queue for queue in snapshot.queues} == naive.queues
    assert snapshot.settings.policy == naive.policy
    assert {one.name: one for one in snapshot.settings.tenants} == naive.tenants
    known = {(one.tenant, one.name): one for one in snapshot.settings.runtimes}
    assert known == naive.runtimes
    assert snapshot.next_arrival_number == naive.order_next
    assert snapshot.totals.submitted == naive.submitted
    assert {(q, s): n for q, s, n in snapshot.totals.finished} == dict(naive.finished)


def _edge_order(edge: Edge) -> tuple[str, str, str]:
    return (edge.parent, edge.child, edge.when)


_job_ids = st.sampled_from(JOB_IDS)
_lives = st.builds(
    Life,
    state=st.sampled_from(JobState),
    reason=st.sampled_from(["", "because"]),
    lives=st.integers(1, 3),
    line=st.sampled_from([0, 0, 0, 7, 1 << 62]),
    finished_at=st.none() | st.integers(0, 9),
    result=st.none() | st.binary(max_size=4),
)
_terms = st.builds(
    terms,
    name=st.sampled_from(["invoice", "report"]),
    queue=st.sampled_from(["default", "bulk"]),
    tenant=st.sampled_from(["default", "acme"]),
    priority=st.integers(-1, 1),
)
_specs = st.builds(
    spec,
    arrival_number=st.integers(0, 50),
    terms=_terms,
    created_at=st.integers(0, 9),
    labels=st.lists(st.sampled_from(LABELS), unique=True).map(tuple),
    dependencies=st.lists(
        st.builds(Dependency, job_id=_job_ids, when=st.sampled_from(When)), max_size=3
    ).map(tuple),
    revision=st.integers(0, 2),
)
_executions = st.builds(
    lambda number, **given: Execution(
        id=EXECUTION_IDS[number], job_id=JOB_IDS[number % len(JOB_IDS)], **given
    ),
    number=st.integers(0, len(EXECUTION_IDS) - 1),
    worker_id=st.sampled_from(WORKER_IDS),
    attempt=st.integers(1, 2),
    fence=st.integers(1, 3),
    state=st.sampled_from(ExecutionState),
    claimed_at=st.integers(0, 9),
)
_workers = st.builds(
    Worker,
    id=st.sampled_from(WORKER_IDS),
    name=st.just("host"),
    session=st.sampled_from(["a", "b"]),
    capacity=st.just(Resources(cpu_milli=4000)),
)
_keys = st.builds(
    KeyRecord,
    key=st.sampled_from(["key-0", "key-1"]),
    fingerprint=st.sampled_from(["f", "g"]),
    receipt=st.binary(max_size=3),
    at=st.integers(0, 9),
)
writes = st.one_of(
    st.builds(PutJob, id=_job_ids, spec=_specs, life=_lives),
    st.builds(MoveJob, id=_job_ids, life=_lives),
    st.builds(DropJob, id=_job_ids),
    st.builds(PutExecution, execution=_executions),
    st.builds(PutWorker, worker=_workers),
    st.builds(DropWorker, id=st.sampled_from(WORKER_IDS)),
    st.builds(PutPolicy, policy=st.sampled_from([DEFAULT, STRICT])),
    st.builds(
        PutTenant,
        tenant=st.builds(
            Tenant,
            name=st.sampled_from(["a", "b"]),
            weight=st.sampled_from([1.0, 2.5]),
            quota=st.none() | st.builds(Quota, running=st.integers(0, 3)),
        ),
    ),
    st.builds(
        PutRuntime,
        runtime=st.builds(
            RuntimeStats,
            tenant=st.sampled_from(["a", "b"]),
            name=st.just("bill"),
            recent=st.tuples(st.integers(0, 9), st.integers(0, 9)),
        ),
    ),
    st.builds(PutQueue, queue=st.builds(Queue, name=st.just("bulk"), priority=st.integers(0, 2))),
    st.builds(PutKey, record=_keys),
)
"""Anything, also what no scheduler would write: moves of unknown jobs, endings twice, new puts."""
histories = st.lists(st.lists(writes, max_size=6), max_size=8)
"""Journal records."""
job_queries = st.builds(
    JobQuery,
    states=st.lists(st.sampled_from(JobState), max_size=3).map(tuple),
    priority=st.none() | st.integers(-1, 1),
    queue=st.sampled_from([None, "default", "bulk", "unheard"]),
    tenant=st.sampled_from([None, "default", "acme"]),
    name=st.sampled_from([None, "invoice", "report"]),
    labels=st.lists(st.sampled_from(LABELS), max_size=2).map(tuple),
    created_after=st.none() | st.integers(0, 9),
    created_before=st.none() | st.integers(0, 9),
    after=st.sampled_from([None, None, "job-1", "job-2"]),
    limit=st.integers(1, 7),
)
execution_queries = st.builds(
    ExecutionQuery,
    job_id=st.none() | _job_ids,
    worker_id=st.none() | st.sampled_from(WORKER_IDS),
    states=st.lists(st.sampled_from(ExecutionState), max_size=3).map(tuple),
    limit=st.integers(1, 4),
)
