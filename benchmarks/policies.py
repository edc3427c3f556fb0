"""Quality of the default policy on known logs, compared with EASY, with one setting for all.

ROTA_TRACES names the folder that has the logs (docs/guide/simulate.md says where they come from).
Every figure is a mean over shaken runs, for one replay of one log proves nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from math import exp, log
from pathlib import Path
from statistics import fmean

from benchmarks.new_process import in_new_process
from benchmarks.table import Row, Scale
from rota.core.policy import PRESETS
from rota.engine.clock import SystemClock
from rota.simulate.fleet import single_machine_fleet
from rota.simulate.study import StudySetup, evaluate_policy_shaken, load
from rota.simulate.trace_readers import read_swf
from rota.simulate.workload import Workload, paced

LOGS: Mapping[str, int] = {
    "KTH-SP2-1996-2": 100,
    "ALCF-Theta-2022": 4360,
    "Lublin-256-A": 256,
    "HPC2N-2002-head": 240,
    "CERIT-wagap-2013": 2176,
    "NASA-iPSC-1993-3.1-cln": 128,
}
"""And the processors of their machines."""
SHAKE_MS = 600_000
FULL = 1.0
"""The load that arrivals are pressed together to, to see what becomes of a policy then."""
POLICIES = ("easy", "easy-sjf", "default")


def measure(scale: Scale) -> Iterator[Row]:
    """Measures each log as recorded, then at full load."""
    folder = os.environ.get("ROTA_TRACES")
    if folder is None:
        raise SystemExit("ROTA_TRACES must name the folder with the logs")
    runs = scale.of(5, 1)
    for wanted in (None, FULL):
        ratios: dict[str, list[float]] = {}
        names = list(scale.of(LOGS, {"HPC2N-2002-head": 240}))
        for name in names:
            found = in_new_process(figures_of, Path(folder) / f"{name}.swf.gz", wanted, runs)
            yield from _rows(name, wanted, found)
            for policy in POLICIES[1:]:
                ratio = (
                    found[policy]["avg_bounded_slowdown"] / found["easy"]["avg_bounded_slowdown"]
                )
                ratios.setdefault(policy, []).append(ratio)
        for policy, all_of_them in ratios.items():
            mean = exp(fmean(log(one) for one in all_of_them))
            yield Row(
                policy, f"all logs{_at(wanted)}: slowdown", [mean], "of easy", "geometric mean"
            )


def _at(wanted: float | None) -> str:
    return "" if wanted is None else f" at load {wanted:g}"


def _rows(
    name: str, wanted: float | None, found: Mapping[str, Mapping[str, float]]
) -> Iterator[Row]:
    easy = found["easy"]
    for policy in POLICIES:
        one = found[policy]
        setting = f"{name}{_at(wanted)}"
        slowdown, longest = one["avg_bounded_slowdown"], one["max_wait_s"]
        yield Row(policy, f"{setting}: slowdown", [slowdown], "", f"used {one['utilisation']:.3f}")
        if policy != "easy":
            ratio = slowdown / easy["avg_bounded_slowdown"]
            yield Row(policy, f"{setting}: slowdown", [ratio], "of easy")
            yield Row(policy, f"{setting}: longest wait", [longest / easy["max_wait_s"]], "of easy")


def figures_of(path: Path, wanted: float | None, runs: int) -> dict[str, dict[str, float]]:
    name = path.name.removesuffix(".swf.gz")
    fleet = single_machine_fleet(LOGS[name])
    workload: Workload = read_swf(path, cpus=LOGS[name])
    if wanted is not None:
        workload = paced(workload, load(workload, fleet) / wanted)
    setting = StudySetup(workload, fleet, SystemClock())
    return {
        policy: evaluate_policy_shaken(PRESETS[policy], setting, SHAKE_MS, runs).mean()
        for policy in POLICIES
    }
