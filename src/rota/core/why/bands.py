"""Why the members of an array or gang do not run: how many of them wait, and for what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rota.core.band import Array, Gang
from rota.core.memory.cells import JobEntry, WorkerEntry
from rota.core.model import JobState
from rota.core.plan.gang_places import copies_in, starts_left
from rota.core.records.glance import Cause
from rota.core.tables import SchedulerState


def has_members_to_start(t: SchedulerState, cell: JobEntry) -> bool:
    """Whether it is an array that has begun and has members that wait."""
    is_array = isinstance(cell.spec.group, Array) and cell.life.state is JobState.RUNNING
    return is_array and t.groups.of(cell).waiting > 0


def progress_cause(t: SchedulerState, cell: JobEntry) -> Cause:
    """How many members run, of a band that has begun."""
    mine = t.groups.of(cell)
    others = len(mine.live) - mine.running
    text = f"{mine.running} of its {mine.size} members run"
    if mine.waiting:
        text += f", {mine.waiting} wait to start"
    if others:
        text += f", {others} for another try"
    if mine.cause:
        text += "; they are being stopped, because one of them did not end well"
    return Cause(
        "members" if mine.waiting else cell.life.state,
        text,
        {
            "count": mine.size,
            "running": mine.running,
            "waiting": mine.waiting,
            "retrying": others,
            "succeeded": mine.succeeded,
            "failed": mine.failed,
            "cancelled": mine.cancelled,
        },
    )


def max_parallel_cause(t: SchedulerState, cell: JobEntry) -> Iterator[Cause]:
    """As many members of an array are under way as may."""
    band = cell.spec.group
    if not isinstance(band, Array) or band.max_parallel is None:
        return
    under_way = len(t.groups.of(cell).live)
    if under_way >= band.max_parallel:
        text = f"{under_way} of its members are under way, and at most {band.max_parallel} may be"
        figures = {"under_way": under_way, "max_parallel": band.max_parallel}
        yield Cause("max_parallel", text, figures)


def gang_shortage(
    t: SchedulerState, cell: JobEntry, online: Sequence[WorkerEntry]
) -> Iterator[Cause]:
    """How many members of a gang find no room, on the workers that could run it."""
    band = cell.spec.group
    if not isinstance(band, Gang):
        return
    needs, size = cell.spec.terms.needs.resources, band.size
    most = sum(copies_in(needs, worker.worker.capacity) for worker in online)
    room = sum(copies_in(needs, worker.free) for worker in online)
    asking = sum(_asked_for(worker, copies_in(needs, worker.free)) for worker in online)
    job_class = t.ready_queue.class_of(cell.spec.terms)
    left = size if job_class is None else max(0, starts_left(t, job_class))
    fitting = next((count for count in (room, left, asking) if count < size), size)
    if fitting == size:
        return
    figures = {
        "size": size,
        "short": size - fitting,
        "room": room,
        "asking": asking,
        "capacity": most,
        "workers": len(online),
    }
    yield Cause("gang", _short_text(figures, left), figures)


def _short_text(figures: dict[str, int], left: int) -> str:
    size, room, most = figures["size"], figures["room"], figures["capacity"]
    head = f"gang short by {_counted(figures['short'], 'member')}"
    where = _counted(figures["workers"], "worker")
    if most < size:
        return f"{head}: {where} could run {most} of its {size} at once, even if they were empty"
    if room < size:
        return f"{head}: there is room for {room} of its {size} on {where}"
    if left < size:
        return f"{head}: limits leave {left} of its {size} executions"
    return f"{head}: there is room on {where}, but they ask for {figures['asking']} jobs now"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _asked_for(worker: WorkerEntry, room: int) -> int:
    return 0 if worker.poll is None else min(room, worker.poll.free_slots)
