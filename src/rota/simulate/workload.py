"""What is to be run: jobs with the time of their arrival and the time they really take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
