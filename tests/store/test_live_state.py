"""A follower's copy of what is live: the same as a load would bring, wherever it began."""

from __future__ import annotations

import random

import pytest

from rota.core.commands import (
    AnyInput,
    CreateSchedule,
    CreateTrigger,
    Delete,
    DeleteCalendar,
    DeleteSchedule,
    DeleteTrigger,
    NewSchedule,
    NewTrigger,
    PauseSchedule,
    PauseTrigger,
    Preloaded,
    ReceiveEvents,
    Retry,
    SetCalendar,
)
from rota.core.model import JobId, JobState, Life, ScheduleId, TriggerId
from rota.core.outcome import Outcome
from rota.core.schedule_model import Calendar
from rota.core.trigger_model import event_key
from rota.store.projection.live_state import JournalGapError, LiveState
from rota.store.protocol import GENESIS, Epoch, Snapshot, Totals
from rota.store.sqlite.memory import MemoryStore
from tests.core.schedule_builders import plan
from tests.core.story import Story
from tests.core.trigger_builders import batch, event, rule
from tests.store.conformance import put

AT_ONCE = 7
SCHEDULE_WRITES = ("schedules", "calendars", "triggers", "buffered_events")


class Recorded(Story):
    """A story with second lives and removals in it, and all its records."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.records: list[Outcome] = []

    def note(self, outcome: Outcome) -> None:
        self.records.append(outcome)

    def turn(self) -> None:
        super().turn()
        self.schedule_write()
        ended = [
            record.id
            for record in self.world.ledger.jobs.values()
            if record.life.state in (JobState.FAILED, JobState.CANCELLED, JobState.SUCCEEDED)
        ]
        if ended and self.rng.random() < 0.5:
            self.disturb(self.rng.choice(ended))

    def schedule_write(self) -> None:
        """Schedules and triggers come, change and go; time and events make jobs of them."""
        world, rng, name = self.world, self.rng, f"n{self.rng.randrange(3)}"
        schedules, triggers = list(world.ledger.schedules), list(world.ledger.triggers)
        new_id = f"id-{len(self.records):06}"
        told = event(f"e{rng.randrange(40)}", f"kind.{name}")
        known = world.ledger.accepted.get(event_key(told))
        recall = Preloaded(at=world.now, accepted_events=() if known is None else (known,))
        choices: list[AnyInput] = [
            CreateSchedule(
                schedule=NewSchedule(
                    id=ScheduleId(new_id), definition=plan(name, interval_ms=7_000)
                )
            ),
            CreateTrigger(
                trigger=NewTrigger(
                    id=TriggerId(new_id),
                    definition=rule(name, "kind.*", buffering=rng.choice((None, batch(3)))),
                )
            ),
            SetCalendar(calendar=Calendar(name, (739_000 + rng.randrange(9),))),
            DeleteCalendar(name=name),
            *[ReceiveEvents(events=(told,), preloaded=recall)] * 4,
            *(PauseSchedule(schedule_id=one, paused=rng.random() < 0.5) for one in schedules),
            *(PauseTrigger(trigger_id=one, paused=rng.random() < 0.5) for one in triggers),
            *(DeleteSchedule(schedule_id=one) for one in schedules[:1]),
            *(DeleteTrigger(trigger_id=one) for one in triggers[:1]),
        ]
        outcome = world.turn([rng.choice(choices)])
        self.note(outcome)

    def disturb(self, job_id: JobId) -> None:
        kind = self.rng.choice((Retry, Delete))
        event = kind(job_id=job_id, preloaded=self.world.recall())
        self.note(self.world.turn([event]))


async def written(seed: int) -> MemoryStore:
    """A store with a whole story in it."""
    story = Recorded(seed)
    story.play()
    store = MemoryStore()
    epoch = await store.journal.claim("a")
    head = GENESIS
    for outcome in story.records:
        if outcome.writes:
            head = await store.journal.append(epoch, head, 1, outcome.writes)
    return store


async def follow(store: MemoryStore, mirror: LiveState, upto: int, size: int) -> None:
    """Reads on, as a follower does."""
    while mirror.seq < upto:
        records = await store.journal.records_after(mirror.head, min(size, upto - mirror.seq))
        mirror.apply(records, await store.queries.jobs(mirror.unknown(records)))


def empty() -> Snapshot:
    """Before the first record."""
    return Snapshot(GENESIS, (), (), (), (), 0, Totals())


def plain(snapshot: Snapshot) -> tuple[object, ...]:
    """Where the order says nothing it must not matter."""
    return (
        snapshot.seq,
        list(snapshot.jobs),
        {x.id: x for x in snapshot.executions},
        {x.id: x for x in snapshot.workers},
        {x.name: x for x in snapshot.queues},
        snapshot.next_arrival_number,
        snapshot.totals.submitted,
        set(snapshot.totals.finished),
        set(snapshot.totals.decided),
        set(snapshot.totals.reacted),
        list(snapshot.schedules),
        {x.name: x for x in snapshot.calendars},
        list(snapshot.triggers),
        list(snapshot.buffered_events),
    )


@pytest.mark.parametrize("seed", range(6))
async def test_a_copy_that_follows_is_what_a_load_brings(seed: int) -> None:
    store = await written(seed)
    newest = (await store.queries.head())[1]
    mirror, seen = LiveState(empty()), set[str]()
    for upto in range(AT_ONCE, newest + AT_ONCE, AT_ONCE):
        await follow(store, mirror, min(upto, newest), size=AT_ONCE)
        seen |= {name for name in SCHEDULE_WRITES if getattr(mirror.snapshot(), name)}
    loaded = await store.journal.load()
    assert plain(mirror.snapshot()) == plain(loaded)
    # The story has all of it in it, at one time or another.
    assert loaded.totals.decided
    assert loaded.totals.reacted
    assert seen == set(SCHEDULE_WRITES)


@pytest.mark.parametrize("seed", range(3))
async def test_it_may_begin_anywhere_and_read_any_number_at_once(seed: int) -> None:
    store = await written(seed)
    newest = (await store.queries.head())[1]
    rng = random.Random(seed)
    first = LiveState(empty())
    await follow(store, first, rng.randrange(newest), size=AT_ONCE)
    second = LiveState(first.snapshot())
    for mirror, size in ((first, 1), (second, newest)):
        await follow(store, mirror, newest, size=size)
    assert plain(first.snapshot()) == plain(second.snapshot())


async def test_a_copy_that_fell_behind_what_is_kept_says_so() -> None:
    store = MemoryStore()
    epoch: Epoch = await store.journal.claim("a")
    first = await store.journal.append(epoch, GENESIS, 1, [put(1)])
    await store.journal.append(epoch, first, 1, [put(2)])
    records = await store.journal.records_after(first, 10)
    with pytest.raises(JournalGapError):
        LiveState(empty()).apply(records)


async def test_a_copy_counts_the_end_of_a_job_that_was_retried_and_cancelled_in_one_turn() -> None:
    store = MemoryStore()
    epoch: Epoch = await store.journal.claim("a")
    ended = Life(JobState.CANCELLED, finished_at=1)
    head = await store.journal.append(epoch, GENESIS, 1, [put(1, life=ended)])
    mirror = LiveState(await store.journal.load())
    again = Life(JobState.CANCELLED, finished_at=2, lives=2)
    await store.journal.append(epoch, head, 2, [put(1, life=again)])
    await follow(store, mirror, 2, size=9)
    assert mirror.snapshot().totals.finished == (("default", "cancelled", 2),)
    assert plain(mirror.snapshot()) == plain(await store.journal.load())
