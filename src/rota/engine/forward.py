"""Plays the next starts through: the scheduler itself, on a copy, under virtual time.

Workers are perfect and ask for work all the time, what runs ends when it is expected to, and nobody
submits anything. So the outcome is what would happen if all went as expected, by the real rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

import msgspec

from rota.core.commands import (
    AnyInput,
    Complete,
    Completion,
    NewJob,
    Poll,
    Register,
    Submit,
    Tick,
    Timing,
)
from rota.core.errors import Refusal
from rota.core.forecast_input import ForecastInput
from rota.core.info_model import Explanation
from rota.core.limits import EXPLAINED_MAX
from rota.core.model import (
    Execution,
    ExecutionId,
    ExecutionState,
    Instant,
    JobId,
    Millis,
    PollId,
    WorkerId,
    WorkerState,
)
from rota.core.outcome import PollAnswer
from rota.core.scheduler import Scheduler
from rota.engine.limits import FORWARD_STARTS_MAX, FORWARD_TURNS_MAX
from rota.engine.ports import Clock

FAR_FUTURE_MS: Millis = 1 << 50
"""No lease ends and no poll is given up within a forward run."""
_ORDERS_MAX = 1 << 30


class ForwardPlan(msgspec.Struct, frozen=True):
    """How it would go on."""

    starts: Mapping[JobId, tuple[Instant, WorkerId]]
    """Each job's first start, in the order of starting."""
    until: Instant
    """How far time went."""
    is_spent: bool
    """Whether it was cut short: those without a start may have one later."""
    causes: Mapping[JobId, Explanation] = {}
    """Why those that were asked for did not start at once."""


class Budget(msgspec.Struct, frozen=True):
    """How much a forward run may cost."""

    clock: Clock
    seconds: float
    starts: int = FORWARD_STARTS_MAX


class ForwardRun:
    """One run on one copy."""

    def __init__(self, picture: ForecastInput, budget: Budget) -> None:
        self._budget = budget
        self._until_s = budget.clock.fine_s() + budget.seconds
        self._now = picture.taken_at
        timing = Timing(lease_ttl_ms=FAR_FUTURE_MS)
        self._scheduler = Scheduler(timing, self._now)
        self._scheduler.restore(picture.stored, self._now)
        self._polls = 0
        self._asking: dict[PollId, WorkerId] = {}
        self._live: dict[ExecutionId, Execution] = {}
        self._ends: list[tuple[Instant, ExecutionId]] = []
        self._starts: dict[JobId, tuple[Instant, WorkerId]] = {}
        self._next: list[AnyInput] = []
        """What workers say in the next turn: that they ask for work can wait for its time."""
        self._at_once = False
        """Whether that turn is to come in the same instant."""
        for execution in picture.stored.executions:
            self._follow(execution)
        for worker in picture.stored.workers:
            if worker.state is WorkerState.ONLINE:
                self._next.append(self._poll(worker.id))

    def submit(self, jobs: Sequence[NewJob]) -> Refusal | None:
        """These come too, now, before anybody else decides; answers why they are not taken."""
        outcome = self._scheduler.turn([Submit(jobs=tuple(jobs))], self._now)
        reply = outcome.replies[0]
        return reply if isinstance(reply, Refusal) else None

    def change(self, events: Sequence[AnyInput]) -> None:
        """This happens first; a worker that comes asks for work."""
        asking = [self._poll(one.worker_id) for one in events if isinstance(one, Register)]
        self._next = [*events, *self._next, *asking]

    def starts_now(self, job_id: JobId) -> bool:
        """Whether the job starts as soon as the workers ask."""
        self._turn({})
        return job_id in self._starts

    def play(self, wanted: Sequence[JobId]) -> ForwardPlan:
        """Until all of these have started, nothing more happens, or the budget is spent."""
        missing = dict.fromkeys(wanted)
        self._turn(missing)
        causes = self._explain(list(missing)[:EXPLAINED_MAX])
        for _ in range(FORWARD_TURNS_MAX):
            if (wanted and not missing) or not self._pass_time():
                return ForwardPlan(self._starts, self._now, is_spent=False, causes=causes)
            if len(self._starts) >= self._budget.starts or self._is_late():
                break
            self._turn(missing)
        return ForwardPlan(self._starts, self._now, is_spent=True, causes=causes)

    def _explain(self, job_ids: Sequence[JobId]) -> dict[JobId, Explanation]:
        found = ((job_id, self._scheduler.why(job_id, self._now)) for job_id in job_ids)
        return {job_id: why for job_id, why in found if why is not None}

    def _is_late(self) -> bool:
        return self._budget.clock.fine_s() > self._until_s

    def _pass_time(self) -> bool:
        """On to the next instant at which something happens; False: there is none."""
        if self._at_once:
            self._at_once = False
            return True
        due = self._scheduler.next_due()
        instants = [self._ends[0][0]] if self._ends else []
        if due is not None and due < self._now + FAR_FUTURE_MS // 2:
            instants.append(due)
        if not instants:
            return bool(self._next)
        self._now = max(self._now, min(instants))
        return True

    def _turn(self, missing: dict[JobId, None]) -> None:
        events, self._next = self._next, []
        while self._ends and self._ends[0][0] <= self._now:
            _, execution_id = heappop(self._ends)
            execution = self._live.pop(execution_id, None)
            if execution is not None:
                events.append(_report(execution, ExecutionState.SUCCEEDED))
        for answer in self._scheduler.turn(events or [Tick()], self._now).answers:
            self._obey(answer, missing)

    def _obey(self, answer: PollAnswer, missing: dict[JobId, None]) -> None:
        worker_id = self._asking.pop(answer.poll_id, None)
        for order in answer.orders:
            self._note_start(order.execution.job_id, order.execution.worker_id, missing)
            if order.group is not None:
                band_id = JobId(order.group.group_id)
                self._note_start(band_id, order.execution.worker_id, missing)
            self._follow(order.execution)
        for execution_id in answer.cancel:
            stopped = self._live.pop(execution_id, None)
            if stopped is not None:
                self._next.append(_report(stopped, ExecutionState.CANCELLED))
                self._at_once = True
        if worker_id is not None:
            self._next.append(self._poll(worker_id))

    def _note_start(self, job_id: JobId, worker_id: WorkerId, missing: dict[JobId, None]) -> None:
        """The job starts there; an array or gang with the first of its members."""
        self._starts.setdefault(job_id, (self._now, worker_id))
        missing.pop(job_id, None)

    def _follow(self, execution: Execution) -> None:
        self._live[execution.id] = execution
        end = self._scheduler.expected_end(execution.id)
        heappush(self._ends, (self._now if end is None else end, execution.id))

    def _poll(self, worker_id: WorkerId) -> Poll:
        self._polls += 1
        poll_id = PollId(self._polls)
        self._asking[poll_id] = worker_id
        until = self._now + FAR_FUTURE_MS + self._polls
        return Poll(poll_id=poll_id, worker_id=worker_id, max_orders=_ORDERS_MAX, until=until)


def _report(execution: Execution, state: ExecutionState) -> Complete:
    return Complete(
        completion=Completion(execution_id=execution.id, fence=execution.fence, state=state)
    )
