"""What both clients can ask about triggers and events: a method a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rota.sdk.calls import Call
from rota.sdk.flows import Flow, Terms
from rota.sdk.subjects import event_calls as calls
from rota.sdk.subjects import paging
from rota.sdk.subjects.event_calls import EventLike, TriggerLike
from rota.wire.events import ArrivalPage, EventPage, EventSpec, EventView, HookSpec, HookView
from rota.wire.schedules import DeployAnswer
from rota.wire.triggers import TrialView, TriggerView

T = TypeVar("T")


def named(event: EventLike, terms: Terms) -> EventLike:
    """The event with an id: whoever gives none says that no two of them are the same."""
    if isinstance(event, EventSpec) or "id" in event:
        return event
    return {**event, "id": terms.mint_key()}


class EventMethods:
    """For the client that blocks; whoever has it carries calls."""

    if TYPE_CHECKING:
        terms: Terms

        def call(self, call: Call[T], *, key: str | None = None) -> T: ...
        def run(self, flow: Flow[T]) -> T: ...

    def triggers(self, *, name: str | None = None, owner: str | None = None) -> list[TriggerView]:
        """All triggers that match, newest first."""
        return self.run(paging.all_triggers(self.terms, name=name, owner=owner))

    def trigger(self, trigger_id: str) -> TriggerView:
        """One trigger."""
        return self.call(calls.get_trigger(trigger_id))

    def create_trigger(self, trigger: TriggerLike) -> TriggerView:
        """Makes a trigger; it is durable when this returns."""
        return self.call(calls.create_trigger(trigger))

    def update_trigger(self, trigger_id: str, patch: Mapping[str, Any]) -> TriggerView:
        """Changes a trigger, by JSON Merge Patch."""
        return self.call(calls.update_trigger(trigger_id, patch))

    def delete_trigger(self, trigger_id: str) -> None:
        """Removes a trigger; its jobs go on."""
        self.call(calls.delete_trigger(trigger_id))

    def pause_trigger(self, trigger_id: str) -> TriggerView:
        """Lets a trigger make no jobs."""
        return self.call(calls.pause_trigger(trigger_id))

    def resume_trigger(self, trigger_id: str) -> TriggerView:
        """Lets a trigger go on."""
        return self.call(calls.resume_trigger(trigger_id))

    def trigger_events(
        self,
        trigger_id: str,
        *,
        outcome: Sequence[str] = (),
        limit: int | None = None,
        cursor: str | None = None,
    ) -> ArrivalPage:
        """What a trigger made of events, newest first."""
        return self.call(
            calls.trigger_events(trigger_id, outcome=outcome, limit=limit, cursor=cursor)
        )

    def try_event(
        self, event: EventLike, *, trigger: TriggerLike | None = None, trigger_id: str | None = None
    ) -> list[TrialView]:
        """What triggers would make of an event; nothing is stored."""
        return (
            self.call(
                calls.try_event(named(event, self.terms), trigger=trigger, trigger_id=trigger_id)
            )
        ).items

    def deploy_triggers(self, owner: str, triggers: Sequence[TriggerLike]) -> DeployAnswer:
        """Sets all triggers of a program; what it names no more is retired."""
        return self.call(calls.deploy_triggers(owner, triggers))

    def send_event(self, event: EventLike) -> EventView:
        """Tells that something happened; durable, with its effects, when this returns."""
        return self.call(calls.send_event(named(event, self.terms)))

    def send_events(self, events: Sequence[EventLike]) -> list[EventView]:
        """The same of many at once, all or none."""
        return (self.call(calls.send_events([named(one, self.terms) for one in events]))).items

    def events(
        self, *, type: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> EventPage:
        """Events that came, newest first."""
        return self.call(calls.list_events(type=type, limit=limit, cursor=cursor))

    def hooks(self) -> list[HookView]:
        """All webhook endpoints, by name."""
        return self.run(paging.all_hooks(self.terms))

    def set_hook(self, name: str, hook: HookSpec | Mapping[str, Any]) -> HookView:
        """Sets up a webhook endpoint."""
        return self.call(calls.set_hook(name, hook))

    def delete_hook(self, name: str) -> None:
        """Removes a webhook endpoint."""
        self.call(calls.delete_hook(name))


class AsyncEventMethods:
    """The same, awaited."""

    if TYPE_CHECKING:
        terms: Terms

        async def call(self, call: Call[T], *, key: str | None = None) -> T: ...
        async def run(self, flow: Flow[T]) -> T: ...

    async def triggers(
        self, *, name: str | None = None, owner: str | None = None
    ) -> list[TriggerView]:
        """All triggers that match, newest first."""
        return await self.run(paging.all_triggers(self.terms, name=name, owner=owner))

    async def trigger(self, trigger_id: str) -> TriggerView:
        """One trigger."""
        return await self.call(calls.get_trigger(trigger_id))

    async def create_trigger(self, trigger: TriggerLike) -> TriggerView:
        """Makes a trigger; it is durable when this returns."""
        return await self.call(calls.create_trigger(trigger))

    async def update_trigger(self, trigger_id: str, patch: Mapping[str, Any]) -> TriggerView:
        """Changes a trigger, by JSON Merge Patch."""
        return await self.call(calls.update_trigger(trigger_id, patch))

    async def delete_trigger(self, trigger_id: str) -> None:
        """Removes a trigger; its jobs go on."""
        await self.call(calls.delete_trigger(trigger_id))

    async def pause_trigger(self, trigger_id: str) -> TriggerView:
        """Lets a trigger make no jobs."""
        return await self.call(calls.pause_trigger(trigger_id))

    async def resume_trigger(self, trigger_id: str) -> TriggerView:
        """Lets a trigger go on."""
        return await self.call(calls.resume_trigger(trigger_id))

    async def trigger_events(
        self,
        trigger_id: str,
        *,
        outcome: Sequence[str] = (),
        limit: int | None = None,
        cursor: str | None = None,
    ) -> ArrivalPage:
        """What a trigger made of events, newest first."""
        return await self.call(
            calls.trigger_events(trigger_id, outcome=outcome, limit=limit, cursor=cursor)
        )

    async def try_event(
        self, event: EventLike, *, trigger: TriggerLike | None = None, trigger_id: str | None = None
    ) -> list[TrialView]:
        """What triggers would make of an event; nothing is stored."""
        return (
            await self.call(
                calls.try_event(named(event, self.terms), trigger=trigger, trigger_id=trigger_id)
            )
        ).items

    async def deploy_triggers(self, owner: str, triggers: Sequence[TriggerLike]) -> DeployAnswer:
        """Sets all triggers of a program; what it names no more is retired."""
        return await self.call(calls.deploy_triggers(owner, triggers))

    async def send_event(self, event: EventLike) -> EventView:
        """Tells that something happened; durable, with its effects, when this returns."""
        return await self.call(calls.send_event(named(event, self.terms)))

    async def send_events(self, events: Sequence[EventLike]) -> list[EventView]:
        """The same of many at once, all or none."""
        return (
            await self.call(calls.send_events([named(one, self.terms) for one in events]))
        ).items

    async def events(
        self, *, type: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> EventPage:
        """Events that came, newest first."""
        return await self.call(calls.list_events(type=type, limit=limit, cursor=cursor))

    async def hooks(self) -> list[HookView]:
        """All webhook endpoints, by name."""
        return await self.run(paging.all_hooks(self.terms))

    async def set_hook(self, name: str, hook: HookSpec | Mapping[str, Any]) -> HookView:
        """Sets up a webhook endpoint."""
        return await self.call(calls.set_hook(name, hook))

    async def delete_hook(self, name: str) -> None:
        """Removes a webhook endpoint."""
        await self.call(calls.delete_hook(name))
