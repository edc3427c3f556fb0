"""How a job of a workload looks to the scheduler: its id and its spec."""

from __future__ import annotations

from rota.core.model import Dependency, Instant, JobId, Spec, Terms, When

_HEAD = "00000000-0000-7000-8000-"
_TASK = b'{"kind":"noop"}'


def job_id(place: int) -> JobId:
    """The id of the job at this place of the workload."""
    return JobId(f"{_HEAD}{place:012x}")


def place_of(job: JobId) -> int:
    """And back."""
    return int(job[len(_HEAD) :], 16)


def spec_of(terms: Terms, now: Instant, parents: tuple[int, ...] = (), order: int = 0) -> Spec:
    """What is asked for. The task is nothing: how long it takes is the world's affair."""
    if not parents:
        return Spec(terms, _TASK, now, order)
    dependencies = tuple(Dependency(job_id(parent), When.FINISHED) for parent in parents)
    return Spec(terms, _TASK, now, order, dependencies=dependencies)
