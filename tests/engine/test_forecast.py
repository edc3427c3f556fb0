"""Estimated starts: forward runs, and the calibration of intervals by past errors."""

from __future__ import annotations

import random

from rota.core.commands import Complete, Heartbeat, MemoryWindow, Running, Submit
from rota.core.model import JobId, JobRecord, WorkerId
from rota.core.outcome import Order
from rota.core.policy import DEFAULT
from rota.engine.forecast import AIMED_AT, Budget, Calibration, ForwardRun, with_interval
from rota.engine.limits import SAMPLE_EVERY_MS
from rota.engine.ports import FORWARD_RUN
from tests.core.asking import HOUR, NOON, SECOND, job
from tests.core.world import World
from tests.engine.clocks import FakeClock
from tests.engine.rig import Rig, running, succeeded, until

MINUTE = 60 * SECOND


def estimate_and_start(calibration: Calibration, number: int, expected: int, real: int) -> None:
    """Estimates a job's wait, and starts it after its real one."""
    job_id, now = JobId(f"j{number}"), NOON + number * HOUR
    given = with_interval(calibration, FORWARD_RUN, now + expected, now)
    calibration.note_estimate(job_id, given)
    calibration.started([job_id], now + real)


def test_an_interval_holds_the_expected_wait_before_any_error_is_known() -> None:
    low, high = Calibration().interval(FORWARD_RUN, HOUR)
    assert low < HOUR < high
    assert Calibration().accuracy() is None


def test_intervals_narrow_to_the_errors_of_the_past() -> None:
    calibration, rng = Calibration(), random.Random(1)
    for number in range(300):
        estimate_and_start(calibration, number, HOUR, int(HOUR * rng.uniform(0.45, 0.55)))
    low, high = calibration.interval(FORWARD_RUN, HOUR)
    assert 0.4 * HOUR < low < 0.5 * HOUR
    assert high == HOUR, "the expected wait is inside the interval, too"


def test_four_of_five_starts_fall_inside_their_interval_whatever_the_errors_are() -> None:
    for seed, spread in ((1, 0.2), (2, 1.0), (3, 2.0)):
        calibration, rng = Calibration(), random.Random(seed)
        for number in range(600):
            expected = rng.choice((MINUTE, HOUR, 8 * HOUR))
            estimate_and_start(
                calibration, number, expected, int(expected * rng.lognormvariate(-0.5, spread))
            )
        # Rather more than less: the expected wait is inside, too, however often it was wrong.
        assert AIMED_AT - 0.05 < calibration.inside / calibration.starts < 0.9, f"seed {seed}"
        accuracy = calibration.accuracy()
        assert accuracy is not None
        assert accuracy.starts == 600


def test_a_job_is_compared_with_its_first_estimate() -> None:
    calibration = Calibration()
    early = with_interval(calibration, FORWARD_RUN, NOON + HOUR, NOON)
    late = with_interval(calibration, FORWARD_RUN, NOON + 60 * MINUTE, NOON + 59 * MINUTE)
    calibration.note_estimate(JobId("a"), early)
    calibration.note_estimate(JobId("a"), late)
    calibration.started([JobId("a"), JobId("unknown")], NOON + 2 * HOUR)
    assert calibration.starts == 1
    error = dict(calibration.errors_s.buckets())
    assert (error[900], error[3600]) == (0, 1), "an hour late by the first estimate"
    assert not calibration.is_waiting


def test_a_forward_run_ends_executions_when_expected_and_starts_jobs_in_order() -> None:
    world = World(policy=DEFAULT)
    world.register("w1", cpu=2)
    world.submit_all([job(f"j{n}", cpu=2, runs_ms=MINUTE) for n in range(4)])
    world.poll("w1", wait_ms=HOUR)
    begun = world.now
    inputs = world.scheduler.forecast_input((), begun)
    plan = ForwardRun(inputs, Budget(FakeClock(), 1.0)).play([JobId("j3")])
    starts = {job_id: (at - begun) // MINUTE for job_id, (at, _) in plan.starts.items()}
    assert starts == {"j1": 1, "j2": 2, "j3": 3}
    assert not plan.is_spent
    assert world.life("j3").state == "queued", "the scheduler itself is unchanged"


def test_a_forward_run_stops_when_its_budget_is_spent() -> None:
    world = World(policy=DEFAULT)
    world.register("w1", cpu=1)
    world.submit_all([job(f"j{n}", runs_ms=MINUTE) for n in range(50)])
    inputs = world.scheduler.forecast_input((), world.now)
    budget = Budget(FakeClock(), 1.0, starts=10)
    plan = ForwardRun(inputs, budget).play([JobId("j49")])
    assert plan.is_spent
    assert JobId("j49") not in plan.starts


def test_the_input_of_a_forecast_has_the_front_of_a_queue_and_the_job_in_question() -> None:
    world = World(policy=DEFAULT)
    world.submit_all([job(f"j{n:04}", runs_ms=MINUTE) for n in range(300)])
    world.submit("up", run_at=world.now + HOUR)
    world.submit("down", after=["up"])
    inputs = world.scheduler.forecast_input([JobId("down")], world.now)
    known = [record.id for record in inputs.stored.jobs]
    assert JobId("down") in known
    assert JobId("up") in known
    assert inputs.left_out == 0


async def one_runs_one_waits(rig: Rig) -> tuple[Order, JobRecord]:
    """Fills a worker for a minute, and submits a job that waits for it."""
    await rig.register()
    await rig.submit("a", cpu=4, runs_ms=MINUTE)
    (order,) = (await rig.poll()).orders
    await rig.submit("b", cpu=4, runs_ms=MINUTE)
    record = await rig.record("b")
    assert record is not None
    return order, record


async def test_an_estimate_is_compared_with_the_job_s_start() -> None:
    async with running() as rig:
        order, record = await one_runs_one_waits(rig)
        outlook = await rig.engine.outlook(record)
        assert outlook is not None
        assert outlook.estimate.at == order.execution.claimed_at + MINUTE
        assert outlook.accuracy is None
        poll = await rig.poll(completed=(succeeded(order),))
        assert [one.execution.job_id for one in poll.orders] == ["b"]
        assert rig.engine.calibration.starts == 1


async def test_the_engine_samples_estimates_that_no_user_asked_for() -> None:
    async with running() as rig:
        order, _ = await one_runs_one_waits(rig)
        assert not rig.engine.calibration.is_waiting
        runs = (Running(execution_id=order.execution.id),)
        for _ in range(10):
            await rig.engine.post(Heartbeat(worker_id=WorkerId("w1"), executions=runs))
            await rig.pass_by(SAMPLE_EVERY_MS // 10)
        await until(lambda: rig.engine.calibration.is_waiting)


async def test_the_causes_that_were_answered_for_a_job_are_remembered() -> None:
    async with running() as rig:
        _, record = await one_runs_one_waits(rig)
        await rig.engine.outlook(record)
        await rig.pass_by(5 * SECOND)
        outlook = await rig.engine.outlook(record)
        assert outlook is not None
        (seen,) = outlook.seen
        assert (seen.code, seen.last - seen.first) == ("resources_busy", 5 * SECOND)


async def test_a_job_that_runs_or_has_finished_has_no_forecast() -> None:
    async with running() as rig:
        order, _ = await one_runs_one_waits(rig)
        record = await rig.record("a")
        assert record is not None
        assert await rig.engine.outlook(record) is None
        await rig.engine.post(Complete(completion=succeeded(order)))
        assert await rig.engine.outlook(record) is None


async def test_the_estimate_of_a_job_far_back_counts_the_spilled_jobs_before_it() -> None:
    async with running(window=MemoryWindow(jobs=50, fifo_group=5, refill=10)) as rig:
        await rig.register()
        names = [f"j{n:03}" for n in range(200)]
        jobs = tuple(job(name, cpu=4, runs_ms=MINUTE, created_at=rig.clock.now()) for name in names)
        await rig.engine.post(Submit(jobs=jobs))
        waits = []
        for name in ("j020", "j199"):
            record = await rig.record(name)
            assert record is not None
            outlook = await rig.engine.outlook(record)
            assert outlook is not None
            assert outlook.estimate.at is not None
            waits.append(
                (outlook.estimate.method, outlook.estimate.at - outlook.estimate.computed_at)
            )
        assert record.life.line, "it is spilled"
        assert [method for method, _ in waits] == ["forward_run", "fluid"]
        assert waits[0][1] == 20 * MINUTE
        assert 100 * MINUTE < waits[1][1] < 300 * MINUTE
