"""Death at every step: a process that dies at its first, second, third step breaks no promise.

A step is an interaction that others can notice: a request or answer, a call to the database or its
return, a witness line of a job. Where between two steps a process dies makes no difference.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.simtest.clock import SIMULATION
from tests.simtest.cluster import Cluster
from tests.simtest.plan import SimulationPlan, draw
from tests.simtest.run import run

STEPS = 48
AWAY_S = 2.0


def small() -> SimulationPlan:
    """Draws a plan of three servers, two workers, and a few seconds of all actions."""
    plan = draw(3, profile="calm", storm_s=4.0)
    return replace(plan, options=replace(plan.options, servers=3, workers=2, lease_s=3.0))


def server_dies(cluster: Cluster, step: int) -> None:
    """Kills the first server, which most likely leads."""
    server = cluster.servers[0]

    def die() -> None:
        server.die()
        cluster.loop.after(AWAY_S, SIMULATION, lambda: cluster.revive_server(server))

    server.machine.crash_at = (step, die)


def agent_dies(cluster: Cluster, step: int) -> None:
    worker = cluster.workers[0]

    def die() -> None:
        worker.lose_agent()
        cluster.loop.after(AWAY_S, SIMULATION, lambda: cluster.revive_worker(worker))

    worker.machine.crash_at = (step, die)


def machine_dies(cluster: Cluster, step: int) -> None:
    """Kills the machine with its jobs, at a witness line of one of them."""
    worker = cluster.workers[0]

    def die() -> None:
        worker.die()
        cluster.loop.after(AWAY_S, SIMULATION, lambda: cluster.revive_worker(worker))

    worker.supervisor.crash_at = (step, die)


@pytest.mark.sim
@pytest.mark.slow
@pytest.mark.parametrize("strike", [server_dies, agent_dies, machine_dies])
def test_death_at_any_step_breaks_nothing(strike: Callable[[Cluster, int], None]) -> None:
    for step in range(1, STEPS + 1):
        result = run(small(), lambda cluster, at=step: strike(cluster, at))  # type: ignore[misc]
        assert result.ok, (step, [str(verdict) for verdict in result.verdicts])
