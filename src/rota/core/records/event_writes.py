"""The facts about triggers and events that a journal record may hold."""

from __future__ import annotations

from typing import TypeAlias

from rota.core.model import TriggerId
from rota.core.records.events import (
    AcceptedEvent,
    BufferedEvent,
    Trigger,
    TriggerDecision,
    TriggerDecisionId,
)
from rota.core.records.write import Write


class PutTrigger(Write, frozen=True, tag="t"):
    """A trigger, as a whole."""

    trigger: Trigger


class DropTrigger(Write, frozen=True, tag="dt"):
    """A trigger is gone. What it made of events stays until it is too old."""

    id: TriggerId


class PutEvent(Write, frozen=True, tag="v"):
    """An event was accepted, or came again."""

    event: AcceptedEvent


class PutTriggerDecision(Write, frozen=True, tag="a"):
    """What a trigger made of an event; in place of an earlier record of the same."""

    decision: TriggerDecision


class PutBufferedEvent(Write, frozen=True, tag="h"):
    """An event waits for others."""

    event: BufferedEvent


class ReleaseBufferedEvents(Write, frozen=True, tag="rh"):
    """Events wait no more."""

    ids: tuple[TriggerDecisionId, ...]


AnyEventWrite: TypeAlias = (
    PutTrigger
    | DropTrigger
    | PutEvent
    | PutTriggerDecision
    | PutBufferedEvent
    | ReleaseBufferedEvents
)
