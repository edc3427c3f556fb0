"""Runs a workload on a fleet under a policy, once, or several times with shaken arrivals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev

import msgspec

from rota.core.commands import AnyInput, SetPolicy
from rota.core.model import Millis
from rota.core.policy import Policy
from rota.simulate.fleet import FleetPlan
from rota.simulate.metrics import JobHistory, SimulationMetrics, simulation_metrics
from rota.simulate.virtual_time import Simulation, Stopwatch
from rota.simulate.workload import Workload, shaken


class StudySetup(msgspec.Struct, frozen=True):
    """Setup that all policies of a study share."""

    workload: Workload
    fleet: FleetPlan
    stopwatch: Stopwatch
    setup: Sequence[AnyInput] = ()
    """Inputs before the first arrival, such as settings of queues."""


class StudyResult(msgspec.Struct, frozen=True):
    """Result of a policy on a workload: metrics of every run, and the history of the first."""

    runs: list[SimulationMetrics]
    job_history: JobHistory

    def over_runs(self, sum_up: Callable[[Sequence[float]], float]) -> dict[str, float]:
        """Returns each metric, aggregated over the runs."""
        return {
            name: sum_up([getattr(one, name) for one in self.runs])
            for name in SimulationMetrics.__struct_fields__
        }

    def mean(self) -> dict[str, float]:
        """Returns the mean of each metric; one that is equal in all runs stays exact."""
        return self.over_runs(lambda values: values[0] if len({*values}) == 1 else fmean(values))

    def deviation(self) -> dict[str, float]:
        """Returns the standard deviation of each metric; none of a single run."""
        return {} if self.is_single else self.over_runs(stdev)

    @property
    def is_single(self) -> bool:
        """Whether there was only one run."""
        return len(self.runs) == 1


def evaluate_policy(policy: Policy, setup: StudySetup) -> StudyResult:
    """Runs the workload as it is."""
    history = _simulated(setup.workload, policy, setup)
    return StudyResult([simulation_metrics(history, setup.fleet.cpu_milli)], history)


def evaluate_policy_shaken(
    policy: Policy, setup: StudySetup, within_ms: Millis, runs: int
) -> StudyResult:
    """Runs the workload several times, each with other small changes of all arrivals."""
    found: list[SimulationMetrics] = []
    first: JobHistory | None = None
    for seed in range(1, runs + 1):
        history = _simulated(shaken(setup.workload, within_ms, seed), policy, setup)
        found.append(simulation_metrics(history, setup.fleet.cpu_milli))
        first = first or history
    assert first is not None, "a study has at least one run"
    return StudyResult(found, first)


def recorded_result(workload: Workload, fleet: FleetPlan) -> StudyResult | None:
    """Returns the result as it was recorded, without a simulation; None: it was not recorded."""
    history = JobHistory()
    for work in workload:
        if work.started_ms is None:
            return None
        place = history.arrive(work, work.submit_ms)
        history.begin(place, work.started_ms)
        ends = (history.start[up] + history.run[up] for up in work.parents)
        history.ready[place] = min(work.started_ms, max(ends, default=work.submit_ms))
    return StudyResult([simulation_metrics(history, fleet.cpu_milli)], history)


def _simulated(workload: Workload, policy: Policy, setup: StudySetup) -> JobHistory:
    inputs = [SetPolicy(policy=policy), *setup.setup]
    return Simulation(setup.fleet, inputs, setup.stopwatch).run(workload)


def shortest_ms(workload: Workload, fleet: FleetPlan) -> Millis:
    """Returns a lower bound of the makespan: the longest chain, or all work on all processors."""
    ends: list[Millis] = []
    area = 0
    for work in workload:
        ready = max((ends[up] for up in work.parents), default=0)
        ends.append(max(ready, work.submit_ms) + work.run_ms)
        area += work.run_ms * work.terms.needs.resources.cpu_milli
    return max(max(ends, default=0), -(-area // fleet.cpu_milli))


def load(workload: Workload, fleet: FleetPlan) -> float:
    """Returns arriving work relative to the fleet's capacity; above 1 queues only grow."""
    area, last = 0, 0
    for work in workload:
        area += work.run_ms * work.terms.needs.resources.cpu_milli
        last = max(last, work.submit_ms)
    return area / (fleet.cpu_milli * last) if last and fleet.cpu_milli else math.inf
