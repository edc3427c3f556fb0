"""The process in which a server has the past run again: a study comes in, its outcome goes out.

It bounds itself, so that a study that is too large ends it and never the server.
"""

from __future__ import annotations

import os
import resource
import sys

import msgspec

from rota.api.cell.policy import policy_of
from rota.api.cell.simulations import Study
from rota.cli.planning.own_process import REFUSED
from rota.cli.planning.scenes import Scene, scene_of
from rota.cli.problems import Failure
from rota.engine.clock import SystemClock
from rota.simulate import chart
from rota.simulate.fleet import FleetPlan
from rota.simulate.study import Setting, Trial, load, recorded, trial
from rota.simulate.workload import GraphError
from rota.simulate.world import SimulationError
from rota.wire.policy import PolicySpec
from rota.wire.simulations import ReplayName, ReplayView, SimulationView
from rota.wire.units import dec_hook

MEMORY_MAX = 2 << 30
"""Address space: 20,000 jobs take a small part of it."""
NICE = 10
"""The server's own work goes first."""
SLICES = 120
"""Points of a line in a chart."""


def main() -> int:
    """Reads standard input to its end, writes the outcome to standard output."""
    os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    study = msgspec.json.decode(sys.stdin.buffer.read(), type=Study)
    try:
        outcome = studied(study)
    except (Failure, SimulationError, GraphError) as error:
        print(error, file=sys.stderr)
        return REFUSED
    except MemoryError:
        print("it takes more memory than a server gives to it: ask for less", file=sys.stderr)
        return REFUSED
    sys.stdout.buffer.write(msgspec.json.encode(outcome))
    return 0


def studied(study: Study) -> SimulationView:
    """Every policy of it, side by side."""
    scene = scene_of(study)
    works, fleet, there = scene.case.workload, scene.case.fleet, scene.there
    trials = {name: _tried(study, name, scene) for name in study.policies}
    span_ms = chart.span_ms(one.diary for one in trials.values())
    pressure = load(works, fleet)
    return SimulationView(
        start=scene.start,
        jobs=len(works),
        left_out=works.dropped,
        is_cut=scene.is_cut,
        workers=fleet.workers,
        cpus=fleet.cpu_milli / 1000,
        load=pressure if pressure < float("inf") else None,
        span=span_ms / 1000,
        policies=[
            _view(name, one, span_ms, there if study.policies[name] is None else fleet)
            for name, one in trials.items()
        ],
    )


def _tried(study: Study, name: ReplayName, scene: Scene) -> Trial:
    case, settings = scene.case, study.policies[name]
    if settings is None:
        found = recorded(case.workload, scene.there)
        if found is None:
            title = case.workload.title
            raise Failure(f"{title} does not say when its jobs started: leave out `recorded`")
        return found
    policy = policy_of(msgspec.convert(settings, PolicySpec, dec_hook=dec_hook))
    try:
        return trial(policy, Setting(case.workload, case.fleet, SystemClock(), case.setup))
    except SimulationError as error:
        raise SimulationError(f"policy {name}: {error}") from error


def _view(name: ReplayName, made: Trial, span_ms: int, fleet: FleetPlan) -> ReplayView:
    (figures,) = made.runs
    return ReplayView(
        policy=name,
        avg_wait=figures.avg_wait_s,
        p50_wait=figures.p50_wait_s,
        p95_wait=figures.p95_wait_s,
        max_wait=figures.max_wait_s,
        slowdown=figures.avg_bounded_slowdown,
        utilisation=figures.utilisation,
        makespan=figures.makespan_s,
        preemptions=figures.preemptions,
        peak_waiting=None if name == "recorded" else figures.peak_waiting,
        waits=chart.mean_waits(made.diary, SLICES, span_ms),
        uses=chart.uses(made.diary, (SLICES, span_ms), fleet.cpu_milli),
    )


if __name__ == "__main__":
    sys.exit(main())
