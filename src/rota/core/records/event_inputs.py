"""What can happen to triggers: events, and people who make and change them."""

from __future__ import annotations

from typing import TypeAlias

from rota.core.model import TriggerId
from rota.core.records.events import Event, TriggerDefinition
from rota.core.records.keyed import Idempotent, Input


class EventInput(Idempotent, frozen=True, kw_only=True):
    """The base of what happens to triggers, so that they are told from all else at once."""


class NewTrigger(Input, frozen=True, kw_only=True):
    """One trigger to make; in a deployment the id is used only if its name is new."""

    id: TriggerId
    definition: TriggerDefinition
    paused: bool = False


class CreateTrigger(EventInput, frozen=True, kw_only=True):
    """A new trigger."""

    trigger: NewTrigger


class UpdateTrigger(EventInput, frozen=True, kw_only=True):
    """Replaces the rule of a trigger; `revision` is the one it was read at."""

    trigger_id: TriggerId
    definition: TriggerDefinition
    revision: int
    paused: bool


class DeleteTrigger(EventInput, frozen=True, kw_only=True):
    """A trigger makes no more jobs, and is gone; what it made goes on."""

    trigger_id: TriggerId


class PauseTrigger(EventInput, frozen=True, kw_only=True):
    """A trigger makes no jobs until it is resumed, or does again."""

    trigger_id: TriggerId
    paused: bool


class DeployTriggers(EventInput, frozen=True, kw_only=True):
    """All triggers that a program has: what it had and names no more is retired."""

    owner: str
    triggers: tuple[NewTrigger, ...]
    tenant: str | None = None
    """Of this tenant only, whoever else has an owner of that name; None: of all."""


class ReceiveEvents(EventInput, frozen=True, kw_only=True):
    """Things that happened outside; `recall` has those of them that were told before."""

    events: tuple[Event, ...]


AnyEventInput: TypeAlias = (
    ReceiveEvents | CreateTrigger | UpdateTrigger | DeleteTrigger | PauseTrigger | DeployTriggers
)
