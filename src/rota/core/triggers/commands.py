"""Trigger commands: create, change, pause, delete, deploy, and dry runs of an event."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from rota.core.commands import (
    AnyEventInput,
    CreateTrigger,
    DeleteTrigger,
    DeployTriggers,
    NewTrigger,
    PauseTrigger,
    ReceiveEvents,
    UpdateTrigger,
)
from rota.core.errors import Conflict, Invalid, NotFound, StalePreload, TooMuch
from rota.core.expressions import parse_path, read_filter
from rota.core.info_model import TriggerDryRun, TriggerInfo
from rota.core.limits import BUFFERED_PER_JOB_MAX, TRIGGERS_MAX
from rota.core.model import Instant, TriggerId
from rota.core.outcome import AnyReceipt, Deployed, TriggerAnswer, TriggerGone
from rota.core.state import SchedulerState
from rota.core.templates import check_event_placeholders
from rota.core.trigger_model import Event, EventDecision, Trigger, TriggerDefinition, event_value
from rota.core.triggers.match import (
    accept_events,
    drop_windows,
    evaluate,
    set_window_timers,
    spec_for,
)
from rota.core.triggers.trigger_index import TriggerEntry


def handle(t: SchedulerState, event: AnyEventInput, now: Instant) -> AnyReceipt:
    match event:
        case ReceiveEvents():
            return accept_events(t, event, now)
        case CreateTrigger():
            return create(t, event, now)
        case UpdateTrigger():
            return update(t, event, now)
        case DeleteTrigger():
            return delete(t, event, now)
        case PauseTrigger():
            return pause(t, event, now)
        case DeployTriggers():
            return deploy(t, event, now)
        case _:
            assert_never(event)


def create(t: SchedulerState, event: CreateTrigger, now: Instant) -> TriggerAnswer:
    """Creates a trigger; it sees events that come after it."""
    _check_new(t, event.trigger)
    return TriggerAnswer(_add(t, event.trigger, now).trigger)


def _check_new(t: SchedulerState, new: NewTrigger) -> None:
    check_rule(new.definition)
    if new.id in t.trigger_index.entries:
        raise Conflict(f"there is a trigger {new.id} already")
    existing = t.trigger_index.by_name(*_name(new.definition))
    if existing is not None:
        raise Conflict(
            f"there is a trigger {new.definition.name!r} already:"
            f" change it ({existing.trigger.id}), or take another name"
        )
    if len(t.trigger_index.entries) >= TRIGGERS_MAX:
        raise TooMuch(f"there are {TRIGGERS_MAX} triggers already; delete some")


def _add(t: SchedulerState, new: NewTrigger, now: Instant) -> TriggerEntry:
    return t.trigger_index.put(Trigger(new.id, new.definition, now, now, new.paused))


def check_rule(rule: TriggerDefinition) -> None:
    """Refuses a trigger that could never fire, or not as it was meant."""
    read_filter(rule.filter)
    check_event_placeholders(rule.job)
    if rule.job.dependencies:
        raise Invalid("a trigger's job cannot depend on other jobs", "job.dependencies")
    buffering = rule.buffering
    if buffering is None:
        return
    if buffering.key:
        parse_path(buffering.key)
    if buffering.size_max > BUFFERED_PER_JOB_MAX:
        raise Invalid(f"at most {BUFFERED_PER_JOB_MAX} events make one job", "batch.size")


def update(t: SchedulerState, event: UpdateTrigger, now: Instant) -> TriggerAnswer:
    """Changes the definition; buffered events follow it too."""
    entry = t.trigger_index.entry(event.trigger_id)
    if entry.trigger.revision != event.revision:
        raise StalePreload(f"trigger {event.trigger_id} was changed since it was read")
    _check_change(t, entry, event.definition)
    return TriggerAnswer(_change(t, entry, event.definition, event.paused, now).trigger)


def _check_change(t: SchedulerState, entry: TriggerEntry, rule: TriggerDefinition) -> None:
    check_rule(rule)
    existing = t.trigger_index.by_name(*_name(rule))
    if existing is not None and existing is not entry:
        raise Conflict(
            f"there is a trigger {rule.name!r} already ({existing.trigger.id}): take another name"
        )


def _change(
    t: SchedulerState, entry: TriggerEntry, rule: TriggerDefinition, paused: bool, now: Instant
) -> TriggerEntry:
    before = entry.trigger
    if rule.rate != before.definition.rate:
        entry.next_start = 0
    changed = t.trigger_index.put(
        replace(
            before, definition=rule, paused=paused, updated_at=now, revision=before.revision + 1
        )
    )
    set_window_timers(t, changed, now)
    return changed


def delete(t: SchedulerState, event: DeleteTrigger, now: Instant) -> TriggerGone:
    """Deletes the trigger and drops its buffered events."""
    entry = t.trigger_index.entry(event.trigger_id)
    drop_windows(t, entry, now)
    t.trigger_index.drop(entry)
    return TriggerGone(event.trigger_id)


def pause(t: SchedulerState, event: PauseTrigger, now: Instant) -> TriggerAnswer:
    """Pauses or resumes; while paused, events are recorded without jobs and windows stay open."""
    entry = t.trigger_index.entry(event.trigger_id)
    if entry.trigger.paused != event.paused:
        t.trigger_index.put(replace(entry.trigger, paused=event.paused, updated_at=now))
        set_window_timers(t, entry, now)
    return TriggerAnswer(entry.trigger)


def deploy(t: SchedulerState, event: DeployTriggers, now: Instant) -> Deployed:
    """Replaces the triggers of an app by these: everything is checked before anything changes."""
    names = [_name(new.definition) for new in event.triggers]
    if len(dict.fromkeys(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Invalid(f"two triggers are named {twice[1]!r}", "triggers")
    for index, new in enumerate(event.triggers):
        _check_deployed(t, event.owner, new, index)
    done: dict[str, list[str]] = {"created": [], "changed": [], "unchanged": [], "retired": []}
    for new in event.triggers:
        done[_deploy_one(t, new, now)].append(new.definition.name)
    for entry in _owned(t, event):
        if _name(entry.trigger.definition) not in names:
            delete(t, DeleteTrigger(trigger_id=entry.trigger.id), now)
            done["retired"].append(entry.trigger.definition.name)
    return Deployed(**{word: tuple(found) for word, found in done.items()})


def _check_deployed(t: SchedulerState, owner: str, new: NewTrigger, index: int) -> None:
    existing = t.trigger_index.by_name(*_name(new.definition))
    try:
        if existing is None:
            _check_new(t, new)
            return
        if existing.trigger.definition.owner != owner:
            owned_by = existing.trigger.definition.owner or "a person"
            raise Conflict(
                f"the trigger {new.definition.name!r} belongs to {owned_by}: take another name"
            )
        _check_change(t, existing, new.definition)
    except Invalid as refusal:
        raise Invalid(refusal.detail, f"triggers[{index}].{refusal.field}") from None


def _deploy_one(t: SchedulerState, new: NewTrigger, now: Instant) -> str:
    existing = t.trigger_index.by_name(*_name(new.definition))
    if existing is None:
        _add(t, new, now)
        return "created"
    if existing.trigger.definition == new.definition:
        return "unchanged"
    # A trigger that a person paused stays paused: a new version of the app must not undo that.
    _change(t, existing, new.definition, existing.trigger.paused, now)
    return "changed"


def _owned(t: SchedulerState, event: DeployTriggers) -> list[TriggerEntry]:
    rules = [(entry, entry.trigger.definition) for entry in t.trigger_index.entries.values()]
    return [
        entry
        for entry, rule in rules
        if rule.owner == event.owner and event.tenant in (None, rule.job.terms.tenant)
    ]


def _name(rule: TriggerDefinition) -> tuple[str, str]:
    return (rule.job.terms.tenant, rule.name)


# Dry runs


def try_event(
    t: SchedulerState, event: Event, only: TriggerId | None, now: Instant
) -> list[TriggerDryRun]:
    """Dry run of an event on all triggers that listen to it, or on one of them."""
    if only is None:
        entries = t.trigger_index.listening(event)
    else:
        found = t.trigger_index.entries.get(only)
        if found is None:
            raise NotFound("trigger", only)
        entries = [found] if found in t.trigger_index.listening(event) else []
    return [_try(entry, event, now) for entry in entries]


def try_rule(rule: TriggerDefinition, event: Event, now: Instant) -> TriggerDryRun:
    """Dry run of an event on a trigger that does not exist."""
    check_rule(rule)
    return _try(TriggerEntry(Trigger(TriggerId(""), rule, now, now)), event, now)


def _try(entry: TriggerEntry, event: Event, now: Instant) -> TriggerDryRun:
    result = evaluate(entry, (event, event_value(event)), now)
    makes = result.decision in (EventDecision.FIRED, EventDecision.HELD)
    job = spec_for(entry, [event], now) if makes else None
    return TriggerDryRun(entry.trigger, result.decision, result.detail, job)


def trigger_info(entry: TriggerEntry) -> TriggerInfo:
    windows = entry.windows.values()
    closes_at = min((window.closes_at for window in windows), default=None)
    waiting = sum(len(window.events) for window in windows)
    return TriggerInfo(entry.trigger, waiting, None if entry.trigger.paused else closes_at)
