"""Workloads: synthetic, with shaken arrivals, at another pace, and fitted to a fleet."""

from __future__ import annotations

from statistics import fmean

import pytest

from rota.core.policy import PRESETS
from rota.simulate.fleet import single_machine_fleet, uniform_fleet
from rota.simulate.study import (
    StudySetup,
    evaluate_policy,
    evaluate_policy_shaken,
    load,
    shortest_ms,
)
from rota.simulate.workload import (
    GraphError,
    SyntheticSpec,
    SyntheticWorkload,
    Trace,
    arranged,
    fitting,
    paced,
    shaken,
)
from tests.simulate.builders import Ticks, work

FLAT = SyntheticSpec(jobs=4_000, rate=10.0, run_ms=30_000, cpu_min=2, cpu_max=5, tenants=4)


def test_a_spec_makes_the_same_workload_each_time() -> None:
    made = SyntheticWorkload(FLAT)
    assert list(made) == list(made)
    assert list(made) != list(SyntheticWorkload(SyntheticSpec(jobs=4_000, seed=2)))


def test_a_synthetic_workload_is_as_its_spec_says() -> None:
    works = list(SyntheticWorkload(FLAT))
    assert len(works) == len(SyntheticWorkload(FLAT)) == 4_000
    assert works[-1].submit_ms / 4_000 == pytest.approx(100, rel=0.1)
    assert fmean(one.run_ms for one in works) == pytest.approx(30_000, rel=0.15)
    sizes = {one.terms.needs.resources.cpu_milli for one in works}
    assert sizes == {2000, 3000, 4000, 5000}
    assert {one.terms.tenant for one in works} == {"t1", "t2", "t3", "t4"}
    assert all(one.terms.expected_runtime_ms == one.run_ms for one in works)


def test_estimates_may_be_too_long_or_missing() -> None:
    doubled = list(SyntheticWorkload(SyntheticSpec(jobs=2_000, overestimate=2.0)))
    ratios = [(one.terms.expected_runtime_ms or 0) / one.run_ms for one in doubled]
    assert fmean(ratios) == pytest.approx(2.0, rel=0.05)
    assert min(ratios) >= 0.999
    silent = SyntheticWorkload(SyntheticSpec(jobs=5, overestimate=None))
    assert all(one.terms.expected_runtime_ms is None for one in silent)


def test_jobs_without_a_rate_arrive_at_once_and_without_a_spread_run_equally_long() -> None:
    works = list(SyntheticWorkload(SyntheticSpec(jobs=20, rate=0.0, spread=0.0, run_ms=7_000)))
    assert {(one.submit_ms, one.run_ms) for one in works} == {(0, 7_000)}


def test_shaken_arrivals_move_a_little_and_no_job_is_lost() -> None:
    before = Trace("by hand", [work(100 * n, 1 + n) for n in range(50)])
    after = shaken(before, 60_000, 1)
    assert [one.submit_ms for one in after] == sorted(one.submit_ms for one in after)
    assert next(iter(after)).submit_ms == 0
    assert sorted(one.run_ms for one in after) == [1000 * (1 + n) for n in range(50)]
    first_run = {one.run_ms: one.submit_ms for one in before}
    offsets = [one.submit_ms - first_run[one.run_ms] for one in after]
    assert max(offsets) - min(offsets) <= 120_000
    assert len(set(offsets)) > 40
    assert list(after) == list(shaken(before, 60_000, 1))
    assert list(after) != list(shaken(before, 60_000, 2))


def test_a_job_is_never_shaken_before_those_it_depends_on() -> None:
    before = Trace("by hand", [work(n, 5, parents=(n - 1,) if n else ()) for n in range(20)])
    works = list(shaken(before, 600_000, 3))
    assert all(up < place for place, one in enumerate(works) for up in one.parents)
    assert [one.submit_ms for one in works] == sorted(one.submit_ms for one in works)


def test_a_pace_below_one_raises_the_load() -> None:
    slow = Trace("by hand", [work(10 * n, 10, 2) for n in range(11)])
    assert load(slow, single_machine_fleet(4)) == pytest.approx(0.55)
    assert load(paced(slow, 0.5), single_machine_fleet(4)) == pytest.approx(1.1)
    assert load(Trace("at once", [work(0, 1)]), single_machine_fleet(4)) == float("inf")


def test_the_shortest_makespan_is_the_longest_chain_or_all_the_work() -> None:
    chain = Trace("by hand", [work(0, 5), work(0, 5, parents=(0,)), work(0, 1, 4)])
    assert shortest_ms(chain, single_machine_fleet(4)) == 10_000
    assert shortest_ms(chain, single_machine_fleet(1)) == 14_000


def test_a_job_that_fits_no_machine_is_left_out_with_all_its_dependents() -> None:
    works = [work(0, 1, 2), work(0, 1, 9), work(1, 1, 1, parents=(1,)), work(2, 1, 1, parents=(0,))]
    kept = fitting(Trace("by hand", works, dropped=3), uniform_fleet(4, 4000).can_run)
    assert [one.submit_ms for one in kept] == [0, 2000]
    assert [one.parents for one in kept] == [(), (0,)]
    assert kept.dropped == 5


def test_jobs_that_depend_on_each_other_are_refused() -> None:
    with pytest.raises(GraphError):
        arranged([work(0, 1), work(0, 1)], {0: [1], 1: [0]})


def test_shaken_runs_have_means_and_standard_deviations() -> None:
    setting = StudySetup(
        SyntheticWorkload(SyntheticSpec(jobs=60, rate=1.0, run_ms=3_000)),
        single_machine_fleet(2),
        Ticks(),
    )
    once = evaluate_policy(PRESETS["easy"], setting)
    assert once.is_single
    assert once.deviation() == {}
    assert once.mean()["jobs"] == 60
    thrice = evaluate_policy_shaken(PRESETS["easy"], setting, 30_000, 3)
    waits = [one.avg_wait_s for one in thrice.runs]
    assert len(waits) == 3
    assert thrice.mean()["avg_wait_s"] == pytest.approx(fmean(waits))
    assert thrice.deviation()["avg_wait_s"] > 0
    assert thrice.mean()["jobs"] == 60
