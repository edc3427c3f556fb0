"""With any window the same jobs start in the same order as with all of them in memory, however late
and stale what the store answers is."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rota.core.commands import AnyInput, Cancel, MemoryWindow, Refilled, Submit, Timing
from rota.core.limits import LONG_FIFO_GROUP, CoreLimits
from rota.core.model import JobId, JobState
from rota.core.outcome import Refill
from rota.core.policy import STRICT, OrderKind, Policy
from tests.core.asking import NOON, job
from tests.core.world import World
from tests.example_counts import examples

steps = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(0, 5)),
        st.tuples(st.just("start"), st.integers(1, 4)),
        st.tuples(st.just("cancel"), st.integers(0, 99)),
        st.tuples(st.just("urge"), st.integers(0, 99)),
        st.tuples(st.just("follow"), st.integers(0, 99)),
        st.tuples(st.just("end"), st.integers(0, 99)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=60,
)


class Player:
    """Plays the same script to any scheduler, and keeps the jobs started, in order."""

    def __init__(self, window: MemoryWindow, policy: Policy) -> None:
        self.world = World(timing=Timing(window=window), policy=policy)
        self.world.register(cpu=6)
        self.started: list[str] = []
        self.count = 0

    def play(self, what: str, number: int) -> None:
        world = self.world
        waiting = [job.id for job in world.ledger.live() if job.life.state is JobState.QUEUED]
        running = [job.id for job in world.ledger.live() if job.life.state is JobState.RUNNING]
        if what == "submit":
            for _ in range(number):
                self.count += 1
                queue, priority = ("a", "b")[number % 2], self.count % 5 // 4
                world.submit(
                    f"j{self.count}",
                    queue=queue,
                    priority=priority,
                    tenant=("t", "u")[self.count % 3 // 2],
                    runs_ms=(None, 1_000, 9_000)[self.count % 7 % 3],
                    created_at=world.now,
                )
        elif what == "start":
            for _ in range(number):
                self.started += world.take(max_orders=1)
        elif what == "restart":
            world.restart()
        elif what == "end" and running:
            world.complete(running[number % len(running)])
        elif waiting:
            self.touch(what, waiting[number % len(waiting)])

    def touch(self, what: str, job_id: str) -> None:
        if what == "cancel":
            self.world.cancel(job_id)
        elif what == "urge":
            created_at = self.world.record(job_id).spec.created_at
            self.world.update(job_id, priority=7, queue="b", created_at=created_at)
        elif what == "follow":
            self.count += 1
            self.world.submit(f"j{self.count}", after=[job_id])


ORDERS = [replace(STRICT, order=order, beta=10.0) for order in OrderKind]


@pytest.mark.parametrize("policy", ORDERS, ids=[one.order.value for one in ORDERS])
@settings(max_examples=examples(10, 300), deadline=None)
@given(script=steps, fifo_group=st.integers(1, 3), refill=st.integers(1, 4))
def test_the_same_jobs_start_in_the_same_order_with_and_without_a_window(
    policy: Policy, script: list[tuple[str, int]], fifo_group: int, refill: int
) -> None:
    wide = Player(MemoryWindow(), policy)
    narrow = Player(MemoryWindow(jobs=1, fifo_group=fifo_group, refill=refill), policy)
    for what, number in [*script, *[("end", 0), ("start", 3)] * 20]:
        wide.play(what, number)
        narrow.play(what, number)
        assert narrow.started == wide.started


@pytest.mark.parametrize("policy", ORDERS, ids=[one.order.value for one in ORDERS])
def test_long_runs_of_alike_jobs_start_as_if_each_had_been_loaded_alone(
    policy: Policy,
) -> None:
    """Some have another name, and some were created, by the clock, before those ahead of them."""
    jobs = [
        job(
            f"j{number:03}",
            name=("one", "other")[number // (2 * LONG_FIFO_GROUP) % 2],
            created_at=NOON + number // 3 - 40 * (number % 50 == 49),
        )
        for number in range(8 * LONG_FIFO_GROUP)
    ]
    started: list[list[str]] = []
    for few in (LONG_FIFO_GROUP, len(jobs)):
        window = MemoryWindow(jobs=5 * LONG_FIFO_GROUP, fifo_group=8, refill=90)
        world = World(
            timing=Timing(window=window), policy=policy, limits=CoreLimits(long_fifo_group=few)
        )
        world.submit_all(jobs)
        world.register(cpu=1)
        started.append([])
        while taken := world.take(max_orders=1):
            started[-1] += taken
            world.complete(taken[0])
    assert started[0] == started[1]
    assert len(started[0]) == len(jobs)


class Late:
    """A story whose refills are answered some turns after they were asked for."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        window = MemoryWindow(jobs=3, fifo_group=self.rng.choice((1, 2)), refill=2)
        self.world = World(timing=Timing(window=window))
        self.world.register(cpu=1_000)
        self.cancels, self.answers = self.rng.choice((0.1, 0.6)), self.rng.choice((0.4, 0.9))
        self.asked: list[Refill] = []
        self.submitted = 0

    def turn(self, events: list[AnyInput]) -> None:
        answered = [one for one in self.asked if self.rng.random() < self.answers]
        self.asked = [one for one in self.asked if one not in answered]
        refills = [self.world.ledger.refill(one) for one in answered]
        self.asked += self.world.bare_turn([*events, *refills]).refills

    def act(self) -> None:
        if self.rng.random() < 0.3:
            some = range(self.submitted, self.submitted + self.rng.randrange(1, 9))
            self.submitted = some.stop
            self.turn([Submit(jobs=tuple(job(f"j{number:03}") for number in some))])
        waiting = [one.id for one in self.world.ledger.live() if one.life.state == "queued"]
        if waiting and self.rng.random() < self.cancels:
            job_id = self.rng.choice(waiting[:8])
            self.turn([Cancel(job_id=job_id, preloaded=self.world.recall())])
        self.turn([self.world.asking(max_orders=self.rng.randrange(4))])

    def started(self) -> list[JobId]:
        return [one.job_id for one in self.world.ledger.executions.values()]


@pytest.mark.parametrize("seed", range(20))
def test_jobs_start_once_and_in_order_however_late_and_stale_their_refills_are(seed: int) -> None:
    story = Late(seed)
    for _ in range(60):
        story.act()
    for _ in range(5 * story.submitted):
        story.turn([story.world.asking(max_orders=9)])
    assert story.started() == sorted(story.started())
    jobs = story.world.ledger.jobs
    assert {one.life.state for one in jobs.values()} == {JobState.RUNNING, JobState.CANCELLED}
    assert len(story.started()) == sum(one.life.state == "running" for one in jobs.values())


def test_a_refill_out_of_tables_that_have_nothing_yet_is_repeated_and_waits_for_them() -> None:
    world = World(timing=Timing(window=MemoryWindow(jobs=3, fifo_group=2, refill=2)))
    for number in range(1, 9):
        world.submit(f"j{number}")
    world.register(cpu=100)
    (first,) = world.bare_turn([world.asking(max_orders=2)]).refills
    world.bare_turn([world.ledger.refill(first)])
    (wanted,) = world.bare_turn([world.asking(max_orders=2)]).refills
    (again,) = world.bare_turn([Refilled(refill=wanted, jobs=())]).refills
    assert (wanted.exact, again.exact) == (False, True)
    assert again.after == wanted.after
