"""Alike jobs that arrive together stand in one lane, whatever has become of the pool of terms."""

from __future__ import annotations

from rota.core.inputs import NewJob, Submit, Timing
from rota.core.limits import CoreLimits
from rota.core.model import JobId
from tests.core.asking import HOUR, spec
from tests.core.world import World


def batch(*groups: tuple[str, str]) -> Submit:
    """Jobs by name; those of a group share what they ask for, as neighbours in a request do."""
    jobs: list[NewJob] = []
    for name, ids in groups:
        asked = spec(name=name)
        jobs += [NewJob(id=JobId(job_id), spec=asked) for job_id in ids]
    return Submit(jobs=tuple(jobs))


def test_a_batch_in_which_the_pool_of_terms_begins_anew_stands_in_one_lane() -> None:
    limits = CoreLimits(terms_pool_max=4)
    world = World(timing=Timing(lease_ttl_ms=100 * HOUR), limits=limits)
    world.register(cpu=64)
    world.step(batch(("a", "12")))
    world.poll(
        completed=[world.report(one) for one in world.take(max_orders=64)], max_orders=0, wait_ms=0
    )
    world.step(batch(("a", "34"), ("b", "5"), ("c", "6"), ("d", "7"), ("e", "8"), ("a", "9")))
    known = world.scheduler._t.jobs
    assert known[JobId("3")].spec.terms is known[JobId("4")].spec.terms
    assert len(world.take(max_orders=64)) == 7, "and what is counted is right after every step"
