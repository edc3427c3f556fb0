"""A scheduler alone, with workers that are always busy and a backlog of constant size."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence

from rota.core.commands import (
    AnyInput,
    Completion,
    MemoryWindow,
    NewJob,
    Poll,
    Register,
    Submit,
    Timing,
)
from rota.core.model import (
    Execution,
    ExecutionState,
    JobId,
    Needs,
    PollId,
    Resources,
    RetryPolicy,
    Spec,
    Terms,
    WorkerId,
)
from rota.core.outcome import Outcome, PollAnswer
from rota.core.scheduler import Scheduler

START = 1_790_000_000_000
HOUR_MS = 3_600_000
"""Leases longer than the run: nobody renews them here, and none may be lost."""
SHAPES = 32
PRIORITIES = 5
SUBMIT_MAX = 10_000
BUSY_MAX = 1_000_000
"""More than ever run at once here: there is no store, so all that waits has to fit into memory."""
TASK = '{"kind":"noop"}'


class Fleet:
    """A fleet of workers with 8 cpus and 16 GiB, and jobs of many shapes and tenants in 5
    priorities."""

    def __init__(self, workers: int, waiting: int, tenants: int = 1, shapes: int = SHAPES) -> None:
        everything = MemoryWindow(jobs=waiting + BUSY_MAX)
        self.scheduler = Scheduler(Timing(lease_ttl_ms=HOUR_MS, window=everything), START)
        self.now = START
        self.spent = 0.0
        """Processor seconds that decisions took; making up what happens is not among them."""
        self._jobs = 0
        self._polls = 0
        self._running: deque[Execution] = deque()
        self._pool = [
            _terms(shape, priority, tenant)
            for tenant in range(tenants)
            for shape in range(shapes)
            for priority in range(PRIORITIES)
        ]
        for first in range(0, waiting, SUBMIT_MAX):
            self.turn([self.submit(min(SUBMIT_MAX, waiting - first))])
        self._names = [WorkerId(f"w{i}") for i in range(workers)]
        for name in self._names:
            self.turn([_registration(name)])

    def turn(self, events: Sequence[AnyInput]) -> Outcome:
        """Does what the engine does in a turn, without the journal."""
        return self.scheduler.turn(events, self.now)

    def fill(self) -> None:
        for name in self._names:
            self._take(self.turn([self._poll(name, ())]).answers)

    def decide(self, decisions: int, in_a_turn: int = 1) -> int:
        """Runs until `count` jobs have been placed; returns how many."""
        made = 0
        while made < decisions:
            self.now += 1
            done: dict[WorkerId, list[Execution]] = {}
            for _ in range(in_a_turn):
                execution = self._running.popleft()
                done.setdefault(execution.worker_id, []).append(execution)
            events: list[AnyInput] = [self._poll(name, ended) for name, ended in done.items()]
            events.append(self.submit(in_a_turn))
            # Of the processor: it is one thread that waits for nothing, whatever else goes on.
            began = time.process_time()
            outcome = self.turn(events)
            self.spent += time.process_time() - began
            made += self._take(outcome.answers)
        return made

    def submit(self, count: int) -> Submit:
        return Submit(jobs=tuple(self._new_job() for _ in range(count)))

    def _new_job(self) -> NewJob:
        self._jobs += 1
        text = f"{self._jobs:032x}"
        job_id = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
        terms = self._pool[self._jobs * 7919 % len(self._pool)]
        # Every job has its own bytes, as one that came over the wire has.
        return NewJob(id=JobId(job_id), spec=Spec(terms, TASK.encode(), self.now))

    def _poll(self, worker: WorkerId, done: Iterable[Execution]) -> Poll:
        self._polls += 1
        return Poll(
            poll_id=PollId(self._polls),
            worker_id=worker,
            max_orders=100,
            until=self.now + 5000,
            completed=tuple(completion(execution) for execution in done),
        )

    def _take(self, answers: Iterable[PollAnswer]) -> int:
        before = len(self._running)
        for answer in answers:
            self._running.extend(order.execution for order in answer.orders)
        return len(self._running) - before


def completion(execution: Execution) -> Completion:
    return Completion(
        execution_id=execution.id, fence=execution.fence, state=ExecutionState.SUCCEEDED
    )


def _terms(shape: int, priority: int, tenant: int) -> Terms:
    needs = Needs(Resources(cpu_milli=1000 * (1 + shape % 4), memory=(1 + shape // 4) << 28))
    whose = f"t{tenant}" if tenant else "default"
    return Terms("job", "default", whose, priority, needs, RetryPolicy())


def _registration(name: WorkerId) -> Register:
    capacity = Resources(cpu_milli=8000, memory=16 << 30)
    return Register(worker_id=name, session="s", name="w", capacity=capacity)
