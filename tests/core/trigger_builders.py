"""Triggers and events in few words: what a test does not say is the default."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from rota.core.commands import (
    CreateTrigger,
    DeleteTrigger,
    DeployTriggers,
    NewTrigger,
    PauseTrigger,
    Preloaded,
    ReceiveEvents,
    UpdateTrigger,
)
from rota.core.model import JobId, Spec, TriggerId
from rota.core.outcome import AnyReceipt, Deployed, EventsAccepted
from rota.core.trigger_model import (
    AcceptedEvent,
    Event,
    EventBuffering,
    TriggerDecision,
    TriggerDefinition,
    event_key,
)
from tests.core.asking import spec
from tests.core.world import World

UPLOADED = "object.uploaded"


def event(event_id: str = "e1", kind: str = UPLOADED, data: Any = None, **given: Any) -> Event:
    """An upload unless said otherwise."""
    text = msgspec.json.encode({"size": 1} if data is None else data)
    return Event(given.pop("source", "/bucket"), event_id, kind, text, **given)


def template(task: Any = None, payload: Any = None, **asked: Any) -> Spec:
    """A job with slots in it."""
    made = replace(spec(**asked), created_at=0)
    if task is not None:
        made = replace(made, task=msgspec.json.encode(task))
    return made if payload is None else replace(made, payload=msgspec.json.encode(payload))


def rule(name: str = "uploads", kind: str = UPLOADED, **given: Any) -> TriggerDefinition:
    """Every upload makes a job unless said otherwise."""
    if "where" in given:
        given["filter"] = msgspec.json.encode(given.pop("where"))
    return TriggerDefinition(name, kind, given.pop("job", None) or template(), **given)


class Stirred(World):
    """A world in which things happen."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._trigger_ids = 0

    def trigger(self, name: str = "uploads", *, paused: bool = False, **given: Any) -> TriggerId:
        """Makes one."""
        self._trigger_ids += 1
        trigger_id = TriggerId(f"trigger-{self._trigger_ids:04}")
        new = NewTrigger(id=trigger_id, definition=rule(name, **given), paused=paused)
        self.step(CreateTrigger(trigger=new))
        return trigger_id

    def change(self, trigger_id: TriggerId, **given: Any) -> AnyReceipt:
        """Another rule for it."""
        before = self.ledger.triggers[trigger_id]
        wanted = rule(before.definition.name, **given)
        return self.step(
            UpdateTrigger(
                trigger_id=trigger_id, definition=wanted, revision=before.revision, paused=False
            )
        )

    def delete(self, trigger_id: TriggerId) -> AnyReceipt:
        return self.step(DeleteTrigger(trigger_id=trigger_id))

    def pause(self, trigger_id: TriggerId, *, paused: bool = True) -> AnyReceipt:
        return self.step(PauseTrigger(trigger_id=trigger_id, paused=paused))

    def deploy(self, owner: str, *rules: TriggerDefinition) -> Deployed:
        new = []
        for one in rules:
            self._trigger_ids += 1
            trigger_id = TriggerId(f"trigger-{self._trigger_ids:04}")
            new.append(NewTrigger(id=trigger_id, definition=replace(one, owner=owner)))
        receipt = self.step(DeployTriggers(owner=owner, triggers=tuple(new)))
        assert isinstance(receipt, Deployed)
        return receipt

    def send(self, *events: Event) -> list[AcceptedEvent]:
        """Events come in, with what the tables know of them."""
        self.now += 1
        keys = [event_key(one) for one in events]
        known = tuple(self.ledger.accepted[key] for key in keys if key in self.ledger.accepted)
        receipt = self.step(
            ReceiveEvents(events=events, preloaded=Preloaded(at=self.now, accepted_events=known))
        )
        assert isinstance(receipt, EventsAccepted)
        return list(receipt.events)

    def ledger_of(self, trigger_id: TriggerId) -> list[TriggerDecision]:
        """What it made of events, the oldest first."""
        found = [one for one in self.ledger.decisions.values() if one.trigger_id == trigger_id]
        return sorted(found, key=lambda one: (one.at, one.id))

    def words(self, trigger_id: TriggerId) -> list[str]:
        """The same, each in a word."""
        return [one.decision.value for one in self.ledger_of(trigger_id)]

    def jobs_of(self, trigger_id: TriggerId) -> list[JobId]:
        """The jobs it made, each once, the oldest first."""
        made = [one.job_id for one in self.ledger_of(trigger_id) if one.job_id is not None]
        return list(dict.fromkeys(made))

    def payload(self, job_id: JobId) -> Any:
        return msgspec.json.decode(self.record(job_id).spec.payload)

    def task(self, job_id: JobId) -> Any:
        return msgspec.json.decode(self.record(job_id).spec.task)


def debounce(quiet_ms: int = 5_000, **given: Any) -> EventBuffering:
    return EventBuffering(quiet_ms=quiet_ms, **given)


def batch(size: int, wait_ms: int = 10_000, **given: Any) -> EventBuffering:
    return EventBuffering(size_max=size, wait_ms=wait_ms, **given)
