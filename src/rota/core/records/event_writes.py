"""The facts about triggers and events that a journal record may hold."""

from __future__ import annotations

from typing import TypeAlias

from rota.core.model import TriggerId
from rota.core.records.events import Arrival, ArrivalId, Held, Told, Trigger
from rota.core.records.write import Write


class PutTrigger(Write, frozen=True, tag="t"):
    """A trigger, as a whole."""

    trigger: Trigger


class DropTrigger(Write, frozen=True, tag="dt"):
    """A trigger is gone. What it made of events stays until it is too old."""

    id: TriggerId


class PutEvent(Write, frozen=True, tag="v"):
    """An event was accepted, or came again."""

    told: Told


class PutArrival(Write, frozen=True, tag="a"):
    """What a trigger made of an event; in place of an earlier record of the same."""

    arrival: Arrival


class PutHeld(Write, frozen=True, tag="h"):
    """An event waits for others."""

    held: Held


class ReleaseHeld(Write, frozen=True, tag="rh"):
    """Events wait no more."""

    ids: tuple[ArrivalId, ...]


AnyEventWrite: TypeAlias = PutTrigger | DropTrigger | PutEvent | PutArrival | PutHeld | ReleaseHeld
