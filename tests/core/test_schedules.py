"""Schedules that fire: on time, late, after an outage, around people's changes."""

from __future__ import annotations

import itertools

import pytest

from rota.core.commands import UpdateSchedule
from rota.core.errors import NotFound, StalePreload
from rota.core.model import JobState
from rota.core.schedule_model import CatchUp, OccurrenceDecision, Overlap, SkipReason
from tests.core.asking import NOON
from tests.core.schedule_builders import DAY, MINUTE, Planner, plan

HOUR = 60 * MINUTE


@pytest.fixture
def world() -> Planner:
    return Planner()


def test_an_instant_makes_its_job_in_the_turn_that_records_it(world: Planner) -> None:
    schedule = world.schedule(cron="*/5 * * * *")
    world.advance(5 * MINUTE)
    (record,) = world.ledger_of(schedule)
    assert (record.nominal, record.decision) == (NOON + 5 * MINUTE, OccurrenceDecision.FIRED)
    job = world.record(record.job_id or "")
    assert job.life.state is JobState.QUEUED
    assert (job.spec.run_at, job.spec.origin.schedule_id) == (record.nominal, schedule)  # type: ignore[union-attr]
    assert world.course(schedule).watermark == record.nominal


def test_a_second_that_never_ends_fires_once(world: Planner) -> None:
    schedule = world.schedule()
    world.advance(MINUTE)
    for _ in range(5):
        world.restart()
        world.catch_up()
    assert world.words(schedule) == ["fired"]


def test_a_clock_that_goes_back_fires_nothing_again(world: Planner) -> None:
    schedule = world.schedule()
    world.advance(3 * MINUTE)
    world.jump(-2 * MINUTE)
    world.advance(MINUTE)
    assert world.words(schedule) == ["fired"] * 3
    world.advance(2 * MINUTE)
    assert len(world.ledger_of(schedule)) == 4


def test_a_run_a_little_late_is_late_and_not_missed(world: Planner) -> None:
    schedule = world.schedule(catch_up=CatchUp.NONE)
    world.sleep(MINUTE + 5_000)
    (record,) = world.ledger_of(schedule)
    assert (record.decision, record.late_ms) == (OccurrenceDecision.LATE, 5_000)


@pytest.mark.parametrize(
    ("catch_up", "words"),
    [
        (CatchUp.NONE, ["missed", "missed", "missed", "late"]),
        (CatchUp.LATEST, ["superseded", "superseded", "superseded", "late"]),
        (CatchUp.ALL, ["caught_up", "caught_up", "caught_up", "late"]),
    ],
)
def test_what_was_missed_is_caught_up_as_the_schedule_says(
    world: Planner, catch_up: CatchUp, words: list[str]
) -> None:
    schedule = world.schedule(catch_up=catch_up)
    world.sleep(4 * MINUTE + 30_000)
    assert world.words(schedule) == words


@pytest.mark.parametrize(
    ("catch_up", "words"),
    [
        (CatchUp.NONE, ["missed"] * 5),
        (CatchUp.LATEST, ["superseded"] * 4 + ["caught_up"]),
        (CatchUp.ALL, ["caught_up"] * 5),
    ],
)
def test_a_schedule_that_comes_often_misses_runs_in_a_few_seconds(
    world: Planner, catch_up: CatchUp, words: list[str]
) -> None:
    schedule = world.schedule(cron="*/2 * * * * *", catch_up=catch_up)
    world.sleep(11_500)
    assert world.words(schedule) == words
    world.sleep(600)
    assert world.words(schedule) == [*words, "fired"]


def test_the_window_holds_for_a_short_absence_too(world: Planner) -> None:
    schedule = world.schedule(cron="*/2 * * * * *", catch_up=CatchUp.ALL, catch_up_window_ms=4_000)
    world.sleep(11_500)
    assert world.words(schedule) == ["too_old", "caught_up", "caught_up"]


def test_the_latest_missed_run_is_made_up_for(world: Planner) -> None:
    schedule = world.schedule(cron="0 * * * *")
    world.sleep(3 * HOUR + 10 * MINUTE)
    assert world.words(schedule)[-1] == "caught_up"
    assert world.words(schedule)[:-1] == ["superseded"] * (len(world.words(schedule)) - 1)


def test_what_is_older_than_the_window_is_one_record(world: Planner) -> None:
    schedule = world.schedule(catch_up=CatchUp.ALL, catch_up_window_ms=10 * MINUTE)
    world.sleep(3 * DAY)
    first, *rest = world.ledger_of(schedule)
    assert (first.skip_reason, first.until) == (SkipReason.TOO_OLD, world.now - 10 * MINUTE - 1)
    assert [one.nominal for one in rest] == [world.now - n * MINUTE for n in range(10, -1, -1)]
    assert world.words(schedule)[1] == "caught_up"


def test_three_days_of_minutes_are_caught_up_in_bounded_turns(world: Planner) -> None:
    schedule = world.schedule(catch_up=CatchUp.NONE)
    world._checked = False
    world.sleep(3 * DAY)
    records = world.ledger_of(schedule)
    assert len(records) == 3 * 24 * 60
    assert {b.nominal - a.nominal for a, b in itertools.pairwise(records)} == {MINUTE}


def test_many_due_in_the_same_second_all_fire_in_several_turns() -> None:
    world = Planner(checked=False)
    for number in range(1_200):
        world.schedule(f"s{number}", cron="0 * * * *")
    world.now = NOON + HOUR
    turns = 0
    while (due := world.scheduler.next_due()) is not None and due <= world.now:
        assert len(world.turn([]).occurrences) <= 500
        turns += 1
    world.check()
    assert turns == 3
    assert len(world.ledger.occurrences) == 1_200


def test_a_schedule_that_has_much_to_catch_up_does_not_hold_up_the_others(world: Planner) -> None:
    greedy = world.schedule("greedy", cron="* * * * * *", catch_up=CatchUp.ALL)
    world.now += 20 * MINUTE - 5_000
    polite = world.schedule("polite")
    world.now += 5_000
    world.restart()
    world.turn([])
    assert world.words(polite) == ["fired"]
    assert len(world.ledger_of(greedy)) < 1_200


def test_while_paused_instants_are_recorded_and_make_no_jobs(world: Planner) -> None:
    schedule = world.schedule()
    world.pause(schedule)
    world.advance(2 * MINUTE)
    world.pause(schedule, paused=False)
    world.advance(MINUTE)
    assert world.words(schedule) == ["paused", "paused", "fired"]
    assert len(world.jobs_of(schedule)) == 1


def test_an_outage_while_paused_is_no_reason_to_catch_up(world: Planner) -> None:
    schedule = world.schedule(catch_up=CatchUp.ALL)
    world.pause(schedule)
    world.sleep(3 * MINUTE)
    world.pause(schedule, paused=False)
    world.catch_up()
    assert world.words(schedule) == ["paused"] * 3


def test_another_expression_decides_only_what_comes_after_it(world: Planner) -> None:
    schedule = world.schedule(cron="0 * * * *")
    world.advance(90 * MINUTE)
    world.change(schedule, cron="15 * * * *")
    before = [one.nominal for one in world.ledger_of(schedule)]
    world.advance(HOUR)
    after = [one.nominal for one in world.ledger_of(schedule)]
    assert after[: len(before)] == before
    assert [one % HOUR for one in after[len(before) :]] == [15 * MINUTE]


def test_what_an_outage_left_undecided_is_recorded_before_the_expression_changes(
    world: Planner,
) -> None:
    schedule = world.schedule(cron="* * * * * *", catch_up=CatchUp.ALL)
    world.now += 30 * MINUTE
    world.restart()
    world.change(schedule, cron="0 0 * * *")
    last = world.ledger_of(schedule)[-1]
    assert (last.skip_reason, last.until) == (SkipReason.CHANGED, world.now)
    world.catch_up()
    assert world.ledger_of(schedule)[-1] == last


def test_an_expression_that_changes_in_the_turn_of_a_firing_keeps_both(world: Planner) -> None:
    schedule = world.schedule()
    world.now += MINUTE + 5
    world.change(schedule, cron="0 0 * * *")
    assert world.words(schedule) == ["fired"]
    assert world.course(schedule).watermark == world.now
    world.restart()
    assert world.words(schedule) == ["fired"]


def test_an_update_that_read_an_older_schedule_is_told_to_read_again(world: Planner) -> None:
    schedule = world.schedule()
    stale = UpdateSchedule(schedule_id=schedule, definition=plan(), revision=1, paused=False)
    world.change(schedule, cron="15 * * * *")
    with pytest.raises(StalePreload):
        world.step(stale)


def test_nothing_fires_after_a_delete_and_its_runs_go_on(world: Planner) -> None:
    schedule = world.schedule()
    world.advance(MINUTE)
    (job,) = world.jobs_of(schedule)
    world.delete(schedule)
    world.advance(5 * MINUTE)
    assert len(world.ledger_of(schedule)) == 1
    assert world.state(job) is JobState.QUEUED
    with pytest.raises(NotFound):
        world.delete(schedule)


def test_a_one_off_runs_once_and_is_over(world: Planner) -> None:
    schedule = world.schedule(at=NOON + MINUTE)
    world.advance(DAY)
    assert world.words(schedule) == ["fired"]
    glance = world.scheduler.schedule(schedule)
    assert glance is not None
    assert glance.next_at is None


def test_intervals_count_from_their_start_whatever_happens_between(world: Planner) -> None:
    schedule = world.schedule(interval_ms=7 * MINUTE, starts_at=NOON + MINUTE)
    world.advance(10 * MINUTE)
    world.sleep(12 * MINUTE)
    assert [one.nominal - NOON for one in world.ledger_of(schedule)] == [
        MINUTE,
        8 * MINUTE,
        15 * MINUTE,
        22 * MINUTE,
    ]


def test_an_interval_from_the_finish_waits_for_the_run_to_end(world: Planner) -> None:
    schedule = world.schedule(interval_ms=10 * MINUTE, from_finish=True)
    world.register()
    world.advance(10 * MINUTE)
    (job,) = world.take()
    world.advance(5_000)
    world.heartbeat(names=[job])
    assert world.scheduler.schedule(schedule).next_at is None  # type: ignore[union-attr]
    world.restart()
    world.complete(job)
    ended = world.now
    assert world.scheduler.schedule(schedule).next_at == ended + 10 * MINUTE  # type: ignore[union-attr]
    world.advance(10 * MINUTE)
    assert [one.nominal for one in world.ledger_of(schedule)] == [
        NOON + 10 * MINUTE,
        ended + 10 * MINUTE,
    ]


def test_an_interval_from_the_finish_goes_on_after_the_clock_went_back(world: Planner) -> None:
    schedule = world.schedule(interval_ms=10 * MINUTE, from_finish=True)
    world.register()
    world.advance(10 * MINUTE)
    (job,) = world.take()
    world.jump(-HOUR)
    world.complete(job)
    world.advance(2 * HOUR)
    assert len(world.ledger_of(schedule)) == 2


def test_jitter_spreads_runs_and_is_the_same_for_the_same_instant(world: Planner) -> None:
    schedules = [
        world.schedule(f"s{n}", cron="0 * * * *", jitter_ms=30_000, overlap=Overlap.ALLOW)
        for n in range(8)
    ]
    dues = [world.scheduler.schedule(one).due_at for one in schedules]  # type: ignore[union-attr]
    world.restart()
    assert dues == [world.scheduler.schedule(one).due_at for one in schedules]  # type: ignore[union-attr]
    assert len(set(dues)) > 1
    world.advance(HOUR + 30_000)
    for schedule, due in zip(schedules, dues, strict=True):
        record = world.ledger_of(schedule)[0]
        assert record.decided_at == due
        assert (record.late_ms, record.nominal % HOUR) == (0, 0)
