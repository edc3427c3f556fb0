"""How much of the fleet a job takes: its share of the resource of which it takes the most."""

from __future__ import annotations

from rota.core.model import Resources
from rota.core.order.party import JobClass
from rota.core.resources import amounts


def dominant_share(needs: Resources, fleet: Resources) -> float:
    """The part of the fleet that is taken, of the resource of which it is the largest part."""
    there = dict(amounts(fleet))
    parts = (
        amount / there[kind] if there.get(kind) else 1.0
        for kind, amount in amounts(needs)
        if amount > 0
    )
    return min(1.0, max(parts, default=0.0))


def share_of(job_class: JobClass, fleet: Resources) -> float:
    """The same for one job of a class, remembered as long as the fleet is what it is."""
    if job_class.share_of_capacity is not fleet:
        job_class.share_of_capacity = fleet
        job_class.share = dominant_share(job_class.needs.resources, fleet)
    return job_class.share
