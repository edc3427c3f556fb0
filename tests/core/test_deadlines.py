"""Deadlines: their effect on the order, warnings, and what is written."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rota.core.commands import CreateTrigger, NewTrigger, Retry, Update
from rota.core.model import JobId, TriggerId
from rota.core.policy import DEFAULT, FCFS, STRICT, Policy
from rota.core.trigger_model import TriggerDefinition
from tests.core.asking import HOUR, SECOND, job, spec
from tests.core.world import World, run

MINUTE = 60 * SECOND


def started_in_order(world: World, jobs: int) -> list[str]:
    """One at a time, each ends before the next may start."""
    order: list[str] = []
    for _ in range(jobs):
        (job_id,) = world.take(max_orders=1)
        order.append(job_id)
        world.complete(job_id)
    return order


@pytest.mark.parametrize("policy", [STRICT, DEFAULT], ids=["strict", "fair"])
def test_inside_a_priority_those_with_the_least_slack_go_first(policy: Policy) -> None:
    world = World(policy=policy)
    world.register(cpu=1)
    now = world.now
    world.submit_all(
        [
            job("none", runs_ms=MINUTE),
            job("loose", runs_ms=MINUTE, finish_by=now + 3 * HOUR),
            job("tight", runs_ms=MINUTE, finish_by=now + HOUR),
            # Due later than the last, but so long that it has to start before it.
            job("long", runs_ms=HOUR, finish_by=now + HOUR + 30 * MINUTE),
        ]
    )
    assert started_in_order(world, 4) == ["long", "tight", "loose", "none"]


def test_a_higher_priority_still_goes_before_a_deadline_where_priority_is_strict() -> None:
    world = World(policy=STRICT)
    world.register(cpu=1)
    world.submit_all([job("due", finish_by=world.now + MINUTE), job("high", priority=1)])
    assert started_in_order(world, 2) == ["high", "due"]


def test_where_arrival_alone_counts_a_deadline_changes_no_order() -> None:
    world = World(policy=FCFS)
    world.register(cpu=1)
    world.submit_all([job("first"), job("due", finish_by=world.now + MINUTE)])
    assert started_in_order(world, 2) == ["first", "due"]


def test_a_deadline_a_day_away_takes_nobodys_place() -> None:
    world = World(policy=DEFAULT)
    world.register(cpu=1)
    world.submit_all([job("plain"), job("some-day", finish_by=world.now + 100 * HOUR)])
    assert started_in_order(world, 2) == ["plain", "some-day"]


def test_a_job_that_should_have_started_is_told_before_its_deadline_is_missed() -> None:
    world = World()
    world.submit("a", runs_ms=10 * MINUTE, finish_by=world.now + HOUR)
    world.advance(30 * MINUTE)
    assert world.life("a").deadline == ""
    world.advance(15 * MINUTE)
    assert world.life("a").deadline == "at_risk"
    assert world.last.deadlines in ({}, {"at_risk": 1})
    world.advance(15 * MINUTE)
    assert world.life("a").deadline == "missed"
    assert world.life("a").state == "queued", "it runs all the same"


def test_one_that_runs_and_will_be_done_in_time_is_not_warned_of() -> None:
    world = World()
    world.register()
    world.submit("a", runs_ms=10 * MINUTE, finish_by=world.now + 11 * MINUTE)
    run(world, "a")
    world.complete("a")
    assert world.life("a").deadline == "met"
    assert world.last.deadlines == {"met": 1}


def test_what_ends_too_late_or_otherwise_has_missed_it() -> None:
    world = World()
    world.register()
    world.submit_all(
        [job("late", finish_by=world.now + SECOND), job("bad", finish_by=world.now + HOUR)]
    )
    for one in ("late", "bad"):
        run(world, one)
    world.now += 2 * SECOND
    world.complete("late")
    world.complete("bad", "failed")
    assert (world.life("late").deadline, world.life("bad").deadline) == ("missed", "missed")


def test_a_restart_forgets_neither_the_watch_nor_what_was_said() -> None:
    world = World()
    world.submit("a", finish_by=world.now + HOUR)
    world.restart()
    world.advance(55 * MINUTE)
    assert world.life("a").deadline == "at_risk"
    world.restart()
    world.advance(5 * MINUTE)
    assert world.life("a").deadline == "missed"


def test_another_deadline_begins_anew() -> None:
    world = World()
    world.submit("a", finish_by=world.now + MINUTE)
    world.advance(2 * MINUTE)
    assert world.life("a").deadline == "missed"
    record = world.ledger.jobs[JobId("a")]
    later = replace(record.spec, finish_by=world.now + HOUR)
    world.step(Update(job_id=JobId("a"), spec=later, preloaded=world.recall()))
    assert world.life("a").deadline == ""
    world.advance(HOUR)
    assert world.life("a").deadline == "missed"


def test_one_that_is_started_over_after_its_time_is_not_warned_of_again() -> None:
    world = World()
    world.register()
    world.submit("a", finish_by=world.now + SECOND)
    run(world, "a")
    world.now += 2 * SECOND
    world.complete("a", "failed")
    world.step(Retry(job_id=JobId("a"), preloaded=world.recall()))
    world.advance(MINUTE)
    assert world.life("a").deadline == ""


@pytest.mark.parametrize("kind", ["at_risk", "missed"])
def test_triggers_hear_of_it_once(kind: str) -> None:
    world = World()
    rule = TriggerDefinition("page", f"rota.job.deadline_{kind}", spec(name="page-somebody"))
    world.step(CreateTrigger(trigger=NewTrigger(id=TriggerId("t1"), definition=rule)))
    world.submit("a", finish_by=world.now + HOUR)
    world.advance(2 * HOUR)
    made = [one for one in world.ledger.jobs.values() if one.spec.terms.name == "page-somebody"]
    assert len(made) == 1
    assert f'"deadline":"{kind}"'.encode() in made[0].spec.payload


def test_how_a_job_stands_follows_what_is_known_of_it() -> None:
    world = World()
    world.register()
    world.submit("a", runs_ms=10 * MINUTE, finish_by=world.now + HOUR)
    waiting = world.scheduler.deadline(world.ledger.jobs[JobId("a")], None, world.now)
    assert waiting is not None
    assert (waiting.status, waiting.expected_end) == ("on_time", None)
    run(world, "a")
    record = world.ledger.jobs[JobId("a")]
    running = world.scheduler.deadline(record, None, world.now)
    assert running is not None
    assert running.expected_end == record.life.started_at + 10 * MINUTE
    late = world.scheduler.deadline(
        replace(record, spec=replace(record.spec, finish_by=world.now + MINUTE)), None, world.now
    )
    assert late is not None
    assert (late.status, late.slack_ms < 0) == ("late", True)
