"""Definition of a store: triggers, accepted and buffered events, decisions, webhook endpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rota.core.model import TriggerId
from rota.core.outcome import (
    AnyWrite,
    DropTrigger,
    PutBufferedEvent,
    PutEvent,
    PutTrigger,
    PutTriggerDecision,
    ReleaseBufferedEvents,
)
from rota.core.trigger_model import (
    AcceptedEvent,
    BufferedEvent,
    Event,
    EventDecision,
    Trigger,
    TriggerDecision,
    TriggerDecisionId,
    TriggerDefinition,
    counted_as,
)
from rota.store.documents import Hook
from rota.store.protocol import Store
from rota.store.queries import EventQuery, TriggerDecisionQuery
from tests.store.conformance import StoreMaker, leading, thorough
from tests.store.naive import spec

TRIGGERS = [TriggerId(f"trigger-{n}") for n in range(3)]
KEYS = [f"key{n}" for n in range(3)]
DAY_MS = 24 * 3600 * 1000
IDS = [
    # Two in one day's partition, one in another's, one in none.
    *("0192a3b4-0000-7000-8000-000000000001", "0192a3b4-0001-7000-8000-000000000001"),
    *("0193a3b4-0000-7000-8000-000000000001", "00000000-0001-7000-8000-000000000001"),
]


def trigger(trigger_id: str = "trigger-0", **changed: object) -> Trigger:
    rule = TriggerDefinition("uploads", "object.*", spec(), b'"data.size > 1"')
    return replace(Trigger(TriggerId(trigger_id), rule, 1, 1), **changed)


def decision(
    decision_id: str, outcome: EventDecision = EventDecision.FIRED, owner: str = "trigger-0"
) -> TriggerDecision:
    return TriggerDecision(
        TriggerDecisionId(decision_id), TriggerId(owner), "/s", "e1", "object.x", 5, outcome
    )


def buffered_event(decision_id: str, at: int = 5) -> BufferedEvent:
    event = Event("/s", "e1", "object.x", b"{}")
    return BufferedEvent(TriggerDecisionId(decision_id), TRIGGERS[0], "", event, at, at)


def hook(name: str = "code", **changed: object) -> Hook:
    made = Hook(
        name=name,
        scheme="github",
        secrets=("a-secret",),
        type="github",
        tolerance_ms=300_000,
        created_at=1,
        updated_at=1,
    )
    return replace(made, **changed)


class NaiveEvents:
    """Naive tables of triggers and events after the writes."""

    def __init__(self, writes: Iterable[AnyWrite]) -> None:
        self.triggers: dict[TriggerId, Trigger] = {}
        self.accepted: dict[str, AcceptedEvent] = {}
        self.decisions: dict[tuple[str, str], TriggerDecision] = {}
        self.buffered_event: dict[TriggerDecisionId, BufferedEvent] = {}
        self.reacted: Counter[str] = Counter()
        for write in writes:
            self._apply(write)
        del self.reacted[""]

    def _apply(self, write: AnyWrite) -> None:
        match write:
            case PutTrigger(put):
                self.triggers[put.id] = put
            case DropTrigger(trigger_id):
                self.triggers.pop(trigger_id, None)
            case PutEvent(accepted):
                self.accepted[accepted.key] = accepted
                self.reacted[counted_as(accepted)] += 1
            case PutTriggerDecision(one):
                self.decisions[one.trigger_id, one.id] = one
                self.reacted[counted_as(one)] += 1
            case PutBufferedEvent(one):
                self.buffered_event[one.id] = one
            case ReleaseBufferedEvents(ids):
                for decision_id in ids:
                    self.buffered_event.pop(decision_id, None)

    def find_decisions(self, query: TriggerDecisionQuery) -> list[TriggerDecision]:
        found = sorted(self.decisions.values(), key=lambda one: one.id, reverse=True)
        found = [one for one in found if one.trigger_id == query.trigger_id]
        found = [one for one in found if not query.decisions or one.decision in query.decisions]
        found = [one for one in found if query.before is None or one.id < query.before]
        return found[: query.limit]

    def find_events(self, query: EventQuery) -> list[AcceptedEvent]:
        found = sorted(self.accepted.values(), key=lambda one: (one.at, one.key), reverse=True)
        found = [one for one in found if query.type in (None, one.type)]
        found = [one for one in found if query.tenant in (None, one.tenant)]
        found = [one for one in found if query.before is None or (one.at, one.key) < query.before]
        return found[: query.limit]


_trigger_ids = st.sampled_from(TRIGGERS)
_decision_rows = st.builds(
    lambda number, outcome: decision(IDS[number], outcome, TRIGGERS[number % 2]),
    st.integers(0, 3),
    st.sampled_from(EventDecision),
)
_accepted_rows = st.builds(
    AcceptedEvent,
    key=st.sampled_from(KEYS),
    source=st.just("/s"),
    id=st.just("e"),
    type=st.sampled_from(["a", "b"]),
    at=st.sampled_from([1, 20_000 * DAY_MS, 20_001 * DAY_MS]),
    repeats=st.integers(0, 2),
    tenant=st.sampled_from(["", "acme"]),
)
writes = st.one_of(
    st.builds(PutTrigger, trigger=st.builds(trigger, _trigger_ids, revision=st.integers(1, 3))),
    st.builds(DropTrigger, id=_trigger_ids),
    st.builds(PutEvent, event=_accepted_rows),
    st.builds(PutTriggerDecision, decision=_decision_rows),
    st.builds(
        PutBufferedEvent, event=st.builds(buffered_event, st.sampled_from(IDS), st.integers(1, 9))
    ),
    st.builds(
        ReleaseBufferedEvents,
        ids=st.lists(st.sampled_from(IDS).map(TriggerDecisionId), max_size=2).map(tuple),
    ),
)
histories = st.lists(st.lists(writes, max_size=6), max_size=8)
decision_queries = st.builds(
    TriggerDecisionQuery,
    trigger_id=_trigger_ids,
    decisions=st.lists(st.sampled_from(EventDecision), max_size=2).map(tuple),
    before=st.none() | st.sampled_from(IDS),
    limit=st.integers(1, 5),
)
event_queries = st.builds(
    EventQuery,
    type=st.none() | st.sampled_from(["a", "b", "c"]),
    tenant=st.none() | st.sampled_from(["", "acme", "other"]),
    before=st.none() | st.tuples(st.sampled_from([1, 20_000 * DAY_MS]), st.sampled_from(KEYS)),
    limit=st.integers(1, 5),
)


async def assert_same(store: Store, naive: NaiveEvents) -> None:
    snapshot = await store.journal.load()
    assert list(snapshot.triggers) == [naive.triggers[one] for one in sorted(naive.triggers)]
    assert list(snapshot.buffered_events) == sorted(
        naive.buffered_event.values(), key=lambda one: (one.at, one.id)
    )
    assert dict(snapshot.totals.reacted) == dict(naive.reacted)
    accepted = await store.queries.accepted_events([*KEYS, "nobody"])
    assert {one.key: one for one in accepted} == naive.accepted
    for trigger_id in TRIGGERS:
        query = TriggerDecisionQuery(trigger_id=trigger_id, limit=1000)
        assert await store.queries.find_trigger_decisions(query) == naive.find_decisions(query)


class EventConformance:
    """Triggers, events, arrivals, what waits, and webhook endpoints."""

    async def test_an_event_that_comes_again_has_one_row(self, make_store: StoreMaker) -> None:
        accepted = AcceptedEvent(KEYS[0], "/s", "e", "a", 5)
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(PutEvent(accepted))
            await leader.append(PutEvent(replace(accepted, repeats=1)))
            assert await store.queries.accepted_events([KEYS[0]]) == [replace(accepted, repeats=1)]
            assert len(await store.queries.find_events(EventQuery())) == 1

    async def test_decisions_outlive_their_trigger(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(PutTrigger(trigger()), PutTriggerDecision(decision(IDS[0])))
            await leader.append(DropTrigger(TRIGGERS[0]))
            found = await store.queries.find_trigger_decisions(
                TriggerDecisionQuery(trigger_id=TRIGGERS[0])
            )
            assert list((await store.journal.load()).triggers) == []
        assert found == [decision(IDS[0])]

    async def test_buffered_events_are_loaded_in_order_of_arrival(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(PutTrigger(trigger()), PutBufferedEvent(buffered_event(IDS[0], 9)))
            await leader.append(
                PutBufferedEvent(buffered_event(IDS[2], 3)),
                PutBufferedEvent(buffered_event(IDS[1], 5)),
            )
            await leader.append(ReleaseBufferedEvents((TriggerDecisionId(IDS[1]),)))
            assert [one.at for one in (await store.journal.load()).buffered_events] == [3, 9]

    async def test_endpoints_are_kept_beside_the_journal(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            await store.hooks.put(hook("b"))
            await store.hooks.put(hook("a"))
            await store.hooks.put(hook("a", secrets=("new", "old")))
            assert (await store.hooks.get("a")) == hook("a", secrets=("new", "old"))
            assert [one.name for one in await store.hooks.list()] == ["a", "b"]
            assert await store.hooks.drop("a")
            assert not await store.hooks.drop("a")
            assert await store.hooks.get("a") is None
            assert await store.queries.head() == (0, 0)

    @given(history=histories, decisions=decision_queries, events=event_queries)
    @thorough
    async def test_the_tables_equal_the_projection_of_the_journal(
        self,
        make_store: StoreMaker,
        history: list[list[AnyWrite]],
        decisions: TriggerDecisionQuery,
        events: EventQuery,
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            for record in history:
                await leader.append(*record)
            naive = NaiveEvents(write for record in history for write in record)
            await assert_same(store, naive)
            assert await store.queries.find_trigger_decisions(decisions) == naive.find_decisions(
                decisions
            )
            assert await store.queries.find_events(events) == naive.find_events(events)

    @given(history=histories)
    @thorough
    async def test_projecting_records_one_by_one_comes_to_the_same(
        self, make_store: StoreMaker, history: list[list[AnyWrite]]
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            for record in history:
                await leader.append(*record)
                await store.queries.accepted_events(KEYS)
            await assert_same(store, NaiveEvents(write for record in history for write in record))
