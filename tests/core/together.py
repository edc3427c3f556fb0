"""The scheduler and the naive model, given the same things to do, must come to the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

from rota.core.commands import Deregister, Drain, MemoryWindow, Register, Resume, Tick, Timing
from rota.core.errors import StalePreload
from rota.core.lifecycle import EXECUTION_FINAL
from rota.core.limits import CORE_LIMITS, CoreLimits
from rota.core.model import JobId, RateLimit, Semantics, WorkerId
from tests.core.asking import NOON, retries
from tests.core.naive import FINAL, LEASE, Naive
from tests.core.naive_nouns import Job, Poll, Queue, Worker
from tests.core.world import World

ENDS = {
    "succeeded": ("succeeded", {}),
    "failed": ("failed", {}),
    "at once": ("failed", {"exit_code": 75}),
    "hopeless": ("failed", {"retryable": False}),
    "timed_out": ("timed_out", {}),
    "cancelled": ("cancelled", {}),
}
SEMANTICS = {True: Semantics.AT_MOST_ONCE, False: Semantics.AT_LEAST_ONCE}


class Together:
    """Both of them. Every method does one thing to each, then compares all there is."""

    def __init__(
        self, window: MemoryWindow | None = None, limits: CoreLimits = CORE_LIMITS
    ) -> None:
        self.world = World(timing=Timing(window=window or MemoryWindow()), limits=limits)
        self.model = Naive()
        self.model.now = NOON
        self._number = 0

    # Comparing

    def both(self, act: Callable[[], object]) -> None:
        """The world has done it; now the model, at the same time."""
        model = self.model
        model.now = self.world.now
        model.pass_time()
        act()
        model.finish_turn()
        self.compare()

    def compare(self) -> None:
        """Every job, every answer, and that nothing is left that could go."""
        decided = {
            record.id: (
                record.life.state.value,
                record.life.attempt,
                record.life.fence,
                record.life.losses,
                record.life.lives,
                record.life.reason,
                record.life.worker_id if record.id in self.model.executions else None,
            )
            for record in self.world.ledger.jobs.values()
        }
        same(decided, {job.id: self.expected(job) for job in self.model.jobs.values()})
        given = {number: self.world.orders(number) for number in self.world.answers}
        same(given, self.model.answers)
        states = {worker.id: worker.state.value for worker in self.world.ledger.workers.values()}
        same(states, {worker.id: worker.state for worker in self.model.workers.values()})
        due = self.model.next_due()
        ticks_at = self.world.scheduler.next_due()
        assert due is None or (ticks_at is not None and ticks_at <= due), "it would be late"

    def expected(self, job: Job) -> tuple[object, ...]:
        one = self.model.executions.get(job.id)
        worker = None if one is None else one.worker
        return (job.state, job.attempt, job.fence, job.losses, job.lives, job.why, worker)

    def check_why(self) -> None:
        """A job that waits always has a reason to, for those who decide explain."""
        for job in self.model.jobs.values():
            record = self.world.ledger.jobs.get(JobId(job.id))
            explanation = self.world.scheduler.why(JobId(job.id), self.world.now, record)
            if job.state in FINAL:
                assert explanation is None
            else:
                assert explanation is not None
                assert explanation.causes, f"{job.id} is free to go and does not"

    # Jobs

    def submit(self, **asked: Any) -> None:
        """A job; `after` counts back from the newest, `run_in` and `expires_in` from now."""
        self._number += 1
        name = f"j{self._number}"
        names = list(self.model.jobs)
        places = asked.pop("after", ())
        after = tuple((names[-1 - at], when) for at, when in places if at < len(names))
        now, run_in = self.world.now + 1, asked.pop("run_in", None)
        expires_in = asked.pop("expires_in", None)
        run_at = None if run_in is None else now + run_in
        # No two jobs expire in the same millisecond: which goes first would be anybody's guess.
        expires_at = None if expires_in is None else now + expires_in * 1_000 + self._number
        tries, once = asked.pop("tries", 1), asked.pop("once", False)
        self.world.submit(
            name,
            after=after,
            run_at=run_at,
            expires_at=expires_at,
            retry=retries(tries, delay_ms=3_000),
            semantics=SEMANTICS[once],
            **asked,
        )
        job = Job(name, self._number, after=after, run_at=run_at, expires_at=expires_at)
        job.max_attempts, job.delay, job.once = tries, 3_000, once
        self._copy(job, asked)
        self.both(lambda: self.model.submit(job))

    def _copy(self, job: Job, asked: dict[str, Any]) -> None:
        job.queue, job.priority = asked["queue"], asked["priority"]
        job.cpu, job.gpu = round(asked["cpu"] * 1000), round(asked["gpu"] * 1000)
        job.capabilities = tuple(asked["capabilities"])
        job.key, job.limit = asked["key"], asked["limit"]

    def update(self, job: Job, **asked: Any) -> None:
        """Other terms for a job that waits."""
        run_in = asked.pop("run_in", None)
        run_at = None if run_in is None else self.world.now + 1 + run_in
        changed = partial(
            self.world.update,
            job.id,
            after=job.after,
            run_at=run_at,
            expires_at=job.expires_at,
            retry=retries(job.max_attempts, delay_ms=job.delay),
            semantics=SEMANTICS[job.once],
            **asked,
        )
        if not self.reached(changed):
            return

        def act() -> None:
            if run_at != job.run_at:
                job.due = None
            job.run_at = run_at
            self._copy(job, asked)
            self.model.update(job)

        self.both(act)

    def cancel(self, job: Job) -> None:
        if self.reached(lambda: self.world.cancel(job.id)):
            self.both(lambda: self.model.cancel(job))

    def reached(self, ask: Callable[[], object]) -> bool:
        """Asks; False if the job ended in the very turn that would have touched it."""
        try:
            ask()
        except StalePreload:
            self.both(lambda: None)
            return False
        return True

    def retry(self, job: Job) -> None:
        self.world.retry(job.id)
        self.both(lambda: self.model.retry(job))

    def complete(self, job: Job, how: str) -> None:
        state, said = ENDS[how]
        self.world.complete(job.id, state, **said)
        self.both(lambda: self.model.complete(job, how))

    # Workers

    def register(self, name: str, **has: Any) -> None:
        """A worker comes, or comes again as it was."""
        self.world.register(name, **has)
        known = self.model.workers.get(name)

        def act() -> None:
            now = self.model.now
            if known is not None:
                self.model.close(known)
                self.model.hear(known)
                known.state, known.registered_at = "online", now
                return
            cpu, gpu = round(has["cpu"] * 1000), round(has["gpu"] * 1000)
            rank = len(self.model.workers)
            what = (name, rank, cpu, gpu, has["capabilities"], has["queues"])
            self.model.workers[name] = Worker(*what, now, now, now + LEASE)

        self.both(act)

    def _come_back(self, worker: Worker) -> None:
        """One that left is not heard before it has registered again."""
        known = self.world.ledger.workers.get(WorkerId(worker.id))
        if known is None or known.session:
            return
        self.world.step(
            Register(
                worker_id=known.id,
                session="s1",
                name=known.name,
                capacity=known.capacity,
                capabilities=known.capabilities,
                queues=known.queues,
            )
        )

        def act() -> None:
            self.model.hear(worker)
            worker.state, worker.registered_at = "online", self.model.now

        self.both(act)

    def poll(self, worker: Worker, names: list[str] | None, **said: Any) -> None:
        """Reports, names, and waits; `stale` names something that is over as well."""
        self._come_back(worker)
        done: Sequence[tuple[Job, str]] = said.pop("done", ())
        stale = self.stale(worker) if said.pop("stale", False) else None
        finished = [job.id for job, _ in done]
        kept = None if names is None else [one for one in names if one not in finished]
        reports = [self.world.report(job.id, ENDS[how][0], **ENDS[how][1]) for job, how in done]
        spoken = None if kept is None else [*kept, *([stale] if stale else [])]
        number = self.world.poll(worker.id, names=spoken, completed=reports, **said)

        def act() -> None:
            self.model.hear(worker)
            self.model.close(worker)
            for job, how in done:
                self.model.complete(job, how)
            self.model.renew(worker, kept)
            poll = Poll(number, self.model.now + said["wait_ms"], said["max_orders"])
            poll.answer = bool(done) or (spoken is not None and stale is not None)
            self.model.open(worker, poll, kept)

        self.both(act)

    def stale(self, worker: Worker) -> str | None:
        """An execution of the worker's that has ended."""
        over = [
            execution.id
            for execution in self.world.ledger.executions.values()
            if execution.worker_id == worker.id and execution.state in EXECUTION_FINAL
        ]
        return over[-1] if over else None

    def heartbeat(self, worker: Worker, names: list[str] | None) -> None:
        self._come_back(worker)
        self.world.heartbeat(worker.id, names=names)

        def act() -> None:
            self.model.hear(worker)
            self.model.renew(worker, names)
            for one in self.model.executions_of(worker):
                one.stop_sent = one.stop_sent or one.stop_at is not None

        self.both(act)

    def drain(self, worker: Worker) -> None:
        self.world.step(Drain(worker_id=WorkerId(worker.id)))

        def act() -> None:
            worker.state = "draining"

        self.both(act)

    def resume(self, worker: Worker) -> None:
        self.world.step(Resume(worker_id=WorkerId(worker.id)))

        def act() -> None:
            worker.state = "online"

        self.both(act)

    def leave(self, worker: Worker) -> None:
        self.world.step(Deregister(worker_id=WorkerId(worker.id)))
        self.both(lambda: self.model.leave(worker))

    # The rest

    def queue(self, name: str, **settings: Any) -> None:
        """All settings of a queue, what is None put back."""
        rate = settings.pop("rate")
        self.world.queue(
            name,
            replace=True,
            rate_limit=None if rate is None else RateLimit(*rate),
            **settings,
        )

        def act() -> None:
            queue = self.model.queues.setdefault(name, Queue())
            for field, value in settings.items():
                setattr(queue, field, value)
            if rate != queue.rate:
                queue.rate, queue.filled_at = rate, self.model.now
                queue.tokens = Fraction(0 if rate is None else rate[0])

        self.both(act)

    def advance(self, ms: int) -> None:
        """Time passes, with a turn for both whenever the scheduler asks for one."""
        end = self.world.now + ms
        while (due := self.world.scheduler.next_due()) is not None and due <= end:
            self.world.now = max(self.world.now, due)
            self.world.step(Tick())
            self.both(lambda: None)
        self.world.now = end
        self.world.step(Tick())
        self.both(lambda: None)

    def restart(self) -> None:
        self.world.restart()
        self.world.step(Tick())
        self.model.now = self.world.now
        self.model.restart()
        self.both(lambda: None)


def same(decided: Mapping[Any, object], expected: Mapping[Any, object]) -> None:
    """Fails with what differs, and only that."""
    for key in {**decided, **expected}:
        assert decided.get(key) == expected.get(key), (
            f"{key}: the scheduler says {decided.get(key)}, the model {expected.get(key)}"
        )
