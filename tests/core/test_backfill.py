from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rota.core.invariants import check_capacity
from rota.core.limits import RESERVE_AFTER_MS, RESERVE_LOOK, CoreLimits
from rota.core.model import JobState
from rota.core.policy import (
    CONSERVATIVE,
    DEFAULT,
    EASY,
    FCFS,
    STRICT,
    BackfillKind,
    OrderKind,
    Policy,
)
from tests.core.asking import NOON, job
from tests.core.replay import Replay, Work
from tests.core.world import World

MINUTE = 60_000
IN_TURN = replace(DEFAULT, order=OrderKind.ROUND_ROBIN)
ALL = {
    "default": DEFAULT,
    "strict": STRICT,
    "fcfs": FCFS,
    "easy": EASY,
    "conservative": CONSERVATIVE,
    "in turn": IN_TURN,
    "strict easy": replace(STRICT, backfill=BackfillKind.EASY),
}


def busy(policy: Policy, **has: Any) -> World:
    """A worker of 4 cpus that runs 3 of them for ten minutes, and somebody who wants all 4."""
    world = World(policy=policy)
    world.register(cpu=4, **has)
    world.submit("running", cpu=3, runs_ms=10 * MINUTE)
    assert world.take() == ["running"]
    world.submit("large", cpu=4, runs_ms=MINUTE)
    return world


@pytest.mark.parametrize("policy", [EASY, DEFAULT, CONSERVATIVE])
def test_who_ends_in_time_passes_and_who_does_not_waits(policy: Policy) -> None:
    world = busy(policy)
    world.submit("short", cpu=1, runs_ms=5 * MINUTE)
    world.submit("long", cpu=1, runs_ms=20 * MINUTE)
    assert world.take() == ["short"]
    assert world.state("long") is JobState.QUEUED


def test_a_place_is_none_for_the_same_job_when_it_asks_for_more() -> None:
    # So few classes that the number of its class is used again.
    world = World(policy=EASY, limits=CoreLimits(classes_kept=2))
    world.register(cpu=4)
    world.submit_all([job("running", cpu=3, runs_ms=10 * MINUTE), job("same", cpu=3)])
    assert world.take(max_orders=1) == ["running"]
    world.cancel("same")
    world.submit("grows", cpu=2, runs_ms=MINUTE)
    world.submit("same again", cpu=3, runs_ms=MINUTE)
    world.poll(wait_ms=60 * MINUTE)
    world.update("grows", cpu=4, runs_ms=MINUTE)
    assert len(world.scheduler._t.ready_queue.classes) == 2
    world.submit("long", cpu=1, runs_ms=20 * MINUTE)
    assert world.state("long") is JobState.QUEUED, "beside four cpus there is none to spare"


def test_nobody_passes_where_nobody_may() -> None:
    world = busy(FCFS)
    world.submit("short", cpu=1, runs_ms=5 * MINUTE)
    assert world.take() == []
    assert "behind" in world.causes("short")


def test_what_the_large_job_leaves_may_be_used_for_as_long_as_one_likes() -> None:
    world = World(policy=EASY)
    world.register(cpu=5)
    world.submit("running", cpu=4, runs_ms=10 * MINUTE)
    world.take()
    world.submit("large", cpu=4, runs_ms=MINUTE)
    world.submit("long", cpu=1, runs_ms=60 * MINUTE)
    assert world.take() == ["long"]


def test_the_place_is_kept_on_one_worker_and_the_others_run_on_freely() -> None:
    world = World(policy=DEFAULT)
    for name in ("w1", "w2"):
        world.register(name, cpu=4)
        world.submit(f"running-{name}", cpu=3, runs_ms=10 * MINUTE)
        assert world.take(name) == [f"running-{name}"]
    world.submit("large", cpu=4, runs_ms=MINUTE)
    world.submit("long-1", cpu=1, runs_ms=60 * MINUTE)
    world.submit("long-2", cpu=1, runs_ms=60 * MINUTE)
    first, second = world.poll("w1"), world.poll("w2")
    assert len(world.orders(first)) + len(world.orders(second)) == 1


def test_a_job_of_another_kind_of_worker_is_not_held_up() -> None:
    world = busy(FCFS)
    world.register("gpu", cpu=1, gpu=1)
    world.submit("on-gpu", cpu=1, gpu=1)
    assert world.take("gpu") == ["on-gpu"]


def test_a_job_that_no_worker_could_run_holds_up_nobody() -> None:
    for policy in (FCFS, EASY, CONSERVATIVE, DEFAULT):
        world = World(policy=policy)
        world.register(cpu=4)
        world.submit("impossible", cpu=64)
        world.submit("small", cpu=1)
        assert world.take() == ["small"]


def test_run_times_are_learned_from_earlier_runs_of_the_name() -> None:
    world = World(policy=DEFAULT)
    world.register(cpu=4)
    for number in range(2):
        world.submit(f"before-{number}", name="quick")
        world.take()
        world.now += 2_000
        world.complete(f"before-{number}")
    assert world.ledger.runtimes["default", "quick"].recent == (2_000, 2_000)
    world.restart()
    world.submit("running", cpu=3, runs_ms=10 * MINUTE)
    world.take()
    world.submit("large", cpu=4, runs_ms=MINUTE)
    world.submit("unknown", cpu=1, name="never-seen", timeout_ms=60 * MINUTE)
    world.submit("known", cpu=1, name="quick", timeout_ms=60 * MINUTE)
    assert world.take() == ["known"]


def test_a_job_that_outlives_its_estimate_does_not_stop_the_reckoning() -> None:
    world = busy(DEFAULT)
    world.heartbeat(names=["running"])
    for _ in range(64):
        world.advance(10_000)
        world.heartbeat(names=["running"])
    held = world.scheduler._t.executions[world.execution("running").id]
    assert held.ends_at > world.now
    world.submit("short", cpu=1, runs_ms=1_000)
    assert world.take(names=["running"]) == ["short"]


def test_the_one_who_waits_and_those_held_back_are_told_of_the_place() -> None:
    world = busy(DEFAULT)
    world.submit("long", cpu=1, runs_ms=20 * MINUTE)
    poll = world.poll()
    assert world.orders(poll) == []
    large = world.why("large")
    assert large.estimated_start == world.execution("running").claimed_at + 10 * MINUTE
    (cause,) = [one for one in world.why("long").causes if one.code == "reserved"]
    assert cause.figures["job_id"] == "large"
    assert cause.figures["until"] == large.estimated_start


works = st.lists(
    st.builds(
        lambda gap, runs, cpu, tenant: (gap, runs, cpu, tenant),
        st.sampled_from([0, 0, 1_000, 5_000]),
        st.sampled_from([1_000, 3_000, 10_000, 40_000]),
        st.integers(1, 4),
        st.sampled_from("ab"),
    ),
    min_size=1,
    max_size=18,
)
fleets = st.sampled_from(
    [{"w1": {"cpu": 4}}, {"w1": {"cpu": 4}, "w2": {"cpu": 4}, "w3": {"cpu": 2}}]
)


def arriving(rows: list[tuple[int, int, int, str]]) -> list[Work]:
    found, at = [], 0
    for gap, runs, cpu, tenant in rows:
        at += gap
        found.append(Work(at, runs, {"cpu": cpu, "tenant": tenant, "runs_ms": runs}))
    return found


@pytest.mark.parametrize("name", list(ALL))
@settings(max_examples=20)
@given(rows=works, fleet=fleets)
def test_all_jobs_run_and_no_worker_is_given_more_than_it_has(
    name: str, rows: list[tuple[int, int, int, str]], fleet: dict[str, dict[str, Any]]
) -> None:
    def looked(world: World) -> None:
        world.check()
        check_capacity(world.scheduler._t)

    replay = Replay(ALL[name], fleet, looked)
    replay.run(arriving(rows))
    assert len(replay.started) == len(rows)


@settings(max_examples=40)
@given(rows=works, fleet=fleets)
def test_a_job_with_a_place_starts_no_later_than_it_was_told(
    rows: list[tuple[int, int, int, str]], fleet: dict[str, dict[str, Any]]
) -> None:
    """Estimates are true and the order is by arrival, so the first in line stays the first."""
    told: dict[str, int] = {}

    def looked(world: World) -> None:
        for record in world.ledger.live():
            why = world.why(record.id)
            if why.method.startswith("a place is kept"):
                assert why.estimated_start is not None
                at = why.estimated_start - NOON
                told[record.id] = min(at, told.get(record.id, at))

    replay = Replay(EASY, fleet, looked)
    replay.run(arriving(rows))
    for job_id, at in told.items():
        assert replay.started[job_id] <= at, f"{job_id} was told {at}"  # type: ignore[index]


@settings(max_examples=40)
@given(rows=works, fleet=fleets)
def test_in_the_conservative_plan_every_job_starts_no_later_than_it_was_told_at_first(
    rows: list[tuple[int, int, int, str]], fleet: dict[str, dict[str, Any]]
) -> None:
    told: dict[str, int] = {}

    def looked(world: World) -> None:
        for job_id, (_, at) in world.scheduler._t.conservative_plan.items():
            told.setdefault(job_id, at - NOON)

    replay = Replay(CONSERVATIVE, fleet, looked)
    replay.run(arriving(rows))
    for job_id, at in told.items():
        assert replay.started[job_id] <= at  # type: ignore[index]


@pytest.mark.parametrize("name", list(ALL))
@settings(max_examples=20)
@given(rows=works, fleet=fleets)
def test_every_job_that_waits_has_a_reason_to(
    name: str, rows: list[tuple[int, int, int, str]], fleet: dict[str, dict[str, Any]]
) -> None:
    def looked(world: World) -> None:
        for record in world.ledger.live():
            assert world.why(record.id).causes, f"{record.id} is free to go and does not"

    Replay(ALL[name], fleet, looked).run(arriving(rows))


def test_with_a_stream_of_short_jobs_a_large_one_still_starts() -> None:
    """Without a place kept for it, one of the four cpus would be busy at any time."""
    stream = [Work(at, 3_000, {"cpu": 1, "runs_ms": 3_000}) for at in range(0, 300_000, 700)]
    large = Work(10_000, 5_000, {"cpu": 4, "runs_ms": 5_000})
    started: dict[str, int] = {}
    for name in ("easy", "default", "conservative", "strict"):
        replay = Replay(ALL[name], {"w": {"cpu": 4}}, lambda _: None)
        replay.run([*stream, large])
        started[name] = replay.started[f"j{len(stream)}"]  # type: ignore[index]
    assert started["strict"] > 200_000, "the test tests nothing"
    assert max(started["easy"], started["conservative"]) <= 14_000
    assert started["default"] <= 100_000


def test_in_a_large_fleet_a_large_job_is_passed_for_a_moment_and_then_starts() -> None:
    """Every worker always has one short job or two, so that room for two never just happens."""
    fleet = {f"w{number}": {"cpu": 2} for number in range(RESERVE_LOOK + 4)}
    count = 2 * len(fleet)
    stream = [
        Work(at, 3_000, {"cpu": 1, "runs_ms": 3_000, "tenant": "a"})
        for at in range(0, 60_000, 3_000 // count)
    ]
    large = Work(10_000, 5_000, {"cpu": 2, "runs_ms": 5_000, "tenant": "b"})
    started: dict[str, int] = {}
    for name in ("strict", "default"):
        replay = Replay(ALL[name], fleet, lambda _: None)
        replay.run([*stream, large])
        started[name] = replay.started[f"j{len(stream)}"]  # type: ignore[index]
    assert started["strict"] > 40_000, "the test tests nothing"
    assert started["default"] <= 10_000 + RESERVE_AFTER_MS + 2 * 3_000


def test_a_cell_runs_no_more_than_it_may_and_takes_no_more_than_it_may() -> None:
    world = World(policy=replace(DEFAULT, max_running=2))
    world.register(cpu=4)
    world.submit_all([job(f"j{n}") for n in range(4)])
    assert len(world.take()) == 2
    assert "cell_full" in world.causes("j3")
