"""Long random story from a seed: its outcomes must depend on nothing else."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import msgspec

from rota.core.commands import (
    AnyInput,
    Cancel,
    ClockJump,
    Complete,
    Heartbeat,
    Key,
    MemoryWindow,
    Poll,
    PutQueueSettings,
    Submit,
    Tick,
    Timing,
)
from rota.core.errors import Refusal
from rota.core.model import JobId, PollId, RateLimit, WorkerId
from rota.core.outcome import Outcome
from tests.core.asking import job, retries
from tests.core.world import World

NARROW = MemoryWindow(jobs=20, fifo_group=3, refill=4)
"""Small, so that many waiting jobs are spilled."""
WORKERS = 12
TURNS = 250


class Story:
    """Plays one story, and hashes the outcome of each turn."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(checked=False, timing=Timing(window=NARROW))
        self.digest = hashlib.sha256()
        self.jobs = 0
        self.polls = 0

    def play(self) -> str:
        """Plays the story; returns the hash of all outcomes."""
        for number in range(WORKERS):
            self.world.register(
                f"w{number}",
                cpu=1 + number % 5,
                gpu=number % 3 // 2,
                custom={"licence": number % 2, "slot": 3},
                capabilities=[f"cap-{n}" for n in range(number % 4)],
            )
            self.note(self.world.last)
        for _ in range(TURNS):
            self.turn()
        self.world.check()
        return self.digest.hexdigest()

    def turn(self) -> None:
        world = self.world
        world.now += self.rng.choice((0, 1, 50, 900, 4_000))
        jump: list[AnyInput] = []
        if self.rng.random() < 0.02:
            by = self.rng.choice((-3_600_000, 3_600_000))
            world.now += by
            jump.append(ClockJump(by=by))
        events = [self.event() for _ in range(self.rng.randrange(1, 6))]
        self.note(world.turn([*jump, *events]))
        if self.rng.random() < 0.02:
            world.restart()

    def note(self, outcome: Outcome) -> None:
        replies = [
            (reply.code, reply.detail) if isinstance(reply, Refusal) else reply
            for reply in outcome.replies
        ]
        self.digest.update(msgspec.msgpack.encode((replies, outcome.writes, outcome.answers)))

    def event(self) -> AnyInput:
        actions = (self.submit, self.submit, self.poll, self.poll, self.complete, self.other)
        return self.rng.choice(actions)()

    def submit(self) -> AnyInput:
        batch = []
        for _ in range(self.rng.randrange(1, 5)):
            self.jobs += 1
            plain = {"queue": f"q{self.jobs % 2}"}
            asked = plain if self.rng.random() < 0.4 else self.terms()
            batch.append(job(f"j{self.jobs}", **asked))
        recall = msgspec.structs.replace(self.world.recall(), at=self.world.now)
        key = Key(key=f"k{self.jobs}", fingerprint="f") if self.rng.random() < 0.2 else None
        return Submit(jobs=tuple(batch), preloaded=recall, key=key)

    def terms(self) -> dict[str, Any]:
        rng, now = self.rng, self.world.now
        count, known = rng.choice((0, 0, 1, 2)), list(self.world.ledger.jobs)[-20:]
        return {
            "queue": f"q{rng.randrange(4)}",
            "priority": rng.randrange(-2, 3),
            "cpu": rng.choice((0.1, 1, 2, 3)),
            "gpu": rng.choice((0, 0, 0, 1)),
            "custom": rng.choice(({}, {"licence": 1}, {"slot": 1, "licence": 1})),
            "capabilities": rng.choice(([], [], ["cap-0"], ["cap-1", "cap-0"])),
            "key": rng.choice((None, None, "x", "y")),
            "limit": rng.randrange(1, 3),
            "labels": [("n", str(self.jobs))],
            "retry": retries(rng.randrange(1, 4), jitter=0.5),
            "run_at": rng.choice((None, None, now + 3_000)),
            "expires_at": rng.choice((None, None, now + 30_000)),
            "after": [rng.choice(known) for _ in range(count) if known],
        }

    def poll(self) -> AnyInput:
        self.polls += 1
        worker = f"w{self.rng.randrange(WORKERS)}"
        running = [x for x in self.world.ledger.running() if x.worker_id == worker]
        done = [self.world.report(x.job_id) for x in running if self.rng.random() < 0.4]
        return Poll(
            poll_id=PollId(self.polls),
            worker_id=WorkerId(worker),
            max_orders=self.rng.randrange(1, 6),
            until=self.world.now + 5_000,
            completed=tuple(done),
            executions=tuple(self.world.running(x.id) for x in running),
        )

    def complete(self) -> AnyInput:
        running = self.world.ledger.running()
        if not running:
            return Tick()
        state = self.rng.choice(("succeeded", "failed", "failed"))
        return Complete(completion=self.world.report(self.rng.choice(running).job_id, state))

    def other(self) -> AnyInput:
        rng = self.rng
        return rng.choice(
            (
                Tick(),
                Cancel(job_id=JobId(f"j{max(1, self.jobs - rng.randrange(15))}")),
                Heartbeat(worker_id=WorkerId(f"w{rng.randrange(WORKERS)}")),
                PutQueueSettings(
                    name=f"q{rng.randrange(4)}",
                    priority=rng.randrange(3),
                    max_workers=rng.randrange(1, 9),
                    paused=rng.random() < 0.2,
                    rate_limit=RateLimit(rng.randrange(1, 9), 1_000),
                ),
            )
        )
