"""Conversion of job groups (arrays and gangs) and of affinity, between wire and core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from rota.core.model import (
    Affinity,
    Array,
    Gang,
    GroupContext,
    GroupMember,
    GroupProgress,
    JobRecord,
    LabelSelector,
    Needs,
)
from rota.wire.formats import number
from rota.wire.groups import ArrayView, GangView, PlaceView, RankView
from rota.wire.jobs import AffinitySpec, AffinityView, JobSpec, JobView, LabelValues

_NOTHING = Affinity()


def affinity_of(asked: AffinitySpec) -> Affinity | None:
    """Converts a requested affinity; None if it asks for nothing."""
    affinity = Affinity(
        _wanted_labels(asked.require),
        _wanted_labels(asked.prefer),
        asked.spread or "",
        asked.near is not None,
        asked.wait.ms,
        tuple(sorted(set(asked.tolerate))),
    )
    is_nothing = msgspec.structs.replace(affinity, wait_ms=_NOTHING.wait_ms) == _NOTHING
    return None if is_nothing else affinity


def _wanted_labels(labels: Mapping[str, LabelValues]) -> LabelSelector:
    return tuple(
        (label, (values,) if isinstance(values, str) else tuple(sorted(set(values))))
        for label, values in sorted(labels.items())
    )


def affinity_view(affinity: Affinity | None) -> AffinityView | None:
    if affinity is None:
        return None
    return AffinityView(
        require={label: list(values) for label, values in affinity.require},
        prefer={label: list(values) for label, values in affinity.prefer},
        spread=affinity.spread or None,
        near="previous" if affinity.near_previous else None,
        wait=number(affinity.wait_ms),
        tolerate=list(affinity.tolerate),
    )


def with_placement(needs: Needs, job: JobSpec) -> Needs:
    """Adds affinity and a gang's copies to a job's needs."""
    if job.affinity is not None:
        needs = replace(needs, affinity=affinity_of(job.affinity))
    if job.gang is not None:
        needs = replace(needs, copies=job.gang.size)
    return needs


def group_of(job: JobSpec) -> Array | Gang | None:
    """Returns the array or gang that a job stands for; None: a single job."""
    if job.count is not None:
        return Array(job.count, job.max_parallel)
    return None if job.gang is None else Gang(job.gang.size)


def submitted_group(job: JobRecord) -> dict[str, Any]:
    """Returns the group as it would be submitted again."""
    group = job.spec.group
    return {
        "count": group.count if isinstance(group, Array) else None,
        "max_parallel": group.max_parallel if isinstance(group, Array) else None,
        "gang": {"size": group.size} if isinstance(group, Gang) else None,
    }


def add_group(view: JobView, job: JobRecord) -> JobView:
    """Adds a group's progress, or the group that a member belongs to, to the view of a job."""
    group, progress = job.spec.group, job.life.group_progress or GroupProgress()
    match group:
        case Array():
            view.array = array_view(group, progress)
            view.progress = _part_ended(job, group.count)
        case Gang():
            view.gang = _gang_view(group, progress)
            view.progress = _part_ended(job, group.size)
        case GroupMember(in_gang=False):
            view.array_id, view.array_index = group.parent, group.index
        case GroupMember():
            view.gang_id, view.gang_index = group.parent, group.index
        case None:
            pass
    return view


def _part_ended(job: JobRecord, size: int) -> float | None:
    progress = job.life.group_progress
    if progress is None:
        return None
    return (progress.succeeded + progress.failed + progress.cancelled) / size


def array_view(group: Array, progress: GroupProgress) -> ArrayView:
    """Counts an array's members by state."""
    ended = progress.succeeded + progress.failed + progress.cancelled
    return ArrayView(
        count=group.count,
        max_parallel=group.max_parallel,
        queued=group.count - ended - progress.running,
        running=progress.running,
        succeeded=progress.succeeded,
        failed=progress.failed,
        cancelled=progress.cancelled,
    )


def _gang_view(group: Gang, progress: GroupProgress) -> GangView:
    ended = progress.succeeded + progress.failed + progress.cancelled
    return GangView(
        size=group.size,
        queued=group.size - ended - progress.running,
        running=progress.running,
        succeeded=progress.succeeded,
        failed=progress.failed,
        cancelled=progress.cancelled,
        hosts=list(progress.hosts),
    )


def place_view(context: GroupContext) -> PlaceView | None:
    """Returns a member's place in its array, as its worker is told."""
    if context.in_gang:
        return None
    return PlaceView(context.group_id, context.index, context.size)


def rank_view(context: GroupContext) -> RankView | None:
    """Returns a member's rank in its gang, as its worker is told."""
    if not context.in_gang:
        return None
    return RankView(context.group_id, context.index, context.size, list(context.hosts))
