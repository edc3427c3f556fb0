"""Time zones: periods with one offset from UTC each, and the changes between them (DST).

The rules come from outside, as a `tzinfo`: no zone is read from a disk here. A period knows the
offsets on both sides of it, which is all that is needed to say what a clock change does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from rota.core.model import Instant

YEAR_MIN, YEAR_MAX = 1970, 2200
ZONE_STEP_S = 3 * 24 * 3600
"""How far apart a zone is looked at. Nowhere since 1970 was a clock set twice within six days."""
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  (wall clock time has no zone)


class OffsetChange(NamedTuple):
    """A clock is set: at this second the offset from UTC goes from one to another."""

    at: int
    before: int
    after: int


class OffsetPeriod(NamedTuple):
    """A time during which the offset stays the same; the ends may be those of what was asked."""

    start: int
    end: int
    offset: int
    before: int
    """The offset up to `start`."""
    after: int
    """The offset from `end` on."""


class Zone:
    """The wall clock of a place. Seconds since 1970, UTC or local, go in and come out."""

    def __init__(self, name: str, rules: tzinfo) -> None:
        self.name = name
        self._rules = rules
        self._changes: dict[int, tuple[OffsetChange, ...]] = {}
        self._periods: dict[int, list[OffsetPeriod]] = {}

    def offset(self, at: int) -> int:
        """Seconds to add to UTC."""
        offset = datetime.fromtimestamp(at, self._rules).utcoffset()
        assert offset is not None
        return offset // timedelta(seconds=1)

    def local(self, at: int) -> int:
        """What the wall clock shows."""
        return at + self.offset(at)

    def changes(self, year: int) -> tuple[OffsetChange, ...]:
        """When the clock is set in a year of UTC."""
        found = self._changes.get(year)
        if found is None:
            found = self._changes[year] = tuple(self._find_changes(_start(year), _start(year + 1)))
        return found

    def _find_changes(self, start: int, end: int) -> Iterator[OffsetChange]:
        at, before = start - 1, self.offset(start - 1)
        while at < end - 1:
            reached = min(at + ZONE_STEP_S, end - 1)
            after = self.offset(reached)
            if after != before:
                yield OffsetChange(self._first(at, reached, before), before, after)
            at, before = reached, after

    def _first(self, low: int, high: int, before: int) -> int:
        """The first second after `low` with another offset; `high` has one."""
        while high - low > 1:
            middle = (low + high) // 2
            if self.offset(middle) == before:
                low = middle
            else:
                high = middle
        return high

    def periods(self, year: int) -> list[OffsetPeriod]:
        """Those that reach into a year of UTC, in order, with the changes around them."""
        found = self._periods.get(year)
        if found is None:
            found = self._periods[year] = self._build_periods(year)
        return found

    def _build_periods(self, year: int) -> list[OffsetPeriod]:
        changes = [*self.changes(year - 1), *self.changes(year), *self.changes(year + 1)]
        start, end = _start(year - 1), _start(year + 2)
        offset = self.offset(start)
        edges = [OffsetChange(start, offset, offset), *changes]
        last = edges[-1].after
        edges.append(OffsetChange(end, last, last))
        found = [
            OffsetPeriod(one.at, two.at, one.after, one.before, two.after)
            for one, two in pairwise(edges)
        ]
        return [s for s in found if s.end > _start(year) and s.start < _start(year + 1)]

    def changes_between(self, start: int, end: int) -> list[OffsetChange]:
        """Those after `start`, up to and including `end`."""
        years = range(year_of(start), year_of(end) + 1)
        return [c for year in years for c in self.changes(year) if start < c.at <= end]


def year_of(at: int) -> int:
    """The year of UTC that a second is in."""
    return datetime.fromtimestamp(at, UTC).year


def year_bounds(year: int) -> tuple[int, int]:
    """The first second of a year of UTC, and of the next."""
    return _start(year), _start(year + 1)


def _start(year: int) -> int:
    return (datetime(year, 1, 1) - _EPOCH) // timedelta(seconds=1)  # noqa: DTZ001


def local_text(zone: Zone, at: Instant) -> str:
    """An instant on the wall clock, with its offset: `2026-03-08T03:00:00-04:00`."""
    second, ms = divmod(at, 1000)
    offset = zone.offset(second)
    shown = _EPOCH + timedelta(seconds=second + offset, milliseconds=ms)
    text = shown.isoformat(timespec="milliseconds" if ms else "seconds")
    sign, (hours, rest) = "-" if offset < 0 else "+", divmod(abs(offset), 3600)
    return f"{text}{sign}{hours:02}:{rest // 60:02}"


def utc_text(at: Instant) -> str:
    """An instant in UTC: `2026-03-08T07:00:00Z`."""
    shown = _EPOCH + timedelta(milliseconds=at)
    return shown.isoformat(timespec="milliseconds" if at % 1000 else "seconds") + "Z"


ZoneLookup: TypeAlias = Callable[[str], Zone | None]
"""Where the core asks for a zone by its name; None: there is no such zone."""

_UTC = Zone("UTC", UTC)


def only_utc(name: str) -> Zone | None:
    """The atlas of those who were given none."""
    return _UTC if name == "UTC" else None
