"""Refills: when a spill queue may be read from the tables as they are, and when they must catch
up."""

from __future__ import annotations

from rota.core.commands import Cancel, MemoryWindow, Refilled, Timing
from rota.core.model import JobId, JobState
from rota.core.outcome import Refill
from tests.core.world import World


def world_with(waiting: int) -> World:
    """So many jobs of one queue: j1, j2, …; the first three are in memory."""
    world = World(timing=Timing(window=MemoryWindow(jobs=3, fifo_group=2, refill=2)))
    for number in range(1, waiting + 1):
        world.submit(f"j{number}")
    world.register(cpu=100)
    return world


def asked_next(world: World) -> Refill:
    """Refills requested when two more jobs have started."""
    (wanted,) = world.bare_turn([world.asking(max_orders=2)]).refills
    return wanted


def answered(world: World, wanted: Refill) -> None:
    """The store answers, and no further refill is requested."""
    assert not world.bare_turn([world.ledger.refill(wanted)]).refills


def test_a_refill_waits_for_the_tables_once_for_a_spill_queue() -> None:
    world = world_with(20)
    first = asked_next(world)
    assert first.exact, "nobody knows yet who has left this line"
    answered(world, first)
    for after in (5, 7, 9):
        wanted = asked_next(world)
        assert (wanted.after, wanted.exact) == (after, False)
        answered(world, wanted)


def test_a_refill_waits_for_the_tables_after_a_job_was_loaded_by_id() -> None:
    world = world_with(20)
    answered(world, asked_next(world))
    world.bare_turn([Cancel(job_id=JobId("j7"), preloaded=world.recall())])
    wanted = asked_next(world)
    assert wanted.exact, "they may still have it"
    world.bare_turn([Cancel(job_id=JobId("j9"), preloaded=world.recall())])
    answered(world, wanted)
    assert world.state("j7") is world.state("j9") is JobState.CANCELLED
    again = asked_next(world)
    assert again.exact, "one left while they were read"
    answered(world, again)
    assert not asked_next(world).exact


def test_a_refill_waits_for_jobs_that_the_tables_do_not_have_yet() -> None:
    world = world_with(8)
    answered(world, asked_next(world))
    wanted = asked_next(world)
    assert not wanted.exact
    nothing = Refilled(refill=wanted, jobs=())
    (again,) = world.bare_turn([nothing]).refills
    assert (again.after, again.exact) == (wanted.after, True)
    world.turn([world.ledger.refill(again)])
    while world.take(max_orders=50):
        pass
    assert all(world.state(f"j{number}") is JobState.RUNNING for number in range(1, 9))
