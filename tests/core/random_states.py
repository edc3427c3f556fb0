"""States of all kinds, told from a seed: what waits, what runs, who asks for work."""

from __future__ import annotations

import random
from typing import Any

from rota.core.commands import AnyInput, Drain, Poll, PutTenantSettings, Register
from rota.core.model import JobId, JobState, PollId, Quota, RateLimit, WorkerId
from rota.core.policy import Policy
from tests.core.asking import GIB, HOUR, SECOND, job
from tests.core.world import World

TENANTS = ("a", "b", "c")
QUEUES = ("q0", "q1", "q2")


class RandomState:
    """A cell in the middle of its day."""

    def __init__(self, seed: int, policy: Policy) -> None:
        self.rng = random.Random(seed)
        self.world = World(policy=policy)
        self.workers = [f"w{number}" for number in range(self.rng.randrange(1, 6))]
        self.jobs = 0
        for name in self.workers:
            self.world.register(name, cpu=self.rng.choice((1, 2, 4, 8)), memory=8 * GIB)
        self._limit()
        for _ in range(self.rng.randrange(3, 12)):
            self._happen()

    def _limit(self) -> None:
        rng, world = self.rng, self.world
        if rng.random() < 0.3:
            world.queue("q1", max_workers=rng.randrange(1, 3))
        if rng.random() < 0.2:
            world.queue("q2", rate_limit=RateLimit(2, 60 * SECOND))
        if rng.random() < 0.2:
            world.queue("q0", paused=True)
        if rng.random() < 0.3:
            quota = Quota(running=rng.randrange(1, 4))
            world.step(PutTenantSettings(name="b", weight=2.0, quota=quota))

    def _happen(self) -> None:
        rng, world = self.rng, self.world
        world.advance(rng.choice((0, 500, 5 * SECOND)))
        roll = rng.random()
        if roll < 0.5:
            world.submit_all([self._job() for _ in range(rng.randrange(1, 5))])
        elif roll < 0.85:
            self.poll(rng.choice(self.workers), rng.choice((1, 2, 10)))
        elif roll < 0.95:
            running = [one.execution.job_id for one in world.scheduler._t.executions.values()]
            if running:
                world.complete(rng.choice(running))
        elif len(self.workers) > 1:
            gone = rng.choice(self.workers)
            if world.scheduler.worker(WorkerId(gone), world.now).worker.state == "online":
                world.step(Drain(worker_id=WorkerId(gone)))

    def _job(self) -> Any:
        rng = self.rng
        self.jobs += 1
        asked: dict[str, Any] = {
            "queue": rng.choice(QUEUES),
            "tenant": rng.choice(TENANTS),
            "priority": rng.choice((0, 0, 5)),
            "cpu": rng.choice((1, 1, 2, 3, 6)),
            "memory": rng.choice((0, GIB, 6 * GIB)),
            "runs_ms": rng.choice((None, 10 * SECOND, 90 * SECOND, HOUR)),
            "created_at": self.world.now,
        }
        if rng.random() < 0.1:
            asked["run_at"] = self.world.now + 30 * SECOND
        if rng.random() < 0.1:
            asked["key"] = "k"
        if rng.random() < 0.1:
            asked["finish_by"] = self.world.now + rng.choice((60 * SECOND, HOUR))
        return job(f"j{self.jobs}", **asked)

    def poll(self, name: str, orders: int = 10) -> None:
        """The worker asks, and goes on asking."""
        self.world.poll(name, wait_ms=HOUR, max_orders=orders)

    def idle(self) -> list[str]:
        """Workers that are there and do not ask."""
        entries = self.world.scheduler._t.fleet.workers.values()
        return [
            entry.worker.id
            for entry in entries
            if entry.poll is None and entry.worker.state == "online"
        ]

    def waiting(self) -> list[JobId]:
        """Jobs that have not started."""
        states = (JobState.PENDING, JobState.QUEUED)
        return [
            entry.id
            for entry in self.world.scheduler._t.jobs.values()
            if entry.life.state in states
        ]

    def all_ask(self, *before: AnyInput) -> dict[JobId, WorkerId]:
        """Every worker that is there asks anew, for as much as it likes; what starts where.

        What happens `before` happens in the same turn; a worker that comes with it asks, too.
        """
        world = self.world
        online = [
            entry.worker.id
            for entry in world.scheduler._t.fleet.workers.values()
            if entry.worker.state == "online"
        ]
        online += [one.worker_id for one in before if isinstance(one, Register)]
        polls = [
            Poll(
                poll_id=PollId(1_000_000 + number),
                worker_id=worker_id,
                max_orders=1 << 30,
                until=world.now + HOUR,
            )
            for number, worker_id in enumerate(online)
        ]
        outcome = world.turn([*before, *polls])
        return {
            order.execution.job_id: order.execution.worker_id
            for answer in outcome.answers
            for order in answer.orders
        }
