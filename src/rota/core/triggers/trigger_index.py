"""Index of all triggers in memory: by id, name and event type, with the events buffered in windows.

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
"""What the end of a job is called as an event."""
DEADLINE_EVENTS = {word: f"{OWN_PREFIX}job.deadline_{word}" for word in (AT_RISK, MISSED)}
"""What is told of a job's deadline, as an event; that it was met, the job's end says."""
_KEY_BEGINS = "/"
"""Separates a trigger's id, which has none, from a window's key in the name of its timer."""


class OpenWindow:
    """Events of one trigger that will make one job together."""

    __slots__ = ("closes_at", "data_bytes", "events", "opened_at")

    def __init__(self, opened_at: Instant) -> None:
        self.events: dict[TriggerDecisionId, BufferedEvent] = {}
        """In order of arrival."""
        self.data_bytes = 0
        """Bytes of data."""
        self.opened_at = opened_at
        self.closes_at: Instant = opened_at
        """Timers set for another time are void."""

    def add(self, buffered: BufferedEvent) -> None:
        """One more."""
        self.events[buffered.id] = buffered
        self.data_bytes += len(buffered.event.data)

    def is_full(self, size_max: int) -> bool:
        """Whether one job can carry no more."""
        count = min(size_max or BUFFERED_PER_JOB_MAX, BUFFERED_PER_JOB_MAX)
        return len(self.events) >= count or self.data_bytes >= BUFFERED_PER_JOB_BYTES_MAX


class TriggerEntry:
    """A trigger, its filter ready to be asked, and its open windows."""

    __slots__ = ("filter", "next_start", "trigger", "window_key", "windows")

    def __init__(self, trigger: Trigger) -> None:
        self.windows: dict[str, OpenWindow] = {}
        self.next_start = 0
        """For the rate limit, as in core/ready_queue/limits_and_quotas.py; a restart forgets it."""
        self.set(trigger)

    def set(self, trigger: Trigger) -> None:
        """As given; the filter was checked when the trigger was made."""
        rule = trigger.definition
        self.trigger = trigger
        self.filter: AnyNode | None = read_filter(rule.filter)
        self.window_key: Path | None = None
        if rule.buffering is not None and rule.buffering.key:
            self.window_key = parse_path(rule.buffering.key)


class TriggerIndex:
    """Whatever is to happen because of something else."""

    def __init__(self, timers: Timers) -> None:
        self.changeset = EventChanges()
        self.entries: dict[TriggerId, TriggerEntry] = {}
        """In order of creation."""
        self.ended_jobs: list[JobEntry] = []
        """Jobs that ended in this turn, and somebody wants to know."""
        self.deadline_notices: list[tuple[JobEntry, str]] = []
        """Jobs whose deadline is at risk, or was missed, as of this turn, and who wants to know."""
        self.open_windows = 0
        """How many are open, of all triggers."""
        self.buffered_bytes = 0
        """Data of all events that wait."""
        self._names: dict[tuple[str, str], TriggerId] = {}
        self._by_event: dict[str, dict[TriggerId, None]] = {}
        self._accepted: dict[str, AcceptedEvent] = {}
        self._accepted_order: deque[tuple[Instant, str]] = deque()
        self._timers = timers

    # Looking up

    def entry(self, trigger_id: TriggerId) -> TriggerEntry:
        """The trigger, or the refusal."""
        entry = self.entries.get(trigger_id)
        if entry is None:
            raise NotFound("trigger", trigger_id)
        return entry

    def by_name(self, tenant: str, name: str) -> TriggerEntry | None:
        """The trigger of that name."""
        trigger_id = self._names.get((tenant, name))
        return None if trigger_id is None else self.entries[trigger_id]

    def listening(self, event: Event) -> list[TriggerEntry]:
        """Triggers that hear an event: its type fits, and it is their tenant's; oldest first."""
        found: dict[TriggerId, None] = {}
        for pattern in _patterns(event.type):
            found |= self._by_event.get(pattern, {})
        entries = [self.entries[trigger_id] for trigger_id in sorted(found)]
        return [entry for entry in entries if event.tenant in ("", _name(entry.trigger)[0])]

    def wants_end(self, state: JobState) -> bool:
        """Whether anybody wants to know of jobs that end so; asked at every end."""
        if not self._by_event:
            return False
        return any(pattern in self._by_event for pattern in _patterns(JOB_EVENTS[state]))

    def wants_deadline(self, word: str) -> bool:
        """Whether anybody wants to know of deadlines that come to this."""
        event_type = DEADLINE_EVENTS.get(word)
        return event_type is not None and any(
            one in self._by_event for one in _patterns(event_type)
        )

    def accepted(self, key: str) -> AcceptedEvent | None:
        """An event that was accepted just now."""
        return self._accepted.get(key)

    # Triggers come, change and go

    def put(self, trigger: Trigger) -> TriggerEntry:
        """A trigger as given: new, or in place of the one with its id."""
        entry = self.restore(trigger)
        self.changeset.triggers[trigger.id] = trigger
        return entry

    def restore(self, trigger: Trigger) -> TriggerEntry:
        """The same, without writing: it was loaded."""
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
        """The trigger is gone; its windows must be empty."""
        assert not entry.windows, "a trigger went and left events behind"
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
        """An event was accepted, or came again."""
        self.changeset.accepted.append(accepted)
        self._accepted[accepted.key] = accepted
        self._accepted_order.append((now, accepted.key))

    def record(self, decision: TriggerDecision) -> None:
        """What a trigger made of an event."""
        self.changeset.decisions[decision.id] = decision

    def forget(self, now: Instant) -> None:
        """Drops what no record in flight can need any more: twice the window, to be safe."""
        while self._accepted_order and self._accepted_order[0][0] < now - 2 * PRELOAD_WINDOW_MS:
            self._accepted.pop(self._accepted_order.popleft()[1], None)

    # Windows

    def buffer(self, entry: TriggerEntry, buffered: BufferedEvent) -> OpenWindow:
        """An event joins its window, which is opened for it if need be."""
        window = self.restore_buffered(entry, buffered)
        self.changeset.buffered[buffered.id] = buffered
        return window

    def restore_buffered(self, entry: TriggerEntry, buffered: BufferedEvent) -> OpenWindow:
        """The same, without writing: it was loaded."""
        window = entry.windows.get(buffered.key)
        if window is None:
            window = entry.windows[buffered.key] = OpenWindow(buffered.opened_at)
            self.open_windows += 1
        window.add(buffered)
        self.buffered_bytes += len(buffered.event.data)
        return window

    def release(self, window: OpenWindow, buffered: BufferedEvent) -> None:
        """An event waits no more."""
        del window.events[buffered.id]
        window.data_bytes -= len(buffered.event.data)
        self.buffered_bytes -= len(buffered.event.data)
        if self.changeset.buffered.pop(buffered.id, None) is None:
            self.changeset.released.append(buffered.id)

    def close(self, entry: TriggerEntry, key: str) -> list[BufferedEvent]:
        """The window is gone; what was in it."""
        window = entry.windows.pop(key)
        self.open_windows -= 1
        events = list(window.events.values())
        for one in events:
            self.release(window, one)
        return events

    def set_window_timer(self, entry: TriggerEntry, key: str, closes_at: Instant) -> None:
        """The window closes then, unless it is told otherwise."""
        entry.windows[key].closes_at = closes_at
        self._timers.set(closes_at, TimerKind.WINDOW, f"{entry.trigger.id}{_KEY_BEGINS}{key}")

    def window_of_timer(self, name: str) -> tuple[TriggerEntry, str, OpenWindow] | None:
        """The window that a timer was set for, if it is open still."""
        trigger_id, _, key = name.partition(_KEY_BEGINS)
        entry = self.entries.get(TriggerId(trigger_id))
        window = None if entry is None else entry.windows.get(key)
        return None if entry is None or window is None else (entry, key, window)

    def follow_clock(self, by: Millis) -> None:
        """The clock was set by so much: what is to wait for seconds waits for seconds."""
        self._accepted_order = deque((at + by, key) for at, key in self._accepted_order)
        for entry in self.entries.values():
            rate = entry.trigger.definition.rate
            entry.next_start += 0 if rate is None else by * rate.count
            for key, window in entry.windows.items():
                window.opened_at += by
                self.set_window_timer(entry, key, window.closes_at + by)


def _patterns(event_type: str) -> Iterator[str]:
    """Everything a trigger may say to mean this type, among others.

    `*` alone means all events that come from outside: a trigger for everything must not be set off
    by the end of the jobs it makes.
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
