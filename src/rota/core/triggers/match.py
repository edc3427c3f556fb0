"""Matches events with triggers: filters, rate limits, debounce windows, and the job submitted.

Events are matched within a turn, so that each has its effect exactly once
(docs/decisions/0021-events-are-matched-in-the-core.md).
"""

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
    """Result of matching an event with a trigger."""

    decision: EventDecision
    detail: str = ""
    job_id: JobId | None = None


FIRES = MatchResult(EventDecision.FIRED)


def accept_events(t: SchedulerState, event: ReceiveEvents, now: Instant) -> EventsAccepted:
    """Accepts events from outside; each has its effect once, however often it is sent."""
    assert event.preloaded is not None, "events must come with the accepted events that were read"
    if t.recently_finished.is_stale(event.preloaded.at, now):
        raise StalePreload("the accepted events were read too long ago")
    preloaded = {accepted.key: accepted for accepted in event.preloaded.accepted_events}
    all_accepted: list[AcceptedEvent] = []
    repeated: list[bool] = []
    for one in event.events:
        key = event_key(one)
        known = t.trigger_index.accepted(key) or preloaded.get(key)
        if known is None:
            accepted = _match(t, one, key, now)
        else:
            accepted = replace(known, repeats=known.repeats + 1)
            t.trigger_index.remember(accepted, now)
        all_accepted.append(accepted)
        repeated.append(known is not None)
    return EventsAccepted(tuple(all_accepted), tuple(repeated))


def match_job_events(t: SchedulerState, now: Instant) -> None:
    """Matches the ends of jobs as events. Jobs submitted by that may end at once, so it repeats."""
    warned, t.trigger_index.deadline_notices = t.trigger_index.deadline_notices, []
    for job, word in warned:
        event = deadline_event(job, word, now)
        _match(t, event, event_key(event), now)
    while t.trigger_index.ended_jobs:
        ended, t.trigger_index.ended_jobs = t.trigger_index.ended_jobs, []
        for job in ended:
            event = job_event(job, now)
            _match(t, event, event_key(event), now)


def deadline_event(job: JobEntry, word: str, now: Instant) -> Event:
    """Event that a job's deadline is at risk or was missed."""
    assert job.spec.finish_by is not None
    plain = job_event(job, now)
    data = {
        **msgspec.json.decode(plain.data),
        "deadline": word,
        "finish_by": utc_text(job.spec.finish_by),
    }
    event_id = f"{plain.id}/{word}/{job.spec.revision}"
    event = own_event((DEADLINE_EVENTS[word], event_id), data, now, plain.depth)
    return replace(event, tenant=plain.tenant)


def job_event(job: JobEntry, now: Instant) -> Event:
    """Event that a job has ended."""
    spec, life, terms = job.spec, job.life, job.spec.terms
    data: dict[str, Any] = {
        "job_id": job.id,
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
            data[name] = msgspec.Raw(text)
    if spec.origin is not None:
        data["schedule_id"] = spec.origin.schedule_id
    depth = 0
    if spec.trigger_origin is not None:
        data["trigger_id"] = spec.trigger_origin.trigger_id
        depth = spec.trigger_origin.depth
    # A job that is retried by a person ends again, and that is another event.
    event = own_event((JOB_EVENTS[life.state], f"{job.id}/{life.lives}"), data, now, depth)
    return replace(event, tenant=terms.tenant)


def _match(t: SchedulerState, event: Event, key: str, now: Instant) -> AcceptedEvent:
    listening = t.trigger_index.listening(event)
    value = event_value(event) if listening else {}
    decisions = []
    for entry in listening:
        pending = TriggerDecision(
            trigger_decision_id(entry.trigger.id, key, now),
            entry.trigger.id,
            event.source,
            event.id,
            event.type,
            now,
            EventDecision.FAILED,
        )
        decided = _with_result(pending, _decide(t, entry, pending.id, (event, value), now), now)
        t.trigger_index.record(decided)
        decisions.append(decided)
    accepted = AcceptedEvent(
        key, event.source, event.id, event.type, now, tuple(decisions), tenant=event.tenant
    )
    t.trigger_index.remember(accepted, now)
    return accepted


def _with_result(decision: TriggerDecision, result: MatchResult, now: Instant) -> TriggerDecision:
    return replace(
        decision,
        decision=result.decision,
        detail=result.detail,
        job_id=result.job_id,
        decided_at=now,
    )


def _decide(
    t: SchedulerState,
    entry: TriggerEntry,
    decision_id: TriggerDecisionId,
    event: tuple[Event, dict[str, Any]],
    now: Instant,
) -> MatchResult:
    result = evaluate(entry, event, now)
    if result.decision is EventDecision.HELD:
        return _buffer(t, entry, decision_id, event, now)
    if result.decision is EventDecision.FIRED:
        return _fire(t, entry, [event[0]], decision_id, now)
    return result


def evaluate(entry: TriggerEntry, event: tuple[Event, dict[str, Any]], now: Instant) -> MatchResult:
    """Dry evaluation of an event on a trigger; changes nothing."""
    received, value = event
    if entry.trigger.paused:
        return MatchResult(EventDecision.PAUSED)
    try:
        if not passes(entry.filter, value):
            return MatchResult(EventDecision.FILTERED)
    except StepLimitError as error:
        return MatchResult(EventDecision.FAILED, f"the filter was stopped: {error}")
    if received.depth >= CHAIN_DEPTH_MAX:
        return MatchResult(
            EventDecision.TOO_DEEP, f"{received.depth} triggers have led to this event"
        )
    if entry.trigger.definition.buffering is not None:
        return MatchResult(EventDecision.HELD)
    return FIRES if _may_start(entry, now) else _limited(entry)


# Rate limits: the GCRA of queues (docs/decisions/0014-gcra-rate-limits-and-concurrency-slots.md)


def _may_start(entry: TriggerEntry, now: Instant) -> bool:
    rate = entry.trigger.definition.rate
    if rate is None:
        return True
    burst = (rate.count - 1) * rate.per_ms
    return entry.next_start - burst <= now * rate.count


def _spend_start(entry: TriggerEntry, now: Instant) -> None:
    rate = entry.trigger.definition.rate
    if rate is not None:
        entry.next_start = max(entry.next_start, now * rate.count) + rate.per_ms


def _limited(entry: TriggerEntry) -> MatchResult:
    rate = entry.trigger.definition.rate
    assert rate is not None
    return MatchResult(
        EventDecision.LIMITED, f"its rate limit is {rate.count} jobs in {rate.per_ms / 1000:g} s"
    )


# Jobs of triggers


def _fire(
    t: SchedulerState,
    entry: TriggerEntry,
    events: list[Event],
    decision_id: TriggerDecisionId,
    now: Instant,
) -> MatchResult:
    """Submits one job for the events; `decision_id` is that of the event that caused it."""
    if not _may_start(entry, now):
        return _limited(entry)
    spec = spec_for(entry, events, now)
    for name, text in (("task", spec.task), ("payload", spec.payload)):
        if len(text) > TRIGGERED_BYTES_MAX:
            detail = f"filled with the event, the {name} is larger than {TRIGGERED_BYTES_MAX} bytes"
            return MatchResult(EventDecision.FAILED, detail)
    try:
        job = submit_independent(t, NewJob(id=triggered_id(decision_id, now), spec=spec), now)
    except Refusal as refusal:
        return MatchResult(EventDecision.FAILED, refusal.detail)
    _spend_start(entry, now)
    return MatchResult(EventDecision.FIRED, job_id=job.id)


def spec_for(entry: TriggerEntry, events: list[Event], now: Instant) -> Spec:
    """Spec of the trigger's job for these events."""
    trigger, job = entry.trigger, entry.trigger.definition.job
    last, buffering = events[-1], entry.trigger.definition.buffering
    # Several may be buffered though the definition, changed since, buffers none or keeps the last.
    together = len(events) > 1 or (buffering is not None and buffering.keep is DebounceKeep.ALL)
    values = [event_value(one) for one in events]
    known = {
        "event": values[-1],
        "events": values,
        "count": len(events) if together else None,
        "trigger": {"id": trigger.id, "name": trigger.definition.name},
    }
    task, payload = fill_event_template(job, known)
    depth = 1 + max(one.depth for one in events)
    trigger_origin = TriggerOrigin(trigger.id, last.source, last.id, depth)
    return replace(
        job,
        task=task,
        payload=payload,
        created_at=now,
        finish_by=deadline_from_template(job, now),
        trigger_origin=trigger_origin,
    )


# Debounce windows


def _buffer(
    t: SchedulerState,
    entry: TriggerEntry,
    decision_id: TriggerDecisionId,
    event: tuple[Event, dict[str, Any]],
    now: Instant,
) -> MatchResult:
    """Adds the event to its window, which closes now if it is full."""
    received, value = event
    buffering = entry.trigger.definition.buffering
    assert buffering is not None
    key = _window_key(entry, value)
    open_window = entry.windows.get(key)
    limits = t.limits
    if open_window is None and len(entry.windows) >= limits.windows_max:
        return MatchResult(
            EventDecision.FAILED, f"{limits.windows_max} of its windows are open, the maximum"
        )
    if t.trigger_index.buffered_bytes > limits.buffered_bytes_max:
        return MatchResult(
            EventDecision.FAILED,
            f"{limits.buffered_bytes_max} bytes of events are buffered, the maximum",
        )
    opened_at = now if open_window is None else open_window.opened_at
    buffered = BufferedEvent(decision_id, entry.trigger.id, key, received, now, opened_at)
    window = t.trigger_index.buffer(entry, buffered)
    if buffering.keep is DebounceKeep.LAST:
        _supersede(t, window, buffered, now)
    if not window.is_full(buffering.size_max):
        t.trigger_index.set_window_timer(entry, key, closing_time(buffering, window.opened_at, now))
        return MatchResult(EventDecision.HELD)
    return close_window(t, entry, key, now)


def _window_key(entry: TriggerEntry, value: dict[str, Any]) -> str:
    if entry.window_key is None:
        return ""
    found = look_up(entry.window_key, value)
    return "" if found is MISSING else msgspec.json.encode(found).decode()


def closing_time(buffering: EventBuffering, opened_at: Instant, last_at: Instant) -> Instant:
    """When a window closes that gets no further event."""
    ends = []
    if buffering.quiet_ms is not None:
        ends.append(last_at + buffering.quiet_ms)
    if buffering.wait_ms is not None:
        ends.append(opened_at + buffering.wait_ms)
    return min(ends)


def _supersede(t: SchedulerState, window: OpenWindow, newest: BufferedEvent, now: Instant) -> None:
    for buffered in [one for one in window.events.values() if one.id != newest.id]:
        t.trigger_index.release(window, buffered)
        t.trigger_index.record(
            _with_result(_buffered_decision(buffered), MatchResult(EventDecision.SUPERSEDED), now)
        )


def _buffered_decision(buffered: BufferedEvent) -> TriggerDecision:
    event = buffered.event
    return TriggerDecision(
        buffered.id,
        buffered.trigger_id,
        event.source,
        event.id,
        event.type,
        buffered.at,
        EventDecision.HELD,
    )


def close_window(t: SchedulerState, entry: TriggerEntry, key: str, now: Instant) -> MatchResult:
    """Submits one job for all events of the window."""
    events = t.trigger_index.close(entry, key)
    result = _fire(t, entry, [one.event for one in events], events[-1].id, now)
    for one in events:
        t.trigger_index.record(_with_result(_buffered_decision(one), result, now))
    return result


def timer_fired(t: SchedulerState, name: str, when: Instant, now: Instant) -> None:
    """Closes the window of a timer; while its trigger is paused the window stays open."""
    found = t.trigger_index.window_of_timer(name)
    if found is None:
        return
    entry, key, window = found
    if window.closes_at == when and not entry.trigger.paused:
        close_window(t, entry, key, now)


def is_timer_current(t: SchedulerState, name: str, when: Instant) -> bool:
    """Whether a window's timer is still valid."""
    found = t.trigger_index.window_of_timer(name)
    return found is not None and found[2].closes_at == when


def drop_windows(t: SchedulerState, entry: TriggerEntry, now: Instant) -> None:
    """Drops all buffered events of the trigger."""
    for key in list(entry.windows):
        for buffered in t.trigger_index.close(entry, key):
            t.trigger_index.record(
                _with_result(_buffered_decision(buffered), MatchResult(EventDecision.DROPPED), now)
            )


def set_window_timers(t: SchedulerState, entry: TriggerEntry, now: Instant) -> None:
    """Sets the timers of all windows of a trigger that was loaded or changed."""
    buffering = entry.trigger.definition.buffering
    for key, window in entry.windows.items():
        if buffering is None:
            t.trigger_index.set_window_timer(entry, key, now)
            continue
        last_at = max(one.at for one in window.events.values())
        # If the clock was set back during a restart, durations count from now.
        closes_at = closing_time(buffering, min(window.opened_at, now), min(last_at, now))
        t.trigger_index.set_window_timer(entry, key, max(now, closes_at))
