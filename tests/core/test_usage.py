"""Usage of resources by jobs: sketches, sums by day, and more memory after too little."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.core.model import JobState
from rota.core.outcome import PutRuntime
from rota.core.runtime_estimates import (
    DAY_MS,
    MeasuredUsage,
    Sketch,
    UsageHistory,
    step_of,
    suggested_resources,
    top_of,
)
from tests.core.asking import GIB, HOUR, SECOND, resources, retries
from tests.core.world import World, run

MIB = 1 << 20
OUT = MeasuredUsage(memory_peak=GIB, out_of_memory=True)


def account(world: World, name: str = "test") -> UsageHistory:
    return dict(world.scheduler.usages())[("default", name)]


def run_once(world: World, *, took: MeasuredUsage | None = None, **asked: object) -> None:
    job_id = world.submit(**asked)
    run(world, job_id)
    world.now += 10 * SECOND
    world.complete(job_id, used=took)


@given(st.integers(0, 1 << 50))
def test_a_step_holds_its_value_and_is_no_wider_than_an_eighth(value: int) -> None:
    step = step_of(value)
    assert step_of(top_of(step)) == step
    assert value <= top_of(step) <= value + value // 8
    assert step_of(top_of(step) + 1) == step + 1


@given(st.lists(st.integers(1, 1 << 40), min_size=1, max_size=300), st.floats(0.01, 1))
def test_a_quantile_is_never_below_and_an_eighth_above_at_most(
    values: list[int], part: float
) -> None:
    sketch = Sketch()
    for value in values:
        sketch.add(value)
    exact = sorted(values)[max(0, -int(-part * len(values) // 1) - 1)]
    assert exact <= sketch.quantile(part) <= exact + exact // 8


def test_old_runs_count_less_in_a_sketch() -> None:
    sketch = Sketch()
    for _ in range(1000):
        sketch.add(1000)
    for _ in range(2000):
        sketch.add(10)
    assert sketch.quantile(0.95) == 10
    assert sketch.largest == 1000


def test_the_usage_of_a_run_is_learned_and_survives_a_restart() -> None:
    world = World()
    world.register("w1", memory=8 * GIB)
    for _ in range(4):
        run_once(world, took=MeasuredUsage(cpu_ms=5_000, memory_peak=300 * MIB), memory=GIB, cpu=2)
    for _ in range(2):
        known = account(world)
        assert known.runs == 4
        assert known.asked == resources(cpu=2, memory=GIB)
        assert 500 <= known.cpu.quantile(0.5) <= 563
        assert 300 * MIB <= known.memory.quantile(0.5) <= 338 * MIB
        day = known.since(world.now - HOUR)
        assert (day.runs, day.cpu_asked, day.cpu_used) == (4, 80_000, 20_000)
        world.restart()


def test_usage_statistics_are_written_rarely() -> None:
    world = World()
    world.register("w1", cpu=1)
    writes = 0
    for _ in range(100):
        run_once(world, took=MeasuredUsage(cpu_ms=1000, memory_peak=MIB))
        writes += sum(isinstance(write, PutRuntime) for write in world.last.writes)
    # The first runs by doubling, then one in ten minutes: a hundred runs take a thousand seconds.
    assert 5 <= writes <= 10


def test_runs_without_measurements_do_not_count() -> None:
    world = World()
    world.register("w1")
    run_once(world)
    assert list(world.scheduler.usages()) == []


def test_usage_is_summed_by_day_and_kept_for_two_weeks() -> None:
    known = UsageHistory()
    used = MeasuredUsage(cpu_ms=1000, memory_peak=MIB)
    for day in range(30):
        known.add(resources(cpu=1), used, 2000, day * DAY_MS)
    assert known.since(0).runs == 14
    assert known.since(29 * DAY_MS + 5).runs == 1
    assert known.since(28 * DAY_MS + HOUR).runs == 2


def test_a_suggestion_needs_a_few_runs_and_has_a_margin() -> None:
    known = UsageHistory()
    used = MeasuredUsage(cpu_ms=1_500, memory_peak=100 * MIB)
    for _ in range(4):
        known.add(resources(cpu=4, memory=GIB), used, 10_000, 0)
    assert suggested_resources(known) is None
    known.add(resources(cpu=4, memory=GIB), used, 10_000, 0)
    assert suggested_resources(known) == resources(cpu=0.2, memory=120 * MIB)


# Out of memory


def grown(world: World, job_id: str) -> int:
    return world.record(job_id).spec.terms.needs.resources.memory


def test_a_job_that_ran_out_of_memory_asks_for_more() -> None:
    world = World()
    world.register("w1", memory=8 * GIB)
    world.submit("j", memory=GIB, retry=retries(3, memory_factor=1.5))
    run(world, "j")
    assert world.execution("j").memory == GIB
    world.complete("j", "failed", used=OUT)
    assert grown(world, "j") == 1536 * MIB
    world.advance(SECOND)
    run(world, "j")
    assert world.execution("j").memory == 1536 * MIB
    world.complete("j", "failed", used=OUT)
    assert grown(world, "j") == 2304 * MIB
    world.restart()
    world.advance(SECOND)
    run(world, "j")
    assert world.execution("j").memory == 2304 * MIB


def test_memory_grows_no_further_than_it_may_or_than_a_worker_has() -> None:
    world = World()
    world.register("w1", memory=3 * GIB)
    policy = retries(9, memory_factor=4, memory_max=2 * GIB)
    world.submit("held", memory=GIB, retry=policy)
    world.submit("large", memory=GIB, retry=retries(9, memory_factor=4))
    assert world.take("w1") == ["held", "large"]
    world.complete("held", "failed", used=OUT)
    world.complete("large", "failed", used=OUT)
    assert grown(world, "held") == 2 * GIB
    assert grown(world, "large") == 3 * GIB


def test_other_failures_and_other_policies_change_nothing() -> None:
    world = World()
    world.register("w1", memory=8 * GIB)
    world.submit("plain", memory=GIB, retry=retries(3))
    world.submit("other", memory=GIB, retry=retries(3, memory_factor=2))
    assert world.take("w1") == ["plain", "other"]
    world.complete("plain", "failed", used=OUT)
    world.complete("other", "failed", used=MeasuredUsage(memory_peak=GIB))
    assert (grown(world, "plain"), grown(world, "other")) == (GIB, GIB)


def test_a_job_that_asked_for_no_memory_asks_for_more_than_it_took() -> None:
    world = World()
    world.register("w1", memory=8 * GIB)
    world.submit("j", retry=retries(2, memory_factor=2))
    run(world, "j")
    world.complete("j", "failed", used=OUT)
    assert grown(world, "j") == 2 * GIB


def test_the_reason_of_a_job_that_failed_for_memory_says_so() -> None:
    world = World()
    world.register("w1", memory=8 * GIB)
    for name in ("large", "final", "other"):
        world.submit(name, memory=GIB)
    assert sorted(world.take("w1")) == ["final", "large", "other"]
    world.complete("large", "failed", used=OUT, exit_code=137)
    world.complete("final", "failed", used=OUT, exit_code=137, retryable=False)
    world.complete("other", "failed", used=MeasuredUsage(memory_peak=GIB), exit_code=137)
    reasons = [world.record(name).life.reason for name in ("large", "final", "other")]
    assert reasons == ["memory", "not_retryable", "exit_code"]


def test_a_job_out_of_memory_without_another_attempt_fails_unchanged() -> None:
    world = World()
    world.register("w1", memory=8 * GIB)
    world.submit("j", memory=GIB, retry=retries(1, memory_factor=2))
    run(world, "j")
    world.complete("j", "failed", used=OUT)
    assert world.state("j") is JobState.FAILED
    assert grown(world, "j") == GIB
