"""Schedules through months and years of crashes and clock changes: the history is complete."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.commands import AnyInput, Cancel, ClockJump, Tick
from rota.core.model import ScheduleId
from rota.core.schedule_model import CatchUp, Gap, Occurrence, RepeatedTime
from rota.core.scheduler import Scheduler
from rota.engine.time_zones import load_zone
from tests.core.calendars import ways
from tests.core.schedule_builders import DAY, MINUTE, Planner, at, plan

HOUR = 60 * MINUTE
ZONES = (
    "UTC", "America/New_York", "Europe/London", "Australia/Lord_Howe", "America/Sao_Paulo",
    "Pacific/Apia", "Africa/Cairo", "Africa/Casablanca", "Antarctica/Troll", "Asia/Kathmandu",
)  # fmt: skip
CRONS = (
    "30 2 * * *", "0 0 * * MON", "15 1 * * *", "0 9 * * MON-FRI", "0 3 L * *", "45 0 1,15 * *",
    "30 1 * * SUN", "0 */12 * * *", "0 0 29 2 *",
)  # fmt: skip


class FaultyWorld(Planner):
    """A world that sometimes loses its last turn, and whose clock is set sometimes."""

    def __init__(self, seed: int, schedules: int, start: int, fault_factor: float = 1.0) -> None:
        super().__init__(start, checked=False)
        self.fault_factor = fault_factor
        """Factor of the usual probability of faults."""
        self.rng = random.Random(seed)
        self.lost = self.jumps = 0
        self.plans: dict[ScheduleId, dict[str, Any]] = {}
        for number in range(schedules):
            asked = {
                "cron": self.rng.choice(CRONS),
                "timezone": self.rng.choice(ZONES),
                "gap": self.rng.choice(list(Gap)),
                "fold": self.rng.choice(list(RepeatedTime)),
            }
            made = self.schedule(
                f"s{number}", catch_up=self.rng.choice(list(CatchUp)),
                jitter_ms=self.rng.choice((0, 0, 45_000)), **asked,
            )  # fmt: skip
            self.plans[made] = asked
        self.start = self.now

    def live(self, ms: int) -> None:
        """Lets time pass, with faults."""
        end = self.now + ms
        while self.now < end:
            due = self.scheduler.next_due()
            self.now = max(self.now, min(end, due if due is not None else end))
            self._turn_or_crash()
            roll = self.rng.random() / self.fault_factor
            if roll < 0.01:
                self._go_down(self.rng.randrange(6 * HOUR))
            elif roll < 0.02:
                self._set_clock(self.rng.randrange(-2 * HOUR, 2 * HOUR))

    def _turn_or_crash(self) -> None:
        # Jobs of one turn end in the next: a year of jobs would not fit into memory.
        ended: list[AnyInput] = [Cancel(job_id=job_id) for job_id in list(self.scheduler._t.jobs)]
        outcome = self.scheduler.turn([Tick(), *ended], self.now)
        if self.rng.random() < 0.02 * self.fault_factor:
            self.lost += 1
            self._restart_quickly()
            return
        self.ledger.append(outcome.writes)
        for event in ended:
            assert isinstance(event, Cancel)
            del self.ledger.jobs[event.job_id]

    def _restart_quickly(self) -> None:
        """Like `restart`, without checks that would take longer than the simulated year."""
        self.scheduler = Scheduler(self.timing, self.now, load_zone)
        self.scheduler.restore(self.ledger.stored(self.timing.window.fifo_group), self.now)

    def _go_down(self, ms: int) -> None:
        self.now += ms
        self._restart_quickly()

    def _set_clock(self, by: int) -> None:
        self.now += by
        self.jumps += 1
        self.ledger.append(self.scheduler.turn([ClockJump(by=by)], self.now).writes)

    def settle(self) -> None:
        while (due := self.scheduler.next_due()) is not None and due <= self.now:
            self.ledger.append(self.scheduler.turn([], self.now).writes)


def assert_complete(world: FaultyWorld) -> None:
    """Every instant up to the watermark has exactly one record, none has two jobs."""
    occurrences: dict[ScheduleId, list[Occurrence]] = {one: [] for one in world.plans}
    jobs: dict[str, None] = {}
    for occurrence in world.ledger.occurrences.values():
        occurrences[occurrence.schedule_id].append(occurrence)
        if occurrence.job_id is not None:
            assert occurrence.job_id not in jobs, "two instants have the same job"
            jobs[occurrence.job_id] = None
    for schedule_id, asked in world.plans.items():
        timetable = dict(asked)
        recurrence = ways(timetable.pop("cron"), timetable.pop("timezone"), **timetable)
        watermark = world.course(schedule_id).watermark
        expected = list(recurrence.between(world.start + 1, watermark))
        found = sorted(one.nominal for one in occurrences[schedule_id] if one.until is None)
        for one in occurrences[schedule_id]:
            if one.until is not None:
                found += list(recurrence.between(one.nominal, one.until))
        assert sorted(found) == expected, asked


@pytest.mark.parametrize("seed", [1, 2])
def test_two_months_of_crashes_and_clock_changes_leave_a_complete_history(seed: int) -> None:
    world = FaultyWorld(seed, schedules=40, start=at("2026-02-20T00:00:07Z"))
    world.live(60 * DAY)
    world.settle()
    assert world.lost
    assert world.jumps
    assert_complete(world)


@pytest.mark.slow
def test_a_year_of_a_thousand_schedules_leaves_a_complete_history() -> None:
    world = FaultyWorld(7, schedules=1_000, start=at("2026-01-01T00:00:07Z"), fault_factor=0.2)
    world.live(365 * DAY)
    world.settle()
    assert world.lost > 100
    assert world.jumps > 100
    assert len(world.ledger.occurrences) > 100_000
    assert_complete(world)


def test_a_history_with_a_gap_would_be_noticed() -> None:
    world = FaultyWorld(3, schedules=3, start=at("2026-03-01T00:00:07Z"))
    world.live(20 * DAY)
    world.settle()
    del world.ledger.occurrences[next(iter(world.ledger.occurrences))]
    with pytest.raises(AssertionError):
        assert_complete(world)


@given(
    cron=st.sampled_from([*CRONS, "*/7 * * * *", "0 * * * *"]),
    zone=st.sampled_from(ZONES),
    rules=st.tuples(st.sampled_from(Gap), st.sampled_from(RepeatedTime)),
    day=st.integers(0, 700),
)
@settings(max_examples=25, deadline=None)
def test_previewed_instants_are_those_that_fire(
    cron: str, zone: str, rules: tuple[Gap, RepeatedTime], day: int
) -> None:
    world = Planner(at("2026-01-01T11:11:11Z") + day * DAY)
    asked: dict[str, Any] = {"cron": cron, "timezone": zone, "gap": rules[0], "fold": rules[1]}
    foreseen = world.scheduler.preview_definition(plan(**asked), world.now, 6)
    schedule = world.schedule(**asked)
    assert list(world.scheduler.preview(schedule, world.now, 6)) == list(foreseen)
    for expected in foreseen:
        world.advance(expected.at - world.now)
    assert [one.nominal for one in world.ledger_of(schedule)] == [one.at for one in foreseen]
    assert set(world.words(schedule)) == {"fired"}
