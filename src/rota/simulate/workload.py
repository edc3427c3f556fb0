"""Workloads: jobs with the time of their arrival and the time they really take; recorded,
rescaled, or synthetic from a seed.
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
    """One job: when it comes, what it asks for, and how long it will run, which nobody is told."""

    label: str
    """What the trace calls it."""
    submit_ms: Millis
    """Since the first arrival."""
    run_ms: Millis
    terms: Terms
    parents: tuple[int, ...] = ()
    """Places of the jobs that have to end before this one starts; all of them come before it."""
    started_ms: Millis | None = None
    """When it started in truth, since the first arrival, if that was recorded."""


class Workload(Protocol):
    """Jobs in the order of their arrival; may be walked through more than once."""

    @property
    def title(self) -> str:
        """What people call it."""
        ...

    @property
    def dropped(self) -> int:
        """Jobs of the source that were left out: they never ran, or fit no machine."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Work]: ...


class Trace:
    """A workload that is in memory."""

    def __init__(
        self, title: str, jobs: Sequence[Work], *, dropped: int = 0, processors: int | None = None
    ) -> None:
        self.title = title
        self.dropped = dropped
        self.processors = processors
        """The size of the machine it was recorded on, if that is known."""
        self._jobs = jobs

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Work]:
        return iter(self._jobs)


class GraphError(ValueError):
    """Jobs wait for each other in a circle."""


def arranged(works: Sequence[Work], parents: Mapping[int, Sequence[int]]) -> list[Work]:
    """By arrival, upstream jobs first; nobody arrives before those that it waits for.

    `parents` has the places in `works` that each place waits for.
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
        raise GraphError(f"{works[stuck].label} waits for itself, through others")
    return ordered


def cpu_needs(cpu_milli: int, memory: int = 0) -> Needs:
    """What a job asks for, if it asks for processors and memory only."""
    return Needs(Resources(cpu_milli=cpu_milli, memory=memory))


def _moved(workload: Workload, when: Callable[[int, Work], Millis]) -> Trace:
    """The same jobs at other times, as they never ran; the first one comes at 0."""
    works = [
        replace(work, submit_ms=when(n, work), started_ms=None) for n, work in enumerate(workload)
    ]
    first = min((work.submit_ms for work in works), default=0)
    works = [replace(work, submit_ms=work.submit_ms - first) for work in works]
    jobs = arranged(works, {n: work.parents for n, work in enumerate(works) if work.parents})
    return Trace(workload.title, jobs, dropped=workload.dropped)


def paced(workload: Workload, factor: float) -> Trace:
    """The times between arrivals times `factor`: below 1 the load grows."""
    return _moved(workload, lambda _, work: round(work.submit_ms * factor))


def shaken(workload: Workload, within_ms: Millis, seed: int) -> Trace:
    """Every arrival moved by up to `within_ms` either way, the same for the same seed.

    One replay of one log is one draw: a policy may win it by luck.
    """

    def when(place: int, work: Work) -> Millis:
        return work.submit_ms + round((2 * fraction("shake", seed, place) - 1) * within_ms)

    return _moved(workload, when)


def fitting(workload: Workload, can_run: Callable[[str, Needs], bool]) -> Trace:
    """Without the jobs that no machine could ever run, and without those that wait for them."""
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
"""However wide the spread, nothing runs longer than a month."""


class SyntheticSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a made-up workload is like."""

    jobs: int = 10_000
    rate: float = 1.0
    """Arrivals a second, on average; 0: all at once."""
    run_ms: Millis = 60_000
    """The mean run time."""
    spread: float = 1.0
    """The standard deviation of its logarithm; 0: all run equally long."""
    cpu_min: int = 1
    cpu_max: int = 1
    memory: int = 0
    tenants: int = 1
    overestimate: float | None = 1.0
    """How often too long the mean estimate is; None: nobody says how long it will take."""
    seed: int = 1

    @property
    def cpu_ms(self) -> float:
        """Processor time of a job, on average."""
        return self.run_ms * (self.cpu_min + self.cpu_max) / 2


class SyntheticWorkload:
    """A workload by a recipe. It is made anew each time it is walked through: it may be long."""

    dropped = 0

    def __init__(self, recipe: SyntheticSpec) -> None:
        self.spec = recipe
        self.title = f"synthetic, seed {recipe.seed}"

    def __len__(self) -> int:
        return self.spec.jobs

    def __iter__(self) -> Iterator[Work]:
        recipe = self.spec
        median_ms = recipe.run_ms / math.exp(recipe.spread**2 / 2)
        shared: dict[tuple[int, int], Terms] = {}
        at_s = 0.0
        for place in range(recipe.jobs):
            gap, one, two, size, whose, belief = _random_numbers(recipe.seed, place)
            if place and recipe.rate:
                at_s -= math.log(1 - gap) / recipe.rate
            # Two even dice make one normal one (Box and Muller).
            normal = math.sqrt(-2 * math.log(1 - one)) * math.cos(2 * math.pi * two)
            run_ms = min(RUN_MS_MAX, max(1, round(median_ms * math.exp(recipe.spread * normal))))
            cpus = recipe.cpu_min + int(size * (recipe.cpu_max - recipe.cpu_min + 1))
            key = (cpus, int(whose * recipe.tenants))
            terms = shared.get(key)
            if terms is None:
                terms = shared[key] = self._terms(*key)
            if recipe.overestimate is not None:
                factor = 1 + 2 * belief * (recipe.overestimate - 1)
                terms = msgspec.structs.replace(terms, expected_runtime_ms=round(run_ms * factor))
            yield Work(str(place + 1), round(at_s * 1000), run_ms, terms)

    def needs(self, cpus: int) -> Needs:
        """What a job of so many processors asks for."""
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
    """Six numbers in [0, 1) for each place: from a hash, so that any run makes the same ones."""
    digest = blake2b(f"{seed}/{place}".encode(), digest_size=48).digest()
    return tuple(int.from_bytes(digest[at : at + 6], "big") / (1 << 48) for at in range(0, 36, 6))
