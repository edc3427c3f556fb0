"""Dependency graph of live jobs: who waits for whom, cycles, and a batch's topological order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from rota.core.model import JobId, JobState, When


def accepts(when: When, upstream: JobState) -> bool:
    """Whether a dependency is met by an upstream job that ended like this."""
    match when:
        case When.SUCCEEDED:
            return upstream is JobState.SUCCEEDED
        case When.FAILED:
            return upstream is JobState.FAILED
        case When.FINISHED:
            return True


Edge: TypeAlias = tuple[JobId, int, When]
"""(who waits, in which of its lives, for which end)."""


class DependencyGraph:
    """Who waits for whom among live jobs.

    An edge stays until its upstream job ends, even if the one who waited is long gone; it names the
    life it was made in, so it means nothing to a later life of the same job.
    """

    def __init__(self) -> None:
        self.downstream: dict[JobId, list[Edge]] = {}
        """By upstream job: all who wait, or waited, for it."""

    def add(self, upstream: JobId, downstream: JobId, lives: int, when: When) -> None:
        """`downstream`, in its life number `lives`, waits for `upstream`."""
        self.downstream.setdefault(upstream, []).append((downstream, lives, when))

    def remove(self, upstream: JobId, downstream: JobId) -> None:
        """It waits no longer; costs the number of those who do."""
        edges = [e for e in self.downstream.get(upstream, ()) if e[0] != downstream]
        if edges:
            self.downstream[upstream] = edges
        else:
            self.downstream.pop(upstream, None)

    def take(self, upstream: JobId) -> Sequence[Edge]:
        """All who waited for `upstream`, which has ended."""
        return self.downstream.pop(upstream, ())


def find_cycle(upstreams: Mapping[JobId, Sequence[JobId]]) -> list[JobId] | None:
    """A circle of jobs that wait for each other, first one repeated at the end, or None.

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
    """All that are named as keys, each after those of its upstream jobs that are."""
    downstream: dict[JobId, list[JobId]] = {}
    missing: dict[JobId, int] = {}
    for job_id, above in upstreams.items():
        inside = [upstream for upstream in above if upstream in upstreams]
        missing[job_id] = len(inside)
        for upstream in inside:
            downstream.setdefault(upstream, []).append(job_id)
    order = [job_id for job_id, count in missing.items() if not count]
    for job_id in order:  # it grows while it is read
        for child in downstream.get(job_id, ()):
            missing[child] -= 1
            if not missing[child]:
                order.append(child)
    return order
