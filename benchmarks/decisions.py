"""Decisions a second of the scheduler alone: no journal, no HTTP, no clock.

One decision is a completion, the release of what it held, the choice of the next job and its
placement, and the arrival of another job, so that the backlog stays as long as it was.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections import deque
from dataclasses import dataclass

from rota.core.inputs import Completion, NewJob, Poll, Register, Submit, Timing
from rota.core.model import (
    ExecutionId,
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
from rota.core.outcome import Answer
from rota.core.scheduler import Scheduler

START = 1_790_000_000_000
SHAPES = [
    Resources(cpu_milli=1000 * (1 + i % 4), memory=(1 + i // 4) << 28) for i in range(32)
]


@dataclass
class Result:
    """What one setting came to."""

    workers: int
    waiting: int
    decisions_per_s: float
    bytes_per_waiting: float


def terms_of(shape: int, priority: int) -> Terms:
    """Jobs of one of the shapes and five priorities."""
    return Terms("job", "default", "default", priority, Needs(SHAPES[shape]), RetryPolicy())


class Fleet:
    """A scheduler, workers that never rest, and a backlog that never shrinks."""

    def __init__(self, workers: int, waiting: int) -> None:
        self.scheduler = Scheduler(Timing(), START)
        self.now = START
        self.jobs = 0
        self.polls = 0
        self.running: dict[str, list[tuple[str, int]]] = {}
        self.pool = [terms_of(s, p) for s in range(len(SHAPES)) for p in range(5)]
        for first in range(0, waiting, 10_000):
            self.submit(min(10_000, waiting - first))
        for i in range(workers):
            capacity = Resources(cpu_milli=8000, memory=16 << 30)
            self.scheduler.step(
                Register(worker_id=WorkerId(f"w{i}"), session="s", name="w", capacity=capacity),
                self.now,
            )

    def submit(self, count: int) -> None:
        """A batch of jobs, shapes and priorities mixed."""
        new = [self.new_job() for _ in range(count)]
        self.scheduler.step(Submit(jobs=tuple(new)), self.now)

    def new_job(self) -> NewJob:
        """One more job."""
        self.jobs += 1
        text = f"{self.jobs:032x}"
        job_id = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
        terms = self.pool[self.jobs * 7919 % len(self.pool)]
        return NewJob(id=JobId(job_id), spec=Spec(terms, b'{"kind":"noop"}', self.now))

    def poll(self, worker: str, done: list[tuple[str, int]]) -> Poll:
        """The worker reports and asks for more."""
        self.polls += 1
        return Poll(
            poll_id=PollId(self.polls),
            worker_id=WorkerId(worker),
            max_orders=100,
            until=self.now + 5000,
            completed=tuple(
                Completion(
                    execution_id=ExecutionId(execution),
                    fence=fence,
                    state=ExecutionState.SUCCEEDED,
                )
                for execution, fence in done
            ),
        )

    def take(self, answers: list[Answer], order: deque[str]) -> int:
        """Notes what was handed out; answers how much."""
        count = 0
        for answer in answers:
            for given in answer.orders:
                worker = given.execution.worker_id
                self.running.setdefault(worker, []).append(
                    (given.execution.id, given.execution.fence)
                )
                count += 1
                order.append(worker)
        return count


def measure(workers: int, waiting: int, decisions: int = 20_000) -> Result:
    """Fills the fleet, then completes one execution after the other."""
    gc.collect()
    tracemalloc.start()
    fleet = Fleet(workers, waiting)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    gc.freeze()
    order: deque[str] = deque()
    for i in range(workers):
        outcome = fleet.scheduler.step(fleet.poll(f"w{i}", []), fleet.now)
        fleet.take(outcome.answers, order)
    began = time.perf_counter()
    made = 0
    while made < decisions:
        worker = order.popleft()
        done = [fleet.running[worker].pop(0)]
        fleet.now += 1
        outcome = fleet.scheduler.turn(
            [fleet.poll(worker, done), Submit(jobs=(fleet.new_job(),))], fleet.now
        )
        made += max(1, fleet.take(outcome.answers, order))
    rate = made / (time.perf_counter() - began)
    gc.unfreeze()
    return Result(workers, waiting, rate, used / waiting)


def main() -> None:
    """Prints the table."""
    print("workers   waiting   decisions/s   bytes a waiting job")
    for workers in (10, 1_000, 5_000):
        for waiting in (10_000, 100_000, 1_000_000):
            result = measure(workers, waiting)
            print(
                f"{result.workers:7d} {result.waiting:9d} {result.decisions_per_s:13,.0f}"
                f" {result.bytes_per_waiting:21.0f}"
            )


if __name__ == "__main__":
    main()
