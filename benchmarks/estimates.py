"""How often jobs start within their estimated interval, in replays of logs.

ROTA_TRACES names the folder that has the logs (docs/guide/simulate.md says where they come from).
Every so many arrivals the newest job, if it has to wait, gets an estimated start from the same
forward run and the same calibration that `rota why` uses; then the replay goes on as it would have.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from statistics import median

from benchmarks.new_process import in_new_process
from benchmarks.policies import LOGS
from benchmarks.table import Row, Scale
from rota.core.commands import AnyInput, SetPolicy
from rota.core.model import Execution, Instant, JobId
from rota.core.policy import PRESETS
from rota.engine.clock import SystemClock
from rota.engine.forecast import Budget, Calibration, ForwardRun, GivenEstimate, with_interval
from rota.engine.ports import FORWARD_RUN
from rota.simulate.fleet import single_machine_fleet
from rota.simulate.metrics import NOT_YET
from rota.simulate.trace_readers import read_swf
from rota.simulate.virtual_time import Simulation, job_id

POLICIES = ("default", "easy")
EVERY = 20
"""Arrivals between two questions."""


class AskedWorld(Simulation):
    """A replay that estimates starts of waiting jobs."""

    def __init__(self, processors: int, policy: str, every: int) -> None:
        self.calibration = Calibration()
        self.waits: list[tuple[int, int]] = []
        """(expected, real) of every job with an estimate."""
        self.widths: list[float] = []
        """Of each interval, against the wait that was expected."""
        self._estimates: dict[JobId, GivenEstimate] = {}
        self._every = every
        self._asked = 0
        self._clock = SystemClock()
        setup: list[AnyInput] = [SetPolicy(policy=PRESETS[policy])]
        super().__init__(single_machine_fleet(processors), setup, self._clock)

    def _begin(self, execution: Execution, now: Instant) -> None:
        super()._begin(execution, now)
        self.calibration.started([execution.job_id], now)
        estimate = self._estimates.pop(execution.job_id, None)
        if estimate is not None:
            expected = estimate.at - estimate.made_at
            self.waits.append((expected, now - estimate.made_at))
            self.widths.append((estimate.high - estimate.low) / expected)

    def _decide(self, events: Sequence[AnyInput], now: Instant) -> None:
        super()._decide(events, now)
        # Those of this instant have been let in already.
        arrived = len(self.job_history)
        if arrived // self._every > self._asked and self.job_history.start[arrived - 1] == NOT_YET:
            self._asked = arrived // self._every
            self._ask(job_id(arrived - 1), now)

    def _ask(self, newest: JobId, now: Instant) -> None:
        picture = self._scheduler.forecast_input([newest], now)
        course = ForwardRun(picture, Budget(self._clock, inf)).play([newest])
        start = course.starts.get(newest)
        if start is not None and start[0] > now:
            estimate = with_interval(self.calibration, FORWARD_RUN, start[0], now)
            self._estimates[newest] = estimate
            self.calibration.note_estimate(newest, estimate)


def measure(scale: Scale) -> Iterator[Row]:
    """Measures the share of starts inside their interval, on each log."""
    folder = os.environ.get("ROTA_TRACES")
    if folder is None:
        raise SystemExit("ROTA_TRACES must name the folder with the logs")
    for name in scale.of(("KTH-SP2-1996-2", "HPC2N-2002-head"), ("HPC2N-2002-head",)):
        for policy in POLICIES:
            found = in_new_process(
                asked, Path(folder) / f"{name}.swf.gz", policy, scale.of(EVERY, 5)
            )
            yield from _rows(name, policy, found)


def _rows(name: str, policy: str, found: dict[str, float]) -> Iterator[Row]:
    estimate = f"of {found['starts']:.0f} with an estimate"
    yield Row("estimated start", f"{name}, {policy}: inside", [found["inside"]], "share", estimate)
    yield Row(
        "estimated start",
        f"{name}, {policy}: real wait / expected",
        [found["ratio"]],
        "median",
        f"interval {found['width']:.1f} times the expected wait wide, in the median",
    )


def asked(path: Path, policy: str, every: int) -> dict[str, float]:
    name = path.name.removesuffix(".swf.gz")
    world = AskedWorld(LOGS[name], policy, every)
    world.run(read_swf(path, cpus=LOGS[name]))
    calibration = world.calibration
    return {
        "starts": calibration.starts,
        "inside": calibration.inside / max(1, calibration.starts),
        "ratio": median(real / expected for expected, real in world.waits),
        "width": median(world.widths),
    }
