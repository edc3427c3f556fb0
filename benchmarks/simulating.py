"""Speed of the simulator: an hour of a hundred million jobs a day, and decisions with long
backlogs.

All of it is the product's scheduler under its default policy, driven as `rota simulate` does.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator

from benchmarks.new_process import in_new_process
from benchmarks.table import Row, Scale, count
from rota.core.commands import SetPolicy
from rota.core.policy import DEFAULT
from rota.simulate.fleet import uniform_fleet
from rota.simulate.virtual_time import Simulation
from rota.simulate.workload import SyntheticSpec, SyntheticWorkload

WORKERS = 10_000
JOBS_A_SECOND = 100_000_000 / 86_400
HOUR_S = 3600
LOAD_RUN_MS = 25_000
"""With 1 to 4 cpus a job this keeps nine of ten cpus of the fleet busy."""
WAITING = (10_000, 100_000, 1_000_000, 10_000_000)
BACKLOG_WORKERS = 1_000
ARRIVALS_A_MS = 10_000
SLICE_MS = 1_000


def measure(scale: Scale) -> Iterator[Row]:
    span_s = scale.of(HOUR_S, 60)
    spent_s, rate, mib = in_new_process(an_hour, span_s)
    setting = f"{count(WORKERS)} workers, {span_s:,} s of 100 M jobs a day"
    yield Row(
        "simulate", setting, [span_s / spent_s], "ratio", "real time against processor time; aim: 1"
    )
    yield Row("simulate", setting, [rate], "1/s", "decisions")
    yield Row("simulate", setting, [mib], "MiB", "memory at most", less_is_better=True)
    backlogs = scale.of(WAITING, WAITING[:2])
    rates: list[float] = []
    for waiting in backlogs:
        rate, mib = in_new_process(with_backlog, waiting, scale.of(20_000, 2_000))
        rates.append(rate)
        setting = f"{count(BACKLOG_WORKERS)} workers, {count(waiting)} waiting"
        yield Row("simulate", setting, [rate], "1/s", "decisions")
        yield Row("simulate", setting, [mib], "MiB", "memory at most", less_is_better=True)
    setting = f"{count(backlogs[-1])} against {count(backlogs[0])} waiting"
    yield Row("simulate", setting, [rates[-1] / rates[0]], "ratio", "1: flat in the backlog")


def an_hour(span_s: int) -> tuple[float, float, float]:
    """Simulates an hour; returns (processor seconds, decisions a second, MiB)."""
    recipe = SyntheticSpec(
        jobs=round(span_s * JOBS_A_SECOND),
        rate=JOBS_A_SECOND,
        run_ms=LOAD_RUN_MS,
        cpu_max=4,
        tenants=50,
        overestimate=None,
    )
    began = time.process_time()
    world = _world(WORKERS)
    world.expect(SyntheticWorkload(recipe))
    world.run_until(span_s * 1000)
    spent = time.process_time() - began
    return spent, world.job_history.decisions / world.job_history.engine_s, _peak_mib()


def with_backlog(waiting: int, decisions: int) -> tuple[float, float]:
    """Simulates a backlog; returns (decisions a second, MiB)."""
    recipe = SyntheticSpec(
        jobs=waiting + 8 * BACKLOG_WORKERS,
        rate=1000.0 * ARRIVALS_A_MS,
        run_ms=LOAD_RUN_MS,
        cpu_max=4,
        tenants=50,
        overestimate=None,
    )
    world = _world(BACKLOG_WORKERS)
    world.expect(SyntheticWorkload(recipe))
    at = 2 * recipe.jobs // ARRIVALS_A_MS
    world.run_until(at)
    job_history = world.job_history
    decided, spent = job_history.decisions, job_history.engine_s
    while job_history.decisions < decided + decisions and world.is_busy:
        at += SLICE_MS
        world.run_until(at)
    return (job_history.decisions - decided) / (job_history.engine_s - spent), _peak_mib()


class Processor:
    def fine_s(self) -> float:
        return time.process_time()


def _world(workers: int) -> Simulation:
    return Simulation(uniform_fleet(workers, 8000), [SetPolicy(policy=DEFAULT)], Processor())


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
