from __future__ import annotations

from collections.abc import Sequence

import pytest

from rota.core.commands import Purge, PutQueueSettings
from rota.core.errors import NotFound
from rota.core.model import JobLimits, JobState, RateLimit
from rota.core.outcome import CountReceipt
from tests.core.asking import HOUR, SECOND, job
from tests.core.world import World


def starts(world: World, until_ms: int) -> Sequence[int]:
    """When jobs start, in milliseconds from now, with a worker that always waits."""
    begin, found = world.now, []
    poll = world.poll(wait_ms=HOUR)
    while world.now < begin + until_ms:
        while world.orders(poll):
            found += [world.now - begin] * len(world.orders(poll))
            poll = world.poll(wait_ms=HOUR)
        due = world.scheduler.next_due()
        step = until_ms if due is None else max(1, due - world.now)
        world.advance(min(step, begin + until_ms - world.now))
    return found


def test_a_queue_runs_no_more_than_its_max_workers() -> None:
    world = World()
    world.register(cpu=64)
    world.queue("narrow", max_workers=2)
    world.submit_all([job(f"j{n}", queue="narrow") for n in range(5)])
    assert world.take() == ["j0", "j1"]
    assert world.take() == []
    world.complete("j1")
    assert world.take() == ["j2"]


def test_the_job_limits_of_a_queue_go_with_its_orders() -> None:
    world = World()
    world.register(cpu=64)
    world.queue("tight", limits=(("processes", 20), ("file_size", 100)))
    world.queue("tight", limits=(("processes", None), ("log_size", 5)))
    world.submit_all([job("a", queue="tight"), job("b")])
    orders = world.answers[world.poll()].orders
    assert [order.limits for order in orders] == [JobLimits(file_size=100, log_size=5), None]
    world.queue("tight", limits=(("file_size", None), ("log_size", None)))
    world.submit("c", queue="tight")
    assert [order.limits for order in world.answers[world.poll()].orders] == [None]


def test_the_limit_of_one_queue_does_not_hold_another() -> None:
    world = World()
    world.register(cpu=64)
    world.queue("narrow", max_workers=1)
    world.submit_all([job("a", queue="narrow"), job("b", queue="narrow"), job("c")])
    assert world.take() == ["a", "c"]


def test_raising_the_limit_lets_more_run_at_once_and_lowering_it_ends_nothing() -> None:
    world = World()
    world.register(cpu=64)
    world.queue(max_workers=1)
    world.submit_all([job(f"j{n}") for n in range(4)])
    world.take()
    poll = world.poll()
    world.queue(max_workers=3)
    assert world.orders(poll) == ["j1", "j2"]
    world.queue(max_workers=1)
    assert world.state("j2") is JobState.RUNNING
    world.complete("j0")
    world.complete("j1")
    assert world.take() == []
    world.complete("j2")
    assert world.take() == ["j3"]


def test_a_paused_queue_starts_nothing_until_it_is_resumed() -> None:
    world = World()
    world.register()
    world.queue(paused=True)
    world.submit("a")
    poll = world.poll()
    assert world.state("a") is JobState.QUEUED
    world.queue(paused=False)
    assert world.orders(poll) == ["a"]


def test_a_pause_outlives_a_restart() -> None:
    world = World()
    world.register()
    world.queue(paused=True)
    world.submit("a")
    world.restart()
    assert world.take() == []
    world.queue(paused=False)
    assert world.take() == ["a"]


def test_a_rate_limit_allows_a_burst_and_then_even_spacing() -> None:
    world = World()
    world.register(cpu=64)
    world.queue(rate_limit=RateLimit(3, 10 * SECOND))
    world.submit_all([job(f"j{n}") for n in range(8)])
    assert starts(world, 20 * SECOND) == [0, 0, 0, 3_334, 6_667, 10_000, 13_334, 16_667]


def test_a_rate_limit_unused_for_long_allows_only_one_burst() -> None:
    world = World()
    world.register(cpu=64)
    world.queue(rate_limit=RateLimit(2, SECOND))
    world.advance(HOUR)
    world.heartbeat()
    world.submit_all([job(f"j{n}") for n in range(4)])
    assert starts(world, 1_500) == [0, 0, 500, 1_000]


@pytest.mark.parametrize(("count", "per_ms"), [(1, 1_000), (7, 1_000), (3, 1_000), (10, 100)])
def test_a_rate_limit_is_never_passed_in_any_stretch_of_time(count: int, per_ms: int) -> None:
    world = World()
    world.register(cpu=1_000)
    world.queue(rate_limit=RateLimit(count, per_ms))
    world.submit_all([job(f"j{n}", cpu=0) for n in range(6 * count)])
    found = starts(world, 6 * per_ms)
    assert len(found) == 6 * count, "and it is used fully"
    spacing = per_ms / count
    for index, at in enumerate(found[count:], count):
        # After the burst each start has one spacing of its own, rounded up to the millisecond.
        assert at >= (index - count + 1) * spacing
        assert at < (index - count + 1) * spacing + 1


def test_a_new_rate_limit_counts_from_the_beginning() -> None:
    world = World()
    world.register(cpu=64)
    world.queue(rate_limit=RateLimit(1, HOUR))
    world.submit_all([job(f"j{n}") for n in range(4)])
    assert world.take() == ["j0"]
    assert world.take() == []
    world.queue(rate_limit=RateLimit(2, HOUR))
    assert world.take() == ["j1", "j2"]
    world.step(PutQueueSettings(name="default", cleared=("rate_limit",)))
    assert world.take() == ["j3"]


def test_settings_that_are_not_given_stay_and_a_replacement_takes_defaults() -> None:
    world = World()
    world.queue("q", priority=3, max_workers=5)
    world.queue("q", paused=True)
    before = world.ledger.queues["q"]
    assert (before.priority, before.max_workers, before.paused) == (3, 5, True)
    world.queue("q", replace=True, weight=2.0)
    after = world.ledger.queues["q"]
    assert (after.priority, after.max_workers, after.paused, after.weight) == (0, None, False, 2.0)
    assert after.created_at == before.created_at


def test_a_purge_cancels_waiting_jobs_and_leaves_running_ones() -> None:
    world = World()
    world.register(cpu=1)
    world.submit_all(
        [
            job("running", queue="q"),
            job("ready", queue="q"),
            job("later", queue="q", run_at=world.now + HOUR),
            job("dependent", queue="q", after=["ready"]),
            job("elsewhere", queue="other"),
        ]
    )
    assert world.take(max_orders=1) == ["running"]
    assert world.step(Purge(name="q")) == CountReceipt(2)
    assert world.state("running") is JobState.RUNNING
    assert world.state("ready") is JobState.CANCELLED
    assert world.state("later") is JobState.CANCELLED
    assert world.state("dependent") is JobState.SKIPPED
    assert world.state("elsewhere") is JobState.QUEUED


def test_a_purge_can_be_done_in_parts() -> None:
    world = World()
    world.submit_all([job(f"j{number}", queue="q") for number in range(5)])
    world.submit_all([job("elsewhere", queue="other")])
    assert world.step(Purge(name="q", most=2)) == CountReceipt(2)
    assert world.step(Purge(name="q", most=2)) == CountReceipt(2)
    assert world.step(Purge(name="q", before=4)) == CountReceipt(5)
    assert world.state("elsewhere") is JobState.QUEUED


def test_purging_an_unknown_queue_is_refused() -> None:
    with pytest.raises(NotFound):
        World().step(Purge(name="ghost"))


def test_a_queue_counts_its_live_jobs_by_state() -> None:
    world = World()
    world.register(cpu=1)
    world.submit_all([job("a"), job("b"), job("c", run_at=world.now + HOUR)])
    world.take()
    (glance,) = world.scheduler.queues()
    counted = {state: count for state, count in glance.depth.items() if count}
    assert counted == {JobState.RUNNING: 1, JobState.QUEUED: 1, JobState.PENDING: 1}
