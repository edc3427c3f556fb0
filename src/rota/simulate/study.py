"""Runs a workload on a fleet under a policy, as it is or several times with shaken arrivals."""

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
    """What all policies of a study have alike."""

    workload: Workload
    fleet: FleetPlan
    stopwatch: Stopwatch
    setup: Sequence[AnyInput] = ()
    """Queues and the like, as they are before the first job comes."""


class StudyResult(msgspec.Struct, frozen=True):
    """A policy on a workload: the figures of every run, and what happened in the first."""

    runs: list[SimulationMetrics]
    job_history: JobHistory

    def over_runs(self, sum_up: Callable[[Sequence[float]], float]) -> dict[str, float]:
        """Each figure, summed up over the runs."""
        return {
            name: sum_up([getattr(one, name) for one in self.runs])
            for name in SimulationMetrics.__struct_fields__
        }

    def mean(self) -> dict[str, float]:
        """What a run comes to, on average; a figure that all runs share is left as it is."""
        return self.over_runs(lambda values: values[0] if len({*values}) == 1 else fmean(values))

    def deviation(self) -> dict[str, float]:
        """How far runs are apart: the standard deviation of each figure; nothing of one run."""
        return {} if self.is_single else self.over_runs(stdev)

    @property
    def is_single(self) -> bool:
        """Whether there was one run only."""
        return len(self.runs) == 1


def evaluate_policy(policy: Policy, setting: StudySetup) -> StudyResult:
    """The workload as it is."""
    diary = _simulated(setting.workload, policy, setting)
    return StudyResult([simulation_metrics(diary, setting.fleet.cpu_milli)], diary)


def evaluate_policy_shaken(
    policy: Policy, setting: StudySetup, within_ms: Millis, runs: int
) -> StudyResult:
    """The workload with every arrival moved a little, differently in each run."""
    found: list[SimulationMetrics] = []
    first: JobHistory | None = None
    for seed in range(1, runs + 1):
        diary = _simulated(shaken(setting.workload, within_ms, seed), policy, setting)
        found.append(simulation_metrics(diary, setting.fleet.cpu_milli))
        first = first or diary
    assert first is not None, "a study has at least one run"
    return StudyResult(found, first)


def recorded_result(workload: Workload, fleet: FleetPlan) -> StudyResult | None:
    """What happened in truth, if it was written down: nothing is simulated."""
    diary = JobHistory()
    for work in workload:
        if work.started_ms is None:
            return None
        place = diary.arrive(work, work.submit_ms)
        diary.begin(place, work.started_ms)
        ends = (diary.start[up] + diary.run[up] for up in work.parents)
        diary.ready[place] = min(work.started_ms, max(ends, default=work.submit_ms))
    return StudyResult([simulation_metrics(diary, fleet.cpu_milli)], diary)


def _simulated(workload: Workload, policy: Policy, setting: StudySetup) -> JobHistory:
    setup = [SetPolicy(policy=policy), *setting.setup]
    return Simulation(setting.fleet, setup, setting.stopwatch).run(workload)


def shortest_ms(workload: Workload, fleet: FleetPlan) -> Millis:
    """No order ends sooner: the longest chain of jobs, or all work on all processors."""
    ends: list[Millis] = []
    area = 0
    for work in workload:
        ready = max((ends[up] for up in work.parents), default=0)
        ends.append(max(ready, work.submit_ms) + work.run_ms)
        area += work.run_ms * work.terms.needs.resources.cpu_milli
    return max(max(ends, default=0), -(-area // fleet.cpu_milli))


def load(workload: Workload, fleet: FleetPlan) -> float:
    """Work that arrives against what the fleet can do in that time; above 1 lines only grow."""
    area, last = 0, 0
    for work in workload:
        area += work.run_ms * work.terms.needs.resources.cpu_milli
        last = max(last, work.submit_ms)
    return area / (fleet.cpu_milli * last) if last and fleet.cpu_milli else math.inf
