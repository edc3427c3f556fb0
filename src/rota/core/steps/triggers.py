"""What people do to triggers: make, change, pause and remove them, and try them out."""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from rota.core.errors import Conflict, Invalid, NotFound, StaleRecall, TooMuch
from rota.core.limits import GATHERED_MAX, TRIGGERS_MAX
from rota.core.model import Instant, TriggerId
from rota.core.outcome import AnyReceipt, Deployed, TriggerAnswer, TriggerGone
from rota.core.records.event_inputs import (
    AnyEventInput,
    CreateTrigger,
    DeleteTrigger,
    DeployTriggers,
    NewTrigger,
    PauseTrigger,
    ReceiveEvents,
    UpdateTrigger,
)
from rota.core.records.events import Event, Rule, Trigger, Verdict, event_value
from rota.core.records.glance import Trial, TriggerGlance
from rota.core.steps.reacting import (
    accept_events,
    drop_windows,
    evaluate,
    set_window_timers,
    spec_for,
)
from rota.core.tables import Tables
from rota.core.triggers.bus import TriggerEntry
from rota.core.triggers.filter_text import parse_path
from rota.core.triggers.filters import read_filter
from rota.core.triggers.slots import check_event_placeholders


def handle(t: Tables, event: AnyEventInput, now: Instant) -> AnyReceipt:
    """Whatever happens to triggers."""
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


def create(t: Tables, event: CreateTrigger, now: Instant) -> TriggerAnswer:
    """A new trigger; it sees what comes after it."""
    _check_new(t, event.trigger)
    return TriggerAnswer(_add(t, event.trigger, now).trigger)


def _check_new(t: Tables, new: NewTrigger) -> None:
    check_rule(new.rule)
    if new.id in t.bus.entries:
        raise Conflict(f"there is a trigger {new.id} already")
    there = t.bus.by_name(*_name(new.rule))
    if there is not None:
        raise Conflict(
            f"there is a trigger {new.rule.name!r} already: change it ({there.trigger.id}), or take"
            " another name"
        )
    if len(t.bus.entries) >= TRIGGERS_MAX:
        raise TooMuch(f"there are {TRIGGERS_MAX} triggers already; delete some")


def _add(t: Tables, new: NewTrigger, now: Instant) -> TriggerEntry:
    return t.bus.put(Trigger(new.id, new.rule, now, now, new.paused))


def check_rule(rule: Rule) -> None:
    """Refuses what could never fire, or not as it was meant."""
    read_filter(rule.filter)
    check_event_placeholders(rule.job)
    if rule.job.dependencies:
        raise Invalid("a trigger's job depends on the event alone", "job.dependencies")
    gathering = rule.gathering
    if gathering is None:
        return
    if gathering.key:
        parse_path(gathering.key)
    if gathering.size_max > GATHERED_MAX:
        raise Invalid(f"at most {GATHERED_MAX} events make one job", "batch.size")


def update(t: Tables, event: UpdateTrigger, now: Instant) -> TriggerAnswer:
    """Another rule; what waits already goes by it too."""
    cell = t.bus.entry(event.trigger_id)
    if cell.trigger.revision != event.revision:
        raise StaleRecall(f"trigger {event.trigger_id} was changed meanwhile")
    _check_change(t, cell, event.rule)
    return TriggerAnswer(_change(t, cell, event.rule, event.paused, now).trigger)


def _check_change(t: Tables, cell: TriggerEntry, rule: Rule) -> None:
    check_rule(rule)
    there = t.bus.by_name(*_name(rule))
    if there is not None and there is not cell:
        raise Conflict(f"there is a trigger {rule.name!r} already: {there.trigger.id}")


def _change(t: Tables, cell: TriggerEntry, rule: Rule, paused: bool, now: Instant) -> TriggerEntry:
    before = cell.trigger
    if rule.rate != before.rule.rate:
        cell.next_start = 0
    changed = t.bus.put(
        replace(before, rule=rule, paused=paused, updated_at=now, revision=before.revision + 1)
    )
    set_window_timers(t, changed, now)
    return changed


def delete(t: Tables, event: DeleteTrigger, now: Instant) -> TriggerGone:
    """Nothing fires after this, and what waits is dropped."""
    cell = t.bus.entry(event.trigger_id)
    drop_windows(t, cell, now)
    t.bus.drop(cell)
    return TriggerGone(event.trigger_id)


def pause(t: Tables, event: PauseTrigger, now: Instant) -> TriggerAnswer:
    """While it is paused events are recorded and make no jobs; what waits goes on waiting."""
    cell = t.bus.entry(event.trigger_id)
    if cell.trigger.paused != event.paused:
        t.bus.put(replace(cell.trigger, paused=event.paused, updated_at=now))
        set_window_timers(t, cell, now)
    return TriggerAnswer(cell.trigger)


def deploy(t: Tables, event: DeployTriggers, now: Instant) -> Deployed:
    """A program's triggers become just these: all is checked before anything changes."""
    names = [_name(new.rule) for new in event.triggers]
    if len(dict.fromkeys(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Invalid(f"two triggers are named {twice[1]!r}", "triggers")
    for index, new in enumerate(event.triggers):
        _check_deployed(t, event.owner, new, index)
    done: dict[str, list[str]] = {"created": [], "changed": [], "unchanged": [], "retired": []}
    for new in event.triggers:
        done[_deploy_one(t, new, now)].append(new.rule.name)
    for cell in _owned(t, event):
        if _name(cell.trigger.rule) not in names:
            delete(t, DeleteTrigger(trigger_id=cell.trigger.id), now)
            done["retired"].append(cell.trigger.rule.name)
    return Deployed(**{word: tuple(found) for word, found in done.items()})


def _check_deployed(t: Tables, owner: str, new: NewTrigger, index: int) -> None:
    there = t.bus.by_name(*_name(new.rule))
    try:
        if there is None:
            _check_new(t, new)
            return
        if there.trigger.rule.owner != owner:
            whose = there.trigger.rule.owner or "a person"
            raise Conflict(f"the trigger {new.rule.name!r} is of {whose}: take another name")
        _check_change(t, there, new.rule)
    except Invalid as refusal:
        raise Invalid(refusal.detail, f"triggers[{index}].{refusal.field}") from None


def _deploy_one(t: Tables, new: NewTrigger, now: Instant) -> str:
    there = t.bus.by_name(*_name(new.rule))
    if there is None:
        _add(t, new, now)
        return "created"
    if there.trigger.rule == new.rule:
        return "unchanged"
    # Paused by a person, it stays so: a new version of a program must not undo that.
    _change(t, there, new.rule, there.trigger.paused, now)
    return "changed"


def _owned(t: Tables, event: DeployTriggers) -> list[TriggerEntry]:
    rules = [(cell, cell.trigger.rule) for cell in t.bus.entries.values()]
    return [
        cell
        for cell, rule in rules
        if rule.owner == event.owner and event.tenant in (None, rule.job.terms.tenant)
    ]


def _name(rule: Rule) -> tuple[str, str]:
    return (rule.job.terms.tenant, rule.name)


# Trying out


def try_event(t: Tables, event: Event, only: TriggerId | None, now: Instant) -> list[Trial]:
    """What triggers would make of an event; `only`: of one, whatever its type says."""
    if only is None:
        cells = t.bus.listening(event)
    else:
        found = t.bus.entries.get(only)
        if found is None:
            raise NotFound("trigger", only)
        cells = [found] if found in t.bus.listening(event) else []
    return [_try(cell, event, now) for cell in cells]


def try_rule(rule: Rule, event: Event, now: Instant) -> Trial:
    """What a trigger that nobody has made would make of it."""
    check_rule(rule)
    return _try(TriggerEntry(Trigger(TriggerId(""), rule, now, now)), event, now)


def _try(cell: TriggerEntry, event: Event, now: Instant) -> Trial:
    judgement = evaluate(cell, (event, event_value(event)), now)
    makes = judgement.decision in (Verdict.FIRED, Verdict.HELD)
    job = spec_for(cell, [event], now) if makes else None
    return Trial(cell.trigger, judgement.decision, judgement.detail, job)


def trigger_info(cell: TriggerEntry) -> TriggerGlance:
    """A trigger as it is now."""
    windows = cell.windows.values()
    closes_at = min((window.closes_at for window in windows), default=None)
    waiting = sum(len(window.events) for window in windows)
    return TriggerGlance(cell.trigger, waiting, None if cell.trigger.paused else closes_at)
