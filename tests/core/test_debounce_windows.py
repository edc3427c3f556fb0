"""Events that wait for each other: debounce and batch, through time, crashes and changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.commands import ClockJump
from rota.core.limits import BUFFERED_PER_JOB_MAX, CoreLimits
from rota.core.trigger_model import DebounceKeep, EventBuffering, EventDecision
from tests.core.asking import SECOND
from tests.core.trigger_builders import Stirred, batch, debounce, event


@pytest.fixture
def world() -> Stirred:
    return Stirred()


def test_a_debounce_waits_until_it_is_quiet_and_takes_the_last(world: Stirred) -> None:
    trigger = world.trigger(buffering=debounce(keep=DebounceKeep.LAST))
    for number in range(3):
        world.send(event(f"e{number}"))
        world.advance(4 * SECOND)
    assert world.jobs_of(trigger) == []
    world.advance(1 * SECOND)
    (made,) = world.jobs_of(trigger)
    assert world.payload(made)["id"] == "e2"
    assert world.words(trigger) == ["superseded", "superseded", "fired"]


def test_a_debounce_that_never_gets_quiet_ends_all_the_same(world: Stirred) -> None:
    trigger = world.trigger(buffering=debounce(wait_ms=10 * SECOND, keep=DebounceKeep.LAST))
    for number in range(4):
        world.send(event(f"e{number}"))
        world.advance(3 * SECOND)
    assert len(world.jobs_of(trigger)) == 1


def test_a_debounce_may_keep_all(world: Stirred) -> None:
    trigger = world.trigger(buffering=debounce())
    world.send(event("e1"), event("e2"))
    world.advance(5 * SECOND)
    (made,) = world.jobs_of(trigger)
    assert [one["id"] for one in world.payload(made)["events"]] == ["e1", "e2"]


def test_a_batch_closes_when_it_is_full_or_its_time_is_over(world: Stirred) -> None:
    trigger = world.trigger(buffering=batch(2))
    world.send(event("e1"), event("e2"), event("e3"))
    assert [one.decision.value for one in world.ledger_of(trigger)].count("fired") == 2
    world.advance(10 * SECOND)
    assert world.words(trigger) == ["fired"] * 3
    assert len(world.jobs_of(trigger)) == 2


def test_each_value_of_a_key_gathers_on_its_own(world: Stirred) -> None:
    trigger = world.trigger(buffering=batch(2, key="data.customer"))
    world.send(*(event(f"e{n}", data={"customer": n % 2}) for n in range(4)))
    assert len(world.jobs_of(trigger)) == 2


def test_a_batch_never_grows_past_what_a_job_can_carry(world: Stirred) -> None:
    trigger = world.trigger(buffering=debounce())
    world.send(*(event(f"e{n}") for n in range(BUFFERED_PER_JOB_MAX + 1)))
    assert len(world.jobs_of(trigger)) == 1
    assert len(world.ledger.buffered) == 1


def test_large_events_close_a_window_early(world: Stirred) -> None:
    trigger = world.trigger(buffering=debounce())
    world.send(event("e1", data="x" * 500_000), event("e2", data="x" * 500_000))
    assert len(world.jobs_of(trigger)) == 1


def test_an_open_window_survives_a_restart(world: Stirred) -> None:
    trigger = world.trigger(buffering=batch(10))
    world.send(event("e1"))
    world.advance(4 * SECOND)
    world.restart()
    world.send(event("e2"))
    world.advance(5 * SECOND)
    assert world.jobs_of(trigger) == []
    world.advance(1 * SECOND)
    (made,) = world.jobs_of(trigger)
    assert len(world.payload(made)["events"]) == 2


def test_a_window_whose_time_came_while_nobody_was_there_closes_at_once(world: Stirred) -> None:
    trigger = world.trigger(buffering=batch(10))
    world.send(event("e1"))
    world.now += 3600 * SECOND
    world.restart()
    world.advance(0)
    assert world.words(trigger) == ["fired"]


@pytest.mark.parametrize("by", [3600 * SECOND, -3600 * SECOND])
def test_a_window_lasts_as_long_whatever_the_clock_is_set_to(world: Stirred, by: int) -> None:
    trigger = world.trigger(buffering=batch(10))
    world.send(event("e1"))
    world.now += by
    world.turn([ClockJump(by=by)])
    world.advance(9 * SECOND)
    assert world.jobs_of(trigger) == []
    world.advance(1 * SECOND)
    assert len(world.jobs_of(trigger)) == 1


def test_a_clock_set_back_during_an_outage_holds_nothing_up(world: Stirred) -> None:
    trigger = world.trigger(buffering=batch(10))
    world.send(event("e1"))
    world.now -= 3600 * SECOND
    world.restart()
    world.advance(10 * SECOND)
    assert len(world.jobs_of(trigger)) == 1


def test_what_waits_when_its_trigger_is_paused_goes_on_when_it_is_resumed(world: Stirred) -> None:
    trigger = world.trigger(buffering=batch(10))
    world.send(event("e1"))
    world.pause(trigger)
    world.advance(60 * SECOND)
    assert world.words(trigger) == ["held"]
    world.pause(trigger, paused=False)
    world.advance(0)
    assert world.words(trigger) == ["fired"]


def test_what_waits_when_its_trigger_is_deleted_is_dropped(world: Stirred) -> None:
    trigger = world.trigger(buffering=batch(10))
    world.send(event("e1"))
    world.delete(trigger)
    assert world.words(trigger) == ["dropped"]
    assert not world.ledger.buffered
    world.restart()


def test_what_waits_goes_at_once_when_the_rule_no_longer_gathers(world: Stirred) -> None:
    trigger = world.trigger(buffering=batch(10))
    world.send(event("e1"))
    world.change(trigger)
    world.advance(0)
    assert world.words(trigger) == ["fired"]


def test_more_than_memory_may_hold_is_refused() -> None:
    world = Stirred(limits=CoreLimits(buffered_bytes_max=10))
    trigger = world.trigger(buffering=batch(10))
    world.send(event("e1", data="x" * 20), event("e2", data="x"))
    assert sorted(world.words(trigger)) == ["failed", "held"]


def test_ever_new_values_of_a_key_do_not_fill_memory() -> None:
    world = Stirred(limits=CoreLimits(windows_max=2))
    trigger = world.trigger(buffering=batch(10, key="id"))
    world.send(*(event(f"e{n}") for n in range(3)))
    assert sorted(world.words(trigger)) == ["failed", "held", "held"]


@pytest.mark.parametrize("after", [None, debounce(keep=DebounceKeep.LAST)])
def test_what_waits_when_the_rule_gathers_no_more_is_all_carried(
    world: Stirred, after: EventBuffering | None
) -> None:
    trigger = world.trigger(buffering=batch(10))
    world.send(event("e1"), event("e2"))
    world.change(trigger, buffering=after)
    world.advance(10 * SECOND)
    (job_id,) = world.jobs_of(trigger)
    assert [one["id"] for one in world.payload(job_id)["events"]] == ["e1", "e2"]


_gatherings = st.sampled_from(
    [
        None,
        batch(3),
        batch(3, key="data.k"),
        debounce(),
        debounce(keep=DebounceKeep.LAST, wait_ms=9_000),
    ]
)
_steps = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 12)),
    st.tuples(st.just("pass"), st.integers(0, 12_000)),
    st.tuples(st.just("jump"), st.integers(-50_000, 50_000)),
    st.tuples(st.just("restart"), st.integers(0, 20_000)),
    st.tuples(st.just("pause"), st.booleans()),
    st.tuples(st.just("change"), _gatherings),
)


def act(world: Stirred, trigger: Any, what: str, how: Any) -> None:
    if what == "send":
        world.send(event(f"e{how}", data={"k": how % 2}))
    elif what == "pass":
        world.advance(how)
    elif what == "jump":
        world.now += how
        world.turn([ClockJump(by=how)])
    elif what == "restart":
        world.now += how
        world.restart()
    elif what == "pause":
        world.pause(trigger, paused=how)
    else:
        world.change(trigger, buffering=how)


@given(first=_gatherings, steps=st.lists(_steps, max_size=25))
def test_whatever_happens_every_event_ends_in_one_verdict(first: Any, steps: list[Any]) -> None:
    world = Stirred()
    trigger = world.trigger(buffering=first)
    for what, how in steps:
        act(world, trigger, what, how)
    world.pause(trigger, paused=False)
    world.advance(60 * SECOND)
    lines = world.ledger_of(trigger)
    assert len(lines) == len(world.ledger.accepted), "an event left no trace, or two"
    assert not world.ledger.buffered
    final = {EventDecision.FIRED, EventDecision.SUPERSEDED, EventDecision.PAUSED}
    assert {one.decision for one in lines} <= final
    carried: Counter[str] = Counter()
    for job_id in world.jobs_of(trigger):
        payload = world.payload(job_id)
        carried.update(one["id"] for one in payload.get("events", [payload]))
    fired = [one.event_id for one in lines if one.decision is EventDecision.FIRED]
    assert carried == Counter(fired), "a job carries another event than the ledger says"
