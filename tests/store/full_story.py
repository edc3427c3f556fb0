"""Random story of the real scheduler with every kind of life in it, and the records it wrote."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from rota.core.commands import (
    AnyInput,
    Cancel,
    CreateSchedule,
    CreateTrigger,
    Delete,
    DeleteCalendar,
    DeleteSchedule,
    DeleteTrigger,
    Deregister,
    Drain,
    Execute,
    Heartbeat,
    Key,
    MemoryWindow,
    NewSchedule,
    NewTrigger,
    PauseSchedule,
    PauseTrigger,
    Preloaded,
    Purge,
    PutQueueSettings,
    PutTenantSettings,
    ReceiveEvents,
    Reject,
    Resume,
    Retry,
    SetCalendar,
    SetPolicy,
    Submit,
    Tick,
    Timing,
    TriggerSchedule,
    Update,
)
from rota.core.ids import execution_id
from rota.core.lifecycle import JOB_FINAL
from rota.core.model import (
    Array,
    GroupMember,
    Instant,
    JobId,
    JobRecord,
    JobState,
    Quota,
    ScheduleId,
    TriggerId,
    WorkerId,
)
from rota.core.outcome import AnyWrite, Outcome
from rota.core.policy import DEFAULT, STRICT
from rota.core.schedule_model import Calendar
from rota.core.trigger_model import event_key
from tests.core.asking import HOUR, job, retries
from tests.core.schedule_builders import plan
from tests.core.story import WORKERS, Story
from tests.core.trigger_builders import batch, debounce, event, rule
from tests.core.world import World

TINY = MemoryWindow(jobs=8, fifo_group=2, refill=3)
"""Most waiting jobs are spilled."""
WIDE = MemoryWindow()
"""No job is spilled."""
QUEUES = ("q0", "q1", "q2")
LABELS = (("team", "red"), ("team", "blue"), ("tier", "1"))
TURNS = 120


class RecordedWorld(World):
    """A world that keeps the records of all its turns, with their times."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.records: list[tuple[Instant, Sequence[AnyWrite]]] = []

    def bare_turn(self, events: Sequence[AnyInput]) -> Outcome:
        outcome = super().bare_turn(events)
        if outcome.writes:
            self.records.append((self.now, list(outcome.writes)))
        return outcome


class FullStory(Story):
    """Plain jobs, arrays, gangs, retries, deletions, updates, schedules, triggers and settings."""

    def __init__(self, seed: int, window: MemoryWindow = TINY) -> None:
        super().__init__(seed)
        self.rng = random.Random(seed)
        policy = self.rng.choice((STRICT, DEFAULT))
        self.world: RecordedWorld = RecordedWorld(
            checked=False, timing=Timing(window=window), policy=policy
        )
        self.minted: list[JobId] = []

    def records(self, turns: int = TURNS) -> list[tuple[Instant, Sequence[AnyWrite]]]:
        """Plays the story; returns its records with their times."""
        world = self.world
        for number in range(WORKERS // 2):
            world.register(f"w{number}", cpu=1 + number % 4, custom={"slot": 3})
        for _ in range(turns):
            if self.rng.random() < 0.02:
                world.now += self.rng.choice((9, 20, 30)) * HOUR
            self.turn()
            # Alone in its turn: the ledger wants to see what comes before it goes.
            world.turn([self.timed()])
        return world.records

    def note(self, outcome: Outcome) -> None:
        """Does nothing: the world keeps the records."""

    def event(self) -> AnyInput:
        rng = self.rng
        actions = (
            *(self.submit, self.submit, self.poll, self.poll, self.complete, self.complete),
            *(self.revive, self.change, self.end, self.settings),
        )
        return rng.choice(actions)()

    # Jobs

    def mint(self) -> JobId:
        """A new id, as the API makes them."""
        self.jobs += 1
        new_id = JobId(execution_id(JobId(f"story-{self.jobs}"), 0, self.world.now))
        self.minted.append(new_id)
        return new_id

    def submit(self) -> AnyInput:
        rng, queue = self.rng, self.rng.choice(QUEUES)
        alike = {"queue": queue, "labels": rng.sample(LABELS, rng.randrange(3))}
        new = []
        for _ in range(rng.choice((1, 1, 2, 9))):
            asked = alike if rng.random() < 0.6 else self.terms() | {"queue": queue}
            new.append(job(self.mint(), created_at=self.world.now, **asked))
        if rng.random() < 0.05:
            return Reject(jobs=(new[0],), why="invalid, as the story asked")
        key = Key(key=f"k{self.jobs}", fingerprint="f") if rng.random() < 0.3 else None
        return Submit(jobs=tuple(new), preloaded=self.world.recall(), key=key)

    def terms(self) -> dict[str, Any]:
        rng, now = self.rng, self.world.now
        group = rng.choice(({}, {}, {"count": rng.randrange(1, 5)}, {"gang": 2}))
        if "count" in group and rng.random() < 0.5:
            group = group | {"max_parallel": 1}
        return group | {
            "priority": rng.randrange(2),
            "tenant": rng.choice(("default", "acme")),
            "cpu": rng.choice((0.5, 1, 2)),
            "custom": rng.choice(({}, {"slot": 1})),
            "key": rng.choice((None, None, None, "x")),
            "limit": rng.randrange(1, 3),
            "labels": rng.sample(LABELS, rng.randrange(3)),
            "retry": retries(rng.randrange(1, 4), jitter=0.5),
            "run_at": rng.choice((None, None, None, now + 3_000)),
            "expires_at": rng.choice((None, None, None, now + 30_000)),
            "after": rng.sample(self.minted[-9:], min(len(self.minted), rng.choice((0, 0, 1, 2)))),
        }

    def choose(self, *, ended: bool) -> JobRecord | None:
        """One of the newer jobs that have ended, or of those that have not."""
        known = list(self.world.ledger.jobs.values())[-60:]
        found = [one for one in known if (one.life.state in JOB_FINAL) is ended]
        return self.rng.choice(found) if found else None

    def revive(self) -> AnyInput:
        """Retries by hand, sometimes a job that another command of this turn touches too."""
        record = self.choose(ended=True)
        if record is None:
            return Tick()
        group, failed = record.spec.group, None
        if isinstance(group, GroupMember) and JobId(group.parent) in self.world.ledger.jobs:
            record = self.world.ledger.jobs[JobId(group.parent)]
        if isinstance(record.spec.group, Array):
            failed = self.failed_members(record.id)
        recall = self.world.recall()
        return Retry(job_id=record.id, failed=failed, preloaded=recall)

    def failed_members(self, parent: JobId) -> tuple[int, ...]:
        """Indices of the started members that did not succeed."""
        return tuple(
            sorted(
                one.spec.group.index
                for one in self.world.ledger.ended()
                if isinstance(one.spec.group, GroupMember)
                and one.spec.group.parent == parent
                and one.life.state is not JobState.SUCCEEDED
            )
        )

    def change(self) -> AnyInput:
        record = self.choose(ended=False)
        if record is None:
            return Tick()
        rng, spec = self.rng, record.spec
        spec = replace(spec, labels=tuple(rng.sample(LABELS, rng.randrange(3))))
        if rng.random() < 0.5:
            queue = spec.terms.queue if spec.group else rng.choice(QUEUES)
            spec = replace(spec, terms=replace(spec.terms, priority=rng.randrange(3), queue=queue))
        return Update(job_id=record.id, spec=spec, preloaded=self.world.recall())

    def end(self) -> AnyInput:
        rng, record = self.rng, self.choose(ended=self.rng.random() < 0.4)
        if record is None:
            return Tick()
        recall = self.world.recall()
        if rng.random() < 0.5:
            return Cancel(job_id=record.id, preloaded=recall)
        return Delete(job_id=record.id, force=rng.random() < 0.6, preloaded=recall)

    def turn(self) -> None:
        """Retries many at once now and then."""
        if self.rng.random() < 0.05:
            self.world.now += 1
            self.world.turn([self.revive() for _ in range(6)])
        super().turn()

    def poll(self) -> AnyInput:
        if self.rng.random() < 0.9:
            return super().poll()
        return Heartbeat(worker_id=self.worker())

    def worker(self) -> WorkerId:
        return WorkerId(f"w{self.rng.randrange(WORKERS // 2)}")

    # Time, events and settings

    def timed(self) -> AnyInput:
        """Schedules, calendars, triggers and events come, change and go."""
        world, rng, name = self.world, self.rng, f"n{self.rng.randrange(3)}"
        schedules, triggers = list(world.ledger.schedules), list(world.ledger.triggers)
        self.jobs += 1
        new_id = execution_id(JobId(f"timed-{self.jobs}"), 0, world.now)
        told = event(f"e{rng.randrange(40)}", f"kind.{name}")
        known = world.ledger.accepted.get(event_key(told))
        recall = Preloaded(at=world.now, accepted_events=() if known is None else (known,))
        buffering = rng.choice((None, batch(3), debounce()))
        choices: list[AnyInput] = [
            CreateSchedule(
                schedule=NewSchedule(
                    id=ScheduleId(new_id), definition=plan(name, interval_ms=300_000)
                )
            ),
            CreateTrigger(
                trigger=NewTrigger(
                    id=TriggerId(new_id), definition=rule(name, "kind.*", buffering=buffering)
                )
            ),
            SetCalendar(calendar=Calendar(name, (739_000 + rng.randrange(9),))),
            DeleteCalendar(name=name),
            *[ReceiveEvents(events=(told,), preloaded=recall)] * 6,
            *(PauseSchedule(schedule_id=one, paused=rng.random() < 0.5) for one in schedules),
            *(TriggerSchedule(schedule_id=one) for one in schedules[:1]),
            *(PauseTrigger(trigger_id=one, paused=rng.random() < 0.5) for one in triggers),
            *(DeleteSchedule(schedule_id=one) for one in schedules[:1]),
            *(DeleteTrigger(trigger_id=one) for one in triggers[:1]),
        ]
        return rng.choice(choices)

    def settings(self) -> AnyInput:
        rng, queue = self.rng, self.rng.choice(QUEUES)
        record = self.choose(ended=False)
        quota = rng.choice((None, Quota(running=rng.randrange(1, 9))))
        choices: list[AnyInput] = [
            Tick(),
            PutQueueSettings(name=queue, priority=rng.randrange(3), paused=rng.random() < 0.1),
            PutTenantSettings(name="acme", weight=rng.choice((1.0, 2.0)), quota=quota),
            SetPolicy(policy=rng.choice((STRICT, DEFAULT))),
            Drain(worker_id=self.worker()),
            *[Resume(worker_id=self.worker())] * 2,
            Deregister(worker_id=WorkerId("w0")),
            Purge(name=queue),
        ]
        if record is not None:
            choices.append(Execute(job_id=record.id, worker_id=self.worker()))
        return rng.choice(choices)
