"""The Scheduler: takes inputs, changes its tables, and says what to write and whom to tell.

The loop gives it a turn's worth of inputs at once: all are stepped, then ready jobs and waiting
workers are brought together, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from rota.core import attendance, control, intake, progress, shelving, waiting
from rota.core.dispatch import answer_polls, dispatch
from rota.core.draft import Draft
from rota.core.ending import expire
from rota.core.errors import KeyReused, Refusal, StaleRecall
from rota.core.executions import complete
from rota.core.glance import Explanation, QueueGlance, TenantGlance, WorkerGlance
from rota.core.inputs import (
    Absence,
    AnyInput,
    Cancel,
    ClockJump,
    ClosePoll,
    Complete,
    Delete,
    Drain,
    Execute,
    FromWorker,
    Heartbeat,
    Keyed,
    Leave,
    Poll,
    Progress,
    Purge,
    PutQueueSettings,
    PutTenantSettings,
    Refilled,
    Register,
    Reject,
    Retry,
    SetPolicy,
    Submit,
    Tick,
    Timing,
    Update,
)
from rota.core.invariants import check
from rota.core.model import (
    ExecutionId,
    Instant,
    JobId,
    JobRecord,
    KeyRecord,
    WorkerId,
)
from rota.core.outcome import (
    AnyReceipt,
    Counted,
    ExecutionAnswer,
    Outcome,
    decode_receipt,
    encode_receipt,
)
from rota.core.policy import DEFAULT, Policy
from rota.core.restore import Stored, restore
from rota.core.tables import Tables
from rota.core.timers import Alarm, Entry
from rota.core.views import glance_queue, glance_tenant, glance_worker
from rota.core.why import explain


class Scheduler:
    """One cell's brain. Pure: the same inputs at the same times give the same outcomes."""

    def __init__(self, timing: Timing, now: Instant, policy: Policy = DEFAULT) -> None:
        self._t = Tables(timing, now, policy)

    def restore(self, stored: Stored, now: Instant) -> None:
        """Takes up what was stored; every lease gets its whole length again."""
        restore(self._t, stored, now)

    # Deciding

    def step(self, event: AnyInput, now: Instant) -> Outcome:
        """One input, as a turn of its own."""
        return self.turn([event], now)

    def turn(self, events: Sequence[AnyInput], now: Instant) -> Outcome:
        """Steps all inputs, rings what is due, places what is ready."""
        t = self._t
        t.draft = Draft()
        for event in events:
            # Before anything rings: a lease must not run out because a clock was set.
            if isinstance(event, ClockJump):
                attendance.follow_clock(t, event.by, now)
            elif isinstance(event, Absence):
                attendance.make_up_for(t, event.by, now)
            else:
                break
        self._ring(now)
        replies = [self._take(event, now) for event in events]
        if t.lines.order.is_worn(now):
            t.note_usage(now)
            t.use_policy(t.policy, now)
        dispatch(t, now)
        if t.visitors:
            shelving.see_off(t)
        answer_polls(t, now)
        t.recent.forget(now)
        draft = t.draft
        return Outcome(
            replies,
            draft.writes(),
            draft.answers,
            draft.submitted,
            draft.waits,
            draft.ends,
            shelving.ask(t),
        )

    def next_due(self) -> Instant | None:
        """When a Tick is needed next."""
        return self._t.timers.next_due()

    def _take(self, event: AnyInput, now: Instant) -> AnyReceipt | Refusal:
        try:
            if isinstance(event, Keyed) and event.key is not None:
                return self._once(event, now)
            return self._handle(event, now)
        except Refusal as refusal:
            return refusal

    def _once(self, event: Keyed, now: Instant) -> AnyReceipt:
        """An input with a key: a repeat gets the first receipt and changes nothing."""
        key, recent = event.key, self._t.recent
        assert key is not None
        assert event.recall is not None, "an input with a key brings what the tables know of it"
        used = recent.key(key.key) or event.recall.key
        if used is not None:
            if used.fingerprint != key.fingerprint:
                raise KeyReused(f"idempotency key {key.key!r} was used for another request")
            return decode_receipt(used.receipt)
        if recent.is_stale(event.recall.at, now):
            raise StaleRecall("too long since the key was looked up")
        receipt = self._handle(event, now)  # type: ignore[arg-type]  # every Keyed is an AnyInput
        record = KeyRecord(key.key, key.fingerprint, encode_receipt(receipt), now)
        recent.use(record)
        self._t.draft.keys.append(record)
        return receipt

    def _handle(self, event: AnyInput, now: Instant) -> AnyReceipt:  # noqa: C901  (one line a case)
        t = self._t
        match event:
            case Submit():
                return intake.submit(t, event, now)
            case Reject():
                return intake.reject(t, event, now)
            case Update():
                return intake.update(t, event, now)
            case Cancel():
                return control.cancel(t, event, now)
            case Retry():
                return intake.retry(t, event, now)
            case Delete():
                return control.delete(t, event, now)
            case Execute():
                return control.execute(t, event, now)
            case PutQueueSettings():
                return control.set_queue(t, event, now)
            case SetPolicy():
                return control.set_policy(t, event, now)
            case PutTenantSettings():
                return control.set_tenant(t, event, now)
            case Purge():
                return control.purge(t, event, now)
            case Refilled():
                return shelving.refill(t, event, now)
            case ClockJump() | Absence() | Tick():
                return Counted(0)
            case _:
                return self._attend(event, now)

    def _attend(self, event: FromWorker, now: Instant) -> AnyReceipt:
        """What workers say."""
        t = self._t
        match event:
            case Poll():
                return attendance.poll(t, event, now)
            case Heartbeat():
                return attendance.heartbeat(t, event, now)
            case Complete():
                return ExecutionAnswer(complete(t, event.completion, now))
            case Progress():
                return progress.progress(t, event.running, now)
            case Register():
                return attendance.register(t, event, now)
            case Drain():
                return attendance.drain(t, event, now)
            case Leave():
                return attendance.leave(t, event, now)
            case ClosePoll():
                attendance.close(t, event)
                return Counted(1)
            case _:
                assert_never(event)

    # Time

    def _ring(self, now: Instant) -> None:
        timers = self._t.timers
        for when, _, alarm, key in timers.due(now):
            self._ring_one(alarm, key, when, now)
        if len(timers) > 4096 + 4 * (len(self._t.jobs) + len(self._t.fleet.workers)):
            timers.sweep(self._means_something)

    def _ring_one(self, alarm: Alarm, key: str, when: Instant, now: Instant) -> None:
        t = self._t
        match alarm:
            case Alarm.JOB:
                cell = t.jobs.get(JobId(key))
                if cell is not None and waiting.ring(t, cell, now):
                    expire(t, cell, now)
            case Alarm.WORKER:
                attendance.check(t, WorkerId(key), when, now)
            case Alarm.POLL:
                attendance.ring_poll(t, WorkerId(key), now)
            case Alarm.QUEUE:
                t.check_gates(t.queues[key], now)
            case Alarm.PROGRESS:
                progress.ring(t, ExecutionId(key), now)

    def _means_something(self, entry: Entry) -> bool:
        when, _, alarm, key = entry
        t = self._t
        match alarm:
            case Alarm.JOB:
                cell = t.jobs.get(JobId(key))
                return cell is not None and when in (waiting.due_at(cell), cell.spec.expires_at)
            case Alarm.WORKER:
                worker = t.fleet.workers.get(WorkerId(key))
                return worker is not None and worker.check_at == when
            case Alarm.POLL:
                worker = t.fleet.workers.get(WorkerId(key))
                return worker is not None and worker.poll is not None and worker.poll.until == when
            case Alarm.QUEUE:
                return True
            case Alarm.PROGRESS:
                return ExecutionId(key) in t.executions

    # Looking

    def why(
        self, job_id: JobId, now: Instant, record: JobRecord | None = None
    ) -> Explanation | None:
        """Why a live job does not run; on the shelf it is known by `record`. None: not live."""
        return explain(self._t, job_id, now, record)

    def progress_of(self, job_id: JobId) -> tuple[float | None, str] | None:
        """The newest progress of a running job, written or not."""
        job = self._t.jobs.get(job_id)
        if job is None or job.life.execution_id is None:
            return None
        cell = self._t.executions.get(job.life.execution_id)
        return None if cell is None else (cell.progress, cell.message)

    def workers(self, now: Instant) -> list[WorkerGlance]:
        """All workers known."""
        return [glance_worker(self._t, cell, now) for cell in self._t.fleet.workers.values()]

    def worker(self, worker_id: WorkerId, now: Instant) -> WorkerGlance | None:
        """One of them."""
        cell = self._t.fleet.workers.get(worker_id)
        return None if cell is None else glance_worker(self._t, cell, now)

    def queues(self) -> list[QueueGlance]:
        """All queues, by name."""
        return [glance_queue(self._t, self._t.queues[name]) for name in sorted(self._t.queues)]

    @property
    def policy(self) -> Policy:
        """The policy that holds now."""
        return self._t.policy

    def tenants(self, now: Instant) -> list[TenantGlance]:
        """All tenants that have jobs or settings, by name."""
        return [
            glance_tenant(self._t, self._t.tenants.cells[name], now)
            for name in sorted(self._t.tenants.cells)
        ]

    def live_jobs(self) -> int:
        """How many jobs are in memory."""
        return len(self._t.jobs)

    def check(self) -> None:
        """Raises AssertionError if anything that must always hold does not."""
        check(self._t)
