"""A scheduler with everything that a test needs around it: clock, callers, workers, and a ledger.

After every step the invariants are checked, and that memory agrees with the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from rota.core.commands import (
    AnyInput,
    Cancel,
    ClosePoll,
    Complete,
    Completion,
    Heartbeat,
    NewJob,
    Poll,
    Preloaded,
    PutQueueSettings,
    Register,
    Retry,
    Running,
    Submit,
    Tick,
    Timing,
    Update,
)
from rota.core.errors import Refusal
from rota.core.info_model import Explanation
from rota.core.invariants import check_capacity
from rota.core.limits import CORE_LIMITS, CoreLimits
from rota.core.model import (
    Execution,
    ExecutionId,
    ExecutionState,
    Instant,
    JobId,
    JobRecord,
    JobState,
    Life,
    PollId,
    WorkerId,
)
from rota.core.outcome import AnyReceipt, HeartbeatReply, JobsAccepted, Outcome, PollAnswer
from rota.core.policy import STRICT, Policy
from rota.core.scheduler import Scheduler
from rota.engine.time_zones import load_zone
from tests.core.asking import NOON, job, resources, spec
from tests.core.ledger import NaiveLedger

TICKS_MAX = 2_000
"""More turns than this within one `advance` mean that a timer is set without end."""


class World:
    """Drives one scheduler. Times are `now`, and pass only by `advance`."""

    def __init__(
        self,
        *,
        checked: bool = True,
        timing: Timing | None = None,
        policy: Policy = STRICT,
        limits: CoreLimits = CORE_LIMITS,
    ) -> None:
        self.now: Instant = NOON
        self.timing = timing or Timing()
        self.policy = policy
        self.limits = limits
        self.scheduler = Scheduler(self.timing, self.now, load_zone, policy, limits)
        self.ledger = NaiveLedger()
        self.answers: dict[PollId, PollAnswer] = {}
        self.last = Outcome([], [], [])
        self.may_shrink = False
        """Set by tests in which a worker comes back with less than it holds."""
        self.ticks = 0
        self._checked = checked
        self._poll_ids = 0
        self._job_ids = 0

    # Stepping

    def turn(self, events: Sequence[AnyInput]) -> Outcome:
        """A turn with these commands, and turns with its refills; refusals are replies."""
        outcome = self.bare_turn(events)
        wanted = outcome.refills
        while wanted:
            wanted = self.bare_turn([self.ledger.refill(one) for one in wanted]).refills
        self.last = outcome
        return outcome

    def bare_turn(self, events: Sequence[AnyInput]) -> Outcome:
        """One turn; the caller answers its refills."""
        outcome = self.scheduler.turn(events, self.now)
        self.ledger.append(outcome.writes)
        for answer in outcome.answers:
            assert answer.poll_id not in self.answers, f"poll {answer.poll_id} answered twice"
            self.answers[answer.poll_id] = answer
        self.last = outcome
        if self._checked:
            self.check()
        return outcome

    def step(self, event: AnyInput) -> AnyReceipt:
        """A turn with one command; raises its refusal."""
        reply = self.turn([event]).replies[0]
        if isinstance(reply, Refusal):
            raise reply
        return reply

    def check(self) -> None:
        """Checks what must hold after every step."""
        self.scheduler.check()
        if not self.may_shrink:
            check_capacity(self.scheduler._t)
        self.ledger.check_against(self.scheduler._t)

    def advance(self, ms: int) -> None:
        """Lets time pass, with a turn whenever something is due."""
        end, ticks = self.now + ms, 0
        while (due := self.scheduler.next_due()) is not None and due <= end:
            self.now = max(self.now, due)
            self.step(Tick())
            ticks += 1
            assert ticks < TICKS_MAX, "the timers never come to rest"
        self.now = end
        self.step(Tick())
        self.ticks = ticks

    def restart(self) -> None:
        """Replaces the scheduler by one that is restored from what was written."""
        self.scheduler = Scheduler(self.timing, self.now, load_zone, self.policy, self.limits)
        self.scheduler.restore(self.ledger.stored(self.timing.window.fifo_group), self.now)
        self.check()

    # Callers

    def submit(self, job_id: str | None = None, **asked: Any) -> JobId:
        """Submits one job, with all ended jobs preloaded, as the API does with those it names."""
        if job_id is None:
            self._job_ids += 1
            job_id = f"job-{self._job_ids}"
        self.submit_all([job(job_id, **asked)])
        return JobId(job_id)

    def submit_all(self, jobs: Iterable[NewJob]) -> JobsAccepted:
        receipt = self.step(Submit(jobs=tuple(jobs), preloaded=self.recall()))
        assert isinstance(receipt, JobsAccepted)
        return receipt

    def recall(self) -> Preloaded:
        """Records preloaded from the tables, a moment after all that has happened."""
        self.now += 1
        found = [*self.ledger.ended(), *(job for job in self.ledger.live() if job.life.line)]
        return Preloaded(at=self.now, jobs=tuple(found))

    def update(self, job_id: str, **asked: Any) -> AnyReceipt:
        """Updates a job's spec, at its current revision."""
        revision = self.ledger.jobs[JobId(job_id)].spec.revision
        wanted = replace(spec(**asked), revision=revision)
        return self.step(Update(job_id=JobId(job_id), spec=wanted, preloaded=self.recall()))

    def cancel(self, job_id: str) -> AnyReceipt:
        return self.step(Cancel(job_id=JobId(job_id), preloaded=self.recall()))

    def retry(self, job_id: str) -> AnyReceipt:
        """Retries a job; preloaded jobs are in the order of submission."""
        return self.step(Retry(job_id=JobId(job_id), preloaded=self.recall()))

    def queue(self, name: str = "default", **settings: Any) -> AnyReceipt:
        """Sets the given settings of a queue."""
        return self.step(PutQueueSettings(name=name, **settings))

    # Workers

    def register(self, worker_id: str = "w1", **has: Any) -> AnyReceipt:
        """Registers a worker, with 4 cpus by default."""
        session = has.pop("session", "s1")
        capabilities = tuple(sorted(has.pop("capabilities", ())))
        queues, labels = has.pop("queues", None), has.pop("labels", {})
        only = tuple(sorted(has.pop("only", ())))
        return self.step(
            Register(
                worker_id=WorkerId(worker_id),
                session=session,
                name=worker_id,
                capacity=resources(**{"cpu": 4, **has}),
                capabilities=capabilities,
                queues=None if queues is None else tuple(sorted(queues)),
                labels=tuple(sorted(labels.items())),
                only=only,
            )
        )

    def poll(self, worker_id: str = "w1", **said: Any) -> PollId:
        """Opens a poll for 5 seconds, which reports the executions of the jobs in `names`."""
        event = self.asking(worker_id, **said)
        self.step(event)
        return event.poll_id

    def asking(self, worker_id: str = "w1", **said: Any) -> Poll:
        """A poll command, not sent yet."""
        self._poll_ids += 1
        names = said.pop("names", None)
        event = Poll(
            poll_id=PollId(self._poll_ids),
            worker_id=WorkerId(worker_id),
            session=said.pop("session", None),
            max_orders=said.pop("max_orders", 50),
            until=self.now + said.pop("wait_ms", 5_000),
            completed=tuple(said.pop("completed", ())),
            executions=None if names is None else tuple(self.running(one) for one in names),
            spare=said.pop("spare", 0),
            patient=said.pop("patient", False),
        )
        assert not said, f"a poll says no {list(said)}"
        return event

    def take(self, worker_id: str = "w1", **said: Any) -> list[JobId]:
        """Polls, and returns the jobs of the orders that came at once."""
        poll_id = self.poll(worker_id, **said)
        if poll_id not in self.answers:
            self.step(ClosePoll(poll_id=poll_id, worker_id=WorkerId(worker_id)))
            return []
        return self.orders(poll_id)

    def orders(self, poll_id: PollId) -> list[JobId]:
        """Jobs that a poll was answered with; none if it still waits."""
        answer = self.answers.get(poll_id)
        return [] if answer is None else [order.execution.job_id for order in answer.orders]

    def heartbeat(
        self, worker_id: str = "w1", names: Sequence[str] | None = None
    ) -> HeartbeatReply:
        """Heartbeat that names these jobs' executions; None: it names nothing."""
        named = None if names is None else tuple(self.running(one) for one in names)
        reply = self.step(Heartbeat(worker_id=WorkerId(worker_id), executions=named))
        assert isinstance(reply, HeartbeatReply)
        return reply

    def running(self, name: str, **said: Any) -> Running:
        """Newest execution of a job, or one by its id, as a worker names it."""
        execution = self.ledger.executions.get(ExecutionId(name))
        execution = execution or self.execution(name)
        return Running(execution_id=execution.id, fence=execution.fence, **said)

    def report(self, job_id: str, state: str = "succeeded", **said: Any) -> Completion:
        """Completion of the job's newest execution, not sent yet."""
        execution = self.execution(job_id)
        said.setdefault("fence", execution.fence)
        return Completion(execution_id=execution.id, state=ExecutionState(state), **said)

    def complete(self, job_id: str, state: str = "succeeded", **said: Any) -> AnyReceipt:
        """Completes the job's newest execution."""
        return self.step(Complete(completion=self.report(job_id, state, **said)))

    # Looking

    def life(self, job_id: str) -> Life:
        """Life of the job, as written."""
        return self.ledger.jobs[JobId(job_id)].life

    def record(self, job_id: str) -> JobRecord:
        """Whole job, as written."""
        return self.ledger.jobs[JobId(job_id)]

    def state(self, job_id: str) -> JobState | None:
        """State of the job, as written; None: it is gone."""
        record = self.ledger.jobs.get(JobId(job_id))
        return None if record is None else record.life.state

    def execution(self, job_id: str) -> Execution:
        """Newest execution of the job, as written."""
        executions = [x for x in self.ledger.executions.values() if x.job_id == job_id]
        return max(executions, key=lambda execution: execution.fence)

    def why(self, job_id: str) -> Explanation:
        """Explanation of why the job does not run."""
        record = self.ledger.jobs.get(JobId(job_id))
        explanation = self.scheduler.why(JobId(job_id), self.now, record)
        assert explanation is not None
        return explanation

    def causes(self, job_id: str) -> list[str]:
        """Codes of the causes that keep the job from running."""
        return [cause.code for cause in self.why(job_id).causes]


def run(world: World, job_id: str, worker_id: str = "w1") -> None:
    """Makes the worker take this job, and nothing else."""
    taken = world.take(worker_id, max_orders=1)
    assert taken == [job_id], f"{worker_id} took {taken}"


def succeeded(execution: Execution) -> Completion:
    """Completion of an execution that succeeded."""
    state = ExecutionState.SUCCEEDED
    return Completion(execution_id=execution.id, fence=execution.fence, state=state)
