"""Schedules and what they meet: earlier runs, people, holidays, and what makes no sense."""

from __future__ import annotations

from datetime import timedelta, timezone

import pytest
from msgspec.structs import replace

from rota.core.errors import Conflict, Invalid, StalePreload
from rota.core.model import JobState
from rota.core.schedule_model import CatchUp, OnHoliday, Overlap, SkipReason
from rota.core.scheduler import Scheduler
from rota.core.time_zones import Zone
from tests.core.asking import NOON, spec
from tests.core.schedule_builders import DAY, MINUTE, Planner, at, plan

HOUR = 60 * MINUTE


@pytest.fixture
def world() -> Planner:
    return Planner()


def test_skip_leaves_a_run_out_while_the_last_is_not_done(world: Planner) -> None:
    schedule = world.schedule(overlap=Overlap.SKIP)
    world.advance(2 * MINUTE)
    (job,) = world.jobs_of(schedule)
    assert world.words(schedule) == ["fired", "overlap"]
    assert job in world.ledger_of(schedule)[1].detail
    world.cancel(job)
    world.advance(MINUTE)
    assert world.words(schedule)[-1] == "fired"


def test_skip_holds_across_a_restart(world: Planner) -> None:
    schedule = world.schedule(overlap=Overlap.SKIP, max_concurrency=2)
    world.advance(2 * MINUTE)
    world.restart()
    world.advance(MINUTE)
    assert world.words(schedule) == ["fired", "fired", "overlap"]


def test_queue_runs_one_after_the_other(world: Planner) -> None:
    schedule = world.schedule(overlap=Overlap.QUEUE)
    world.register()
    world.advance(2 * MINUTE)
    first, second = world.jobs_of(schedule)
    assert world.take() == [first]
    assert world.causes(second)[0] == "concurrency"
    world.complete(first)
    assert world.take() == [second]


def test_replace_calls_the_old_run_off_and_starts_when_that_has_stopped(world: Planner) -> None:
    schedule = world.schedule(interval_ms=10_000, overlap=Overlap.REPLACE)
    world.register()
    world.advance(10_000)
    (first,) = world.take()
    world.advance(10_000)
    assert world.state(first) is JobState.CANCELLING
    _, second = world.jobs_of(schedule)
    assert world.take(names=[first]) == []
    world.complete(first, "cancelled")
    assert world.take(names=[]) == [second]


def test_a_run_now_is_beside_the_timetable(world: Planner) -> None:
    schedule = world.schedule(cron="0 * * * *", paused=True)
    one, two = world.trigger(schedule), world.trigger(schedule)
    assert one.occurrence.nominal < two.occurrence.nominal
    assert world.course(schedule).watermark == NOON
    assert len(world.jobs_of(schedule)) == 2


def test_a_run_now_respects_the_overlap_rule(world: Planner) -> None:
    schedule = world.schedule(overlap=Overlap.SKIP)
    world.trigger(schedule)
    with pytest.raises(Conflict, match="has not ended"):
        world.trigger(schedule)


def test_a_run_now_in_the_millisecond_of_an_instant_takes_the_next(world: Planner) -> None:
    schedule = world.schedule()
    world.advance(MINUTE)
    made = world.trigger(schedule)
    assert made.occurrence.nominal == NOON + MINUTE + 1
    assert len(world.ledger_of(schedule)) == 2


def test_a_run_now_right_after_a_change_leaves_the_last_instant_alone(world: Planner) -> None:
    schedule = world.schedule()
    world.advance(MINUTE)
    world.change(schedule, cron="30 0 * * *")
    made = world.trigger(schedule)
    assert made.occurrence.nominal == NOON + MINUTE + 1
    assert world.record(made.job.id).life.state is JobState.QUEUED


def test_a_backfill_does_not_hold_up_an_interval_from_the_finish(world: Planner) -> None:
    schedule = world.schedule(interval_ms=10 * MINUTE, from_finish=True)
    world.advance(10 * MINUTE)
    (job,) = world.jobs_of(schedule)
    world.backfill(schedule, NOON + MINUTE)
    world.cancel(job)
    glance = world.scheduler.schedule(schedule)
    assert glance is not None
    assert glance.next_at == world.now + 10 * MINUTE


def test_a_backfill_runs_behind_others_and_so_many_at_once(world: Planner) -> None:
    schedule = world.schedule(paused=True)
    world.register()
    world.advance(4 * MINUTE)
    world.heartbeat()
    past = [NOON + n * MINUTE for n in (1, 2, 3)]
    done = world.backfill(schedule, *past, max_parallel=2)
    assert [world.record(job).spec.run_at for job in done.job_ids] == past
    assert [world.record(job).spec.terms.priority for job in done.job_ids] == [-100] * 3
    assert world.words(schedule) == ["caught_up"] * 3 + ["paused"]
    assert len(world.take()) == 2


def test_a_backfill_that_read_before_another_ended_is_told_to_read_again(world: Planner) -> None:
    schedule = world.schedule(paused=True)
    world.advance(MINUTE)
    before = world.recall()
    world.backfill(schedule, NOON + MINUTE)
    with pytest.raises(StalePreload):
        world.backfill(schedule, NOON + MINUTE, recall=before)


def test_a_backfill_after_the_clock_went_back_is_no_older_than_the_last(world: Planner) -> None:
    schedule = world.schedule(paused=True)
    world.advance(2 * MINUTE)
    world.backfill(schedule, NOON + MINUTE)
    world.jump(-MINUTE)
    world.backfill(schedule, NOON + 2 * MINUTE)
    assert world.words(schedule) == ["caught_up", "caught_up"]


def test_a_backfill_of_what_is_to_come_is_refused(world: Planner) -> None:
    schedule = world.schedule()
    with pytest.raises(StalePreload):
        world.backfill(schedule, NOON + HOUR)


def test_a_backfill_out_of_a_long_gap_leaves_the_rest_of_it_recorded(world: Planner) -> None:
    schedule = world.schedule(catch_up=CatchUp.NONE, catch_up_window_ms=MINUTE)
    world.sleep(HOUR)
    gap = world.ledger_of(schedule)[0]
    assert gap.until is not None
    wanted = (gap.nominal, gap.nominal + 2 * MINUTE)
    world.backfill(schedule, *wanted, ranges=((gap.nominal, gap.until),))
    records = world.ledger_of(schedule)
    assert [one.nominal - NOON for one in records[:3]] == [MINUTE, 2 * MINUTE, 3 * MINUTE]
    assert (records[1].skip_reason, records[1].until) == (SkipReason.TOO_OLD, gap.until)


def test_holidays_are_skipped_and_named() -> None:
    world = Planner(at("2026-12-24T12:00Z"))
    world.calendar("berlin", "2026-12-25", "2026-12-26")
    schedule = world.schedule(cron="0 9 * * *", timezone="Europe/Berlin", calendars=("berlin",))
    world.advance(3 * DAY)
    assert world.words(schedule) == ["holiday", "holiday", "fired"]
    assert world.ledger_of(schedule)[0].detail == "calendar berlin"


def test_holidays_shift_runs_to_the_next_working_day_once() -> None:
    world = Planner(at("2026-12-24T12:00Z"))
    world.calendar("berlin", "2026-12-25", "2026-12-26")
    monthly = world.schedule(
        "monthly", cron="0 9 25 * *", calendars=("berlin",), on_holiday=OnHoliday.SHIFT
    )
    daily = world.schedule(
        "daily", cron="0 9 * * *", calendars=("berlin",), on_holiday=OnHoliday.SHIFT
    )
    world.advance(4 * DAY)
    assert [one.nominal for one in world.ledger_of(monthly)] == [at("2026-12-27T09:00Z")]
    assert [one.nominal for one in world.ledger_of(daily)] == [
        at("2026-12-27T09:00Z"),
        at("2026-12-28T09:00Z"),
    ]


def test_a_changed_calendar_holds_at_once(world: Planner) -> None:
    world.calendar("closed")
    schedule = world.schedule(cron="0 9 * * *", calendars=("closed",))
    world.calendar("closed", "2027-01-16")
    world.advance(2 * DAY)
    assert world.words(schedule) == ["fired", "holiday"]


def test_slots_in_task_and_payload_are_filled() -> None:
    world = Planner(at("2026-03-07T12:00Z"))
    job = replace(spec(), payload=b'{"day":"{{scheduled_date}}","at":"{{ scheduled_at }}"}')
    schedule = world.schedule(
        'the "big" one', cron="30 2 * * *", timezone="America/New_York", job=job
    )
    world.advance(DAY)
    (made,) = world.jobs_of(schedule)
    assert world.record(made).spec.payload == (b'{"day":"2026-03-08","at":"2026-03-08T07:00:00Z"}')


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "*/0 * * * *"}, "cron"),
        ({"cron": "* * * *"}, "cron"),
        ({"cron": "* * * * *", "interval_ms": 1000}, "cron"),
        ({"interval_ms": 0}, "interval"),
        ({"interval_ms": 999}, "interval"),
        ({"interval_ms": 5000, "jitter_ms": 5000}, "jitter"),
        ({"cron": "* * * * *", "from_finish": True}, "from"),
        ({"cron": "* * * * *", "timezone": "Mars/Olympus"}, "timezone"),
        ({"cron": "* * * * *", "timezone": "../../etc/passwd"}, "timezone"),
        ({"cron": "* * * * *", "calendars": ("nowhere",)}, "calendars"),
        ({"at": NOON - 1}, "at"),
        ({"cron": "* * * * *", "ends_at": NOON - 1}, "ends_at"),
        ({"cron": "0 0 1 1 *", "ends_at": NOON + HOUR}, "ends_at"),
        ({"job": replace(spec(), payload=b'{"x":"{{schedled_at}}"}')}, "job"),
        ({"job": spec(key="k"), "overlap": Overlap.QUEUE}, "job.concurrency"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_field(
    world: Planner, given: dict[str, object], field: str
) -> None:
    with pytest.raises(Invalid) as refused:
        world.schedule(**given)
    assert refused.value.field == field


def test_a_name_is_taken_once(world: Planner) -> None:
    world.schedule("twice")
    with pytest.raises(Conflict, match="twice"):
        world.schedule("twice")


def test_a_schedule_of_a_zone_nobody_knows_waits_and_says_so(world: Planner) -> None:
    schedule = world.schedule(cron="* * * * *", timezone="Europe/Berlin")
    stranger = Scheduler(world.timing, world.now)
    stranger.restore(world.ledger.stored(world.timing.window.fifo_group), world.now)
    glance = stranger.schedule(schedule)
    assert glance is not None
    assert (glance.next_at, glance.problem) != (None, "")


@pytest.mark.parametrize(
    ("cron", "hours", "then"),
    [
        # Noon comes an hour later than before: that of today was already.
        ("0 12 * * *", 1, "2026-06-02T11:00Z"),
        # It comes an hour earlier, and that of tomorrow has not been.
        ("0 12 * * *", 3, "2026-06-02T09:00Z"),
        # Real hours are none of a zone's business.
        ("0 */12 * * *", 1, "2026-06-01T11:00Z"),
    ],
)
def test_new_rules_of_a_zone_move_what_is_to_come_and_bring_nothing_back(
    cron: str, hours: int, then: str
) -> None:
    world = Planner(at("2026-06-01T09:00Z"))
    schedule = world.schedule(cron=cron, timezone="Europe/Berlin")
    world.advance(HOUR)
    assert [one.nominal for one in world.ledger_of(schedule)] == [at("2026-06-01T10:00Z")]
    other_edition = Zone("Europe/Berlin", timezone(timedelta(hours=hours)))
    world.scheduler = Scheduler(world.timing, world.now, lambda _: other_edition)
    world.scheduler.restore(world.ledger.stored(world.timing.window.fifo_group), world.now)
    glance = world.scheduler.schedule(schedule)
    assert glance is not None
    assert glance.next_at == at(then)


def test_a_hundred_thousand_waiting_schedules_ask_for_one_look(world: Planner) -> None:
    world._checked = False
    for number in range(300):
        world.schedule(f"s{number}", cron="0 0 1 1 *")
    assert world.turn([]).writes == []
    due = world.scheduler.next_due()
    assert due is not None
    assert due > world.now + DAY


def test_plans_are_compared_by_what_they_ask() -> None:
    assert plan("a") == plan("a")
    assert plan("a") != plan("a", cron="1 * * * *")
