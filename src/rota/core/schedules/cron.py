"""Cron expressions: parses them and finds the next local time that fits; knows no time zones.

Local time is a number here: seconds since 1970-01-01T00:00 on the wall clock of some place.
`recurrence.py` maps it to instants and handles changes of that clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from datetime import date
from functools import lru_cache

import msgspec

from rota.core.limits import CRON_CHARS_MAX, CRON_POOL_MAX, CRON_YEARS_AHEAD

DAY_S = 86_400
EPOCH_DAY = date(1970, 1, 1).toordinal()

NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
_DAYS_IN_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class CronError(ValueError):
    """Invalid cron expression; the text names the part and what would be right."""


class _Field(msgspec.Struct, frozen=True):
    """Field of an expression, with its range and names."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    """Names of `low`, `low + 1`, …"""


_SECOND = _Field("second", 0, 59)
_MINUTE = _Field("minute", 0, 59)
_HOUR = _Field("hour", 0, 23)
_DAY = _Field("day of month", 1, 31)
_MONTH = _Field("month", 1, 12, tuple(_MONTHS))
_WEEKDAY = _Field("day of week", 0, 7, tuple(_WEEKDAYS))


class Cron(msgspec.Struct, frozen=True, gc=False):
    """Cron expression, parsed."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: int
    """Bit n: day n of the month."""
    last_day: bool
    months: int
    weekdays: int
    either: bool
    """Both kinds of day were restricted: one of them is enough, as in cron."""
    follows_real_time: bool
    """The hour is a wildcard: every real hour counts, whatever the wall clock is set to."""

    def fits_day(self, ordinal: int) -> bool:
        """Whether the expression allows this date."""
        day = date.fromordinal(ordinal)
        if not self.months >> day.month & 1:
            return False
        of_month = bool(self.days >> day.day & 1) or (self.last_day and _is_last(day))
        of_week = bool(self.weekdays >> ordinal % 7 & 1)
        return of_month or of_week if self.either else of_month and of_week

    def next_day(self, ordinal: int) -> int | None:
        """The first allowed date from this one on; None: there is none for decades."""
        last_year = min(date.fromordinal(ordinal).year + CRON_YEARS_AHEAD, date.max.year - 1)
        end = date(last_year, 12, 31).toordinal()
        while ordinal <= end:
            day = date.fromordinal(ordinal)
            if not self.months >> day.month & 1:
                ordinal = _first_of_next_month(day)
            elif self.fits_day(ordinal):
                return ordinal
            else:
                ordinal += 1
        return None

    def next_local(self, local: int, next_day: Callable[[int], int | None]) -> int | None:
        """The first local time from `local` on that fits, on a day that `next_day` allows."""
        today, second = local // DAY_S + EPOCH_DAY, local % DAY_S
        day = next_day(today)
        if day == today:
            found = self._next_second(second)
            if found is not None:
                return (day - EPOCH_DAY) * DAY_S + found
            day = next_day(today + 1)
        if day is None:
            return None
        first = self.hours[0] * 3600 + self.minutes[0] * 60 + self.seconds[0]
        return (day - EPOCH_DAY) * DAY_S + first

    def _next_second(self, second: int) -> int | None:
        """The first second of the day from `second` on that fits."""
        hour, minute = second // 3600, second // 60 % 60
        place = bisect_left(self.hours, hour)
        if place < len(self.hours) and self.hours[place] == hour:
            found = self._next_in_hour(minute, second % 60)
            if found is not None:
                return hour * 3600 + found
            place += 1
        if place == len(self.hours):
            return None
        return self.hours[place] * 3600 + self.minutes[0] * 60 + self.seconds[0]

    def _next_in_hour(self, minute: int, second: int) -> int | None:
        place = bisect_left(self.minutes, minute)
        if place < len(self.minutes) and self.minutes[place] == minute:
            after = bisect_left(self.seconds, second)
            if after < len(self.seconds):
                return minute * 60 + self.seconds[after]
            place += 1
        if place == len(self.minutes):
            return None
        return self.minutes[place] * 60 + self.seconds[0]


@lru_cache(maxsize=CRON_POOL_MAX)
def parse_cron(text: str) -> Cron:
    """Parses an expression; raises CronError with what is wrong and what would be right."""
    if len(text) > CRON_CHARS_MAX:
        raise CronError(f"longer than {CRON_CHARS_MAX} characters")
    places = _split_fields(text)
    second, minute, hour, day, month, weekday = places
    # `L` is the only word that is not a name for a number.
    days = [part for part in day.split(",") if part.upper() != "L"]
    wanted_days = _numbers(_DAY, ",".join(days)) if days else ()
    weekdays = _numbers(_WEEKDAY, weekday)
    cron = Cron(
        seconds=_numbers(_SECOND, second),
        minutes=_numbers(_MINUTE, minute),
        hours=_numbers(_HOUR, hour),
        days=_bits(wanted_days),
        last_day=len(days) < len(day.split(",")),
        months=_bits(_numbers(_MONTH, month)),
        weekdays=_bits(tuple(number % 7 for number in weekdays)),
        either=not _is_wild(day) and not _is_wild(weekday),
        follows_real_time=_is_wild(hour),
    )
    _refuse_impossible(cron, wanted_days, text)
    return cron


def _split_fields(text: str) -> list[str]:
    word = text.strip().lower()
    if word.startswith("@"):
        if word not in NICKNAMES:
            raise CronError(f"there is no {word!r}; there are {', '.join(NICKNAMES)}")
        return ["0", *NICKNAMES[word].split()]
    places = text.split()
    if len(places) == 5:
        return ["0", *places]
    if len(places) == 6:
        return places
    fields = "field" if len(places) == 1 else "fields"
    raise CronError(
        f"{len(places)} {fields}: write five (minute, hour, day of month, month, day of week),"
        " or six with the seconds first"
    )


def _numbers(field: _Field, text: str) -> tuple[int, ...]:
    found: dict[int, None] = {}
    for part in text.split(","):
        found.update(dict.fromkeys(_part(field, part)))
    return tuple(sorted(found))


def _part(field: _Field, part: str) -> list[int]:
    """Values of one item of a list: `*`, `5`, `1-5`, `FRI-MON`, each perhaps with a step."""
    span, slash, step_text = part.partition("/")
    step = _step(field, part, step_text) if slash else 1
    low, dash, high = span.partition("-")
    if span in ("*", "?"):
        first, last = field.low, min(field.high, 6) if field is _WEEKDAY else field.high
    elif dash:
        first, last = _number(field, low), _number(field, high)
    else:
        first = _number(field, low)
        last = field.high if slash else first
    if first <= last:
        return list(range(first, last + 1, step))
    # `FRI-MON` and `22-2` wrap around the end.
    size = 7 if field is _WEEKDAY else field.high - field.low + 1
    run = range(first, last + size + 1, step)
    return [(number - field.low) % size + field.low for number in run]


def _step(field: _Field, part: str, text: str) -> int:
    if not text.isdecimal() or not text.isascii():
        raise CronError(f"{field.name}: {part!r} has no number after the slash")
    step, size = int(text[:6]), field.high - field.low + 1
    if step == 0:
        raise CronError(f"{field.name}: a step of 0 never gets anywhere; write 1 or more")
    if step >= size and step > 1:
        raise CronError(
            f"{field.name}: a step of {step} is more than the field has"
            f" ({field.low}-{field.high}): use an interval to go further"
        )
    return step


def _number(field: _Field, text: str) -> int:
    if text.upper() in field.names:
        return field.names.index(text.upper()) + field.low
    if not text.isdecimal() or not text.isascii():
        names = f" or {field.names[0]}-{field.names[-1]}" if field.names else ""
        extra = ", or L for the last" if field is _DAY else ""
        raise CronError(
            f"{field.name}: {text!r} is not a number from {field.low} to {field.high}{names}{extra}"
        )
    number = int(text[:6])
    if not field.low <= number <= field.high:
        raise CronError(f"{field.name}: {number} is not from {field.low} to {field.high}")
    return number


def _is_wild(text: str) -> bool:
    return any(part.startswith(("*", "?")) for part in text.split(","))


def _bits(numbers: tuple[int, ...]) -> int:
    return sum(1 << number for number in dict.fromkeys(numbers))


def _refuse_impossible(cron: Cron, days: tuple[int, ...], text: str) -> None:
    if cron.last_day or cron.either:
        return
    months = [month for month in range(1, 13) if cron.months >> month & 1]
    longest = max(_DAYS_IN_MONTH[month - 1] for month in months)
    if min(days) > longest:
        names = ", ".join(_MONTHS[month - 1] for month in months)
        raise CronError(f"{text!r} never comes: {names} has no day {min(days)}")


def _is_last(day: date) -> bool:
    return date.fromordinal(day.toordinal() + 1).month != day.month


def _first_of_next_month(day: date) -> int:
    year, month = divmod(day.year * 12 + day.month, 12)
    return date(year, month + 1, 1).toordinal()
