"""The driver under virtual time: perfect workers, instants, and metrics."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.commands import MemoryWindow, PutQueueSettings
from rota.core.model import RateLimit
from rota.core.policy import PRESETS
from rota.simulate.fleet import FleetPlan, MachineGroup, single_machine_fleet, uniform_fleet
from rota.simulate.metrics import JobHistory, simulation_metrics
from rota.simulate.virtual_time import Simulation, SimulationError
from rota.simulate.workload import SyntheticSpec, SyntheticWorkload, Trace
from tests.simulate.builders import Ticks, simulated, starts_s, work


def test_a_job_starts_when_it_arrives_if_capacity_is_free() -> None:
    history = simulated([work(0, 10), work(3, 10)], 2)
    assert starts_s(history) == [0, 3]


def test_a_job_starts_in_the_instant_in_which_capacity_becomes_free() -> None:
    history = simulated([work(0, 7.5, 2), work(1, 1, 2), work(1, 1, 1)], 2)
    assert starts_s(history) == [0, 7.5, 8.5]


def test_ends_count_before_arrivals_of_the_same_instant() -> None:
    """A job that arrives as another ends finds free processors."""
    history = simulated([work(0, 10, 4), work(10, 1, 4)], 4)
    assert starts_s(history) == [0, 10]


def test_all_arrivals_of_one_instant_are_decided_together() -> None:
    history = simulated([work(5, 1, 1) for _ in range(100)], 100)
    assert starts_s(history) == [5] * 100


def test_a_job_waits_from_the_end_of_the_last_job_it_depends_on() -> None:
    works = [work(0, 4), work(0, 9), work(0, 1, parents=(0, 1)), work(0, 2, parents=(2,))]
    history = simulated(works, 8)
    assert starts_s(history) == [0, 0, 9, 10]
    assert list(history.ready) == [0, 0, 9000, 10_000]
    assert history.peak_waiting == 0


def test_a_job_whose_dependencies_ended_before_it_arrived_does_not_wait() -> None:
    history = simulated([work(0, 2), work(5, 1, parents=(0,))], 1)
    assert starts_s(history) == [0, 5]


def test_jobs_go_to_any_machine_with_free_capacity() -> None:
    history = simulated([work(0, 10, 2), work(0, 10, 2), work(0, 1, 2)], uniform_fleet(2, 2000))
    assert starts_s(history) == [0, 0, 10]


def test_peak_waiting_counts_jobs_that_wait_after_a_turn() -> None:
    history = simulated([work(0, 10), work(1, 10), work(2, 10), work(50, 1)], 1)
    assert history.peak_waiting == 2
    assert history.decisions == 4


def test_a_queue_keeps_its_limits_in_the_simulation() -> None:
    limit = PutQueueSettings(name="default", rate_limit=RateLimit(1, 60_000))
    works = [work(0, 1), work(0, 1), work(0, 1)]
    history = Simulation(single_machine_fleet(10), [limit], Ticks()).run(Trace("by hand", works))
    assert starts_s(history) == [0, 60, 120]


def test_a_preempted_job_starts_again_from_its_beginning() -> None:
    works = [
        work(0, 1000, 4, preemptible=True),
        work(100, 50, 4, priority=500),
        work(2000, 1, 4),
    ]
    history = simulated(works, 4, "default")
    assert history.preemptions == 1
    assert history.decisions == 4
    urgent = history.start[1]
    assert 100_000 <= urgent < 200_000, "it waited for a job that had to make room"
    assert history.start[0] == urgent + 50_000
    assert simulation_metrics(history, 4000).makespan_s >= (urgent + 1_050_000) / 1000


def test_jobs_that_can_never_start_end_the_simulation_with_an_error() -> None:
    paused = PutQueueSettings(name="default", paused=True)
    world = Simulation(single_machine_fleet(1), [paused], Ticks())
    with pytest.raises(SimulationError, match=r"2 jobs never start.*number 1 of the workload"):
        world.run(Trace("by hand", [work(0, 1), work(4, 1)]))


def test_spilling_changes_no_start() -> None:
    """Beyond the memory window the simulation serves spilled jobs."""
    recipe = SyntheticSpec(jobs=600, rate=20.0, run_ms=4_000, cpu_max=3, overestimate=None)
    works = list(SyntheticWorkload(recipe))
    whole = simulated(works, 6, "strict")
    small = simulated(works, 6, "strict", MemoryWindow(jobs=20, fifo_group=2, refill=7))
    assert whole.peak_waiting > 300, "the workload is too light to tell anything"
    assert list(small.start) == list(whole.start)


def test_the_same_workload_gives_the_same_starts() -> None:
    works = list(SyntheticWorkload(SyntheticSpec(jobs=300, rate=5.0, run_ms=4_000, cpu_max=4)))
    assert list(simulated(works, 8).start) == list(simulated(works, 8).start)


def test_the_metrics_are_those_of_the_textbook() -> None:
    # 4 cpus; waits 0, 90 and 99 s; all is delivered but the last job's 10 s after the last arrival.
    history = simulated([work(0, 100, 4), work(10, 5, 2), work(101, 20, 4)], 4)
    assert starts_s(history) == [0, 100, 105]
    found = simulation_metrics(history, 4000)
    assert (found.jobs, found.makespan_s) == (3, 125.0)
    assert found.avg_wait_s == pytest.approx((0 + 90 + 4) / 3)
    assert (found.p50_wait_s, found.p95_wait_s, found.max_wait_s) == (4.0, 90.0, 90.0)
    assert found.avg_bounded_slowdown == pytest.approx((1 + 95 / 10 + 24 / 20) / 3)
    assert found.utilisation == pytest.approx((4 * 100 + 2 * 1) / (4 * 101))


def test_a_fleet_knows_which_jobs_it_could_ever_run() -> None:
    small, odd = uniform_fleet(3, 2000, 1 << 30).machines[0], uniform_fleet(1, 8000).machines[0]
    plan = FleetPlan((small, MachineGroup(1, odd.capacity, ("gpu",), ("video",))))
    needs = work(0, 1, 4).terms.needs
    assert not plan.can_run("default", needs)
    assert plan.can_run("video", needs)
    assert (plan.workers, plan.cpu_milli) == (4, 14_000)
    assert [one.worker_id for one in plan.registrations()] == ["w1", "w2", "w3", "w4"]


def most_in_use(history: JobHistory) -> int:
    """Returns the most thousandths of processors in use at any instant."""
    steps = [(start, cpus) for start, cpus in zip(history.start, history.cpu_milli, strict=True)]
    steps += [
        (start + run, -cpus)
        for start, run, cpus in zip(history.start, history.run, history.cpu_milli, strict=True)
    ]
    used = most = 0
    for _, change in sorted(steps):  # of one instant, what is given back comes first
        used += change
        most = max(most, used)
    return most


@pytest.mark.parametrize("policy", list(PRESETS))
@given(seed=st.integers(1, 10_000), overestimate=st.sampled_from([None, 1.0, 3.0]))
@settings(max_examples=10)
def test_every_job_starts_once_and_no_processor_is_used_twice(
    policy: str, seed: int, overestimate: float | None
) -> None:
    recipe = SyntheticSpec(
        jobs=60, rate=1.0, run_ms=9_000, cpu_max=8, tenants=3, overestimate=overestimate, seed=seed
    )
    works = list(SyntheticWorkload(recipe))
    history = simulated(works, 10, policy)
    assert history.unstarted() == []
    assert all(start >= ready for start, ready in zip(history.start, history.ready, strict=True))
    assert most_in_use(history) <= 10_000
    assert history.decisions == len(works)
