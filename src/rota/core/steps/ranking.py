"""Tasks of a workflow: those first on which the longest chain of work still hangs.

Jobs that are submitted together and wait for each other are one graph. All of them have the place
of a job that is as long as the whole graph, so that graphs of different size compare as jobs do;
inside the graph they go by the length of the longest chain that begins with them (their upward
rank). Ranks of different graphs never meet: that would let large graphs shut out small ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rota.core.band import copies_of
from rota.core.graph import upstream_first
from rota.core.inputs import NewJob
from rota.core.model import Millis, Terms


class GraphRank(NamedTuple):
    """Where one job of a batch stands."""

    turn: int
    """Its place among the jobs of the batch."""
    graph_ms: Millis | None
    """How long the fleet will probably work on its graph; None: it is not part of one."""


MeasureTerms = Callable[[Terms], tuple[Millis, float]]
"""(how long a job will probably run, the part of the fleet that it takes)."""


def rank_jobs(jobs: Sequence[NewJob], measure: MeasureTerms) -> list[GraphRank]:
    """The jobs of a batch, in the order given; its graphs have no circles."""
    position = {new.id: index for index, new in enumerate(jobs)}
    upstream = [
        [position[d.job_id] for d in new.spec.dependencies if d.job_id in position] for new in jobs
    ]
    if not any(upstream):
        return [GraphRank(index, None) for index in range(len(jobs))]
    graph = _graphs(upstream)
    lengths = [measure(new.spec.terms) for new in jobs]
    ranks = _upward_ranks(upstream, [length for length, _ in lengths], jobs)
    chain: dict[int, Millis] = {}
    work: dict[int, float] = {}
    size: dict[int, int] = {}
    for index, (length, share) in enumerate(lengths):
        root = graph[index]
        chain[root] = max(chain.get(root, 0), ranks[index])
        copies = copies_of(jobs[index].spec.group)
        work[root] = work.get(root, 0.0) + length * share * copies
        size[root] = size.get(root, 0) + 1
    in_turn = sorted(range(len(jobs)), key=lambda index: (graph[index], -ranks[index], index))
    order = {index: turn for turn, index in enumerate(in_turn)}
    return [
        GraphRank(order[index], max(chain[root], round(work[root])) if size[root] > 1 else None)
        for index, root in enumerate(graph)
    ]


def _upward_ranks(
    upstream: Sequence[Sequence[int]], lengths: Sequence[Millis], jobs: Sequence[NewJob]
) -> list[Millis]:
    """The longest chain that begins with each job, itself included."""
    ranks = list(lengths)
    ids = [new.id for new in jobs]
    position = {job_id: index for index, job_id in enumerate(ids)}
    order = upstream_first({ids[i]: [ids[up] for up in above] for i, above in enumerate(upstream)})
    for job_id in reversed(order):
        index = position[job_id]
        for above in upstream[index]:
            ranks[above] = max(ranks[above], lengths[above] + ranks[index])
    return ranks


def _graphs(upstream: Sequence[Sequence[int]]) -> list[int]:
    """For each job the first one of its graph."""
    root = list(range(len(upstream)))

    def find(index: int) -> int:
        while root[index] != index:
            root[index] = root[root[index]]
            index = root[index]
        return index

    for index, above in enumerate(upstream):
        for other in above:
            one, two = find(index), find(other)
            root[max(one, two)] = min(one, two)
    return [find(index) for index in range(len(upstream))]
