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
"""The life of a job that was just accepted."""


class SchedulerState:
    """All that the scheduler knows."""

    def __init__(
        self, timing: Timing, now: Instant, atlas: ZoneLookup, policy: Policy, limits: CoreLimits
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
        self.schedule_index = ScheduleIndex(atlas, self.timers)
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
        """The newest place kept for the first job of a class; may be out of date."""
        self.conservative_plan: dict[JobId, tuple[WorkerId, Instant]] = {}
        """Where and when each waiting job is to start (conservative.py)."""
        self.preemptible: dict[ExecutionId, None] = {}
        """What runs and may be stopped for a more urgent job."""
        self.being_preempted: dict[WorkerId, JobId] = {}
        """Workers where others are stopped to make room for this job."""
        self.next_preemption: tuple[JobId, Instant] | None = None
        """Who will have waited long enough to have others stopped, and when."""
        self.blocked_classes = 0
        """Bits of the classes whose queue is held back by a gate."""
        self.next_arrival_number = 1
        self.refill_requests = 0
        """Questions asked of the store so far."""
        self.recalled: dict[JobId, None] = {}
        """Jobs that were brought back from the shelf by name in this turn."""
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
        """Those that were last asked for, and the same as others use them: alike jobs mostly come
        together."""

    def begin_turn(self) -> None:
        """What changes from now on is a new draft."""
        self.changeset = self.schedule_index.changeset = Changeset()
        self.trigger_index.changeset = self.changeset.events

    # Looking up

    def job(self, job_id: JobId) -> JobEntry:
        """The live job."""
        cell = self.jobs.get(job_id)
        if cell is None:
            raise NotFound("job", job_id)
        return cell

    def worker(self, worker_id: WorkerId) -> WorkerEntry:
        """The worker, offline or not."""
        cell = self.fleet.workers.get(worker_id)
        if cell is None:
            raise NotFound("worker", worker_id)
        return cell

    def queue(self, name: str, now: Instant) -> QueueEntry:
        """The queue, made on first use."""
        cell = self.queues.get(name)
        if cell is None:
            if len(self.queues) >= QUEUES_MAX:
                raise TooMuch(f"there are {QUEUES_MAX} queues already; use one of them")
            cell = QueueEntry(Queue(name, created_at=now))
            self.queues[name] = cell
            self.changeset.queues[name] = cell.queue
        return cell

    # Jobs

    def add_job(self, job_id: JobId, spec: Spec, life: Life) -> JobEntry:
        """A job comes into memory: new, recalled, or loaded."""
        cell = JobEntry(job_id, self.with_interned_terms(spec), life)
        cell.sort_key = self.ready_queue.order.sort_key(cell.spec)
        self.jobs[job_id] = cell
        if spec.group is None or self.groups.add(cell):
            self.depths.count_in(spec.terms.queue, spec.terms.tenant, life.state, 1)
        if spec.origin is not None:
            self.schedule_index.job_begins(spec.origin, job_id)
        return cell

    def with_interned_terms(self, spec: Spec) -> Spec:
        """The same spec, with terms that other jobs use too."""
        terms = self.interned_terms(spec.terms)
        return spec if terms is spec.terms else replace(spec, terms=terms)

    def interned_terms(self, terms: Terms) -> Terms:
        """The same terms, as other jobs use them."""
        if id(terms) in self.terms.entries:
            return terms
        asked, found = self._newest
        if found is None or (terms is not asked and terms is not found):
            found = self._interned_terms.same(terms)
            self._newest = (terms, found)
        return found

    def ready_life(self, life: Life, now: Instant) -> Life:
        """The life of a pending job that is ready now; one object for all fresh jobs of a turn."""
        if life is not NEW_LIFE:
            return replace(life, state=JobState.QUEUED, reason="ready", ready_at=now, due_at=None)
        if self._ready.ready_at != now:
            self._ready = Life(JobState.QUEUED, reason="ready", ready_at=now)
        return self._ready

    def forget_job(self, cell: JobEntry) -> None:
        """The job is no longer in memory; it must not stand in any line."""
        if cell.spec.group is None or self.groups.remove(cell):
            terms = cell.spec.terms
            self.depths.count_in(terms.queue, terms.tenant, cell.life.state, -1)
        del self.jobs[cell.id]

    def put_job(self, cell: JobEntry) -> None:
        """The job is to be written as a whole."""
        self.changeset.put[cell.id] = cell

    def set_spec(self, cell: JobEntry, spec: Spec) -> None:
        """The job is asked for in another way; it must not stand in any line."""
        self._recount(cell, -1)
        if cell.life.line:
            self.leave_spill_queue(cell)
            cell.life = replace(cell.life, line=0)
        cell.spec = self.with_interned_terms(spec)
        cell.sort_key = self.ready_queue.order.sort_key(cell.spec)
        self._recount(cell, 1)
        self.put_job(cell)

    def _recount(self, cell: JobEntry, sign: int) -> None:
        """The job counts, or counts no longer, as what it asks for says."""
        if cell.spec.group is None or self.groups.recount(cell, sign):
            self.depths.count(cell.spec.terms, cell.life.state, sign)

    def set_life(self, cell: JobEntry, life: Life) -> None:
        """The job is where `life` says. Whoever calls has asked the lifecycle before."""
        before, after = cell.life.state, life.state
        if after is not before and (cell.spec.group is None or self.groups.move(cell, after)):
            self.depths.move(cell.spec.terms, before, after)
        self._put_life(cell, life)

    def _put_life(self, cell: JobEntry, life: Life) -> None:
        if cell.life.line:
            self.leave_spill_queue(cell)
        cell.life = replace(life, line=0) if life.line else life
        self.changeset.moved[cell.id] = cell

    def leave_spill_queue(self, cell: JobEntry) -> None:
        """Its row is about to say that it waits in no line of the store any more."""
        lane = self.ready_queue.by_spill_queue.get(cell.life.line)
        if lane is not None and cell.spec.arrival_number >= lane.boundary:
            lane.left_by_name(cell.id)

    def finish(self, cell: JobEntry, verb: JobVerb, life: Life, now: Instant) -> None:
        """The job has ended and leaves memory. Its dependents are the caller's to tell."""
        spec, state = cell.spec, move_job(cell.id, cell.life.state, verb)
        assert state in JOB_FINAL
        life = life if spec.group is None else self.groups.final_life(cell, life)
        if spec.finish_by is not None:
            life = replace(life, deadline=self._final_deadline(cell, state, now))
        life = replace(life, state=state, finished_at=now, due_at=None)
        if spec.group is None:
            self.forget_job(cell)  # from where it was: what has ended is not counted
            self._put_life(cell, life)
        else:
            self.set_life(cell, life)
            self.forget_job(cell)
        self.recently_finished.remember_job(
            cell.id, now, None if life.delete_when_finished else state
        )
        if spec.origin is not None:
            self.schedule_index.job_ended(spec.origin, cell.id)
        if self.trigger_index.wants_end(state):
            self.trigger_index.ended_jobs.append(cell)
        is_run = life.started_at is not None and life.group_progress is None  # a band is none
        ran = now - (life.started_at or 0) if is_run else None
        self.changeset.ends.append(Ended(spec.terms.queue, state, ran))
        if life.delete_when_finished:
            self.changeset.dropped[cell.id] = None

    def _final_deadline(self, cell: JobEntry, state: JobState, now: Instant) -> str:
        word = outcome_of(cell.spec, state, now)
        if word != cell.life.deadline:
            self._count_deadline(cell, word)
        return word

    def note_deadline(self, cell: JobEntry, word: str) -> None:
        """Something is known for good of the job's deadline: it is written, told and counted."""
        if cell.life.deadline != word:
            self.set_life(cell, replace(cell.life, deadline=word))
            self._count_deadline(cell, word)

    def _count_deadline(self, cell: JobEntry, word: str) -> None:
        self.changeset.deadlines[word] = self.changeset.deadlines.get(word, 0) + 1
        if self.trigger_index.wants_deadline(word):
            self.trigger_index.deadline_notices.append((cell, word))

    def count_spilled(self, lane: FifoGroup, step: int) -> None:
        """So many more jobs of the lane are on the shelf, where they are queued like others."""
        queue = self.ready_queue.classes[lane.class_index].queue.queue.name
        self.depths.count_in(queue, lane.key[0], JobState.QUEUED, step)

    # Executions, workers, queues

    def put_execution(self, cell: ExecutionEntry, execution: Execution) -> None:
        """The execution is as given."""
        cell.execution = execution
        self.changeset.executions[execution.id] = execution

    def end_execution(self, cell: ExecutionEntry, execution: Execution, now: Instant) -> JobEntry:
        """The execution has ended: what it held comes back, here and nowhere else."""
        execution_id = execution.id
        self.changeset.executions[execution_id] = cell.execution = execution
        del self.executions[execution_id]
        worker = self.fleet.workers.get(execution.worker_id)
        if worker is not None:
            worker.release(execution_id, cell.ends_at)
            self.fleet.offer(worker)
        job = self.jobs[execution.job_id]
        terms, queue = job.spec.terms, self.queues[job.spec.terms.queue]
        if cell.rate:
            payer = self.ready_queue.order.account(terms.tenant, queue)
            self.ready_queue.order.settle_charge(payer, cell.rate, (now, cell.ends_at))
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

    def check_quota(self, cell: TenantEntry, now: Instant) -> None:
        """Holds the tenant's classes back, or lets them go, as its quota says now."""
        self.ready_queue.order.allow(
            cell.tenant.name, allowed_classes(cell, self.ready_queue.classes), now
        )

    def put_worker(self, cell: WorkerEntry, worker: Worker) -> None:
        """The worker is as given."""
        cell.worker = worker
        self.fleet.count(cell)
        self.changeset.workers[worker.id] = worker
        self.changeset.dropped_workers.pop(worker.id, None)

    def put_queue(self, cell: QueueEntry, queue: Queue, now: Instant) -> None:
        """The queue is as given."""
        cell.queue = queue
        self.terms.forget()
        self.ready_queue.order.update_queue(cell)
        self.changeset.queues[queue.name] = queue
        self.check_queue_limits(cell, now)

    def check_queue_limits(self, cell: QueueEntry, now: Instant) -> None:
        """Parks the queue or lets it go, as its gates say now."""
        causes = exceeded_limits(cell, now)
        if causes:
            self.blocked_classes |= cell.class_mask
        else:
            self.blocked_classes &= ~cell.class_mask
        for cause in causes:
            if cause.code == "rate_limit":
                self.timers.set(cause.figures["next_at"], TimerKind.QUEUE, cell.queue.name)

    def forget_worker(self, cell: WorkerEntry) -> None:
        """A worker that has been away for long is listed no more."""
        assert not cell.held
        self.fleet.remove(cell)
        self.changeset.workers.pop(cell.worker.id, None)
        self.changeset.dropped_workers[cell.worker.id] = None

    # The policy, tenants, what was learned

    def set_policy(self, policy: Policy, now: Instant) -> None:
        """Another policy holds from now on; what tenants have used counts on."""
        self.note_usage(now)
        self.changeset.policy = policy
        self.use_policy(policy, now)

    def use_policy(self, policy: Policy, now: Instant) -> None:
        """All that depends on the policy is made anew. Costs what is in memory; it is rare."""
        self.policy = policy
        order = make_order(policy, self.tenants, now, self.limits.queues_kept)
        self.ready_queue.reorder(order, now)
        for cell in self.executions.values():
            terms = self.jobs[cell.execution.job_id].spec.terms
            payer = self.ready_queue.order.account(terms.tenant, self.queues[terms.queue])
            share, until = self.dominant_share_of(terms), max(now, cell.ends_at)
            cell.rate = self.ready_queue.order.charge(payer, share, (now, until))
        for tenant in self.tenants.limited():
            self.check_quota(tenant, now)

    def dominant_share_of(self, terms: Terms) -> float:
        """The part of the fleet that such a job takes, which need not be in line."""
        job_class = self.ready_queue.class_of(terms)
        if job_class is None:
            return dominant_share(terms.needs.resources, self.fleet.capacity)
        return share_of(job_class, self.fleet.capacity)

    def note_usage(self, now: Instant) -> None:
        """Writes into the tenants' records what they have used until now, in memory only."""
        order = self.ready_queue.order
        if isinstance(order, FairOrder):
            for cell in self.tenants.entries.values():
                used = order.usage(cell.tenant.name, now)
                cell.tenant = replace(cell.tenant, used=used, used_at=now)

    def note_start(self, cell: TenantEntry, now: Instant) -> None:
        """What the tenant has used is written now and then, so that a restart remembers it."""
        if now - cell.written_at < USAGE_NOTE_MS or len(self.tenants.entries) < 2:
            return
        order = self.ready_queue.order
        if isinstance(order, FairOrder):
            used = order.usage(cell.tenant.name, now)
            self.put_tenant(replace(cell.tenant, used=used, used_at=now))

    def put_tenant(self, tenant: Tenant) -> TenantEntry:
        """The tenant is as given."""
        before = self.tenants.entry(tenant.name).tenant
        cell = self.tenants.put(tenant)
        if tenant.quota != before.quota:
            self.terms.forget()
        cell.written_at = tenant.used_at
        self.changeset.tenants[tenant.name] = tenant
        return cell
