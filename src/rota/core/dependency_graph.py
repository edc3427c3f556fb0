"""Dependency graph of live jobs: edges to dependents, cycles, and a batch's topological order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from rota.core.model import JobId, JobState, When


def accepts(when: When, upstream: JobState) -> bool:
    """Whether a dependency is met by an upstream job that ended in this state."""
    match when:
        case When.SUCCEEDED:
            return upstream is JobState.SUCCEEDED
        case When.FAILED:
            return upstream is JobState.FAILED
        case When.FINISHED:
            return True


Edge: TypeAlias = tuple[JobId, int, When]
"""Dependency edge: (the dependent job, its `lives` at that time, for which end it waits)."""


class DependencyGraph:
    """Dependency edges between live jobs, by upstream job.

    An edge stays until its upstream job ends, even if the dependent job is long gone. It names the
    dependent's life, so it means nothing to a later life of the same job.
    """

    def __init__(self) -> None:
        self.downstream: dict[JobId, list[Edge]] = {}
        """By upstream job: all jobs that wait for it, or did."""

    def add(self, upstream: JobId, downstream: JobId, lives: int, when: When) -> None:
        """Adds an edge: `downstream`, in its life number `lives`, waits for `upstream`."""
        self.downstream.setdefault(upstream, []).append((downstream, lives, when))

    def remove(self, upstream: JobId, downstream: JobId) -> None:
        """Removes an edge; the cost grows with the number of dependents of `upstream`."""
        edges = [e for e in self.downstream.get(upstream, ()) if e[0] != downstream]
        if edges:
            self.downstream[upstream] = edges
        else:
            self.downstream.pop(upstream, None)

    def take(self, upstream: JobId) -> Sequence[Edge]:
        """Removes and returns all edges of `upstream`, which has ended."""
        return self.downstream.pop(upstream, ())


def find_cycle(upstreams: Mapping[JobId, Sequence[JobId]]) -> list[JobId] | None:
    """Finds a dependency cycle: its jobs in order, the first one repeated at the end, or None.

    Iterative, because a chain of 100,000 jobs is legal and recursion is not that deep.
    """
    done: dict[JobId, bool] = {}
    for start in upstreams:
        if start in done:
            continue
        path: list[JobId] = []
        stack: list[tuple[JobId, int]] = [(start, 0)]
        while stack:
            node, position = stack.pop()
            if position == 0:
                done[node] = False
                path.append(node)
            edges = upstreams.get(node, ())
            if position == len(edges):
                done[node] = True
                path.pop()
                continue
            stack.append((node, position + 1))
            neighbour = edges[position]
            if neighbour not in upstreams or done.get(neighbour):
                continue
            if neighbour in done:
                return [*path[path.index(neighbour) :], neighbour]
            stack.append((neighbour, 0))
    return None


def upstream_first(upstreams: Mapping[JobId, Sequence[JobId]]) -> list[JobId]:
    """Topological order of the keys: each after those of its upstream jobs that are keys too."""
    downstream: dict[JobId, list[JobId]] = {}
    missing: dict[JobId, int] = {}
    for job_id, above in upstreams.items():
        inside = [upstream for upstream in above if upstream in upstreams]
        missing[job_id] = len(inside)
        for upstream in inside:
            downstream.setdefault(upstream, []).append(job_id)
    order = [job_id for job_id, count in missing.items() if not count]
    for job_id in order:  # which grows while it is read
        for child in downstream.get(job_id, ()):
            missing[child] -= 1
            if not missing[child]:
                order.append(child)
    return order
