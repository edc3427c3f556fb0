"""Agreement of forecasts and explanations with the scheduler's decisions, on random states."""

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
"""Causes that hold for any worker that polls; the others are about one worker or the order."""

on_every_policy = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())


def budget() -> Budget:
    """A budget that is never spent: its clock stands still."""
    return Budget(FakeClock(), 1.0)


@on_every_policy
def test_exactly_the_jobs_that_are_forecast_to_start_at_once_start_when_workers_poll(
    policy: Policy,
) -> None:
    for seed in range(SEEDS):
        state = RandomState(seed, policy)
        world, waiting = state.world, state.waiting()
        plan = ForwardRun(world.scheduler.forecast_input((), world.now), budget()).play(waiting)
        at_once = {
            job_id: worker_id for job_id, (at, worker_id) in plan.starts.items() if at == world.now
        }
        assert state.all_ask() == at_once, f"seed {seed}"


@on_every_policy
def test_every_waiting_job_has_a_cause_and_no_blocked_job_starts(policy: Policy) -> None:
    for seed in range(SEEDS):
        state = RandomState(seed, policy)
        world = state.world
        causes = {job_id: world.causes(job_id) for job_id in state.waiting()}
        assert all(causes.values()), f"seed {seed}: all that could start has started"
        for job_id in state.all_ask():
            assert not [code for code in causes[job_id] if code in HARD], f"seed {seed}, {job_id}"


@on_every_policy
def test_a_remedy_that_is_said_to_be_enough_starts_the_job_and_no_other_does(
    policy: Policy,
) -> None:
    tried = 0
    for seed in range(SEEDS):
        state = RandomState(seed, policy)
        scheduler, now = state.world.scheduler, state.world.now
        for job_id in state.waiting()[:3]:
            why = scheduler.why(job_id, now)
            assert why is not None
            for number, remedy in enumerate(scheduler.remedies(job_id, why.causes, now)):
                if not remedy.change:
                    continue
                run = ForwardRun(scheduler.forecast_input([job_id], now), budget())
                run.change(remedy.change)
                forecast = run.starts_now(job_id)
                other = RandomState(seed, policy)  # an equal state, to be changed really
                starts = job_id in other.all_ask(*remedy.change)
                assert forecast == starts, (
                    f"seed {seed}, {job_id}, remedy {number}: {remedy.message}"
                )
                tried += starts
    assert tried > SEEDS // 4
