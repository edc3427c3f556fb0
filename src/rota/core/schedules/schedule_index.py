"""Index of all schedules in memory: by id and name, their live jobs, what is due, calendars.

As in `state.py`, every change to a record is noted in the changeset of this turn.
"""

from __future__ import annotations

from msgspec.structs import replace

from rota.core.changeset import Changeset
from rota.core.errors import Invalid, NotFound
from rota.core.model import Instant, JobId, Millis, Origin, ScheduleId
from rota.core.schedule_model import (
    Calendar,
    Occurrence,
    Schedule,
    ScheduleDefinition,
    ScheduleState,
)
from rota.core.schedules.recurrence import Holidays, Recurrence, holidays_of
from rota.core.time_zones import Zone, ZoneLookup
from rota.core.timers import TimerKind, Timers


class ScheduleEntry:
    """A schedule, and when it is due next."""

    __slots__ = ("due_at", "next_at", "recurrence", "schedule")

    def __init__(self, schedule: Schedule, ways: Recurrence | None) -> None:
        self.schedule = schedule
        self.recurrence = ways
        """None: its time zone is not known here, so it waits for a program that knows it."""
        self.next_at: Instant | None = None
        """The first nominal instant that is not decided yet."""
        self.due_at: Instant | None = None
        """The same with its jitter; timers set for another time are void."""


class ScheduleIndex:
    """Whatever is to happen again and again."""

    def __init__(self, atlas: ZoneLookup, timers: Timers) -> None:
        self.changeset = Changeset()
        self.entries: dict[ScheduleId, ScheduleEntry] = {}
        """In order of creation."""
        self.live_jobs: dict[ScheduleId, dict[JobId, None]] = {}
        """Live jobs of each schedule that has any."""
        self.due: dict[ScheduleId, Instant] = {}
        """Those whose time has come, in the order in which they take turns."""
        self.ended_origins: list[Origin] = []
        """Runs that ended in this turn."""
        self.schedule_backfills: dict[ScheduleId, Instant] = {}
        """When each was last backfilled: what was read of its ledger before that is stale."""
        self.calendars: dict[str, Calendar] = {}
        self._holidays: dict[tuple[str, ...], Holidays] = {}
        """Merged once for all schedules that name the same calendars."""
        self._names: dict[tuple[str, str], ScheduleId] = {}
        self._atlas = atlas
        self._timers = timers

    # Looking up

    def entry(self, schedule_id: ScheduleId) -> ScheduleEntry:
        """The schedule, or the refusal."""
        cell = self.entries.get(schedule_id)
        if cell is None:
            raise NotFound("schedule", schedule_id)
        return cell

    def by_name(self, tenant: str, name: str) -> ScheduleEntry | None:
        """The schedule of that name."""
        schedule_id = self._names.get((tenant, name))
        return None if schedule_id is None else self.entries[schedule_id]

    def zone(self, name: str) -> Zone | None:
        """The zone of that name, if there is one."""
        return self._atlas(name)

    def recurrence(self, plan: ScheduleDefinition, anchor: Instant) -> Recurrence | None:
        """The plan's timetable, ready to be asked; None: nobody here knows its time zone."""
        table = plan.timetable
        zone = self.zone(table.timezone)
        return (
            None
            if zone is None
            else Recurrence(table, zone, self.holidays(table.calendars), anchor)
        )

    def holidays(self, names: tuple[str, ...]) -> Holidays:
        """The dates that these calendars list."""
        found = self._holidays.get(names)
        if found is None:
            listed = [self.calendars[name] for name in names if name in self.calendars]
            found = self._holidays[names] = holidays_of((one.name, one.days) for one in listed)
        return found

    def live_jobs_of(self, schedule_id: ScheduleId) -> dict[JobId, None]:
        """Its live jobs, the oldest first."""
        return self.live_jobs.get(schedule_id, {})

    # Schedules come, change and go

    def put(self, schedule: Schedule) -> ScheduleEntry:
        """A schedule as given: new, or in place of the one with its id. Written as a whole."""
        before = self.entries.get(schedule.id)
        if before is not None:
            self._names.pop(_name(before.schedule), None)
        schedule = replace(schedule, state=self._with_offset(schedule.definition, schedule.state))
        cell = self.restore(schedule)
        self.changeset.schedules[schedule.id] = schedule
        self.changeset.schedule_states.pop(schedule.id, None)
        self.changeset.dropped_schedules.pop(schedule.id, None)
        return cell

    def restore(self, schedule: Schedule) -> ScheduleEntry:
        """The same, without writing: it was loaded."""
        cell = self.entries.get(schedule.id)
        if cell is None:
            cell = self.entries[schedule.id] = ScheduleEntry(schedule, None)
        cell.schedule = schedule
        cell.recurrence = self.recurrence(schedule.definition, anchor_of(schedule))
        self._names[_name(schedule)] = schedule.id
        self.set_timer(cell)
        return cell

    def set_state(self, cell: ScheduleEntry, course: ScheduleState) -> None:
        """The schedule has come this far."""
        before = cell.schedule
        assert course.watermark >= before.state.watermark, "a watermark went back"
        if course.watermark > before.state.watermark:
            course = self._with_offset(before.definition, course)
        cell.schedule = replace(before, state=course)
        if course.anchor != before.state.anchor:
            cell.recurrence = self.recurrence(before.definition, anchor_of(cell.schedule))
        if before.id in self.changeset.schedules:
            self.changeset.schedules[before.id] = cell.schedule
        else:
            self.changeset.schedule_states[before.id] = course

    def _with_offset(self, plan: ScheduleDefinition, course: ScheduleState) -> ScheduleState:
        """With the offset that its watermark is to be read by."""
        zone = self.zone(plan.timetable.timezone)
        if zone is None:
            return course
        return replace(course, offset_s=zone.offset(course.watermark // 1000))

    def find_next(self, cell: ScheduleEntry) -> None:
        """Finds out when it is due next."""
        schedule, ways, course = cell.schedule, cell.recurrence, cell.schedule.state
        cell.next_at = cell.due_at = None
        if ways is None or course.awaits_finish:
            return
        cell.next_at = ways.next_after(ways.resume_from(course.watermark, course.offset_s))
        if cell.next_at is not None:
            cell.due_at = cell.next_at + ways.jitter(schedule.id, cell.next_at)

    def set_timer(self, cell: ScheduleEntry) -> None:
        """The same, and has itself woken then."""
        self.find_next(cell)
        if cell.due_at is not None:
            self._timers.set(cell.due_at, TimerKind.SCHEDULE, cell.schedule.id)

    def drop(self, cell: ScheduleEntry) -> None:
        """The schedule is gone; its runs go on."""
        schedule_id = cell.schedule.id
        del self.entries[schedule_id]
        del self._names[_name(cell.schedule)]
        self.live_jobs.pop(schedule_id, None)
        self.due.pop(schedule_id, None)
        self.schedule_backfills.pop(schedule_id, None)
        self.changeset.schedules.pop(schedule_id, None)
        self.changeset.schedule_states.pop(schedule_id, None)
        self.changeset.dropped_schedules[schedule_id] = None

    # Runs

    def job_begins(self, origin: Origin, job_id: JobId) -> None:
        """A job of a schedule is live: new, started over, or loaded."""
        if origin.schedule_id in self.entries:
            self.live_jobs.setdefault(origin.schedule_id, {})[job_id] = None

    def job_ended(self, origin: Origin, job_id: JobId) -> None:
        """It has ended."""
        runs = self.live_jobs.get(origin.schedule_id)
        if runs is not None:
            runs.pop(job_id, None)
            if not runs:
                del self.live_jobs[origin.schedule_id]
        self.ended_origins.append(origin)

    def record(self, occurrence: Occurrence) -> None:
        """What became of an instant."""
        self.changeset.occurrences[(occurrence.schedule_id, occurrence.nominal)] = occurrence

    def follow_clock(self, by: Millis) -> None:
        """The clock was set by so much. Timetables mean the clock as it is; only this does not."""
        self.schedule_backfills = {
            schedule_id: at + by for schedule_id, at in self.schedule_backfills.items()
        }

    # Calendars

    def put_calendar(self, calendar: Calendar) -> None:
        """The calendar is as given; schedules that name it look again."""
        self.calendars[calendar.name] = calendar
        self._holidays.clear()
        self.changeset.calendars[calendar.name] = calendar
        for cell in self.schedules_using(calendar.name):
            cell.recurrence = self.recurrence(cell.schedule.definition, anchor_of(cell.schedule))
            self.set_timer(cell)

    def drop_calendar(self, name: str) -> None:
        """The calendar is gone; nobody names it."""
        del self.calendars[name]
        self._holidays.clear()
        self.changeset.calendars[name] = None

    def schedules_using(self, name: str) -> list[ScheduleEntry]:
        """Schedules that name a calendar. Costs their number; it is rare."""
        return [
            c for c in self.entries.values() if name in c.schedule.definition.timetable.calendars
        ]

    def check_definition(self, plan: ScheduleDefinition, anchor: Instant) -> Recurrence:
        """The plan's timetable; refuses names that nobody knows."""
        table = plan.timetable
        for name in table.calendars:
            if name not in self.calendars:
                hint = f"make it first (PUT /calendars/{name}, or rota calendars set {name})"
                raise Invalid(f"there is no calendar {name!r}: {hint}", "calendars")
        ways = self.recurrence(plan, anchor)
        if ways is None:
            raise Invalid(
                f"there is no time zone {table.timezone!r}: write it like Europe/Berlin", "timezone"
            )
        return ways


def anchor_of(schedule: Schedule) -> Instant:
    """What its intervals count from; where they count from a finish, the next run itself."""
    table, course = schedule.definition.timetable, schedule.state
    if course.anchor is not None:
        return course.anchor
    return schedule.created_at if table.starts_at is None else table.starts_at


def _name(schedule: Schedule) -> tuple[str, str]:
    return (schedule.definition.job.terms.tenant, schedule.definition.name)
