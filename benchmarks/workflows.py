"""Workflows: one at a time compared with a lower bound, and a stream of them on one machine.

ROTA_WORKFLOWS names a folder with workflows of WfCommons (docs/guide/simulate.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from math import exp, log
from pathlib import Path
from statistics import fmean

from msgspec.structs import replace

from benchmarks.new_process import in_new_process
from benchmarks.table import Row, Scale, count
from rota.core.ids import fraction
from rota.core.policy import PRESETS
from rota.engine.clock import SystemClock
from rota.simulate.fleet import single_machine_fleet
from rota.simulate.metrics import makespan_ms
from rota.simulate.study import StudySetup, evaluate_policy, shortest_ms
from rota.simulate.trace_readers import read_workflow
from rota.simulate.workload import Trace, Work

POLICIES = ("fcfs", "easy", "default")
CORES = (8, 32)
STREAM_CORES = 64
STREAM_LOAD = 0.9
SEEDS = (1, 2, 3)


def measure(scale: Scale) -> Iterator[Row]:
    folder = os.environ.get("ROTA_WORKFLOWS")
    if folder is None:
        raise SystemExit("ROTA_WORKFLOWS must name the folder with the workflows")
    paths = sorted(Path(folder).glob("*.json*"))
    for policy in POLICIES:
        for cores in CORES:
            mean = in_new_process(alone, paths, policy, cores)
            setting = f"{len(paths)} workflows on {cores} cores: makespan"
            yield Row(policy, setting, [mean], "of the bound", "geometric mean")
        graphs = scale.of(300, 30)
        values = [
            in_new_process(together, paths, policy, graphs, seed) for seed in SEEDS[: scale.repeats]
        ]
        setting = f"{count(graphs)} workflows, load {STREAM_LOAD:g}, {STREAM_CORES} cores: slowdown"
        note = "mean flow time against its bound"
        yield Row(policy, setting, values, "", note, less_is_better=True)


def alone(paths: Sequence[Path], policy: str, cores: int) -> float:
    """Geometric mean of the makespan divided by its lower bound."""
    ratios = []
    for path in paths:
        graph = read_workflow(path)
        made = evaluate_policy(
            PRESETS[policy], StudySetup(graph, single_machine_fleet(cores), SystemClock())
        )
        ratios.append(
            makespan_ms(made.job_history) / shortest_ms(graph, single_machine_fleet(cores))
        )
    return exp(fmean(log(ratio) for ratio in ratios))


def together(paths: Sequence[Path], policy: str, graphs: int, seed: int) -> float:
    """Mean over graphs of the time from arrival to end, divided by its lower bound."""
    known = [list(read_workflow(path)) for path in paths]
    works, graph_of, arrivals, kinds = _stream(known, graphs, seed)
    made = evaluate_policy(
        PRESETS[policy],
        StudySetup(Trace("stream", works), single_machine_fleet(STREAM_CORES), SystemClock()),
    )
    ends = [0] * graphs
    for place, graph in enumerate(graph_of):
        ends[graph] = max(ends[graph], made.job_history.start[place] + made.job_history.run[place])
    bounds = [shortest_ms(Trace("", graph), single_machine_fleet(STREAM_CORES)) for graph in known]
    return fmean((end - arrivals[graph]) / bounds[kinds[graph]] for graph, end in enumerate(ends))


def _stream(
    known: Sequence[Sequence[Work]], graphs: int, seed: int
) -> tuple[list[Work], list[int], list[int], list[int]]:
    """Returns (all tasks, the graph of each, arrivals of graphs, the workflow of each graph)."""
    work_ms = fmean(sum(task.run_ms for task in graph) for graph in known)
    gap_ms = work_ms / (STREAM_CORES * STREAM_LOAD)
    works: list[Work] = []
    graph_of: list[int] = []
    arrivals: list[int] = []
    kinds: list[int] = []
    at = 0.0
    for graph in range(graphs):
        kinds.append(int(fraction("kind", seed, graph) * len(known)))
        at -= gap_ms * log(1 - fraction("gap", seed, graph)) if graph else 0.0
        arrivals.append(round(at))
        first = len(works)
        for task in known[kinds[-1]]:
            parents = tuple(first + up for up in task.parents)
            works.append(replace(task, submit_ms=round(at), parents=parents))
            graph_of.append(graph)
    return works, graph_of, arrivals, kinds
