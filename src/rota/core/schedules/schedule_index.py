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
    """Entry of a schedule, with when it is due next."""

    __slots__ = ("due_at", "next_at", "recurrence", "schedule")

    def __init__(self, schedule: Schedule, recurrence: Recurrence | None) -> None:
        self.schedule = schedule
        self.recurrence = recurrence
        """None: this server does not know the time zone; the schedule waits for one that does."""
        self.next_at: Instant | None = None
        """The first nominal instant that is not decided yet."""
        self.due_at: Instant | None = None
        """`next_at` with its jitter; a timer set for another time is ignored."""


class ScheduleIndex:
    """Index of schedules, their live jobs and calendars."""

    def __init__(self, zones: ZoneLookup, timers: Timers) -> None:
        self.changeset = Changeset()
        self.entries: dict[ScheduleId, ScheduleEntry] = {}
        """In order of creation."""
        self.live_jobs: dict[ScheduleId, dict[JobId, None]] = {}
        """Live jobs of each schedule that has any."""
        self.due: dict[ScheduleId, Instant] = {}
        """Schedules that are due, in the order in which they take turns."""
        self.ended_origins: list[Origin] = []
        """Origins of jobs that ended in this turn."""
        self.schedule_backfills: dict[ScheduleId, Instant] = {}
        """Time of each schedule's last schedule_backfill: occurrences read before are stale."""
        self.calendars: dict[str, Calendar] = {}
        self._holidays: dict[tuple[str, ...], Holidays] = {}
        """Merged once for all schedules that name the same calendars."""
        self._names: dict[tuple[str, str], ScheduleId] = {}
        self._zones = zones
        self._timers = timers

    # Lookups

    def entry(self, schedule_id: ScheduleId) -> ScheduleEntry:
        """The schedule; raises NotFound."""
        entry = self.entries.get(schedule_id)
        if entry is None:
            raise NotFound("schedule", schedule_id)
        return entry

    def by_name(self, tenant: str, name: str) -> ScheduleEntry | None:
        schedule_id = self._names.get((tenant, name))
        return None if schedule_id is None else self.entries[schedule_id]

    def zone(self, name: str) -> Zone | None:
        return self._zones(name)

    def recurrence(self, definition: ScheduleDefinition, anchor: Instant) -> Recurrence | None:
        """Recurrence of the definition; None: this server does not know its time zone."""
        table = definition.timetable
        zone = self.zone(table.timezone)
        return (
            None
            if zone is None
            else Recurrence(table, zone, self.holidays(table.calendars), anchor)
        )

    def holidays(self, names: tuple[str, ...]) -> Holidays:
        """Dates that these calendars list."""
        found = self._holidays.get(names)
        if found is None:
            listed = [self.calendars[name] for name in names if name in self.calendars]
            found = self._holidays[names] = holidays_of((one.name, one.days) for one in listed)
        return found

    def live_jobs_of(self, schedule_id: ScheduleId) -> dict[JobId, None]:
        """Live jobs of the schedule, the oldest first."""
        return self.live_jobs.get(schedule_id, {})

    # Schedules

    def put(self, schedule: Schedule) -> ScheduleEntry:
        """Adds or replaces a schedule, and writes it as a whole."""
        before = self.entries.get(schedule.id)
        if before is not None:
            self._names.pop(_name(before.schedule), None)
        schedule = replace(schedule, state=self._with_offset(schedule.definition, schedule.state))
        entry = self.restore(schedule)
        self.changeset.schedules[schedule.id] = schedule
        self.changeset.schedule_states.pop(schedule.id, None)
        self.changeset.dropped_schedules.pop(schedule.id, None)
        return entry

    def restore(self, schedule: Schedule) -> ScheduleEntry:
        """Adds or replaces a schedule that was loaded, without writing it."""
        entry = self.entries.get(schedule.id)
        if entry is None:
            entry = self.entries[schedule.id] = ScheduleEntry(schedule, None)
        entry.schedule = schedule
        entry.recurrence = self.recurrence(schedule.definition, anchor_of(schedule))
        self._names[_name(schedule)] = schedule.id
        self.set_timer(entry)
        return entry

    def set_state(self, entry: ScheduleEntry, state: ScheduleState) -> None:
        """Sets how far the schedule has come, and writes that."""
        before = entry.schedule
        assert state.watermark >= before.state.watermark, "a watermark never goes back"
        if state.watermark > before.state.watermark:
            state = self._with_offset(before.definition, state)
        entry.schedule = replace(before, state=state)
        if state.anchor != before.state.anchor:
            entry.recurrence = self.recurrence(before.definition, anchor_of(entry.schedule))
        if before.id in self.changeset.schedules:
            self.changeset.schedules[before.id] = entry.schedule
        else:
            self.changeset.schedule_states[before.id] = state

    def _with_offset(self, definition: ScheduleDefinition, state: ScheduleState) -> ScheduleState:
        """Adds the zone's offset at the watermark, which `resume_from` needs."""
        zone = self.zone(definition.timetable.timezone)
        if zone is None:
            return state
        return replace(state, offset_s=zone.offset(state.watermark // 1000))

    def find_next(self, entry: ScheduleEntry) -> None:
        """Computes when the schedule is due next."""
        schedule, recurrence, state = entry.schedule, entry.recurrence, entry.schedule.state
        entry.next_at = entry.due_at = None
        if recurrence is None or state.awaits_finish:
            return
        entry.next_at = recurrence.next_after(
            recurrence.resume_from(state.watermark, state.offset_s)
        )
        if entry.next_at is not None:
            entry.due_at = entry.next_at + recurrence.jitter(schedule.id, entry.next_at)

    def set_timer(self, entry: ScheduleEntry) -> None:
        """Computes when the schedule is due next, and sets its timer."""
        self.find_next(entry)
        if entry.due_at is not None:
            self._timers.set(entry.due_at, TimerKind.SCHEDULE, entry.schedule.id)

    def drop(self, entry: ScheduleEntry) -> None:
        """Removes the schedule; its live jobs go on."""
        schedule_id = entry.schedule.id
        del self.entries[schedule_id]
        del self._names[_name(entry.schedule)]
        self.live_jobs.pop(schedule_id, None)
        self.due.pop(schedule_id, None)
        self.schedule_backfills.pop(schedule_id, None)
        self.changeset.schedules.pop(schedule_id, None)
        self.changeset.schedule_states.pop(schedule_id, None)
        self.changeset.dropped_schedules[schedule_id] = None

    # Live jobs

    def job_begins(self, origin: Origin, job_id: JobId) -> None:
        """Notes a live job of a schedule: new, retried, or loaded."""
        if origin.schedule_id in self.entries:
            self.live_jobs.setdefault(origin.schedule_id, {})[job_id] = None

    def job_ended(self, origin: Origin, job_id: JobId) -> None:
        runs = self.live_jobs.get(origin.schedule_id)
        if runs is not None:
            runs.pop(job_id, None)
            if not runs:
                del self.live_jobs[origin.schedule_id]
        self.ended_origins.append(origin)

    def record(self, occurrence: Occurrence) -> None:
        self.changeset.occurrences[(occurrence.schedule_id, occurrence.nominal)] = occurrence

    def follow_clock(self, by: Millis) -> None:
        """Shifts times after the clock was set by `by` ms; timetables follow the clock as it is."""
        self.schedule_backfills = {
            schedule_id: at + by for schedule_id, at in self.schedule_backfills.items()
        }

    # Calendars

    def put_calendar(self, calendar: Calendar) -> None:
        """Sets a calendar; schedules that name it are computed again."""
        self.calendars[calendar.name] = calendar
        self._holidays.clear()
        self.changeset.calendars[calendar.name] = calendar
        for entry in self.schedules_using(calendar.name):
            entry.recurrence = self.recurrence(entry.schedule.definition, anchor_of(entry.schedule))
            self.set_timer(entry)

    def drop_calendar(self, name: str) -> None:
        """Removes a calendar that no schedule names."""
        del self.calendars[name]
        self._holidays.clear()
        self.changeset.calendars[name] = None

    def schedules_using(self, name: str) -> list[ScheduleEntry]:
        """Schedules that name a calendar, by a scan of all; it is rare."""
        return [
            c for c in self.entries.values() if name in c.schedule.definition.timetable.calendars
        ]

    def check_definition(self, definition: ScheduleDefinition, anchor: Instant) -> Recurrence:
        """Recurrence of the definition; refuses unknown calendars and time zones."""
        table = definition.timetable
        for name in table.calendars:
            if name not in self.calendars:
                hint = f"make it first (PUT /calendars/{name}, or rota calendars set {name})"
                raise Invalid(f"there is no calendar {name!r}: {hint}", "calendars")
        recurrence = self.recurrence(definition, anchor)
        if recurrence is None:
            raise Invalid(
                f"there is no time zone {table.timezone!r}: write it like Europe/Berlin", "timezone"
            )
        return recurrence


def anchor_of(schedule: Schedule) -> Instant:
    """Instant that intervals count from; with `from: finish`, the next run itself."""
    table, state = schedule.definition.timetable, schedule.state
    if state.anchor is not None:
        return state.anchor
    return schedule.created_at if table.starts_at is None else table.starts_at


def _name(schedule: Schedule) -> tuple[str, str]:
    return (schedule.definition.job.terms.tenant, schedule.definition.name)
