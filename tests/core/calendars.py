"""Which instants a cron expression means, found the slow and obvious way: minute by minute.

Independent of the program: it reads the fields itself, asks zoneinfo for every single minute, and
knows nothing of stretches or changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo

from rota.core.schedule_model import Gap, RepeatedTime, Timetable
from rota.core.schedules.recurrence import Recurrence
from rota.engine.time_zones import load_zone

MINUTE = timedelta(minutes=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ways(cron: str, zone: str, **given: object) -> Recurrence:
    """A timetable, ready to be asked."""
    found = load_zone(zone)
    assert found is not None, f"there is no {zone}"
    table = Timetable(cron=cron, timezone=zone, **given)  # type: ignore[arg-type]
    return Recurrence(table, found, {}, 0)


def instant(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def moment(at: int) -> datetime:
    return EPOCH + timedelta(milliseconds=at)


def short(at: int) -> str:
    """`2026-03-08 07:00`, in UTC."""
    return f"{moment(at):%Y-%m-%d %H:%M}"


def first(cron: str, zone: str, after: str, count: int, **given: object) -> list[str]:
    """The first instants after a time of UTC, as texts."""
    asked, found = ways(cron, zone, **given), []
    at: int | None = instant(datetime.fromisoformat(after).replace(tzinfo=UTC))
    while len(found) < count:
        assert at is not None
        at = asked.next_after(at)
        if at is None:
            break
        found.append(short(at))
    return found


class Fields:
    """Five fields of plain numbers: `*`, `*/n`, lists."""

    def __init__(self, cron: str) -> None:
        self.minute, self.hour, self.day, self.month, self.weekday = cron.split()

    def fits(self, shown: datetime) -> bool:
        day, weekday = shown.day, shown.isoweekday() % 7
        by_day, by_weekday = _in(self.day, day, 1), _in(self.weekday, weekday, 0)
        either = not self.day.startswith("*") and not self.weekday.startswith("*")
        return (
            _in(self.minute, shown.minute, 0)
            and _in(self.hour, shown.hour, 0)
            and _in(self.month, shown.month, 1)
            and (by_day or by_weekday if either else by_day and by_weekday)
        )


def _in(field: str, number: int, low: int) -> bool:
    for part in field.split(","):
        if part == "*" or part == str(number):
            return True
        if part.startswith("*/") and (number - low) % int(part[2:]) == 0:
            return True
    return False


def walk(
    cron: str, zone: tzinfo, span: tuple[datetime, datetime], rules: tuple[Gap, RepeatedTime]
) -> list[int]:
    """All instants of [start, end), which must be whole minutes of UTC."""
    start, end = span
    fields = Fields(cron)
    if fields.hour.startswith("*"):
        found = (u for u in _minutes(start, end) if fields.fits(u.astimezone(zone)))
        return [instant(u) for u in found]
    gap, fold = rules
    margin = timedelta(hours=30)
    meant: dict[datetime, None] = {}
    first_shown = (start - margin).replace(tzinfo=None)
    for shown in _minutes(first_shown, (end + margin).replace(tzinfo=None)):
        if fields.fits(shown):
            meant |= dict.fromkeys(_meant(shown, zone, gap, fold))
    return sorted(instant(u) for u in meant if start <= u < end)


def _minutes(start: datetime, end: datetime) -> Iterator[datetime]:
    while start < end:
        yield start
        start += MINUTE


def _meant(shown: datetime, zone: tzinfo, gap: Gap, fold: RepeatedTime) -> list[datetime]:
    """The instants at which the wall clock is to be taken for showing this."""
    one = shown.replace(tzinfo=zone, fold=0).astimezone(UTC)
    two = shown.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if one == two:
        return [one]
    if one.astimezone(zone).replace(tzinfo=None, fold=0) == shown:
        return {
            RepeatedTime.FIRST: [one],
            RepeatedTime.SECOND: [two],
            RepeatedTime.BOTH: [one, two],
        }[fold]
    if gap is Gap.SKIP:
        return []
    return [one] if gap is Gap.SHIFT else [_edge(two, zone)]


def _edge(before: datetime, zone: tzinfo) -> datetime:
    """The first minute after `before` with another offset."""
    offset = before.astimezone(zone).utcoffset()
    while before.astimezone(zone).utcoffset() == offset:
        before += MINUTE
    return before
