"""Builds small workloads, and simulates them."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.commands import MemoryWindow, SetPolicy
from rota.core.model import Terms
from rota.core.policy import PRESETS
from rota.simulate.fleet import FleetPlan, single_machine_fleet
from rota.simulate.metrics import JobHistory
from rota.simulate.virtual_time import Simulation
from rota.simulate.workload import ONCE, Trace, Work, cpu_needs
from tests.simulate.oracle import Rigid


class Ticks:
    """Stopwatch on which every look takes a second: metrics are equal on any machine."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def fine_s(self) -> float:
        """Returns one more than before."""
        self._seconds += 1.0
        return self._seconds


def work(
    submit_s: float, run_s: float, cpus: int = 1, estimate_s: float | None = None, **more: object
) -> Work:
    """Makes a job; its estimate is its run time unless another is given."""
    given = {"name": "job", "tenant": "default", "priority": 0, "preemptible": False} | more
    expected = round(1000 * (run_s if estimate_s is None else estimate_s))
    parents = given.pop("parents", ())
    terms = Terms(
        queue="default",
        needs=cpu_needs(1000 * cpus),
        retry=ONCE,
        expected_runtime_ms=expected,
        **given,  # type: ignore[arg-type]
    )
    return Work("", round(1000 * submit_s), round(1000 * run_s), terms, parents)  # type: ignore[arg-type]


def simulated(
    works: Sequence[Work],
    fleet: FleetPlan | int,
    policy: str = "easy",
    window: MemoryWindow | None = None,
) -> JobHistory:
    """Simulates jobs; returns their history."""
    plan = single_machine_fleet(fleet) if isinstance(fleet, int) else fleet
    world = Simulation(plan, [SetPolicy(policy=PRESETS[policy])], Ticks(), window)
    return world.run(Trace("by hand", works))


def starts_s(history: JobHistory) -> list[float]:
    """Returns when each job started."""
    return [start / 1000 for start in history.start]


def rigid(works: Sequence[Work]) -> list[Rigid]:
    """Converts jobs for the oracle."""
    return [
        Rigid(
            one.submit_ms,
            one.run_ms,
            one.terms.needs.resources.cpu_milli // 1000,
            one.terms.expected_runtime_ms or one.run_ms,
        )
        for one in works
    ]
