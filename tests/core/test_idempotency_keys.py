from __future__ import annotations

import pytest

from rota.core.commands import Cancel, Key, Preloaded, Register, Submit
from rota.core.errors import KeyReused, StalePreload, UnknownDependency
from rota.core.model import JobId, JobState, WorkerId
from tests.core.asking import SECOND, job, resources
from tests.core.world import World


def keyed(world: World, job_id: str, **said: str) -> Submit:
    """A submission under a key, with what the tables know of the key."""
    key = Key(key=said.get("key", "key-1"), fingerprint=said.get("fingerprint", "f1"))
    world.now += 1
    recall = Preloaded(at=world.now, key=world.ledger.keys.get(key.key))
    return Submit(jobs=(job(job_id),), key=key, preloaded=recall)


def test_the_same_key_again_gets_the_same_receipt_and_makes_nothing() -> None:
    world = World()
    first = world.step(keyed(world, "a"))
    second = world.step(keyed(world, "b"))
    assert first == second
    assert world.last.writes == []
    assert list(world.ledger.jobs) == ["a"]


def test_two_requests_with_one_key_in_one_turn_make_one_job() -> None:
    world = World()
    outcome = world.turn([keyed(world, "a"), keyed(world, "b")])
    assert outcome.replies[0] == outcome.replies[1]
    assert list(world.ledger.jobs) == ["a"]


def test_the_same_key_for_another_request_is_refused() -> None:
    world = World()
    world.step(keyed(world, "a"))
    with pytest.raises(KeyReused):
        world.step(keyed(world, "b", fingerprint="f2"))
    assert list(world.ledger.jobs) == ["a"]


def test_a_key_is_honoured_long_after_and_through_a_restart() -> None:
    world = World()
    first = world.step(keyed(world, "a"))
    world.restart()
    world.advance(3_600 * SECOND)
    assert world.step(keyed(world, "b")) == first
    with pytest.raises(KeyReused):
        world.step(keyed(world, "b", fingerprint="f2"))


def test_a_key_looked_up_too_long_ago_must_be_looked_up_again() -> None:
    world = World()
    early = keyed(world, "a")
    world.advance(11 * SECOND)
    with pytest.raises(StalePreload):
        world.step(early)
    assert not world.ledger.keys


def test_a_key_looked_up_before_a_restart_must_be_looked_up_again() -> None:
    world = World()
    early = keyed(world, "b")
    world.step(keyed(world, "a"))
    world.now += 1
    world.restart()
    with pytest.raises(StalePreload):
        world.step(early)
    assert list(world.ledger.jobs) == ["a"]


def test_a_key_used_between_the_look_and_the_step_is_noticed() -> None:
    world = World()
    early = keyed(world, "b")
    first = world.step(keyed(world, "a"))
    world.advance(5 * SECOND)
    assert world.step(early) == first


def test_a_refusal_uses_no_key() -> None:
    world = World()
    recall = world.recall()
    bad = Submit(
        jobs=(job("a", after=["ghost"]),), key=Key(key="k", fingerprint="f"), preloaded=recall
    )
    with pytest.raises(UnknownDependency):
        world.step(bad)
    assert not world.ledger.keys
    world.step(keyed(world, "a", key="k"))
    assert world.state("a") is JobState.QUEUED


def test_any_write_may_carry_a_key() -> None:
    world = World()
    world.submit("a")
    key = Key(key="c", fingerprint="f")
    cancel = Cancel(job_id=JobId("a"), key=key, preloaded=world.recall())
    first = world.step(cancel)
    assert world.step(cancel) == first, "the second would be refused without its key"
    register = Register(
        worker_id=WorkerId("w1"),
        session="s",
        name="w1",
        capacity=resources(cpu=1),
        key=Key(key="r", fingerprint="f"),
        preloaded=world.recall(),
    )
    assert world.step(register) == world.step(register)
