"""Index of all triggers in memory: by id, name and event type, with events buffered in windows.

As in `state.py`, every change to a record is noted in the changeset of this turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from rota.core.changeset import EventChanges
from rota.core.deadlines import AT_RISK, MISSED
from rota.core.entries import JobEntry
from rota.core.errors import NotFound
from rota.core.expressions import AnyNode, Path, parse_path, read_filter
from rota.core.limits import BUFFERED_PER_JOB_BYTES_MAX, BUFFERED_PER_JOB_MAX, PRELOAD_WINDOW_MS
from rota.core.model import Instant, JobState, Millis, TriggerId
from rota.core.timers import TimerKind, Timers
from rota.core.trigger_model import (
    OWN_PREFIX,
    AcceptedEvent,
    BufferedEvent,
    Event,
    Trigger,
    TriggerDecision,
    TriggerDecisionId,
)

JOB_EVENTS = {state: f"{OWN_PREFIX}job.{state.value}" for state in JobState}
"""Event types of the ends of jobs."""
DEADLINE_EVENTS = {word: f"{OWN_PREFIX}job.deadline_{word}" for word in (AT_RISK, MISSED)}
"""Event types of deadlines; a deadline that was met is part of the event of the job's end."""
_KEY_BEGINS = "/"
"""Separates the trigger's id, which has no slash, from the window's key in the name of a timer."""


class OpenWindow:
    """Window of a trigger: events that will make one job together."""

    __slots__ = ("closes_at", "data_bytes", "events", "opened_at")

    def __init__(self, opened_at: Instant) -> None:
        self.events: dict[TriggerDecisionId, BufferedEvent] = {}
        """In order of arrival."""
        self.data_bytes = 0
        self.opened_at = opened_at
        self.closes_at: Instant = opened_at
        """A timer set for another time is ignored."""

    def add(self, buffered: BufferedEvent) -> None:
        self.events[buffered.id] = buffered
        self.data_bytes += len(buffered.event.data)

    def is_full(self, size_max: int) -> bool:
        """Whether one job can carry no more events."""
        count = min(size_max or BUFFERED_PER_JOB_MAX, BUFFERED_PER_JOB_MAX)
        return len(self.events) >= count or self.data_bytes >= BUFFERED_PER_JOB_BYTES_MAX


class TriggerEntry:
    """Entry of a trigger, with its parsed filter and its open windows."""

    __slots__ = ("filter", "next_start", "trigger", "window_key", "windows")

    def __init__(self, trigger: Trigger) -> None:
        self.windows: dict[str, OpenWindow] = {}
        self.next_start = 0
        """Of the rate limit, as in core/ready_queue/limits_and_quotas.py; not stored."""
        self.set(trigger)

    def set(self, trigger: Trigger) -> None:
        """Sets the trigger; its filter was checked when the trigger was created."""
        rule = trigger.definition
        self.trigger = trigger
        self.filter: AnyNode | None = read_filter(rule.filter)
        self.window_key: Path | None = None
        if rule.buffering is not None and rule.buffering.key:
            self.window_key = parse_path(rule.buffering.key)


class TriggerIndex:
    """Index of triggers by id, name and event type, their windows, and recently accepted events."""

    def __init__(self, timers: Timers) -> None:
        self.changeset = EventChanges()
        self.entries: dict[TriggerId, TriggerEntry] = {}
        """In order of creation."""
        self.ended_jobs: list[JobEntry] = []
        """Jobs that ended in this turn and that a trigger may listen to."""
        self.deadline_notices: list[tuple[JobEntry, str]] = []
        """Jobs whose deadline is at risk or was missed in this turn, with which of the two."""
        self.open_windows = 0
        """Of all triggers."""
        self.buffered_bytes = 0
        """Size of all buffered events."""
        self._names: dict[tuple[str, str], TriggerId] = {}
        self._by_event: dict[str, dict[TriggerId, None]] = {}
        self._accepted: dict[str, AcceptedEvent] = {}
        self._accepted_order: deque[tuple[Instant, str]] = deque()
        self._timers = timers

    # Lookups

    def entry(self, trigger_id: TriggerId) -> TriggerEntry:
        """The trigger; raises NotFound."""
        entry = self.entries.get(trigger_id)
        if entry is None:
            raise NotFound("trigger", trigger_id)
        return entry

    def by_name(self, tenant: str, name: str) -> TriggerEntry | None:
        trigger_id = self._names.get((tenant, name))
        return None if trigger_id is None else self.entries[trigger_id]

    def listening(self, event: Event) -> list[TriggerEntry]:
        """Triggers of the event's tenant that listen to its type, the oldest first."""
        found: dict[TriggerId, None] = {}
        for pattern in _patterns(event.type):
            found |= self._by_event.get(pattern, {})
        entries = [self.entries[trigger_id] for trigger_id in sorted(found)]
        return [entry for entry in entries if event.tenant in ("", _name(entry.trigger)[0])]

    def wants_end(self, state: JobState) -> bool:
        """Whether a trigger may listen to jobs that end so; asked at every end."""
        if not self._by_event:
            return False
        return any(pattern in self._by_event for pattern in _patterns(JOB_EVENTS[state]))

    def wants_deadline(self, word: str) -> bool:
        """Whether a trigger may listen to this event of a deadline."""
        event_type = DEADLINE_EVENTS.get(word)
        return event_type is not None and any(
            one in self._by_event for one in _patterns(event_type)
        )

    def accepted(self, key: str) -> AcceptedEvent | None:
        """Recently accepted event with this key."""
        return self._accepted.get(key)

    # Triggers

    def put(self, trigger: Trigger) -> TriggerEntry:
        """Adds or replaces a trigger, and writes it."""
        entry = self.restore(trigger)
        self.changeset.triggers[trigger.id] = trigger
        return entry

    def restore(self, trigger: Trigger) -> TriggerEntry:
        """Adds or replaces a trigger that was loaded, without writing it."""
        entry = self.entries.get(trigger.id)
        if entry is None:
            entry = self.entries[trigger.id] = TriggerEntry(trigger)
        else:
            self._unlist(entry.trigger)
            entry.set(trigger)
        self._names[_name(trigger)] = trigger.id
        self._by_event.setdefault(trigger.definition.event, {})[trigger.id] = None
        return entry

    def drop(self, entry: TriggerEntry) -> None:
        """Removes a trigger, which must have no open windows."""
        assert not entry.windows, "a removed trigger has no open windows"
        self._unlist(entry.trigger)
        del self.entries[entry.trigger.id]
        self.changeset.triggers[entry.trigger.id] = None

    def _unlist(self, trigger: Trigger) -> None:
        self._names.pop(_name(trigger), None)
        listening = self._by_event[trigger.definition.event]
        del listening[trigger.id]
        if not listening:
            del self._by_event[trigger.definition.event]

    # Events

    def remember(self, accepted: AcceptedEvent, now: Instant) -> None:
        """Writes an event that was accepted or repeated, and keeps it to answer repeats."""
        self.changeset.accepted.append(accepted)
        self._accepted[accepted.key] = accepted
        self._accepted_order.append((now, accepted.key))

    def record(self, decision: TriggerDecision) -> None:
        """Writes the decision of a trigger on an event."""
        self.changeset.decisions[decision.id] = decision

    def forget(self, now: Instant) -> None:
        """Forgets accepted events that no command under way can repeat."""
        # Twice the preload window, as a safety margin.
        while self._accepted_order and self._accepted_order[0][0] < now - 2 * PRELOAD_WINDOW_MS:
            self._accepted.pop(self._accepted_order.popleft()[1], None)

    # Windows

    def buffer(self, entry: TriggerEntry, buffered: BufferedEvent) -> OpenWindow:
        """Adds an event to its window, opens that if necessary, and writes the event."""
        window = self.restore_buffered(entry, buffered)
        self.changeset.buffered[buffered.id] = buffered
        return window

    def restore_buffered(self, entry: TriggerEntry, buffered: BufferedEvent) -> OpenWindow:
        """Adds an event that was loaded to its window, without writing it."""
        window = entry.windows.get(buffered.key)
        if window is None:
            window = entry.windows[buffered.key] = OpenWindow(buffered.opened_at)
            self.open_windows += 1
        window.add(buffered)
        self.buffered_bytes += len(buffered.event.data)
        return window

    def release(self, window: OpenWindow, buffered: BufferedEvent) -> None:
        """Removes an event from its window."""
        del window.events[buffered.id]
        window.data_bytes -= len(buffered.event.data)
        self.buffered_bytes -= len(buffered.event.data)
        if self.changeset.buffered.pop(buffered.id, None) is None:
            self.changeset.released.append(buffered.id)

    def close(self, entry: TriggerEntry, key: str) -> list[BufferedEvent]:
        """Removes a window; returns its events."""
        window = entry.windows.pop(key)
        self.open_windows -= 1
        events = list(window.events.values())
        for one in events:
            self.release(window, one)
        return events

    def set_window_timer(self, entry: TriggerEntry, key: str, closes_at: Instant) -> None:
        entry.windows[key].closes_at = closes_at
        self._timers.set(closes_at, TimerKind.WINDOW, f"{entry.trigger.id}{_KEY_BEGINS}{key}")

    def window_of_timer(self, name: str) -> tuple[TriggerEntry, str, OpenWindow] | None:
        """The window that a timer was set for, if it is still open."""
        trigger_id, _, key = name.partition(_KEY_BEGINS)
        entry = self.entries.get(TriggerId(trigger_id))
        window = None if entry is None else entry.windows.get(key)
        return None if entry is None or window is None else (entry, key, window)

    def follow_clock(self, by: Millis) -> None:
        """Shifts windows and rate limits after the clock was set by `by` ms."""
        self._accepted_order = deque((at + by, key) for at, key in self._accepted_order)
        for entry in self.entries.values():
            rate = entry.trigger.definition.rate
            entry.next_start += 0 if rate is None else by * rate.count
            for key, window in entry.windows.items():
                window.opened_at += by
                self.set_window_timer(entry, key, window.closes_at + by)


def _patterns(event_type: str) -> Iterator[str]:
    """All patterns that match this event type.

    `*` alone matches only events from outside: a trigger for everything must not be fired by the
    end of the jobs it submits.
    """
    yield event_type
    end = event_type.rfind(".")
    while end > 0:
        yield f"{event_type[:end]}.*"
        end = event_type.rfind(".", 0, end)
    if not event_type.startswith(OWN_PREFIX):
        yield "*"


def _name(trigger: Trigger) -> tuple[str, str]:
    return (trigger.definition.job.terms.tenant, trigger.definition.name)
