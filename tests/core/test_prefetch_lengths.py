"""How much is prefetched, by how long jobs of a name turn out to take."""

from __future__ import annotations

import pytest

from rota.core.learned import RuntimeStats
from rota.core.limits import PREFETCH_CHAIN, PREFETCH_MS, SHORT_MS, SHORT_RUNS
from rota.core.memory import runtimes
from tests.core.asking import job
from tests.core.world import World, run


def learned(world: World, ran_ms: int) -> None:
    """A name is known to be short."""
    for number in range(SHORT_RUNS):
        world.submit(f"learned-{number}", name="known")
        run(world, f"learned-{number}")
        world.advance(ran_ms)
        world.complete(f"learned-{number}")


@pytest.mark.parametrize("ends", [4, 16], ids=["one by one", "together"])
def test_the_call_that_tells_of_many_ends_is_answered_with_as_many_orders(ends: int) -> None:
    world = World()
    world.register(cpu=1)
    learned(world, 3)
    for number in range(100):
        world.submit(f"job-{number}", name="known")
    held = world.take(spare=PREFETCH_CHAIN)
    for _ in range(3):
        world.advance(3 * ends)
        over, held = held[:ends], held[ends:]
        given = world.take(completed=[world.report(one) for one in over], spare=ends)
        assert len(given) == ends, "those after the first seem to have run for no time"
        held += given


def test_work_ahead_of_a_place_is_counted_by_the_mean_of_what_ended_together() -> None:
    world = World()
    world.register(cpu=1)
    learned(world, 20)
    for number in range(100):
        world.submit(f"job-{number}", name="known")
    held = world.take(spare=PREFETCH_CHAIN)
    for _ in range(10):
        world.advance(40)
        over, held = held[:2], held[2:]
        held += world.take(completed=[world.report(one) for one in over], spare=PREFETCH_CHAIN)
        assert 4 <= len(held) - 1 <= PREFETCH_MS // 20 + 1


def test_two_long_runs_in_a_row_count_at_once_whatever_the_mean() -> None:
    world = World()
    world.register(cpu=1)
    learned(world, 1)
    for number in range(100):
        world.submit(f"job-{number}", name="known")
    held = world.take(spare=PREFETCH_CHAIN)
    for one in held[:2]:
        world.advance(SHORT_MS)
        assert world.take(completed=[world.report(one)], spare=PREFETCH_CHAIN) == []


def test_names_beyond_those_that_are_kept_go_whoever_is_heard_of() -> None:
    known = runtimes.RuntimeEstimates(3)
    for number in range(6):  # as many as were written before a restart
        known.restore(RuntimeStats("default", f"name-{number}", (5, 5)))
    for _ in range(4):
        known.learn(job("a", name="name-5").spec.terms, [5])
    assert [key[1] for key in known._known] == ["name-3", "name-4", "name-5"]
