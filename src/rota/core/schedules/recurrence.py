"""Recurrence of a schedule: the instants that its timetable stands for, and a preview of them.

Between two changes of a zone's offset, local and real time run alike, so the instants of a cron
expression are found in one such period after the other. A change of the clock:

- skips local times: those of the expression run at the change, as much later as the clock moved, or
  not at all;
- repeats local times: those run the first time, the second time, or both.

With a wildcard hour all that the wall clock shows counts, so every real hour is there once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from rota.core.errors import Invalid
from rota.core.ids import fraction
from rota.core.limits import INTERVAL_MS_MIN, JITTER_MS_MAX
from rota.core.model import Instant, Millis
from rota.core.schedule_model import Gap, OnHoliday, RepeatedTime, Timetable
from rota.core.schedules.cron import DAY_S, EPOCH_DAY, Cron, CronError, parse_cron
from rota.core.time_zones import (
    YEAR_MAX,
    YEAR_MIN,
    OffsetChange,
    OffsetPeriod,
    Zone,
    local_text,
    year_bounds,
    year_of,
)

Holidays = Mapping[int, str]
"""Holidays by `date.toordinal`, each with the calendar that lists it."""


class Recurrence:
    """Recurrence of a timetable in its zone: finds instants."""

    __slots__ = ("_anchor", "_cron", "_fold", "_gap", "_holidays", "timetable", "zone")

    def __init__(
        self, timetable: Timetable, zone: Zone, holidays: Holidays, anchor: Instant
    ) -> None:
        self.timetable = timetable
        self.zone = zone
        self._holidays = holidays
        self._anchor = anchor
        self._cron: Cron | None = None
        self._gap, self._fold = timetable.gap, timetable.fold
        if timetable.cron:
            self._cron = parse_cron(timetable.cron)
            if self._cron.follows_real_time:
                self._gap, self._fold = Gap.SKIP, RepeatedTime.BOTH

    def next_after(self, after: Instant) -> Instant | None:
        """The first instant later than this one; None: there are no more."""
        table = self.timetable
        if table.starts_at is not None:
            after = max(after, table.starts_at - 1)
        if self._cron is not None:
            second = self._next_second(self._cron, after // 1000)
            found = None if second is None else second * 1000
        elif table.interval_ms is not None:
            found = self._next_interval(table.interval_ms, after)
        else:
            found = table.at if table.at is not None and table.at > after else None
        if found is not None and table.ends_at is not None and found > table.ends_at:
            return None
        return found

    def resume_from(self, decided: Instant, offset_s: int) -> Instant:
        """Where to continue after an instant that was decided with this offset from UTC.

        New rules of a zone may give an instant a later local time than the one it was decided for;
        that local time must not come again.
        """
        if self._cron is None or self._cron.follows_real_time:
            return decided
        return decided + max(0, offset_s - self.zone.offset(decided // 1000)) * 1000

    def between(self, start: Instant, end: Instant) -> Iterator[Instant]:
        """All instants from `start` to `end`, both included."""
        at = self.next_after(start - 1)
        while at is not None and at <= end:
            yield at
            at = self.next_after(at)

    def holiday(self, at: Instant) -> str | None:
        """The calendar that lists the date of this instant, if it is to be skipped."""
        if not self._holidays or self.timetable.on_holiday is not OnHoliday.SKIP:
            return None
        return self._holidays.get(self.zone.local(at // 1000) // DAY_S + EPOCH_DAY)

    def jitter(self, schedule_id: str, at: Instant) -> Millis:
        """Delay of this instant: a hash of schedule and instant, so it is always the same."""
        if not self.timetable.jitter_ms:
            return 0
        return int(self.timetable.jitter_ms * fraction(schedule_id, at))

    def _next_interval(self, interval: Millis, after: Instant) -> Instant | None:
        if self.timetable.from_finish:
            return self._anchor if self._anchor > after else None
        steps = max(0, (after - self._anchor) // interval + 1)
        found = self._anchor + steps * interval
        return found if found < year_bounds(YEAR_MAX)[1] * 1000 else None

    def _next_second(self, cron: Cron, after: int) -> int | None:
        start = max(after + 1, year_bounds(YEAR_MIN + 1)[0])
        if start >= year_bounds(YEAR_MAX)[1]:
            return None
        for year in range(year_of(start), YEAR_MAX + 1):
            first, end = year_bounds(year)
            for period in self.zone.periods(year):
                low, high = max(start, first, period.start), min(end, period.end)
                found = self._first_in(cron, period, low, high) if low < high else None
                if found is not None:
                    return found
        return None

    def _first_in(self, cron: Cron, period: OffsetPeriod, low: int, high: int) -> int | None:
        """The first instant of [low, high), which lies within the period."""
        offset = period.offset
        if period.before > offset and self._fold is RepeatedTime.FIRST:
            # The clock was set back: local times until then were shown before.
            low_shown = max(low + offset, period.start + period.before)
        else:
            low_shown = low + offset
        high_shown = high + offset
        if period.after < offset and self._fold is RepeatedTime.SECOND:
            high_shown = min(high_shown, period.end + period.after)
        shown = self._next_local(cron, low_shown)
        plain = None if shown is None or shown >= high_shown else shown - offset
        left_out = self._left_out(cron, period, low, high)
        if plain is None or (left_out is not None and left_out < plain):
            return left_out
        return plain

    def _left_out(self, cron: Cron, period: OffsetPeriod, low: int, high: int) -> int | None:
        """The first instant in place of a local time that the change before the period skipped."""
        if period.before >= period.offset or self._gap is Gap.SKIP:
            return None
        first, end = period.start + period.before, period.start + period.offset
        if self._gap is Gap.SHIFT:
            first = max(first, low + period.before)
        elif low > period.start:
            return None
        shown = self._next_local(cron, first)
        if shown is None or shown >= end:
            return None
        found = period.start if self._gap is Gap.JUMP else shown - period.before
        return found if found < high else None

    def _next_local(self, cron: Cron, shown: int) -> int | None:
        if self._holidays and self.timetable.on_holiday is OnHoliday.SHIFT:
            return cron.next_local(shown, lambda day: self._next_working_day(cron, day))
        return cron.next_local(shown, cron.next_day)

    def _next_working_day(self, cron: Cron, ordinal: int) -> int | None:
        """Like `Cron.next_day`, but days that are holidays move to the day after them."""
        first = self._past_holidays(ordinal)
        before = first - 1
        while before in self._holidays:
            if cron.fits_day(before):
                return first
            before -= 1
        day = cron.next_day(first)
        return None if day is None else self._past_holidays(day)

    def _past_holidays(self, ordinal: int) -> int:
        while ordinal in self._holidays:
            ordinal += 1
        return ordinal


def check_timetable(table: Timetable) -> None:
    """Refuses what is wrong in any zone; `field` of the refusal names the place."""
    if [bool(table.cron), table.interval_ms is not None, table.at is not None].count(True) != 1:
        raise Invalid("give exactly one of cron, interval and at", "cron")
    if table.cron:
        try:
            parse_cron(table.cron)
        except CronError as error:
            raise Invalid(str(error), "cron") from None
    _check_interval(table)
    starts, ends = table.starts_at, table.ends_at
    if starts is not None and ends is not None and ends < starts:
        raise Invalid("ends_at must not be before starts_at", "ends_at")
    if table.calendars and not table.cron and table.on_holiday is OnHoliday.SHIFT:
        raise Invalid("on_holiday shift needs a cron expression; use skip", "on_holiday")


def _check_interval(table: Timetable) -> None:
    interval = table.interval_ms
    if interval is not None and interval < INTERVAL_MS_MIN:
        raise Invalid(f"an interval is at least {INTERVAL_MS_MIN // 1000} s", "interval")
    if table.from_finish and interval is None:
        raise Invalid("only an interval can count from the finish of a run", "from")
    if table.jitter_ms > JITTER_MS_MAX:
        raise Invalid(f"jitter is at most {JITTER_MS_MAX // 3_600_000} h", "jitter")
    if interval is not None and table.jitter_ms >= interval:
        raise Invalid("jitter must be less than the interval", "jitter")


def holidays_of(calendars: Iterable[tuple[str, Iterable[int]]]) -> Holidays:
    return {day: name for name, days in calendars for day in days}


class PreviewedInstant(msgspec.Struct, frozen=True):
    """Instant to come, as shown in a preview."""

    at: Instant
    local: str
    note: str = ""


def preview(recurrence: Recurrence, after: Instant, count: int) -> list[PreviewedInstant]:
    """The next `count` instants, with notes on clock changes and calendars."""
    found: list[PreviewedInstant] = []
    before, at = after, recurrence.next_after(after)
    while at is not None and len(found) < count:
        found.append(
            PreviewedInstant(at, local_text(recurrence.zone, at), _note(recurrence, before, at))
        )
        before, at = at, recurrence.next_after(at)
    return found


def _note(recurrence: Recurrence, before: Instant, at: Instant) -> str:
    listed = recurrence.holiday(at)
    if listed is not None:
        return f"skipped: a holiday of {listed}"
    if not recurrence.timetable.cron:
        return ""
    second = at // 1000
    changes = recurrence.zone.changes_between(before // 1000, second)
    if changes:
        return _note_of_change(changes[-1], second)
    around = recurrence.zone.changes_between(second, second + 24 * 3600)
    if around and around[0].after < around[0].before:
        change = around[0]
        if second >= change.at - (change.before - change.after):
            return "clock moves back: this local time occurs twice, and this is the first"
    return ""


def _note_of_change(change: OffsetChange, second: int) -> str:
    moved = abs(change.after - change.before)
    by = f"{moved // 60} min" if moved % 3600 else f"{moved // 3600} h"
    if change.after > change.before:
        if second == change.at:
            return f"clock moved forward {by}: local times just before this do not exist"
        return f"clock moved forward {by} since the instant before"
    if second < change.at + moved:
        return f"clock moved back {by}: this local time occurs twice, and this is the second"
    return f"clock moved back {by} since the instant before"
