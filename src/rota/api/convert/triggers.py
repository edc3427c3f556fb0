"""Conversion of triggers and events between wire and core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from rota.api.convert.jobs import check_relative, spec_of
from rota.api.convert.schedules import job_form
from rota.api.parsing.request import check_depth
from rota.api.problems import invalid
from rota.core.errors import Invalid
from rota.core.info_model import TriggerDryRun, TriggerInfo
from rota.core.model import RateLimit, Spec
from rota.core.trigger_model import (
    EVENT_DECISION_MEANING,
    AcceptedEvent,
    DebounceKeep,
    EventBuffering,
    EventDecision,
    Trigger,
    TriggerDecision,
    TriggerDefinition,
)
from rota.wire.events import (
    ArrivalView,
    BatchingSpec,
    BatchingView,
    DebounceSpec,
    DebounceView,
    EventOutcome,
    EventView,
    TrialView,
    TriggerSpec,
    TriggerView,
)
from rota.wire.formats import (
    Duration,
    encode,
    from_instant,
    from_instant_or_none,
    number,
    parse_duration,
)
from rota.wire.jobs import JobSpec
from rota.wire.problems import FieldError, ProblemError
from rota.wire.queues import RateLimitView

NameOf = Callable[[str], str | None]


def trigger_definition_of(spec: TriggerSpec, owner: str = "", where: str = "") -> TriggerDefinition:
    """Converts a trigger; `where` is its path in a deployment."""
    rate = spec.rate_limit
    return TriggerDefinition(
        name=spec.name,
        event=spec.event,
        job=_template(spec.job, where + "job."),
        filter=_filter(spec.filter, where + "filter"),
        buffering=_debounce_window(spec, where),
        rate=None if rate is None else RateLimit(rate.count, rate.per.ms),
        owner=owner,
    )


def _filter(given: str | dict[str, Any] | None, field: str) -> bytes:
    if given is None:
        return b""
    text = encode(given)
    check_depth(field, text, given)
    return text


def _template(job: JobSpec, where: str) -> Spec:
    if job.dependencies:
        raise invalid(where + "dependencies", "the job of a trigger cannot depend on another job")
    for name in ("run_at", "expires_at"):
        if getattr(job, name) is not None:
            raise invalid(where + name, "the event says when: leave it out")
    check_relative(job, where)
    return spec_of(job, 0, (), where)


def _debounce_window(spec: TriggerSpec, where: str) -> EventBuffering | None:
    if spec.debounce is not None and spec.batch is not None:
        raise invalid(where + "batch", "either `debounce` or `batch`, not both")
    if spec.debounce is not None:
        return _debounce(spec.debounce, where + "debounce")
    if spec.batch is None:
        return None
    given = spec.batch
    if isinstance(given, int):
        given = BatchingSpec(size=given)
    return EventBuffering(wait_ms=given.wait.ms, size_max=given.size, key=given.key or "")


def _debounce(given: float | str | DebounceSpec, field: str) -> EventBuffering:
    if not isinstance(given, DebounceSpec):
        given = DebounceSpec(_length(given, field))
    longest = given.max_wait
    return EventBuffering(
        quiet_ms=given.wait.ms,
        wait_ms=None if longest is None else longest.ms,
        keep=DebounceKeep(given.keep),
        key=given.key or "",
    )


def _length(given: float | str, field: str) -> Duration:
    try:
        length = parse_duration(given)
    except ValueError as error:
        raise invalid(field, str(error)) from None
    if length.ms == 0:
        raise invalid(field, "must be more than 0")
    return length


def trigger_problem(refusal: Invalid) -> ProblemError:
    """Converts a refused definition."""
    field = refusal.field
    if field.endswith("key"):
        field = f"{field.removesuffix('key')}debounce.key"
    return ProblemError(
        422, refusal.code, refusal.detail, errors=[FieldError(field, refusal.detail)]
    )


def trigger_view(info: TriggerInfo) -> TriggerView:
    trigger, definition = info.trigger, info.trigger.definition
    rate = definition.rate
    return TriggerView(
        trigger_id=trigger.id,
        name=definition.name,
        event=definition.event,
        filter=msgspec.json.decode(definition.filter) if definition.filter else None,
        job=job_form(definition.job),
        debounce=_debounce_view(definition.buffering),
        batch=_batch_view(definition.buffering),
        rate_limit=None if rate is None else RateLimitView(rate.count, number(rate.per_ms)),
        paused=trigger.paused,
        waiting=info.waiting,
        closes_at=from_instant_or_none(info.closes_at),
        owner=definition.owner or None,
        revision=trigger.revision,
        created_at=from_instant(trigger.created_at),
        updated_at=from_instant(trigger.updated_at),
    )


def _debounce_view(buffering: EventBuffering | None) -> DebounceView | None:
    if buffering is None or buffering.quiet_ms is None:
        return None
    longest = buffering.wait_ms
    return DebounceView(
        number(buffering.quiet_ms),
        buffering.keep.value,
        None if longest is None else number(longest),
        buffering.key or None,
    )


def _batch_view(buffering: EventBuffering | None) -> BatchingView | None:
    if buffering is None or buffering.quiet_ms is not None:
        return None
    assert buffering.wait_ms is not None, "a batch ends at some time"
    return BatchingView(buffering.size_max, number(buffering.wait_ms), buffering.key or None)


def trigger_form(trigger: Trigger) -> dict[str, Any]:
    """Returns a trigger as it would be submitted again: what a patch is merged into."""
    view = msgspec.to_builtins(trigger_view(TriggerInfo(trigger, 0, None)))
    return {name: view[name] for name in TriggerSpec.__struct_fields__}


def trial_view(dry_run: TriggerDryRun) -> TrialView:
    """Says what a trigger would make of an event."""
    return TrialView(
        trigger_id=dry_run.trigger.id or None,
        name=dry_run.trigger.definition.name,
        outcome=dry_run.decision.value,
        message=_message(dry_run.decision, dry_run.detail),
        job=None if dry_run.job is None else job_form(dry_run.job),
    )


def arrival_view(one: TriggerDecision) -> ArrivalView:
    """Converts a trigger's decision about an event."""
    return ArrivalView(
        event_id=one.event_id,
        source=one.source,
        type=one.type,
        received_at=from_instant(one.at),
        outcome=one.decision.value,
        message=_message(one.decision, one.detail),
        job_id=one.job_id,
        decided_at=from_instant(one.decided_at),
    )


def event_view(event: AcceptedEvent, name_of: NameOf, *, duplicate: bool) -> EventView:
    """Converts an accepted event with the decisions of triggers about it."""
    made = [one.job_id for one in event.decisions if one.job_id is not None]
    return EventView(
        id=event.id,
        source=event.source,
        type=event.type,
        received_at=from_instant(event.at),
        duplicate=duplicate,
        repeats=event.repeats,
        job_ids=list(dict.fromkeys(made)),
        outcomes=[
            EventOutcome(
                trigger_id=one.trigger_id,
                name=name_of(one.trigger_id),
                outcome=one.decision.value,
                message=_message(one.decision, one.detail),
                job_id=one.job_id,
            )
            for one in event.decisions
        ],
    )


def _message(decision: EventDecision, detail: str) -> str:
    return "; ".join(part for part in (EVENT_DECISION_MEANING[decision], detail) if part)
