"""State of the scheduler: the indexed in-memory state, and the only way to change it.

Every change to a record goes through a method here, which notes it in the changeset of this turn;
so memory and journal cannot tell different stories.
"""

from __future__ import annotations

from msgspec.structs import replace

from rota.core.changeset import Changeset
from rota.core.commands import Timing
from rota.core.deadlines import outcome_of
from rota.core.dependency_graph import DependencyGraph
from rota.core.entries import (
    ExecutionEntry,
    GroupIndex,
    InternPool,
    JobEntry,
    QueueEntry,
    WorkerEntry,
)
from rota.core.errors import NotFound, TooMuch
from rota.core.lifecycle import JOB_FINAL, JobVerb, move_job
from rota.core.limits import QUEUES_MAX, USAGE_NOTE_MS, CoreLimits
from rota.core.model import (
    Execution,
    ExecutionId,
    Instant,
    JobId,
    JobState,
    Life,
    Queue,
    Spec,
    Tenant,
    Terms,
    Worker,
    WorkerId,
)
from rota.core.outcome import Ended
from rota.core.placement.affinity import AffinityPlacement
from rota.core.placement.fleet import Fleet, Reservation
from rota.core.policy import Policy
from rota.core.ready_queue.classes import ArrivalRates
from rota.core.ready_queue.concurrency_keys import ConcurrencyKeys
from rota.core.ready_queue.fair_share import FairOrder, dominant_share, share_of
from rota.core.ready_queue.limits_and_quotas import (
    Depths,
    TenantEntry,
    Tenants,
    allowed_classes,
    exceeded_limits,
    has_limits,
    has_quota,
)
from rota.core.ready_queue.merge_queue import FifoGroup
from rota.core.ready_queue.ready_queue import ReadyQueue, TermsCache, make_order
from rota.core.recently_finished import RecentlyFinished
from rota.core.runtime_estimates import RuntimeEstimates
from rota.core.schedules.schedule_index import ScheduleIndex
from rota.core.time_zones import ZoneLookup
from rota.core.timers import TimerKind, Timers
from rota.core.triggers.trigger_index import TriggerIndex

NEW_LIFE = Life(JobState.PENDING)
"""Life of a job that was just accepted."""


class SchedulerState:
    """State of the scheduler in memory, and the steps that keep its parts consistent."""

    def __init__(
        self, timing: Timing, now: Instant, zones: ZoneLookup, policy: Policy, limits: CoreLimits
    ) -> None:
        self.limits, self.timing, self.policy = limits, timing, policy
        self.lease_ms = timing.lease_ttl_ms + timing.lease_grace_ms
        self.tenants = Tenants(limits.tenants_kept)
        self.runtime_estimates = RuntimeEstimates(limits.runtimes_kept)
        self.jobs: dict[JobId, JobEntry] = {}
        self.executions: dict[ExecutionId, ExecutionEntry] = {}
        self.queues: dict[str, QueueEntry] = {}
        self.dependencies = DependencyGraph()
        self.timers = Timers()
        self.schedule_index = ScheduleIndex(zones, self.timers)
        self.trigger_index = TriggerIndex(self.timers)
        self.recently_finished = RecentlyFinished(now)
        self.depths = Depths(self.tenants)
        self.terms = TermsCache(self.queues, self.tenants, self.depths, limits.terms_pool_max)
        order = make_order(policy, self.tenants, now, limits.queues_kept)
        self.ready_queue = ReadyQueue(self.jobs, self.terms, order, limits)
        self.fleet = Fleet(self.ready_queue, limits)
        self.arrival_rates = ArrivalRates(now)
        self.affinity = AffinityPlacement(self.jobs, self.ready_queue, self.fleet, self.timers)
        self.concurrency_keys = ConcurrencyKeys(self.jobs)
        self.reservations: dict[int, Reservation] = {}
        """By class index: the newest place reserved for the class's first job; may be out of
        date."""
        self.conservative_plan: dict[JobId, tuple[WorkerId, Instant]] = {}
        """Where and when each waiting job is to start (reservations/conservative.py)."""
        self.preemptible: dict[ExecutionId, None] = {}
        """Live executions that may be stopped for a more urgent job."""
        self.being_preempted: dict[WorkerId, JobId] = {}
        """Workers where executions are stopped to make place for this job."""
        self.next_preemption: tuple[JobId, Instant] | None = None
        """The job that will be the next to have waited long enough to preempt others, and when."""
        self.blocked_classes = 0
        """Bits of the classes whose queue is paused or at a limit."""
        self.next_arrival_number, self.fence_floor = 1, 0
        """New fences are above the floor: a failover may have lost records that gave lower ones."""
        self.refill_requests = 0
        """Number of refills requested so far."""
        self.recalled: dict[JobId, None] = {}
        """Spilled jobs that were loaded by id in this turn."""
        self.changeset = self.schedule_index.changeset
        self.trigger_index.changeset = self.changeset.events
        self.opened_now: dict[WorkerId, None] = {}
        """Workers that opened a poll in this turn."""
        self.answer_now: dict[WorkerId, None] = {}
        """Workers whose open poll is answered at the end of this turn."""
        self.groups = GroupIndex(self.depths.count)
        self._ready = NEW_LIFE
        self._interned_terms: InternPool[Terms] = InternPool(limits.terms_pool_max)
        self._newest: tuple[Terms | None, Terms | None] = (None, None)
        """(terms asked for last, the interned ones): alike jobs mostly come together."""

    def begin_turn(self) -> None:
        """Starts a new changeset."""
        self.changeset = self.schedule_index.changeset = Changeset()
        self.trigger_index.changeset = self.changeset.events

    # Lookups

    def job(self, job_id: JobId) -> JobEntry:
        """Live job with this id; raises `NotFound`."""
        entry = self.jobs.get(job_id)
        if entry is None:
            raise NotFound("job", job_id)
        return entry

    def worker(self, worker_id: WorkerId) -> WorkerEntry:
        """Worker with this id, offline or not; raises `NotFound`."""
        entry = self.fleet.workers.get(worker_id)
        if entry is None:
            raise NotFound("worker", worker_id)
        return entry

    def queue(self, name: str, now: Instant) -> QueueEntry:
        """Queue with this name, created on first use."""
        entry = self.queues.get(name)
        if entry is None:
            if len(self.queues) >= QUEUES_MAX:
                raise TooMuch(f"there are {QUEUES_MAX} queues already; use one of them")
            entry = QueueEntry(Queue(name, created_at=now))
            self.queues[name] = entry
            self.changeset.queues[name] = entry.queue
        return entry

    # Jobs

    def add_job(self, job_id: JobId, spec: Spec, life: Life) -> JobEntry:
        """Adds a job to memory: a new one, or one read from the store."""
        entry = JobEntry(job_id, self.with_interned_terms(spec), life)
        entry.sort_key = self.ready_queue.order.sort_key(entry.spec)
        self.jobs[job_id] = entry
        if spec.group is None or self.groups.add(entry):
            self.depths.count_in(spec.terms.queue, spec.terms.tenant, life.state, 1)
        if spec.origin is not None:
            self.schedule_index.job_begins(spec.origin, job_id)
        return entry

    def with_interned_terms(self, spec: Spec) -> Spec:
        terms = self.interned_terms(spec.terms)
        return spec if terms is spec.terms else replace(spec, terms=terms)

    def interned_terms(self, terms: Terms) -> Terms:
        """Interned object for these terms."""
        if id(terms) in self.terms.entries:
            return terms
        asked, found = self._newest
        if found is None or (terms is not asked and terms is not found):
            found = self._interned_terms.same(terms)
            self._newest = (terms, found)
        return found

    def ready_life(self, life: Life, now: Instant) -> Life:
        """Life of a pending job that is ready now; the new jobs of a turn share one object."""
        if life is not NEW_LIFE:
            return replace(life, state=JobState.QUEUED, reason="ready", ready_at=now, due_at=None)
        if self._ready.ready_at != now:
            self._ready = Life(JobState.QUEUED, reason="ready", ready_at=now)
        return self._ready

    def forget_job(self, entry: JobEntry) -> None:
        """Removes a job from memory; it must not be in a queue any more."""
        if entry.spec.group is None or self.groups.remove(entry):
            terms = entry.spec.terms
            self.depths.count_in(terms.queue, terms.tenant, entry.life.state, -1)
        del self.jobs[entry.id]

    def put_job(self, entry: JobEntry) -> None:
        """Notes that the job is to be written as a whole."""
        self.changeset.put[entry.id] = entry

    def set_spec(self, entry: JobEntry, spec: Spec) -> None:
        """Replaces the job's spec; it must not be in a queue."""
        self._recount(entry, -1)
        if entry.life.line:
            self.leave_spill_queue(entry)
            entry.life = replace(entry.life, line=0)
        entry.spec = self.with_interned_terms(spec)
        entry.sort_key = self.ready_queue.order.sort_key(entry.spec)
        self._recount(entry, 1)
        self.put_job(entry)

    def _recount(self, entry: JobEntry, sign: int) -> None:
        """Counts the job by its spec, or takes it out of the counts."""
        if entry.spec.group is None or self.groups.recount(entry, sign):
            self.depths.count(entry.spec.terms, entry.life.state, sign)

    def set_life(self, entry: JobEntry, life: Life) -> None:
        """Replaces the job's life. The caller has checked the transition (lifecycle.py)."""
        before, after = entry.life.state, life.state
        if after is not before and (entry.spec.group is None or self.groups.move(entry, after)):
            self.depths.move(entry.spec.terms, before, after)
        self._put_life(entry, life)

    def _put_life(self, entry: JobEntry, life: Life) -> None:
        if entry.life.line:
            self.leave_spill_queue(entry)
        entry.life = replace(life, line=0) if life.line else life
        self.changeset.moved[entry.id] = entry

    def leave_spill_queue(self, entry: JobEntry) -> None:
        """Notes that the job's row will not name its spill queue any more."""
        fifo_group = self.ready_queue.by_spill_queue.get(entry.life.line)
        if fifo_group is not None and entry.spec.arrival_number >= fifo_group.boundary:
            fifo_group.left_by_name(entry.id)

    def finish(self, entry: JobEntry, verb: JobVerb, life: Life, now: Instant) -> None:
        """Ends a job and removes it from memory. The caller notifies its dependents."""
        spec, state = entry.spec, move_job(entry.id, entry.life.state, verb)
        assert state in JOB_FINAL
        life = life if spec.group is None else self.groups.final_life(entry, life)
        if spec.finish_by is not None:
            life = replace(life, deadline=self._final_deadline(entry, state, now))
        life = replace(life, state=state, finished_at=now, due_at=None)
        if spec.group is None:
            self.forget_job(entry)  # before its state changes: ended jobs are not counted
            self._put_life(entry, life)
        else:
            self.set_life(entry, life)
            self.forget_job(entry)
        self.recently_finished.remember_job(
            entry.id, now, None if life.delete_when_finished else state
        )
        if spec.origin is not None:
            self.schedule_index.job_ended(spec.origin, entry.id)
        if self.trigger_index.wants_end(state):
            self.trigger_index.ended_jobs.append(entry)
        is_run = life.started_at is not None and life.group_progress is None  # groups do not run
        ran = now - (life.started_at or 0) if is_run else None
        self.changeset.ends.append(Ended(spec.terms.queue, state, ran))
        if life.delete_when_finished:
            self.changeset.dropped[entry.id] = None

    def _final_deadline(self, entry: JobEntry, state: JobState, now: Instant) -> str:
        status = outcome_of(entry.spec, state, now)
        if status != entry.life.deadline:
            self._count_deadline(entry, status)
        return status

    def note_deadline(self, entry: JobEntry, status: str) -> None:
        """Writes, counts and announces a final or new result for the job's deadline."""
        if entry.life.deadline != status:
            self.set_life(entry, replace(entry.life, deadline=status))
            self._count_deadline(entry, status)

    def _count_deadline(self, entry: JobEntry, status: str) -> None:
        self.changeset.deadlines[status] = self.changeset.deadlines.get(status, 0) + 1
        if self.trigger_index.wants_deadline(status):
            self.trigger_index.deadline_notices.append((entry, status))

    def count_spilled(self, fifo_group: FifoGroup, step: int) -> None:
        """Counts so many more spilled jobs of the FIFO group as queued."""
        queue = self.ready_queue.classes[fifo_group.class_index].queue.queue.name
        self.depths.count_in(queue, fifo_group.key[0], JobState.QUEUED, step)

    # Executions, workers, queues

    def put_execution(self, entry: ExecutionEntry, execution: Execution) -> None:
        """Replaces the execution's record."""
        entry.execution = execution
        self.changeset.executions[execution.id] = execution

    def end_execution(self, entry: ExecutionEntry, execution: Execution, now: Instant) -> JobEntry:
        """Ends an execution and gives back what it held: its resources, quota and rate limit."""
        execution_id = execution.id
        self.changeset.executions[execution_id] = entry.execution = execution
        del self.executions[execution_id]
        worker = self.fleet.workers.get(execution.worker_id)
        if worker is not None:
            worker.release(execution_id, entry.ends_at)
            self.fleet.offer(worker)
        job = self.jobs[execution.job_id]
        terms, queue = job.spec.terms, self.queues[job.spec.terms.queue]
        if entry.rate:
            account = self.ready_queue.order.account(terms.tenant, queue)
            self.ready_queue.order.settle_charge(account, entry.rate, (now, entry.ends_at))
        queue.end(execution_id)
        if has_limits(queue):
            self.check_queue_limits(queue, now)
        self.preemptible.pop(execution_id, None)
        self.affinity.note_end(execution_id)
        tenant = self.tenants.entries[terms.tenant]
        tenant.release(execution_id)
        if has_quota(tenant):
            self.check_quota(tenant, now)
        return job

    def check_quota(self, entry: TenantEntry, now: Instant) -> None:
        """Blocks or allows the tenant's classes, as its quota says now."""
        self.ready_queue.order.allow(
            entry.tenant.name, allowed_classes(entry, self.ready_queue.classes), now
        )

    def put_worker(self, entry: WorkerEntry, worker: Worker) -> None:
        """Replaces the worker's record."""
        entry.worker = worker
        self.fleet.count(entry)
        self.changeset.workers[worker.id] = worker
        self.changeset.dropped_workers.pop(worker.id, None)

    def put_queue(self, entry: QueueEntry, queue: Queue, now: Instant) -> None:
        """Replaces the queue's settings."""
        entry.queue = queue
        self.terms.forget()
        self.ready_queue.order.update_queue(entry)
        self.changeset.queues[queue.name] = queue
        self.check_queue_limits(entry, now)

    def check_queue_limits(self, entry: QueueEntry, now: Instant) -> None:
        """Blocks or unblocks the queue's classes, as its pause and limits say now."""
        causes = exceeded_limits(entry, now)
        if causes:
            self.blocked_classes |= entry.class_mask
        else:
            self.blocked_classes &= ~entry.class_mask
        for cause in causes:
            if cause.code == "rate_limit":
                self.timers.set(cause.figures["next_at"], TimerKind.QUEUE, entry.queue.name)

    def forget_worker(self, entry: WorkerEntry) -> None:
        """Forgets a worker that has been offline for long."""
        assert not entry.held
        self.fleet.remove(entry)
        self.changeset.workers.pop(entry.worker.id, None)
        self.changeset.dropped_workers[entry.worker.id] = None

    # Policy and tenants

    def set_policy(self, policy: Policy, now: Instant) -> None:
        """Replaces the policy; what tenants have used still counts."""
        self.note_usage(now)
        self.changeset.policy = policy
        self.use_policy(policy, now)

    def use_policy(self, policy: Policy, now: Instant) -> None:
        """Rebuilds all that depends on the policy. The cost grows with the jobs in memory."""
        self.policy = policy
        order = make_order(policy, self.tenants, now, self.limits.queues_kept)
        self.ready_queue.reorder(order, now)
        for entry in self.executions.values():
            terms = self.jobs[entry.execution.job_id].spec.terms
            account = self.ready_queue.order.account(terms.tenant, self.queues[terms.queue])
            share, until = self.dominant_share_of(terms), max(now, entry.ends_at)
            entry.rate = self.ready_queue.order.charge(account, share, (now, until))
        for tenant in self.tenants.limited():
            self.check_quota(tenant, now)

    def dominant_share_of(self, terms: Terms) -> float:
        """Dominant share of the fleet that one such job takes; none of them has to wait."""
        job_class = self.ready_queue.class_of(terms)
        if job_class is None:
            return dominant_share(terms.needs.resources, self.fleet.capacity)
        return share_of(job_class, self.fleet.capacity)

    def note_usage(self, now: Instant) -> None:
        """Notes in the tenants' records what they have used until now, in memory only."""
        order = self.ready_queue.order
        if isinstance(order, FairOrder):
            for entry in self.tenants.entries.values():
                used = order.usage(entry.tenant.name, now)
                entry.tenant = replace(entry.tenant, used=used, used_at=now)

    def note_start(self, entry: TenantEntry, now: Instant) -> None:
        """Writes the tenant's usage now and then, so that it survives a restart."""
        if now - entry.written_at < USAGE_NOTE_MS or len(self.tenants.entries) < 2:
            return
        order = self.ready_queue.order
        if isinstance(order, FairOrder):
            used = order.usage(entry.tenant.name, now)
            self.put_tenant(replace(entry.tenant, used=used, used_at=now))

    def put_tenant(self, tenant: Tenant) -> TenantEntry:
        """Replaces the tenant's settings."""
        before = self.tenants.entry(tenant.name).tenant
        entry = self.tenants.put(tenant)
        if tenant.quota != before.quota:
            self.terms.forget()
        entry.written_at = tenant.used_at
        self.changeset.tenants[tenant.name] = tenant
        return entry
