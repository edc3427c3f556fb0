from __future__ import annotations

import pytest

from rota.core.commands import Submit
from rota.core.errors import Conflict, DependencyCycle, TooMuch, UnknownDependency
from rota.core.limits import QUEUES_MAX
from rota.core.model import JobState
from rota.core.outcome import JobsAccepted
from tests.core.asking import job
from tests.core.world import World


def test_a_single_job_is_queued_at_once_and_answered_whole() -> None:
    world = World()
    receipt = world.submit_all([job("a")])
    assert receipt.job_ids == ("a",)
    assert receipt.first == world.record("a")
    assert world.state("a") is JobState.QUEUED
    assert (world.life("a").reason, world.life("a").ready_at) == ("ready", world.now)


def test_a_batch_is_answered_with_its_ids_in_the_order_given() -> None:
    world = World()
    receipt = world.submit_all([job("c"), job("a"), job("b")])
    assert receipt == JobsAccepted(("c", "a", "b"))
    assert [record.id for record in world.ledger.live()] == ["c", "a", "b"]


def test_a_queue_is_created_when_a_job_first_names_it() -> None:
    world = World()
    world.submit("a", queue="mail")
    assert list(world.ledger.queues) == ["mail"]
    assert world.ledger.queues["mail"].created_at == world.now


def test_a_cycle_is_refused_and_named_by_the_refs_of_the_batch() -> None:
    world = World()
    batch = [
        job("1", ref="extract", after=["3"]),
        job("2", ref="load", after=["1"]),
        job("3", ref="check", after=["2"]),
        job("4", ref="innocent"),
    ]
    with pytest.raises(DependencyCycle) as refused:
        world.submit_all(batch)
    assert refused.value.path == ("extract", "check", "load", "extract")
    assert refused.value.detail == (
        "dependencies form a cycle: extract -> check -> load -> extract"
    )
    assert not world.ledger.jobs


def test_a_job_that_waits_for_itself_is_a_cycle() -> None:
    world = World()
    with pytest.raises(DependencyCycle) as refused:
        world.submit("a", after=["a"])
    assert refused.value.path == ("a", "a")


def test_a_cycle_without_refs_is_named_by_ids() -> None:
    world = World()
    with pytest.raises(DependencyCycle) as refused:
        world.submit_all([job("x", after=["y"]), job("y", after=["x"])])
    assert refused.value.path == ("x", "y", "x")


def test_an_unknown_dependency_is_refused_with_its_field() -> None:
    world = World()
    with pytest.raises(UnknownDependency) as refused:
        world.submit_all([job("a"), job("b", after=["a", "ghost"])])
    assert refused.value.detail == "there is no job ghost to depend on"
    assert refused.value.field == "jobs[1].dependencies"
    with pytest.raises(UnknownDependency) as alone:
        world.submit("c", after=["ghost"])
    assert alone.value.field == "dependencies"


def test_a_refused_batch_leaves_nothing_behind() -> None:
    world = World()
    world.submit("there")
    before = dict(world.ledger.jobs)
    for batch in (
        [job("a"), job("b", after=["ghost"])],
        [job("a", after=["b"]), job("b", after=["a"])],
        [job("a"), job("a")],
        [job("a"), job("there")],
    ):
        outcome = world.turn([Submit(jobs=tuple(batch), preloaded=world.recall())])
        assert isinstance(outcome.replies[0], Exception)
        assert not outcome.writes
        assert outcome.submitted == 0
    assert world.ledger.jobs == before
    assert world.scheduler.live_jobs() == 1


def test_an_id_cannot_be_used_twice_not_even_right_after_the_job_ended() -> None:
    world = World()
    world.submit("a")
    with pytest.raises(Conflict, match="there is a job a already"):
        world.submit("a")
    world.cancel("a")
    with pytest.raises(Conflict, match="there is a job a already"):
        world.submit("a")


def test_every_id_of_a_batch_is_checked_whatever_their_order() -> None:
    world = World()
    world.submit_all([job("b"), job("d")])
    world.cancel("d")
    world.cancel("b")
    for batch in ([job("a"), job("d")], [job("e"), job("b")], [job("c"), job("b"), job("z")]):
        with pytest.raises(Conflict, match=r"there is a job [bd] already"):
            world.submit_all(batch)
    world.submit_all([job("a"), job("c"), job("e")])
    with pytest.raises(Conflict, match="there is a job e already"):
        world.submit_all([job("f"), job("e")])


def test_queues_beyond_the_limit_are_refused() -> None:
    world = World(checked=False)
    world.submit_all([job(f"j{n}", queue=f"q{n}") for n in range(QUEUES_MAX)])
    with pytest.raises(TooMuch):
        world.submit("one-more", queue="new")
    world.submit("fine", queue="q1")
    world.check()


def test_the_turn_says_how_many_were_submitted() -> None:
    world = World()
    world.submit_all([job("a"), job("b")])
    assert world.last.submitted == 2
