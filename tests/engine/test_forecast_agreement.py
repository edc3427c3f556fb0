"""What is told and what is decided are one: on random states, by the scheduler's own code."""

from __future__ import annotations

import pytest

from rota.core.policy import DEFAULT, EASY, FCFS, STRICT, OrderKind, Policy
from rota.engine.forecast import Budget, ForwardRun
from tests.core.random_states import RandomState
from tests.engine.clocks import FakeClock

SEEDS = 25
POLICIES = {
    "strict": STRICT,
    "fair": DEFAULT,
    "easy": EASY,
    "fcfs": FCFS,
    "in turn": Policy(OrderKind.ROUND_ROBIN),
}
HARD = (
    *("run_at", "retry", "dependencies", "queue_paused", "queue_full", "rate_limit", "cell_full"),
    *("quota_running", "quota_cpu", "quota_memory", "concurrency", "no_workers", "impossible"),
    *("workers_away", "resources_busy"),
)
"""Causes that hold whoever asks; the others are about who asks and who goes first."""

on_every_policy = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())


def budget() -> Budget:
    """As much as it takes: the clock of these stands still."""
    return Budget(FakeClock(), 1.0)


@on_every_policy
def test_what_is_said_to_start_at_once_does_when_the_workers_ask_and_nothing_else(
    policy: Policy,
) -> None:
    for seed in range(SEEDS):
        state = RandomState(seed, policy)
        world, waiting = state.world, state.waiting()
        course = ForwardRun(world.scheduler.forecast_input((), world.now), budget()).play(waiting)
        at_once = {
            job_id: worker_id
            for job_id, (at, worker_id) in course.starts.items()
            if at == world.now
        }
        assert state.all_ask() == at_once, f"seed {seed}"


@on_every_policy
def test_whoever_waits_is_told_a_cause_and_none_that_is_blocked_starts(policy: Policy) -> None:
    for seed in range(SEEDS):
        state = RandomState(seed, policy)
        world = state.world
        told = {job_id: world.causes(job_id) for job_id in state.waiting()}
        assert all(told.values()), f"seed {seed}: all that could start has started"
        for job_id in state.all_ask():
            assert not [code for code in told[job_id] if code in HARD], f"seed {seed}, {job_id}"


@on_every_policy
def test_what_is_said_to_be_enough_is_enough_and_what_is_not_is_not(policy: Policy) -> None:
    tried = 0
    for seed in range(SEEDS):
        state = RandomState(seed, policy)
        scheduler, now = state.world.scheduler, state.world.now
        for job_id in state.waiting()[:3]:
            why = scheduler.why(job_id, now)
            assert why is not None
            for number, relief in enumerate(scheduler.remedies(job_id, why.causes, now)):
                if not relief.change:
                    continue
                run = ForwardRun(scheduler.forecast_input([job_id], now), budget())
                run.change(relief.change)
                says = run.starts_now(job_id)
                other = RandomState(seed, policy)  # the same once more, to be changed in earnest
                does = job_id in other.all_ask(*relief.change)
                assert says == does, f"seed {seed}, {job_id}, relief {number}: {relief.message}"
                tried += does
    assert tried > SEEDS // 4
