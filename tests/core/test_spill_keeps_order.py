"""With any window the same jobs start in the same order as with all of them in memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rota.core.commands import MemoryWindow, Timing
from rota.core.limits import LONG_FIFO_GROUP, CoreLimits
from rota.core.model import JobState
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
