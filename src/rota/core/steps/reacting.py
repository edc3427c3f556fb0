"""Events that come in, and what each trigger makes of them, all in the same step.

The job, the record of the event and what becomes of it are written in the same turn, so that an
event that was answered has had its effect, and the same event again has none.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from rota.core.errors import Refusal, StaleRecall
from rota.core.ids import arrival_id, triggered_id
from rota.core.inputs import NewJob
from rota.core.limits import (
    CHAIN_DEPTH_MAX,
    JOB_EVENT_BYTES_MAX,
    TRIGGERED_BYTES_MAX,
)
from rota.core.memory.cells import JobCell
from rota.core.model import Instant, JobId, Spec, Stimulus
from rota.core.outcome import EventsTaken
from rota.core.records.event_inputs import ReceiveEvents
from rota.core.records.events import (
    Arrival,
    ArrivalId,
    Event,
    Gathering,
    Held,
    Keep,
    Told,
    Verdict,
    event_key,
    event_value,
    own_event,
)
from rota.core.records.zones import utc_text
from rota.core.steps.intake import submit_independent
from rota.core.tables import Tables
from rota.core.times.slack import deadline_from_template
from rota.core.triggers.bus import DEADLINE_EVENTS, JOB_EVENTS, OpenWindow, TriggerEntry
from rota.core.triggers.filters import MISSING, StepLimitError, look_up, passes
from rota.core.triggers.slots import fill_event_template


class MatchResult(msgspec.Struct, frozen=True):
    """What is to become of an event at a trigger."""

    decision: Verdict
    detail: str = ""
    job_id: JobId | None = None


FIRES = MatchResult(Verdict.FIRED)


def accept_events(t: Tables, event: ReceiveEvents, now: Instant) -> EventsTaken:
    """Events from outside; each has its effect once, however often it is sent."""
    assert event.recall is not None, "events come with what the tables know of them"
    if t.recent.is_stale(event.recall.at, now):
        raise StaleRecall("too long since the events were looked up")
    recalled = {told.key: told for told in event.recall.told}
    taken: list[Told] = []
    repeated: list[bool] = []
    for one in event.events:
        key = event_key(one)
        known = t.bus.accepted(key) or recalled.get(key)
        if known is None:
            told = _match(t, one, key, now)
        else:
            told = replace(known, repeats=known.repeats + 1)
            t.bus.remember(told, now)
        taken.append(told)
        repeated.append(known is not None)
    return EventsTaken(tuple(taken), tuple(repeated))


def match_job_events(t: Tables, now: Instant) -> None:
    """Jobs that ended are events too. The jobs they make may end at once: so until all is quiet."""
    warned, t.bus.deadline_notices = t.bus.deadline_notices, []
    for cell, word in warned:
        event = deadline_event(cell, word, now)
        _match(t, event, event_key(event), now)
    while t.bus.ended_jobs:
        ended, t.bus.ended_jobs = t.bus.ended_jobs, []
        for cell in ended:
            event = job_event(cell, now)
            _match(t, event, event_key(event), now)


def deadline_event(cell: JobCell, word: str, now: Instant) -> Event:
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


def job_event(cell: JobCell, now: Instant) -> Event:
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
    if spec.stimulus is not None:
        about["trigger_id"] = spec.stimulus.trigger_id
        depth = spec.stimulus.depth
    # A job that a person starts over ends again, and that is another event.
    event = own_event((JOB_EVENTS[life.state], f"{cell.id}/{life.lives}"), about, now, depth)
    return replace(event, tenant=terms.tenant)


def _match(t: Tables, event: Event, key: str, now: Instant) -> Told:
    listening = t.bus.listening(event)
    value = event_value(event) if listening else {}
    arrivals = []
    for cell in listening:
        arrival = Arrival(
            arrival_id(cell.trigger.id, key, now),
            cell.trigger.id,
            event.source,
            event.id,
            event.type,
            now,
            Verdict.FAILED,
        )
        decided = _with_result(arrival, _decide(t, cell, arrival.id, (event, value), now), now)
        t.bus.record(decided)
        arrivals.append(decided)
    told = Told(key, event.source, event.id, event.type, now, tuple(arrivals), tenant=event.tenant)
    t.bus.remember(told, now)
    return told


def _with_result(arrival: Arrival, judgement: MatchResult, now: Instant) -> Arrival:
    return replace(
        arrival,
        verdict=judgement.decision,
        detail=judgement.detail,
        job_id=judgement.job_id,
        decided_at=now,
    )


def _decide(
    t: Tables,
    cell: TriggerEntry,
    arrival: ArrivalId,
    event: tuple[Event, dict[str, Any]],
    now: Instant,
) -> MatchResult:
    judgement = evaluate(cell, event, now)
    if judgement.decision is Verdict.HELD:
        return _buffer(t, cell, arrival, event, now)
    if judgement.decision is Verdict.FIRED:
        return _fire(t, cell, [event[0]], arrival, now)
    return judgement


def evaluate(cell: TriggerEntry, event: tuple[Event, dict[str, Any]], now: Instant) -> MatchResult:
    """What the trigger would make of the event now; changes nothing."""
    told, value = event
    if cell.trigger.paused:
        return MatchResult(Verdict.PAUSED)
    try:
        if not passes(cell.filter, value):
            return MatchResult(Verdict.FILTERED)
    except StepLimitError as error:
        return MatchResult(Verdict.FAILED, f"the filter was given up: {error}")
    if told.depth >= CHAIN_DEPTH_MAX:
        return MatchResult(Verdict.TOO_DEEP, f"{told.depth} triggers have led to this event")
    if cell.trigger.rule.gathering is not None:
        return MatchResult(Verdict.HELD)
    return FIRES if _may_start(cell, now) else _limited(cell)


# Rate limits: the same exact arithmetic that queues have


def _may_start(cell: TriggerEntry, now: Instant) -> bool:
    rate = cell.trigger.rule.rate
    if rate is None:
        return True
    burst = (rate.count - 1) * rate.per_ms
    return cell.next_start - burst <= now * rate.count


def _spend_start(cell: TriggerEntry, now: Instant) -> None:
    rate = cell.trigger.rule.rate
    if rate is not None:
        cell.next_start = max(cell.next_start, now * rate.count) + rate.per_ms


def _limited(cell: TriggerEntry) -> MatchResult:
    rate = cell.trigger.rule.rate
    assert rate is not None
    return MatchResult(Verdict.LIMITED, f"{rate.count} jobs in {rate.per_ms / 1000:g} s were made")


# Making jobs


def _fire(
    t: Tables, cell: TriggerEntry, events: list[Event], arrival: ArrivalId, now: Instant
) -> MatchResult:
    """One job for the events; `arrival` is the one that set it off."""
    if not _may_start(cell, now):
        return _limited(cell)
    spec = spec_for(cell, events, now)
    for name, text in (("task", spec.task), ("payload", spec.payload)):
        if len(text) > TRIGGERED_BYTES_MAX:
            detail = f"with the event in it the {name} is larger than {TRIGGERED_BYTES_MAX} bytes"
            return MatchResult(Verdict.FAILED, detail)
    try:
        job = submit_independent(t, NewJob(id=triggered_id(arrival, now), spec=spec), now)
    except Refusal as refusal:
        return MatchResult(Verdict.FAILED, refusal.detail)
    _spend_start(cell, now)
    return MatchResult(Verdict.FIRED, job_id=job.id)


def spec_for(cell: TriggerEntry, events: list[Event], now: Instant) -> Spec:
    """The trigger's job for these events."""
    trigger, job = cell.trigger, cell.trigger.rule.job
    last, gathering = events[-1], cell.trigger.rule.gathering
    # Several may wait though the rule, changed since, gathers none or keeps the last.
    together = len(events) > 1 or (gathering is not None and gathering.keep is Keep.ALL)
    values = [event_value(one) for one in events]
    known = {
        "event": values[-1],
        "events": values,
        "count": len(events) if together else None,
        "trigger": {"id": trigger.id, "name": trigger.rule.name},
    }
    task, payload = fill_event_template(job, known)
    depth = 1 + max(one.depth for one in events)
    stimulus = Stimulus(trigger.id, last.source, last.id, depth)
    return replace(
        job,
        task=task,
        payload=payload,
        created_at=now,
        finish_by=deadline_from_template(job, now),
        stimulus=stimulus,
    )


# Windows


def _buffer(
    t: Tables,
    cell: TriggerEntry,
    arrival: ArrivalId,
    event: tuple[Event, dict[str, Any]],
    now: Instant,
) -> MatchResult:
    """The event waits in its window, which closes now if it is full."""
    told, value = event
    gathering = cell.trigger.rule.gathering
    assert gathering is not None
    key = _window_key(cell, value)
    there = cell.windows.get(key)
    limits = t.limits
    if there is None and len(cell.windows) >= limits.windows_max:
        return MatchResult(Verdict.FAILED, f"{limits.windows_max} of its windows are open already")
    if t.bus.buffered_bytes > limits.held_bytes_max:
        return MatchResult(Verdict.FAILED, f"events of {limits.held_bytes_max} bytes wait already")
    opened_at = now if there is None else there.opened_at
    held = Held(arrival, cell.trigger.id, key, told, now, opened_at)
    window = t.bus.buffer(cell, held)
    if gathering.keep is Keep.LAST:
        _supersede(t, window, held, now)
    if not window.is_full(gathering.size_max):
        t.bus.set_window_timer(cell, key, closing_time(gathering, window.opened_at, now))
        return MatchResult(Verdict.HELD)
    return close_window(t, cell, key, now)


def _window_key(cell: TriggerEntry, value: dict[str, Any]) -> str:
    if cell.window_key is None:
        return ""
    found = look_up(cell.window_key, value)
    return "" if found is MISSING else msgspec.json.encode(found).decode()


def closing_time(gathering: Gathering, opened_at: Instant, last_at: Instant) -> Instant:
    """When a window that nobody joins any more makes its job."""
    ends = []
    if gathering.quiet_ms is not None:
        ends.append(last_at + gathering.quiet_ms)
    if gathering.wait_ms is not None:
        ends.append(opened_at + gathering.wait_ms)
    return min(ends)


def _supersede(t: Tables, window: OpenWindow, newest: Held, now: Instant) -> None:
    for held in [one for one in window.events.values() if one.id != newest.id]:
        t.bus.release(window, held)
        t.bus.record(_with_result(_buffered_decision(held), MatchResult(Verdict.SUPERSEDED), now))


def _buffered_decision(held: Held) -> Arrival:
    event = held.event
    return Arrival(
        held.id, held.trigger_id, event.source, event.id, event.type, held.at, Verdict.HELD
    )


def close_window(t: Tables, cell: TriggerEntry, key: str, now: Instant) -> MatchResult:
    """All that waits in the window makes one job."""
    held = t.bus.close(cell, key)
    judgement = _fire(t, cell, [one.event for one in held], held[-1].id, now)
    for one in held:
        t.bus.record(_with_result(_buffered_decision(one), judgement, now))
    return judgement


def timer_fired(t: Tables, name: str, when: Instant, now: Instant) -> None:
    """A window's timer rang; while its trigger is paused the window stays open."""
    found = t.bus.window_of_timer(name)
    if found is None:
        return
    cell, key, window = found
    if window.closes_at == when and not cell.trigger.paused:
        close_window(t, cell, key, now)


def is_timer_current(t: Tables, name: str, when: Instant) -> bool:
    """Whether a window's timer is still the one that counts."""
    found = t.bus.window_of_timer(name)
    return found is not None and found[2].closes_at == when


def drop_windows(t: Tables, cell: TriggerEntry, now: Instant) -> None:
    """What waits in the trigger's windows will make no job."""
    for key in list(cell.windows):
        for held in t.bus.close(cell, key):
            t.bus.record(_with_result(_buffered_decision(held), MatchResult(Verdict.DROPPED), now))


def set_window_timers(t: Tables, cell: TriggerEntry, now: Instant) -> None:
    """Sets the timers of all its windows: they were loaded, or the rule has changed."""
    gathering = cell.trigger.rule.gathering
    for key, window in cell.windows.items():
        if gathering is None:
            t.bus.set_window_timer(cell, key, now)
            continue
        last_at = max(one.at for one in window.events.values())
        # Where the clock went back while nobody was there, the length counts, not the hour.
        closes_at = closing_time(gathering, min(window.opened_at, now), min(last_at, now))
        t.bus.set_window_timer(cell, key, max(now, closes_at))
