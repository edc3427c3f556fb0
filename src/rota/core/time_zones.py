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
"""Interval at which a zone's offset is sampled. Nowhere since 1970 did it change twice in six
days."""
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  (wall clock time has no zone)


class OffsetChange(NamedTuple):
    """Change of a zone's offset from UTC, at a second."""

    at: int
    before: int
    after: int


class OffsetPeriod(NamedTuple):
    """Period with one offset; `start` and `end` may be the limits of what was asked."""

    start: int
    end: int
    offset: int
    before: int
    """The offset up to `start`."""
    after: int
    """The offset from `end` on."""


class Zone:
    """Time zone: converts between UTC and local time, in seconds since 1970."""

    def __init__(self, name: str, rules: tzinfo) -> None:
        self.name = name
        self._rules = rules
        self._changes: dict[int, tuple[OffsetChange, ...]] = {}
        self._periods: dict[int, list[OffsetPeriod]] = {}

    def offset(self, at: int) -> int:
        """Offset in seconds to add to UTC."""
        offset = datetime.fromtimestamp(at, self._rules).utcoffset()
        assert offset is not None
        return offset // timedelta(seconds=1)

    def local(self, at: int) -> int:
        return at + self.offset(at)

    def changes(self, year: int) -> tuple[OffsetChange, ...]:
        """Offset changes in a year of UTC."""
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
        """First second after `low` with another offset; `high` has one."""
        while high - low > 1:
            middle = (low + high) // 2
            if self.offset(middle) == before:
                low = middle
            else:
                high = middle
        return high

    def periods(self, year: int) -> list[OffsetPeriod]:
        """Periods that overlap a year of UTC, in order."""
        found = self._periods.get(year)
        if found is None:
            found = self._periods[year] = self._build_periods(year)
        return found

    def _build_periods(self, year: int) -> list[OffsetPeriod]:
        changes = [*self.changes(year - 1), *self.changes(year), *self.changes(year + 1)]
        start, end = _start(year - 1), _start(year + 2)
        offset = self.offset(start)
        boundaries = [OffsetChange(start, offset, offset), *changes]
        last = boundaries[-1].after
        boundaries.append(OffsetChange(end, last, last))
        found = [
            OffsetPeriod(one.at, two.at, one.after, one.before, two.after)
            for one, two in pairwise(boundaries)
        ]
        return [s for s in found if s.end > _start(year) and s.start < _start(year + 1)]

    def changes_between(self, start: int, end: int) -> list[OffsetChange]:
        """Offset changes after `start`, up to and including `end`."""
        years = range(year_of(start), year_of(end) + 1)
        return [c for year in years for c in self.changes(year) if start < c.at <= end]


def year_of(at: int) -> int:
    """Year of UTC that contains a second."""
    return datetime.fromtimestamp(at, UTC).year


def year_bounds(year: int) -> tuple[int, int]:
    """First second of a year of UTC, and of the next."""
    return _start(year), _start(year + 1)


def _start(year: int) -> int:
    return (datetime(year, 1, 1) - _EPOCH) // timedelta(seconds=1)  # noqa: DTZ001


def local_text(zone: Zone, at: Instant) -> str:
    """Local time of an instant with its offset: `2026-03-08T03:00:00-04:00`."""
    second, ms = divmod(at, 1000)
    offset = zone.offset(second)
    shown = _EPOCH + timedelta(seconds=second + offset, milliseconds=ms)
    text = shown.isoformat(timespec="milliseconds" if ms else "seconds")
    sign, (hours, rest) = "-" if offset < 0 else "+", divmod(abs(offset), 3600)
    return f"{text}{sign}{hours:02}:{rest // 60:02}"


def utc_text(at: Instant) -> str:
    """UTC time of an instant: `2026-03-08T07:00:00Z`."""
    shown = _EPOCH + timedelta(milliseconds=at)
    return shown.isoformat(timespec="milliseconds" if at % 1000 else "seconds") + "Z"


ZoneLookup: TypeAlias = Callable[[str], Zone | None]
"""Finds a time zone by name; None: there is no such zone."""

_UTC = Zone("UTC", UTC)


def only_utc(name: str) -> Zone | None:
    """Zone lookup that knows UTC alone."""
    return _UTC if name == "UTC" else None
