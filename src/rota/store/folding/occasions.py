"""What makes jobs by itself, kept in memory as a load would bring it: schedules and triggers.

With the calendars of the ones, the events that wait in windows of the others, and the counts of
both. Pure: no I/O.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from rota.core.model import ScheduleId, TriggerId
from rota.core.schedule_model import Calendar, Schedule
from rota.core.trigger_model import BufferedEvent, Trigger, TriggerDecisionId
from rota.store.fold import TableChanges
from rota.store.protocol import Snapshot, Totals

K = TypeVar("K")
V = TypeVar("V")


class LiveSchedules:
    """The live part of the tables of schedules and triggers."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self._schedules: dict[ScheduleId, Schedule] = {}
        self._calendars: dict[str, Calendar] = {}
        self._triggers: dict[TriggerId, Trigger] = {}
        self._buffered: dict[TriggerDecisionId, BufferedEvent] = {}
        self._decided: dict[tuple[str, str], int] = {}
        self._reacted: dict[str, int] = {}
        if snapshot is not None:
            self._schedules |= {one.id: one for one in snapshot.schedules}
            self._calendars |= {one.name: one for one in snapshot.calendars}
            self._triggers |= {one.id: one for one in snapshot.triggers}
            self._buffered |= {one.id: one for one in snapshot.buffered_events}
            self._decided |= {(word, why): n for word, why, n in snapshot.totals.decided}
            self._reacted |= dict(snapshot.totals.reacted)

    def apply(self, folded: TableChanges) -> None:
        """Takes what a window of records came to."""
        for schedule_id, course in folded.schedule_states.items():
            if schedule_id in self._schedules:
                moved = replace(self._schedules[schedule_id], state=course)
                self._schedules[schedule_id] = moved
        _put(self._schedules, folded.schedules)
        _put(self._calendars, folded.calendars)
        _put(self._triggers, folded.events.triggers)
        _put(self._buffered, folded.events.buffered)
        _add(self._decided, folded.decided)
        _add(self._reacted, folded.events.reacted)

    def complete(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot of all else, with these in it."""
        totals: Totals = replace(
            snapshot.totals,
            decided=tuple((word, why, n) for (word, why), n in self._decided.items()),
            reacted=tuple(self._reacted.items()),
        )
        return replace(
            snapshot,
            totals=totals,
            schedules=[self._schedules[one] for one in sorted(self._schedules)],
            calendars=[self._calendars[name] for name in sorted(self._calendars)],
            triggers=[self._triggers[one] for one in sorted(self._triggers)],
            buffered_events=sorted(self._buffered.values(), key=lambda one: (one.at, one.id)),
        )


def _put(there: dict[K, V], changed: dict[K, V | None]) -> None:
    for key, value in changed.items():
        if value is None:
            there.pop(key, None)
        else:
            there[key] = value


def _add(counts: dict[K, int], more: dict[K, int]) -> None:
    for word, count in more.items():
        counts[word] = counts.get(word, 0) + count
