"""Scheduler against the naive model, decision by decision, on random stories."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rota.core.commands import MemoryWindow
from rota.core.limits import CoreLimits
from tests.core.naive_nouns import Job, Worker
from tests.core.together import ENDS, Together

T = TypeVar("T")

QUEUES = ("default", "mail", "batch")
SHAPES: tuple[dict[str, Any], ...] = (
    {"cpu": 1, "gpu": 0, "capabilities": (), "queues": None},
    {"cpu": 4, "gpu": 0, "capabilities": ("linux",), "queues": None},
    {"cpu": 2, "gpu": 1, "capabilities": (), "queues": None},
    {"cpu": 8, "gpu": 2, "capabilities": ("linux",), "queues": ("batch", "default")},
)

pick = st.integers(0, 1_000)
priorities = st.sampled_from((0, 0, 0, 1, -1, 5))
some_time = st.none() | st.integers(0, 30_000)
terms = st.fixed_dictionaries(
    {
        "queue": st.sampled_from(QUEUES),
        "priority": priorities,
        "cpu": st.sampled_from((0, 0.5, 1, 1, 2, 4)),
        "gpu": st.sampled_from((0, 0, 0, 0.5, 1)),
        "capabilities": st.sampled_from(((), (), ("linux",))),
        "key": st.sampled_from((None, None, "a", "b")),
    }
)
LIMITS = {None: 1, "a": 1, "b": 2}
spoken = st.sampled_from(("nothing said", "all", "none", "some"))


def one_of(things: list[T], number: int) -> T:
    return things[number % len(things)]


class Stories(RuleBasedStateMachine):
    """Random commands of users and workers, and the passing of time."""

    few_classes = 256
    few_open = 8
    workers_max = 13
    orders_max = 10
    window: MemoryWindow | None = None

    def __init__(self) -> None:
        super().__init__()
        limits = CoreLimits(classes_kept=self.few_classes, open_workers_compared=self.few_open)
        self.both = Together(self.window, limits)

    # Lookups

    def jobs(self, *states: str) -> list[Job]:
        return [job for job in self.both.model.jobs.values() if job.state in states]

    def workers(self) -> list[Worker]:
        return list(self.both.model.workers.values())

    def names(self, worker: Worker, said: str) -> list[str] | None:
        held = [one.job.id for one in self.both.model.executions_of(worker)]
        return {"nothing said": None, "all": held, "none": [], "some": held[::2]}[said]

    # Users

    @initialize(count=st.integers(1, 4), waiting=st.booleans())
    def some_workers(self, count: int, *, waiting: bool) -> None:
        for number in range(min(count, self.workers_max)):
            self.both.register(f"w{number}", **SHAPES[number])
            if waiting:
                most = min(3, self.orders_max)
                self.both.poll(self.workers()[-1], None, max_orders=most, wait_ms=5_000)

    @rule(
        asked=terms,
        after=st.lists(
            st.tuples(st.integers(0, 4), st.sampled_from(("succeeded", "finished", "failed"))),
            max_size=2,
            unique_by=lambda edge: edge[0],
        ),
        run_in=some_time,
        expires_in=st.none() | st.integers(1, 40),
        tries=st.sampled_from((1, 1, 2, 3)),
        once=st.booleans(),
    )
    def submit(self, asked: dict[str, Any], **more: Any) -> None:
        self.both.submit(**asked, limit=LIMITS[asked["key"]], **more)

    @rule(asked=terms, count=st.integers(2, 6), everywhere=st.booleans())
    def submit_many(self, asked: dict[str, Any], count: int, *, everywhere: bool) -> None:
        for number in range(count):
            if everywhere:
                asked["queue"] = QUEUES[number % len(QUEUES)]
            self.both.submit(**asked, limit=LIMITS[asked["key"]])

    @precondition(lambda self: self.jobs("pending", "queued"))
    @rule(number=pick, asked=terms, run_in=some_time)
    def update(self, number: int, asked: dict[str, Any], run_in: int | None) -> None:
        job = one_of(self.jobs("pending", "queued"), number)
        self.both.update(job, **asked, limit=LIMITS[asked["key"]], run_in=run_in)

    @precondition(lambda self: self.jobs("pending", "queued", "running", "cancelling"))
    @rule(number=pick)
    def cancel(self, number: int) -> None:
        self.both.cancel(one_of(self.jobs("pending", "queued", "running", "cancelling"), number))

    @precondition(lambda self: self.jobs("failed", "cancelled", "skipped", "expired"))
    @rule(number=pick)
    def retry(self, number: int) -> None:
        self.both.retry(one_of(self.jobs("failed", "cancelled", "skipped", "expired"), number))

    @rule(
        name=st.sampled_from(QUEUES),
        priority=st.sampled_from((0, 3, -3)),
        max_workers=st.sampled_from((None, None, 1, 2)),
        paused=st.sampled_from((False, False, True)),
        rate=st.sampled_from((None, None, (1, 3_000), (3, 7_000))),
    )
    def queue(self, **settings_: Any) -> None:
        self.both.queue(**settings_)

    # Workers

    @rule(number=st.integers(0, 12))
    def register(self, number: int) -> None:
        number %= self.workers_max
        self.both.register(f"w{number}", **SHAPES[number % len(SHAPES)])

    @rule(
        number=pick,
        said=spoken,
        max_orders=st.sampled_from((1, 1, 2, 10)),
        wait_ms=st.sampled_from((0, 2_000, 5_000)),
        stale=st.booleans(),
        reports=st.lists(st.sampled_from(sorted(ENDS)), max_size=2),
    )
    def poll(self, number: int, said: str, reports: list[str], **more: Any) -> None:
        more["max_orders"] = min(more["max_orders"], self.orders_max)
        worker = one_of(self.workers(), number)
        held = [one.job for one in self.both.model.executions_of(worker)]
        done = list(zip(held, reports, strict=False))
        self.both.poll(worker, self.names(worker, said), done=done, **more)

    @rule(max_orders=st.sampled_from((1, 4)))
    def everybody_polls(self, max_orders: int) -> None:
        max_orders = min(max_orders, self.orders_max)
        for worker in self.workers():
            names = self.names(worker, "all")
            self.both.poll(worker, names, max_orders=max_orders, wait_ms=5_000)

    @rule(number=pick, said=spoken)
    def heartbeat(self, number: int, said: str) -> None:
        worker = one_of(self.workers(), number)
        self.both.heartbeat(worker, self.names(worker, said))

    @precondition(lambda self: self.jobs("running", "cancelling"))
    @rule(number=pick, how=st.sampled_from(sorted(ENDS)))
    def complete(self, number: int, how: str) -> None:
        self.both.complete(one_of(self.jobs("running", "cancelling"), number), how)

    @precondition(lambda self: self.jobs("running"))
    @rule(how=st.sampled_from(("succeeded", "failed")))
    def everything_ends(self, how: str) -> None:
        for job in self.jobs("running"):
            self.both.complete(job, how)

    # Time and failures

    @rule(ms=st.sampled_from((1, 500, 3_000, 9_000, 20_000)))
    def time_passes(self, ms: int) -> None:
        self.both.advance(ms)

    @rule(number=pick, what=st.sampled_from(("restart", "drain", "resume", "leave")))
    def trouble(self, number: int, what: str) -> None:
        worker = one_of(self.workers(), number)
        if what == "restart":
            self.both.restart()
        elif what == "leave":
            self.both.leave(worker)
        elif worker.state != "offline":
            (self.both.drain if what == "drain" else self.both.resume)(worker)

    @invariant()
    def why_agrees(self) -> None:
        self.both.check_why()


class CrampedStories(Stories):
    """Stories in which class indexes are reused and workers kept in heaps all the time."""

    few_classes = 2
    few_open = 0


class SpilledStories(Stories):
    """Stories in which nearly all jobs are spilled.

    As many jobs of each FIFO group are in memory as a turn can start: a poll is answered with what
    there is, so a group that becomes empty in a turn would spread its jobs over more polls.
    """

    workers_max = 3
    orders_max = 1
    window = MemoryWindow(jobs=2, fifo_group=4, refill=3)

    @rule(asked=terms, count=st.integers(6, 14), number=pick)
    def submit_many_alike(self, asked: dict[str, Any], count: int, number: int) -> None:
        asked["key"] = None
        for place in range(count):
            asked["priority"] = (0, 1, 0, -1)[number >> place & 3]
            self.both.submit(**asked, limit=1)

    @rule(rounds=st.integers(2, 8))
    def workers_are_busy(self, rounds: int) -> None:
        for _ in range(rounds):
            self.everybody_polls(max_orders=1)
            self.everything_ends(how="succeeded")


EVERYDAY = settings(max_examples=50, stateful_step_count=50)
LONG = settings(max_examples=1_000, stateful_step_count=80)


@pytest.mark.parametrize("stories", [Stories, CrampedStories, SpilledStories])
def test_the_scheduler_decides_what_the_naive_model_decides(stories: type[Stories]) -> None:
    run_state_machine_as_test(stories, settings=EVERYDAY)


@pytest.mark.slow
@pytest.mark.parametrize("stories", [Stories, CrampedStories, SpilledStories])
def test_the_scheduler_decides_what_the_naive_model_decides_for_long(
    stories: type[Stories],
) -> None:
    run_state_machine_as_test(stories, settings=LONG)
