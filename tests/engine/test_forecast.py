"""Estimated starts: how they are found, and how what came of them shapes the next."""

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


def tell(calibration: Calibration, number: int, expected: int, real: int) -> tuple[int, int]:
    """A job is told to wait so long, and waits otherwise; the interval it was told."""
    job_id, now = JobId(f"j{number}"), NOON + number * HOUR
    told = with_interval(calibration, FORWARD_RUN, now + expected, now)
    calibration.note_estimate(job_id, told)
    calibration.started([job_id], now + real)
    return told.low - now, told.high - now


def test_an_interval_holds_what_is_expected_even_before_anything_is_known() -> None:
    low, high = Calibration().interval(FORWARD_RUN, HOUR)
    assert low < HOUR < high
    assert Calibration().accuracy() is None


def test_intervals_narrow_to_what_the_errors_are() -> None:
    calibration, dice = Calibration(), random.Random(1)
    for number in range(300):
        tell(calibration, number, HOUR, int(HOUR * dice.uniform(0.45, 0.55)))
    low, high = calibration.interval(FORWARD_RUN, HOUR)
    assert 0.4 * HOUR < low < 0.5 * HOUR
    assert high == HOUR, "what is expected is likely, too"


def test_four_of_five_starts_fall_inside_whatever_the_errors_look_like() -> None:
    for seed, spread in ((1, 0.2), (2, 1.0), (3, 2.0)):
        calibration, dice = Calibration(), random.Random(seed)
        for number in range(600):
            expected = dice.choice((MINUTE, HOUR, 8 * HOUR))
            tell(calibration, number, expected, int(expected * dice.lognormvariate(-0.5, spread)))
        # Rather more than less: what is expected is inside, too, however often it was wrong.
        assert AIMED_AT - 0.05 < calibration.inside / calibration.starts < 0.9, f"seed {seed}"
        accuracy = calibration.accuracy()
        assert accuracy is not None
        assert accuracy.starts == 600


def test_the_first_word_counts_and_what_never_starts_is_forgotten() -> None:
    calibration = Calibration()
    early = with_interval(calibration, FORWARD_RUN, NOON + HOUR, NOON)
    late = with_interval(calibration, FORWARD_RUN, NOON + 60 * MINUTE, NOON + 59 * MINUTE)
    calibration.note_estimate(JobId("a"), early)
    calibration.note_estimate(JobId("a"), late)
    calibration.started([JobId("a"), JobId("unknown")], NOON + 2 * HOUR)
    assert calibration.starts == 1
    error = dict(calibration.errors_s.buckets())
    assert (error[900], error[3600]) == (0, 1), "an hour late by what was said first"
    assert not calibration.is_waiting


def test_a_forward_run_ends_what_runs_when_it_is_expected_to_and_keeps_the_order() -> None:
    world = World(policy=DEFAULT)
    world.register("w1", cpu=2)
    world.submit_all([job(f"j{n}", cpu=2, runs_ms=MINUTE) for n in range(4)])
    world.poll("w1", wait_ms=HOUR)
    begun = world.now
    picture = world.scheduler.forecast_input((), begun)
    course = ForwardRun(picture, Budget(FakeClock(), 1.0)).play([JobId("j3")])
    starts = {job_id: (at - begun) // MINUTE for job_id, (at, _) in course.starts.items()}
    assert starts == {"j1": 1, "j2": 2, "j3": 3}
    assert not course.is_spent
    assert world.life("j3").state == "queued", "nothing of it happened"


def test_a_forward_run_stops_when_its_budget_is_spent() -> None:
    world = World(policy=DEFAULT)
    world.register("w1", cpu=1)
    world.submit_all([job(f"j{n}", runs_ms=MINUTE) for n in range(50)])
    picture = world.scheduler.forecast_input((), world.now)
    budget = Budget(FakeClock(), 1.0, starts=10)
    course = ForwardRun(picture, budget).play([JobId("j49")])
    assert course.is_spent
    assert JobId("j49") not in course.starts


def test_a_picture_has_the_front_of_a_line_and_whoever_is_asked_about() -> None:
    world = World(policy=DEFAULT)
    world.submit_all([job(f"j{n:04}", runs_ms=MINUTE) for n in range(300)])
    world.submit("up", run_at=world.now + HOUR)
    world.submit("down", after=["up"])
    picture = world.scheduler.forecast_input([JobId("down")], world.now)
    known = [record.id for record in picture.stored.jobs]
    assert JobId("down") in known
    assert JobId("up") in known
    assert picture.left_out == 0


async def told_to_wait(rig: Rig) -> tuple[Order, JobRecord]:
    """A worker that is full for a minute, and a job that waits for it."""
    await rig.register()
    await rig.submit("a", cpu=4, runs_ms=MINUTE)
    (order,) = (await rig.poll()).orders
    await rig.submit("b", cpu=4, runs_ms=MINUTE)
    record = await rig.record("b")
    assert record is not None
    return order, record


async def test_a_start_that_was_told_is_judged_when_it_comes() -> None:
    async with running() as rig:
        order, record = await told_to_wait(rig)
        outlook = await rig.engine.outlook(record)
        assert outlook is not None
        assert outlook.estimate.at == order.execution.claimed_at + MINUTE
        assert outlook.accuracy is None
        poll = await rig.poll(completed=(succeeded(order),))
        assert [one.execution.job_id for one in poll.orders] == ["b"]
        assert rig.engine.calibration.starts == 1


async def test_some_jobs_are_told_unasked_so_that_the_record_is_of_all() -> None:
    async with running() as rig:
        order, _ = await told_to_wait(rig)
        assert not rig.engine.calibration.is_waiting
        runs = (Running(execution_id=order.execution.id),)
        for _ in range(10):
            await rig.engine.post(Heartbeat(worker_id=WorkerId("w1"), executions=runs))
            await rig.pass_by(SAMPLE_EVERY_MS // 10)
        await until(lambda: rig.engine.calibration.is_waiting)


async def test_what_kept_a_job_waiting_is_remembered_as_it_was_told() -> None:
    async with running() as rig:
        _, record = await told_to_wait(rig)
        await rig.engine.outlook(record)
        await rig.pass_by(5 * SECOND)
        outlook = await rig.engine.outlook(record)
        assert outlook is not None
        (seen,) = outlook.seen
        assert (seen.code, seen.last - seen.first) == ("resources_busy", 5 * SECOND)


async def test_a_job_that_runs_or_is_gone_has_no_outlook() -> None:
    async with running() as rig:
        order, _ = await told_to_wait(rig)
        record = await rig.record("a")
        assert record is not None
        assert await rig.engine.outlook(record) is None
        await rig.engine.post(Complete(completion=succeeded(order)))
        assert await rig.engine.outlook(record) is None


async def test_a_job_far_back_is_reckoned_from_the_spilled_ones_before_it_too() -> None:
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
        assert record.life.line, "it is on the shelf"
        assert [method for method, _ in waits] == ["forward_run", "fluid"]
        assert waits[0][1] == 20 * MINUTE
        assert 100 * MINUTE < waits[1][1] < 300 * MINUTE
