"""Matches events with triggers: filters, rate limits, debounce windows, and the job submitted."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from rota.core.commands import NewJob, ReceiveEvents
from rota.core.deadlines import deadline_from_template
from rota.core.entries import JobEntry
from rota.core.errors import Refusal, StalePreload
from rota.core.expressions import MISSING, StepLimitError, look_up, passes
from rota.core.ids import trigger_decision_id, triggered_id
from rota.core.jobs.submit import submit_independent
from rota.core.limits import (
    CHAIN_DEPTH_MAX,
    JOB_EVENT_BYTES_MAX,
    TRIGGERED_BYTES_MAX,
)
from rota.core.model import Instant, JobId, Spec, TriggerOrigin
from rota.core.outcome import EventsAccepted
from rota.core.state import SchedulerState
from rota.core.templates import fill_event_template
from rota.core.time_zones import utc_text
from rota.core.trigger_model import (
    AcceptedEvent,
    BufferedEvent,
    DebounceKeep,
    Event,
    EventBuffering,
    EventDecision,
    TriggerDecision,
    TriggerDecisionId,
    event_key,
    event_value,
    own_event,
)
from rota.core.triggers.trigger_index import DEADLINE_EVENTS, JOB_EVENTS, OpenWindow, TriggerEntry


class MatchResult(msgspec.Struct, frozen=True):
    """What is to become of an event at a trigger."""

    decision: EventDecision
    detail: str = ""
    job_id: JobId | None = None


FIRES = MatchResult(EventDecision.FIRED)


def accept_events(t: SchedulerState, event: ReceiveEvents, now: Instant) -> EventsAccepted:
    """Events from outside; each has its effect once, however often it is sent."""
    assert event.preloaded is not None, "events come with what the tables know of them"
    if t.recently_finished.is_stale(event.preloaded.at, now):
        raise StalePreload("too long since the events were looked up")
    recalled = {told.key: told for told in event.preloaded.accepted_events}
    taken: list[AcceptedEvent] = []
    repeated: list[bool] = []
    for one in event.events:
        key = event_key(one)
        known = t.trigger_index.accepted(key) or recalled.get(key)
        if known is None:
            told = _match(t, one, key, now)
        else:
            told = replace(known, repeats=known.repeats + 1)
            t.trigger_index.remember(told, now)
        taken.append(told)
        repeated.append(known is not None)
    return EventsAccepted(tuple(taken), tuple(repeated))


def match_job_events(t: SchedulerState, now: Instant) -> None:
    """Jobs that ended are events too. The jobs they make may end at once: so until all is quiet."""
    warned, t.trigger_index.deadline_notices = t.trigger_index.deadline_notices, []
    for cell, word in warned:
        event = deadline_event(cell, word, now)
        _match(t, event, event_key(event), now)
    while t.trigger_index.ended_jobs:
        ended, t.trigger_index.ended_jobs = t.trigger_index.ended_jobs, []
        for cell in ended:
            event = job_event(cell, now)
            _match(t, event, event_key(event), now)


def deadline_event(cell: JobEntry, word: str, now: Instant) -> Event:
    """That a job's deadline is at risk, or was missed, as an event."""
    assert cell.spec.finish_by is not None
    plain = job_event(cell, now)
    about = {
        **msgspec.json.decode(plain.data),
        "deadline": word,
        "finish_by": utc_text(cell.spec.finish_by),
    }
    event_id = f"{plain.id}/{word}/{cell.spec.revision}"
    event = own_event((DEADLINE_EVENTS[word], event_id), about, now, plain.depth)
    return replace(event, tenant=plain.tenant)


def job_event(cell: JobEntry, now: Instant) -> Event:
    """The end of a job, as an event."""
    spec, life, terms = cell.spec, cell.life, cell.spec.terms
    about: dict[str, Any] = {
        "job_id": cell.id,
        "name": terms.name,
        "queue": terms.queue,
        "tenant": terms.tenant,
        "status": life.state.value,
        "reason": life.reason,
        "attempt": life.attempt,
        "labels": dict(spec.labels),
    }
    for name, text in (("result", life.result), ("error", life.error)):
        if text is not None and len(text) <= JOB_EVENT_BYTES_MAX:
            about[name] = msgspec.Raw(text)
    if spec.origin is not None:
        about["schedule_id"] = spec.origin.schedule_id
    depth = 0
    if spec.trigger_origin is not None:
        about["trigger_id"] = spec.trigger_origin.trigger_id
        depth = spec.trigger_origin.depth
    # A job that a person starts over ends again, and that is another event.
    event = own_event((JOB_EVENTS[life.state], f"{cell.id}/{life.lives}"), about, now, depth)
    return replace(event, tenant=terms.tenant)


def _match(t: SchedulerState, event: Event, key: str, now: Instant) -> AcceptedEvent:
    listening = t.trigger_index.listening(event)
    value = event_value(event) if listening else {}
    arrivals = []
    for cell in listening:
        arrival = TriggerDecision(
            trigger_decision_id(cell.trigger.id, key, now),
            cell.trigger.id,
            event.source,
            event.id,
            event.type,
            now,
            EventDecision.FAILED,
        )
        decided = _with_result(arrival, _decide(t, cell, arrival.id, (event, value), now), now)
        t.trigger_index.record(decided)
        arrivals.append(decided)
    told = AcceptedEvent(
        key, event.source, event.id, event.type, now, tuple(arrivals), tenant=event.tenant
    )
    t.trigger_index.remember(told, now)
    return told


def _with_result(arrival: TriggerDecision, judgement: MatchResult, now: Instant) -> TriggerDecision:
    return replace(
        arrival,
        decision=judgement.decision,
        detail=judgement.detail,
        job_id=judgement.job_id,
        decided_at=now,
    )


def _decide(
    t: SchedulerState,
    cell: TriggerEntry,
    arrival: TriggerDecisionId,
    event: tuple[Event, dict[str, Any]],
    now: Instant,
) -> MatchResult:
    judgement = evaluate(cell, event, now)
    if judgement.decision is EventDecision.HELD:
        return _buffer(t, cell, arrival, event, now)
    if judgement.decision is EventDecision.FIRED:
        return _fire(t, cell, [event[0]], arrival, now)
    return judgement


def evaluate(cell: TriggerEntry, event: tuple[Event, dict[str, Any]], now: Instant) -> MatchResult:
    """What the trigger would make of the event now; changes nothing."""
    told, value = event
    if cell.trigger.paused:
        return MatchResult(EventDecision.PAUSED)
    try:
        if not passes(cell.filter, value):
            return MatchResult(EventDecision.FILTERED)
    except StepLimitError as error:
        return MatchResult(EventDecision.FAILED, f"the filter was given up: {error}")
    if told.depth >= CHAIN_DEPTH_MAX:
        return MatchResult(EventDecision.TOO_DEEP, f"{told.depth} triggers have led to this event")
    if cell.trigger.definition.buffering is not None:
        return MatchResult(EventDecision.HELD)
    return FIRES if _may_start(cell, now) else _limited(cell)


# Rate limits: the same exact arithmetic that queues have


def _may_start(cell: TriggerEntry, now: Instant) -> bool:
    rate = cell.trigger.definition.rate
    if rate is None:
        return True
    burst = (rate.count - 1) * rate.per_ms
    return cell.next_start - burst <= now * rate.count


def _spend_start(cell: TriggerEntry, now: Instant) -> None:
    rate = cell.trigger.definition.rate
    if rate is not None:
        cell.next_start = max(cell.next_start, now * rate.count) + rate.per_ms


def _limited(cell: TriggerEntry) -> MatchResult:
    rate = cell.trigger.definition.rate
    assert rate is not None
    return MatchResult(
        EventDecision.LIMITED, f"{rate.count} jobs in {rate.per_ms / 1000:g} s were made"
    )


# Making jobs


def _fire(
    t: SchedulerState,
    cell: TriggerEntry,
    events: list[Event],
    arrival: TriggerDecisionId,
    now: Instant,
) -> MatchResult:
    """One job for the events; `arrival` is the one that set it off."""
    if not _may_start(cell, now):
        return _limited(cell)
    spec = spec_for(cell, events, now)
    for name, text in (("task", spec.task), ("payload", spec.payload)):
        if len(text) > TRIGGERED_BYTES_MAX:
            detail = f"with the event in it the {name} is larger than {TRIGGERED_BYTES_MAX} bytes"
            return MatchResult(EventDecision.FAILED, detail)
    try:
        job = submit_independent(t, NewJob(id=triggered_id(arrival, now), spec=spec), now)
    except Refusal as refusal:
        return MatchResult(EventDecision.FAILED, refusal.detail)
    _spend_start(cell, now)
    return MatchResult(EventDecision.FIRED, job_id=job.id)


def spec_for(cell: TriggerEntry, events: list[Event], now: Instant) -> Spec:
    """The trigger's job for these events."""
    trigger, job = cell.trigger, cell.trigger.definition.job
    last, gathering = events[-1], cell.trigger.definition.buffering
    # Several may wait though the rule, changed since, gathers none or keeps the last.
    together = len(events) > 1 or (gathering is not None and gathering.keep is DebounceKeep.ALL)
    values = [event_value(one) for one in events]
    known = {
        "event": values[-1],
        "events": values,
        "count": len(events) if together else None,
        "trigger": {"id": trigger.id, "name": trigger.definition.name},
    }
    task, payload = fill_event_template(job, known)
    depth = 1 + max(one.depth for one in events)
    stimulus = TriggerOrigin(trigger.id, last.source, last.id, depth)
    return replace(
        job,
        task=task,
        payload=payload,
        created_at=now,
        finish_by=deadline_from_template(job, now),
        trigger_origin=stimulus,
    )


# Windows


def _buffer(
    t: SchedulerState,
    cell: TriggerEntry,
    arrival: TriggerDecisionId,
    event: tuple[Event, dict[str, Any]],
    now: Instant,
) -> MatchResult:
    """The event waits in its window, which closes now if it is full."""
    told, value = event
    gathering = cell.trigger.definition.buffering
    assert gathering is not None
    key = _window_key(cell, value)
    there = cell.windows.get(key)
    limits = t.limits
    if there is None and len(cell.windows) >= limits.windows_max:
        return MatchResult(
            EventDecision.FAILED, f"{limits.windows_max} of its windows are open already"
        )
    if t.trigger_index.buffered_bytes > limits.buffered_bytes_max:
        return MatchResult(
            EventDecision.FAILED, f"events of {limits.buffered_bytes_max} bytes wait already"
        )
    opened_at = now if there is None else there.opened_at
    held = BufferedEvent(arrival, cell.trigger.id, key, told, now, opened_at)
    window = t.trigger_index.buffer(cell, held)
    if gathering.keep is DebounceKeep.LAST:
        _supersede(t, window, held, now)
    if not window.is_full(gathering.size_max):
        t.trigger_index.set_window_timer(cell, key, closing_time(gathering, window.opened_at, now))
        return MatchResult(EventDecision.HELD)
    return close_window(t, cell, key, now)


def _window_key(cell: TriggerEntry, value: dict[str, Any]) -> str:
    if cell.window_key is None:
        return ""
    found = look_up(cell.window_key, value)
    return "" if found is MISSING else msgspec.json.encode(found).decode()


def closing_time(gathering: EventBuffering, opened_at: Instant, last_at: Instant) -> Instant:
    """When a window that nobody joins any more makes its job."""
    ends = []
    if gathering.quiet_ms is not None:
        ends.append(last_at + gathering.quiet_ms)
    if gathering.wait_ms is not None:
        ends.append(opened_at + gathering.wait_ms)
    return min(ends)


def _supersede(t: SchedulerState, window: OpenWindow, newest: BufferedEvent, now: Instant) -> None:
    for held in [one for one in window.events.values() if one.id != newest.id]:
        t.trigger_index.release(window, held)
        t.trigger_index.record(
            _with_result(_buffered_decision(held), MatchResult(EventDecision.SUPERSEDED), now)
        )


def _buffered_decision(held: BufferedEvent) -> TriggerDecision:
    event = held.event
    return TriggerDecision(
        held.id, held.trigger_id, event.source, event.id, event.type, held.at, EventDecision.HELD
    )


def close_window(t: SchedulerState, cell: TriggerEntry, key: str, now: Instant) -> MatchResult:
    """All that waits in the window makes one job."""
    held = t.trigger_index.close(cell, key)
    judgement = _fire(t, cell, [one.event for one in held], held[-1].id, now)
    for one in held:
        t.trigger_index.record(_with_result(_buffered_decision(one), judgement, now))
    return judgement


def timer_fired(t: SchedulerState, name: str, when: Instant, now: Instant) -> None:
    """A window's timer rang; while its trigger is paused the window stays open."""
    found = t.trigger_index.window_of_timer(name)
    if found is None:
        return
    cell, key, window = found
    if window.closes_at == when and not cell.trigger.paused:
        close_window(t, cell, key, now)


def is_timer_current(t: SchedulerState, name: str, when: Instant) -> bool:
    """Whether a window's timer is still the one that counts."""
    found = t.trigger_index.window_of_timer(name)
    return found is not None and found[2].closes_at == when


def drop_windows(t: SchedulerState, cell: TriggerEntry, now: Instant) -> None:
    """What waits in the trigger's windows will make no job."""
    for key in list(cell.windows):
        for held in t.trigger_index.close(cell, key):
            t.trigger_index.record(
                _with_result(_buffered_decision(held), MatchResult(EventDecision.DROPPED), now)
            )


def set_window_timers(t: SchedulerState, cell: TriggerEntry, now: Instant) -> None:
    """Sets the timers of all its windows: they were loaded, or the rule has changed."""
    gathering = cell.trigger.definition.buffering
    for key, window in cell.windows.items():
        if gathering is None:
            t.trigger_index.set_window_timer(cell, key, now)
            continue
        last_at = max(one.at for one in window.events.values())
        # Where the clock went back while nobody was there, the length counts, not the hour.
        closes_at = closing_time(gathering, min(window.opened_at, now), min(last_at, now))
        t.trigger_index.set_window_timer(cell, key, max(now, closes_at))
