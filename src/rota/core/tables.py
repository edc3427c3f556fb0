"""The indexed in-memory state, and the only door through which it changes.

Every change to a record goes through a method here, which notes it in the draft of this turn's
writes; so memory and journal cannot tell different stories.
"""

from __future__ import annotations

from msgspec.structs import replace

from rota.core.errors import NotFound, TooMuch
from rota.core.graph import Graph
from rota.core.inputs import Timing
from rota.core.lifecycle import JOB_FINAL, JobVerb, move_job
from rota.core.limits import QUEUES_MAX, USAGE_NOTE_MS, CoreLimits
from rota.core.memory.bands import Bands
from rota.core.memory.cells import ExecutionCell, JobCell, QueueCell, WorkerCell
from rota.core.memory.draft import Draft
from rota.core.memory.pool import Pool
from rota.core.memory.recent import Recent
from rota.core.memory.runtimes import Runtimes
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
from rota.core.order.arrivals import Arrivals
from rota.core.order.concurrency import KeyGroups
from rota.core.order.depths import Depths
from rota.core.order.fair import FairOrder
from rota.core.order.gates import closed, is_limited
from rota.core.order.kinds import Kinds
from rota.core.order.lanes import Lane
from rota.core.order.ordering import Lines
from rota.core.order.rules import make_order
from rota.core.order.sharing import dominant_share, share_of
from rota.core.order.tenants import TenantCell, Tenants, allowed, has_quota
from rota.core.outcome import Ended
from rota.core.place.locality import Locality
from rota.core.place.placement import Fleet
from rota.core.place.places import Reservation
from rota.core.records.policy import Policy
from rota.core.records.zones import Atlas
from rota.core.times.agenda import ScheduleIndex
from rota.core.times.slack import outcome_of
from rota.core.times.timers import TimerKind, Timers
from rota.core.triggers.bus import TriggerIndex

FRESH = Life(JobState.PENDING)
"""The life of a job that was just accepted."""


class Tables:
    """All that the scheduler knows."""

    def __init__(
        self, timing: Timing, now: Instant, atlas: Atlas, policy: Policy, limits: CoreLimits
    ) -> None:
        self.limits, self.timing, self.policy = limits, timing, policy
        self.lease_ms = timing.lease_ttl_ms + timing.lease_grace_ms
        self.tenants = Tenants(limits.tenants_kept)
        self.runtimes = Runtimes(limits.runtimes_kept)
        self.jobs: dict[JobId, JobCell] = {}
        self.executions: dict[ExecutionId, ExecutionCell] = {}
        self.queues: dict[str, QueueCell] = {}
        self.graph = Graph()
        self.timers = Timers()
        self.agenda = ScheduleIndex(atlas, self.timers)
        self.bus = TriggerIndex(self.timers)
        self.recent = Recent(now)
        self.depths = Depths(self.tenants)
        self.kinds = Kinds(self.queues, self.tenants, self.depths, limits.terms_pool_max)
        order = make_order(policy, self.tenants, now, limits.queues_kept)
        self.lines = Lines(self.jobs, self.kinds, order, limits)
        self.fleet = Fleet(self.lines, limits)
        self.arrivals = Arrivals(now)
        self.locality = Locality(self.jobs, self.lines, self.fleet, self.timers)
        self.keys = KeyGroups(self.jobs)
        self.places: dict[int, Reservation] = {}
        """The newest place kept for the first job of a class; may be out of date."""
        self.plan: dict[JobId, tuple[WorkerId, Instant]] = {}
        """Where and when each waiting job is to start (conservative.py)."""
        self.evictable: dict[ExecutionId, None] = {}
        """What runs and may be stopped for a more urgent job."""
        self.cleared: dict[WorkerId, JobId] = {}
        """Workers where others are stopped to make room for this job."""
        self.patience: tuple[JobId, Instant] | None = None
        """Who will have waited long enough to have others stopped, and when."""
        self.parked = 0
        """Bits of the classes whose queue is held back by a gate."""
        self.order_next = 1
        self.tickets = 0
        """Questions asked of the store so far."""
        self.visitors: dict[JobId, None] = {}
        """Jobs that were brought back from the shelf by name in this turn."""
        self.draft = self.agenda.changeset
        self.bus.changeset = self.draft.events
        self.opened_now: dict[WorkerId, None] = {}
        """Workers that opened a poll in this turn."""
        self.answer_now: dict[WorkerId, None] = {}
        """Workers whose open poll is answered at the end of this turn."""
        self.bands = Bands(self.depths.count)
        self._ready = FRESH
        self._terms: Pool[Terms] = Pool(limits.terms_pool_max)
        self._newest: tuple[Terms | None, Terms | None] = (None, None)
        """Those that were last asked for, and the same as others use them: alike jobs mostly come
        together."""

    def begin_turn(self) -> None:
        """What changes from now on is a new draft."""
        self.draft = self.agenda.changeset = Draft()
        self.bus.changeset = self.draft.events

    # Looking up

    def job(self, job_id: JobId) -> JobCell:
        """The live job."""
        cell = self.jobs.get(job_id)
        if cell is None:
            raise NotFound("job", job_id)
        return cell

    def worker(self, worker_id: WorkerId) -> WorkerCell:
        """The worker, offline or not."""
        cell = self.fleet.workers.get(worker_id)
        if cell is None:
            raise NotFound("worker", worker_id)
        return cell

    def queue(self, name: str, now: Instant) -> QueueCell:
        """The queue, made on first use."""
        cell = self.queues.get(name)
        if cell is None:
            if len(self.queues) >= QUEUES_MAX:
                raise TooMuch(f"there are {QUEUES_MAX} queues already; use one of them")
            cell = QueueCell(Queue(name, created_at=now))
            self.queues[name] = cell
            self.draft.queues[name] = cell.queue
        return cell

    # Jobs

    def add_job(self, job_id: JobId, spec: Spec, life: Life) -> JobCell:
        """A job comes into memory: new, recalled, or loaded."""
        cell = JobCell(job_id, self.with_shared_terms(spec), life)
        cell.place = self.lines.order.place(cell.spec)
        self.jobs[job_id] = cell
        if spec.band is None or self.bands.add(cell):
            self.depths.count_in(spec.terms.queue, spec.terms.tenant, life.state, 1)
        if spec.origin is not None:
            self.agenda.job_begins(spec.origin, job_id)
        return cell

    def with_shared_terms(self, spec: Spec) -> Spec:
        """The same spec, with terms that other jobs use too."""
        terms = self.shared(spec.terms)
        return spec if terms is spec.terms else replace(spec, terms=terms)

    def shared(self, terms: Terms) -> Terms:
        """The same terms, as other jobs use them."""
        if id(terms) in self.kinds.known:
            return terms
        asked, found = self._newest
        if found is None or (terms is not asked and terms is not found):
            found = self._terms.same(terms)
            self._newest = (terms, found)
        return found

    def released(self, life: Life, now: Instant) -> Life:
        """The life of a pending job that is ready now; one object for all fresh jobs of a turn."""
        if life is not FRESH:
            return replace(life, state=JobState.QUEUED, reason="ready", ready_at=now, due_at=None)
        if self._ready.ready_at != now:
            self._ready = Life(JobState.QUEUED, reason="ready", ready_at=now)
        return self._ready

    def forget_job(self, cell: JobCell) -> None:
        """The job is no longer in memory; it must not stand in any line."""
        if cell.spec.band is None or self.bands.remove(cell):
            terms = cell.spec.terms
            self.depths.count_in(terms.queue, terms.tenant, cell.life.state, -1)
        del self.jobs[cell.id]

    def put_job(self, cell: JobCell) -> None:
        """The job is to be written as a whole."""
        self.draft.put[cell.id] = cell

    def set_spec(self, cell: JobCell, spec: Spec) -> None:
        """The job is asked for in another way; it must not stand in any line."""
        self._weigh(cell, -1)
        if cell.life.line:
            self.leave_shelf(cell)
            cell.life = replace(cell.life, line=0)
        cell.spec = self.with_shared_terms(spec)
        cell.place = self.lines.order.place(cell.spec)
        self._weigh(cell, 1)
        self.put_job(cell)

    def _weigh(self, cell: JobCell, sign: int) -> None:
        """The job counts, or counts no longer, as what it asks for says."""
        if cell.spec.band is None or self.bands.weigh(cell, sign):
            self.depths.count(cell.spec.terms, cell.life.state, sign)

    def set_life(self, cell: JobCell, life: Life) -> None:
        """The job is where `life` says. Whoever calls has asked the lifecycle before."""
        before, after = cell.life.state, life.state
        if after is not before and (cell.spec.band is None or self.bands.move(cell, after)):
            self.depths.move(cell.spec.terms, before, after)
        self._put_life(cell, life)

    def _put_life(self, cell: JobCell, life: Life) -> None:
        if cell.life.line:
            self.leave_shelf(cell)
        cell.life = replace(life, line=0) if life.line else life
        self.draft.moved[cell.id] = cell

    def leave_shelf(self, cell: JobCell) -> None:
        """Its row is about to say that it waits in no line of the store any more."""
        lane = self.lines.numbered.get(cell.life.line)
        if lane is not None and cell.spec.order >= lane.edge:
            lane.left_by_name(cell.id)

    def finish(self, cell: JobCell, verb: JobVerb, life: Life, now: Instant) -> None:
        """The job has ended and leaves memory. Its dependents are the caller's to tell."""
        spec, state = cell.spec, move_job(cell.id, cell.life.state, verb)
        assert state in JOB_FINAL
        life = life if spec.band is None else self.bands.last(cell, life)
        if spec.finish_by is not None:
            life = replace(life, deadline=self._judge_deadline(cell, state, now))
        life = replace(life, state=state, finished_at=now, due_at=None)
        if spec.band is None:
            self.forget_job(cell)  # from where it was: what has ended is not counted
            self._put_life(cell, life)
        else:
            self.set_life(cell, life)
            self.forget_job(cell)
        self.recent.depart(cell.id, now, None if life.doomed else state)
        if spec.origin is not None:
            self.agenda.job_ended(spec.origin, cell.id)
        if self.bus.wants_end(state):
            self.bus.ended_jobs.append(cell)
        is_run = life.started_at is not None and life.tally is None  # a band is none
        ran = now - (life.started_at or 0) if is_run else None
        self.draft.ends.append(Ended(spec.terms.queue, state, ran))
        if life.doomed:
            self.draft.dropped[cell.id] = None

    def _judge_deadline(self, cell: JobCell, state: JobState, now: Instant) -> str:
        word = outcome_of(cell.spec, state, now)
        if word != cell.life.deadline:
            self._tell_deadline(cell, word)
        return word

    def note_deadline(self, cell: JobCell, word: str) -> None:
        """Something is known for good of the job's deadline: it is written, told and counted."""
        if cell.life.deadline != word:
            self.set_life(cell, replace(cell.life, deadline=word))
            self._tell_deadline(cell, word)

    def _tell_deadline(self, cell: JobCell, word: str) -> None:
        self.draft.deadlines[word] = self.draft.deadlines.get(word, 0) + 1
        if self.bus.wants_deadline(word):
            self.bus.deadline_notices.append((cell, word))

    def count_shelved(self, lane: Lane, step: int) -> None:
        """So many more jobs of the lane are on the shelf, where they are queued like others."""
        queue = self.lines.classes[lane.class_index].queue.queue.name
        self.depths.count_in(queue, lane.key[0], JobState.QUEUED, step)

    # Executions, workers, queues

    def put_execution(self, cell: ExecutionCell, execution: Execution) -> None:
        """The execution is as given."""
        cell.execution = execution
        self.draft.executions[execution.id] = execution

    def end_execution(self, cell: ExecutionCell, execution: Execution, now: Instant) -> JobCell:
        """The execution has ended: what it held comes back, here and nowhere else."""
        execution_id = execution.id
        self.draft.executions[execution_id] = cell.execution = execution
        del self.executions[execution_id]
        worker = self.fleet.workers.get(execution.worker_id)
        if worker is not None:
            worker.let_go(execution_id, cell.ends_at)
            self.fleet.offer(worker)
        job = self.jobs[execution.job_id]
        terms, queue = job.spec.terms, self.queues[job.spec.terms.queue]
        if cell.rate:
            payer = self.lines.order.party(terms.tenant, queue)
            self.lines.order.end(payer, cell.rate, (now, cell.ends_at))
        queue.end(execution_id)
        if is_limited(queue):
            self.check_gates(queue, now)
        self.evictable.pop(execution_id, None)
        self.locality.end(execution_id)
        tenant = self.tenants.cells[terms.tenant]
        tenant.let_go(execution_id)
        if has_quota(tenant):
            self.check_quota(tenant, now)
        return job

    def check_quota(self, cell: TenantCell, now: Instant) -> None:
        """Holds the tenant's classes back, or lets them go, as its quota says now."""
        self.lines.order.allow(cell.tenant.name, allowed(cell, self.lines.classes), now)

    def put_worker(self, cell: WorkerCell, worker: Worker) -> None:
        """The worker is as given."""
        cell.worker = worker
        self.fleet.count(cell)
        self.draft.workers[worker.id] = worker
        self.draft.dropped_workers.pop(worker.id, None)

    def put_queue(self, cell: QueueCell, queue: Queue, now: Instant) -> None:
        """The queue is as given."""
        cell.queue = queue
        self.kinds.forget()
        self.lines.order.reseat(cell)
        self.draft.queues[queue.name] = queue
        self.check_gates(cell, now)

    def check_gates(self, cell: QueueCell, now: Instant) -> None:
        """Parks the queue or lets it go, as its gates say now."""
        causes = closed(cell, now)
        if causes:
            self.parked |= cell.class_mask
        else:
            self.parked &= ~cell.class_mask
        for cause in causes:
            if cause.code == "rate_limit":
                self.timers.set(cause.figures["next_at"], TimerKind.QUEUE, cell.queue.name)

    def forget_worker(self, cell: WorkerCell) -> None:
        """A worker that has been away for long is listed no more."""
        assert not cell.held
        self.fleet.remove(cell)
        self.draft.workers.pop(cell.worker.id, None)
        self.draft.dropped_workers[cell.worker.id] = None

    # The policy, tenants, what was learned

    def set_policy(self, policy: Policy, now: Instant) -> None:
        """Another policy holds from now on; what tenants have used counts on."""
        self.note_usage(now)
        self.draft.policy = policy
        self.use_policy(policy, now)

    def use_policy(self, policy: Policy, now: Instant) -> None:
        """All that depends on the policy is made anew. Costs what is in memory; it is rare."""
        self.policy = policy
        order = make_order(policy, self.tenants, now, self.limits.queues_kept)
        self.lines.reorder(order, now)
        for cell in self.executions.values():
            terms = self.jobs[cell.execution.job_id].spec.terms
            payer = self.lines.order.party(terms.tenant, self.queues[terms.queue])
            share, until = self.share_like(terms), max(now, cell.ends_at)
            cell.rate = self.lines.order.begin(payer, share, (now, until))
        for tenant in self.tenants.limited():
            self.check_quota(tenant, now)

    def share_like(self, terms: Terms) -> float:
        """The part of the fleet that such a job takes, which need not be in line."""
        job_class = self.lines.class_of(terms)
        if job_class is None:
            return dominant_share(terms.needs.resources, self.fleet.capacity)
        return share_of(job_class, self.fleet.capacity)

    def note_usage(self, now: Instant) -> None:
        """Writes into the tenants' records what they have used until now, in memory only."""
        order = self.lines.order
        if isinstance(order, FairOrder):
            for cell in self.tenants.cells.values():
                used = order.usage(cell.tenant.name, now)
                cell.tenant = replace(cell.tenant, used=used, used_at=now)

    def note_start(self, cell: TenantCell, now: Instant) -> None:
        """What the tenant has used is written now and then, so that a restart remembers it."""
        if now - cell.written_at < USAGE_NOTE_MS or len(self.tenants.cells) < 2:
            return
        order = self.lines.order
        if isinstance(order, FairOrder):
            used = order.usage(cell.tenant.name, now)
            self.put_tenant(replace(cell.tenant, used=used, used_at=now))

    def put_tenant(self, tenant: Tenant) -> TenantCell:
        """The tenant is as given."""
        before = self.tenants.cell(tenant.name).tenant
        cell = self.tenants.put(tenant)
        if tenant.quota != before.quota:
            self.kinds.forget()
        cell.written_at = tenant.used_at
        self.draft.tenants[tenant.name] = tenant
        return cell
