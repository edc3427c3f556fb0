"""Workloads: jobs with their arrival and real run time; recorded, rescaled, or synthetic from a
seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from typing import Protocol

import msgspec
from msgspec.structs import replace

from rota.core.ids import fraction
from rota.core.model import Millis, Needs, Resources, RetryPolicy, Terms

ONCE = RetryPolicy()


class Work(msgspec.Struct, frozen=True, gc=False):
    """Job of a workload: its arrival, its terms, and its run time, which the scheduler does not
    know."""

    label: str
    """Its name in the trace."""
    submit_ms: Millis
    """Arrival, since the first one."""
    run_ms: Millis
    terms: Terms
    parents: tuple[int, ...] = ()
    """Places of jobs that must end before this one starts; all of them are before it."""
    started_ms: Millis | None = None
    """Its recorded start, since the first arrival."""


class Workload(Protocol):
    """Jobs in the order of arrival; can be iterated more than once."""

    @property
    def title(self) -> str:
        """Name for users."""
        ...

    @property
    def dropped(self) -> int:
        """Number of jobs that were left out: they never ran, or fit no machine."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Work]: ...


class Trace:
    """Workload in memory."""

    def __init__(
        self, title: str, jobs: Sequence[Work], *, dropped: int = 0, processors: int | None = None
    ) -> None:
        self.title = title
        self.dropped = dropped
        self.processors = processors
        """Size of the machine on which it was recorded, if known."""
        self._jobs = jobs

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Work]:
        return iter(self._jobs)


class GraphError(ValueError):
    """Jobs depend on each other in a cycle."""


def arranged(works: Sequence[Work], parents: Mapping[int, Sequence[int]]) -> list[Work]:
    """Sorts jobs by arrival, in topological order: no job arrives before its parents.

    `parents` has for each place in `works` those of its parents.
    """
    arrival = {place: work.submit_ms for place, work in enumerate(works)}
    unmet = {place: len(ups) for place, ups in parents.items() if ups}
    children: dict[int, list[int]] = {}
    for place, ups in parents.items():
        for up in ups:
            children.setdefault(up, []).append(place)
    ready = [(arrival[place], place) for place in range(len(works)) if place not in unmet]
    heapify(ready)
    places: dict[int, int] = {}
    ordered: list[Work] = []
    while ready:
        when, place = heappop(ready)
        places[place] = len(ordered)
        ups = tuple(places[up] for up in parents.get(place, ()))
        ordered.append(replace(works[place], submit_ms=when, parents=ups))
        for child in children.get(place, ()):
            arrival[child] = max(arrival[child], when)
            unmet[child] -= 1
            if not unmet[child]:
                heappush(ready, (arrival[child], child))
    if len(ordered) < len(works):
        stuck = next(place for place in range(len(works)) if place not in places)
        raise GraphError(f"{works[stuck].label} depends on itself, through other jobs")
    return ordered


def cpu_needs(cpu_milli: int, memory: int = 0) -> Needs:
    """Makes requirements of processors and memory only."""
    return Needs(Resources(cpu_milli=cpu_milli, memory=memory))


def _moved(workload: Workload, when: Callable[[int, Work], Millis]) -> Trace:
    """Copies a workload with other arrivals, the first at 0, and without recorded starts."""
    works = [
        replace(work, submit_ms=when(n, work), started_ms=None) for n, work in enumerate(workload)
    ]
    first = min((work.submit_ms for work in works), default=0)
    works = [replace(work, submit_ms=work.submit_ms - first) for work in works]
    jobs = arranged(works, {n: work.parents for n, work in enumerate(works) if work.parents})
    return Trace(workload.title, jobs, dropped=workload.dropped)


def paced(workload: Workload, factor: float) -> Trace:
    """Scales the times between arrivals by `factor`: below 1 the load grows."""
    return _moved(workload, lambda _, work: round(work.submit_ms * factor))


def shaken(workload: Workload, within_ms: Millis, seed: int) -> Trace:
    """Moves every arrival by up to `within_ms` either way, equally for equal seeds.

    A policy may be the best by luck in a replay of one log; several shaken ones show that.
    """

    def when(place: int, work: Work) -> Millis:
        return work.submit_ms + round((2 * fraction("shake", seed, place) - 1) * within_ms)

    return _moved(workload, when)


def fitting(workload: Workload, can_run: Callable[[str, Needs], bool]) -> Trace:
    """Drops jobs that no machine could ever run, and jobs that depend on them."""
    known: dict[tuple[str, Needs], bool] = {}
    places: dict[int, int] = {}
    kept: list[Work] = []
    for place, work in enumerate(workload):
        key = (work.terms.queue, work.terms.needs)
        able = known.get(key)
        if able is None:
            able = known[key] = can_run(*key)
        if able and all(up in places for up in work.parents):
            places[place] = len(kept)
            if work.parents:
                work = replace(work, parents=tuple(places[up] for up in work.parents))
            kept.append(work)
    dropped = workload.dropped + len(workload) - len(kept)
    return Trace(workload.title, kept, dropped=dropped)


RUN_MS_MAX: Millis = 30 * 86_400_000
"""The longest run time, however wide the spread: a month."""


class SyntheticSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a synthetic workload."""

    jobs: int = 10_000
    rate: float = 1.0
    """Mean number of arrivals a second; 0: all at once."""
    run_ms: Millis = 60_000
    """Mean run time."""
    spread: float = 1.0
    """Standard deviation of its logarithm; 0: all run equally long."""
    cpu_min: int = 1
    cpu_max: int = 1
    memory: int = 0
    tenants: int = 1
    overestimate: float | None = 1.0
    """Mean ratio of the estimate to the run time; None: there are no estimates."""
    seed: int = 1

    @property
    def cpu_ms(self) -> float:
        """Mean processor time of a job."""
        return self.run_ms * (self.cpu_min + self.cpu_max) / 2


class SyntheticWorkload:
    """Synthetic workload: it may be long, so each iteration makes its jobs anew."""

    dropped = 0

    def __init__(self, spec: SyntheticSpec) -> None:
        self.spec = spec
        self.title = f"synthetic, seed {spec.seed}"

    def __len__(self) -> int:
        return self.spec.jobs

    def __iter__(self) -> Iterator[Work]:
        spec = self.spec
        median_ms = spec.run_ms / math.exp(spec.spread**2 / 2)
        shared: dict[tuple[int, int], Terms] = {}
        at_s = 0.0
        for place in range(spec.jobs):
            gap, one, two, size, tenant, estimate = _random_numbers(spec.seed, place)
            if place and spec.rate:
                at_s -= math.log(1 - gap) / spec.rate
            # Two uniform numbers make a normal one (Box-Muller transform).
            normal = math.sqrt(-2 * math.log(1 - one)) * math.cos(2 * math.pi * two)
            run_ms = min(RUN_MS_MAX, max(1, round(median_ms * math.exp(spec.spread * normal))))
            cpus = spec.cpu_min + int(size * (spec.cpu_max - spec.cpu_min + 1))
            key = (cpus, int(tenant * spec.tenants))
            terms = shared.get(key)
            if terms is None:
                terms = shared[key] = self._terms(*key)
            if spec.overestimate is not None:
                factor = 1 + 2 * estimate * (spec.overestimate - 1)
                terms = msgspec.structs.replace(terms, expected_runtime_ms=round(run_ms * factor))
            yield Work(str(place + 1), round(at_s * 1000), run_ms, terms)

    def needs(self, cpus: int) -> Needs:
        """Returns the requirements of a job of so many processors."""
        return cpu_needs(1000 * cpus, self.spec.memory)

    def _terms(self, cpus: int, tenant: int) -> Terms:
        return Terms(
            name=f"of-{cpus}",
            queue="default",
            tenant=f"t{tenant + 1}" if self.spec.tenants > 1 else "default",
            priority=0,
            needs=self.needs(cpus),
            retry=ONCE,
        )


def _random_numbers(seed: int, place: int) -> tuple[float, ...]:
    """Returns six numbers in [0, 1) for a place, from a hash: equal in every run."""
    digest = blake2b(f"{seed}/{place}".encode(), digest_size=48).digest()
    return tuple(int.from_bytes(digest[at : at + 6], "big") / (1 << 48) for at in range(0, 36, 6))
