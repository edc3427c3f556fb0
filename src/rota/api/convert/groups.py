"""Job groups (arrays and gangs), affinity and measured usage, between wire and core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from rota.core.group_model import Array, Gang, GroupContext, GroupMember, GroupProgress
from rota.core.model import Affinity, JobRecord, LabelSelector, Needs
from rota.wire.formats import number
from rota.wire.groups import ArrayView, GangView, PlaceView, RankView
from rota.wire.jobs import AffinitySpec, AffinityView, JobSpec, JobView, LabelValues

_NOTHING = Affinity()


def affinity_of(asked: AffinitySpec) -> Affinity | None:
    """What was asked, as the core keeps it; None where it comes to nothing."""
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
    """As it is shown."""
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
    """The needs of a worker, and where that is to be, and how many times at once."""
    if job.affinity is not None:
        needs = replace(needs, affinity=affinity_of(job.affinity))
    if job.gang is not None:
        needs = replace(needs, copies=job.gang.size)
    return needs


def group_of(job: JobSpec) -> Array | Gang | None:
    """What it stands for; None: for itself."""
    if job.count is not None:
        return Array(job.count, job.max_parallel)
    return None if job.gang is None else Gang(job.gang.size)


def submitted_group(job: JobRecord) -> dict[str, Any]:
    """The same as it would be submitted again."""
    band = job.spec.group
    return {
        "count": band.count if isinstance(band, Array) else None,
        "max_parallel": band.max_parallel if isinstance(band, Array) else None,
        "gang": {"size": band.size} if isinstance(band, Gang) else None,
    }


def add_group(view: JobView, job: JobRecord) -> JobView:
    """The view, with how far its members are, or of which band it is a member."""
    band, tally = job.spec.group, job.life.group_progress or GroupProgress()
    match band:
        case Array():
            view.array = array_view(band, tally)
            view.progress = _part_ended(job, band.count)
        case Gang():
            view.gang = _gang_view(band, tally)
            view.progress = _part_ended(job, band.size)
        case GroupMember(in_gang=False):
            view.array_id, view.array_index = band.parent, band.index
        case GroupMember():
            view.gang_id, view.gang_index = band.parent, band.index
        case None:
            pass
    return view


def _part_ended(job: JobRecord, size: int) -> float | None:
    tally = job.life.group_progress
    if tally is None:
        return None
    return (tally.succeeded + tally.failed + tally.cancelled) / size


def array_view(band: Array, tally: GroupProgress) -> ArrayView:
    """How many members are where."""
    ended = tally.succeeded + tally.failed + tally.cancelled
    return ArrayView(
        count=band.count,
        max_parallel=band.max_parallel,
        queued=band.count - ended - tally.running,
        running=tally.running,
        succeeded=tally.succeeded,
        failed=tally.failed,
        cancelled=tally.cancelled,
    )


def _gang_view(band: Gang, tally: GroupProgress) -> GangView:
    ended = tally.succeeded + tally.failed + tally.cancelled
    return GangView(
        size=band.size,
        queued=band.size - ended - tally.running,
        running=tally.running,
        succeeded=tally.succeeded,
        failed=tally.failed,
        cancelled=tally.cancelled,
        hosts=list(tally.hosts),
    )


def place_view(company: GroupContext) -> PlaceView | None:
    """What an array's member is told."""
    if company.in_gang:
        return None
    return PlaceView(company.group_id, company.index, company.size)


def rank_view(company: GroupContext) -> RankView | None:
    """What a gang's member is told."""
    if not company.in_gang:
        return None
    return RankView(company.group_id, company.index, company.size, list(company.hosts))
