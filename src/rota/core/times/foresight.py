"""What a timetable is going to do, told for people: the next instants, clock changes marked."""

from __future__ import annotations

import msgspec

from rota.core.model import Instant
from rota.core.records.zones import OffsetChange, local_text
from rota.core.times.timetable import Recurrence


class PreviewedInstant(msgspec.Struct, frozen=True):
    """One instant to come."""

    at: Instant
    local: str
    note: str = ""


def preview(ways: Recurrence, after: Instant, count: int) -> list[PreviewedInstant]:
    """The next `count` instants; each says what clocks or calendars have to do with it."""
    found: list[PreviewedInstant] = []
    before, at = after, ways.next_after(after)
    while at is not None and len(found) < count:
        found.append(PreviewedInstant(at, local_text(ways.zone, at), _note(ways, before, at)))
        before, at = at, ways.next_after(at)
    return found


def _note(ways: Recurrence, before: Instant, at: Instant) -> str:
    listed = ways.holiday(at)
    if listed is not None:
        return f"skipped: a holiday of {listed}"
    if not ways.timetable.cron:
        return ""
    second = at // 1000
    changes = ways.zone.changes_between(before // 1000, second)
    if changes:
        return _note_of_change(changes[-1], second)
    around = ways.zone.changes_between(second, second + 24 * 3600)
    if around and around[0].after < around[0].before:
        change = around[0]
        if second >= change.at - (change.before - change.after):
            return "clock moves back: this local time comes twice, and this is the first"
    return ""


def _note_of_change(change: OffsetChange, second: int) -> str:
    moved = abs(change.after - change.before)
    by = f"{moved // 60} min" if moved % 3600 else f"{moved // 3600} h"
    if change.after > change.before:
        if second == change.at:
            return f"clock moved forward {by}: local times just before this do not exist"
        return f"clock moved forward {by} since the one before"
    if second < change.at + moved:
        return f"clock moved back {by}: this local time comes twice, and this is the second"
    return f"clock moved back {by} since the one before"
