"""Schedules in few words: what a test does not say is the default."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from rota.core.commands import (
    BackfillSchedule,
    ClockJump,
    CreateSchedule,
    DeleteSchedule,
    NewSchedule,
    PauseSchedule,
    Preloaded,
    SetCalendar,
    Tick,
    TriggerSchedule,
    UpdateSchedule,
)
from rota.core.model import Instant, JobId, ScheduleId, Spec
from rota.core.outcome import AnyReceipt, Backfilled, ScheduleAnswer, Triggered
from rota.core.schedule_model import Calendar, Occurrence, Schedule, ScheduleDefinition, Timetable
from tests.core.asking import NOON, spec
from tests.core.world import World

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
TABLE = tuple(Timetable.__struct_fields__)


def at(text: str) -> Instant:
    """A time as people write it: `2026-03-08T07:00Z`."""
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def plan(name: str = "nightly", **given: Any) -> ScheduleDefinition:
    """Every minute unless said otherwise."""
    table = {key: given.pop(key) for key in list(given) if key in TABLE}
    if not any(key in table for key in ("cron", "interval_ms", "at")):
        table["cron"] = "* * * * *"
    job: Spec = given.pop("job", None) or replace(spec(), created_at=0)
    return ScheduleDefinition(name, Timetable(**table), job, **given)


class Planner(World):
    """A world with schedules in it."""

    def __init__(self, start: Instant = NOON, **given: Any) -> None:
        super().__init__(**given)
        self.now = start
        self.restart()
        self._schedule_ids = 0

    def schedule(self, name: str = "nightly", *, paused: bool = False, **given: Any) -> ScheduleId:
        """Makes one."""
        self._schedule_ids += 1
        schedule_id = ScheduleId(f"schedule-{self._schedule_ids:04}")
        new = NewSchedule(id=schedule_id, definition=plan(name, **given), paused=paused)
        self.step(CreateSchedule(schedule=new))
        return schedule_id

    def change(self, schedule_id: ScheduleId, **given: Any) -> Schedule:
        """Another plan for it."""
        before = self.ledger.schedules[schedule_id]
        wanted = plan(before.definition.name, **given)
        receipt = self.step(
            UpdateSchedule(
                schedule_id=schedule_id, definition=wanted, revision=before.revision, paused=False
            )
        )
        assert isinstance(receipt, ScheduleAnswer)
        return receipt.schedule

    def delete(self, schedule_id: ScheduleId) -> AnyReceipt:
        return self.step(DeleteSchedule(schedule_id=schedule_id))

    def pause(self, schedule_id: ScheduleId, *, paused: bool = True) -> AnyReceipt:
        return self.step(PauseSchedule(schedule_id=schedule_id, paused=paused))

    def trigger(self, schedule_id: ScheduleId) -> Triggered:
        receipt = self.step(TriggerSchedule(schedule_id=schedule_id))
        assert isinstance(receipt, Triggered)
        return receipt

    def backfill(self, schedule_id: ScheduleId, *instants: Instant, **said: Any) -> Backfilled:
        self.now += 1
        receipt = self.step(
            BackfillSchedule(
                schedule_id=schedule_id,
                backfill_id=said.pop("backfill_id", "b1"),
                instants=instants,
                max_parallel=said.pop("max_parallel", 1),
                priority=said.pop("priority", -100),
                preloaded=said.pop("recall", Preloaded(at=self.now)),
                **said,
            )
        )
        assert isinstance(receipt, Backfilled)
        return receipt

    def calendar(self, name: str, *dates: str) -> None:
        days = sorted(datetime.fromisoformat(one).toordinal() for one in dates)
        self.step(SetCalendar(calendar=Calendar(name, tuple(days))))

    def sleep(self, ms: int) -> None:
        """Nobody is there for a while; then everything that is due is decided."""
        self.now += ms
        self.restart()
        self.catch_up()

    def jump(self, by: int) -> None:
        """Somebody sets the clock."""
        self.now += by
        self.turn([ClockJump(by=by)])
        self.catch_up()

    def catch_up(self) -> None:
        """As many turns as it takes until nothing is due."""
        while (due := self.scheduler.next_due()) is not None and due <= self.now:
            self.step(Tick())

    def ledger_of(self, schedule_id: ScheduleId) -> list[Occurrence]:
        """Its records, the oldest first."""
        found = [o for o in self.ledger.occurrences.values() if o.schedule_id == schedule_id]
        return sorted(found, key=lambda one: one.nominal)

    def words(self, schedule_id: ScheduleId) -> list[str]:
        """What became of its instants, each in a word."""
        return [str(one.skip_reason or one.decision) for one in self.ledger_of(schedule_id)]

    def jobs_of(self, schedule_id: ScheduleId) -> list[JobId]:
        """The jobs it made, the oldest instant first."""
        return [one.job_id for one in self.ledger_of(schedule_id) if one.job_id is not None]

    def course(self, schedule_id: ScheduleId) -> Any:
        return self.ledger.schedules[schedule_id].state
