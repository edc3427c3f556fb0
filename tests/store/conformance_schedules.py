"""Definition of a store: schedules, and one occurrence per instant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rota.core.model import Instant, JobId, ScheduleId
from rota.core.outcome import (
    AnyWrite,
    DropCalendar,
    DropSchedule,
    MoveSchedule,
    PutCalendar,
    PutOccurrence,
    PutSchedule,
)
from rota.core.schedule_model import (
    Calendar,
    Occurrence,
    OccurrenceDecision,
    Schedule,
    ScheduleDefinition,
    ScheduleState,
    SkipReason,
    Timetable,
)
from rota.store.protocol import Store
from rota.store.queries import OccurrenceQuery
from tests.store.conformance import StoreMaker, leading, thorough
from tests.store.naive import spec

SCHEDULES = [ScheduleId(f"schedule-{n}") for n in range(3)]
NAMES = ["holidays", "closed"]
DAY_MS = 24 * 3600 * 1000


def schedule(schedule_id: str = "schedule-0", watermark: int = 0, **given: object) -> Schedule:
    plan = ScheduleDefinition("nightly", Timetable(cron="0 0 * * *"), spec())
    usual: dict[str, object] = {"created_at": 1, "updated_at": 1}
    return Schedule(ScheduleId(schedule_id), plan, ScheduleState(watermark), **(usual | given))  # type: ignore[arg-type]


def occurrence(
    nominal: Instant, decision: OccurrenceDecision = OccurrenceDecision.FIRED, **given: object
) -> Occurrence:
    return Occurrence(SCHEDULES[0], nominal, decision, nominal + 1, **given)  # type: ignore[arg-type]


class NaiveSchedules:
    """Naive tables of schedules after the writes."""

    def __init__(self, writes: Iterable[AnyWrite]) -> None:
        self.schedules: dict[ScheduleId, Schedule] = {}
        self.occurrences: dict[tuple[ScheduleId, Instant], Occurrence] = {}
        self.calendars: dict[str, Calendar] = {}
        self.decided: Counter[tuple[str, str]] = Counter()
        for write in writes:
            self._apply(write)

    def _apply(self, write: AnyWrite) -> None:
        match write:
            case PutSchedule(put):
                self.schedules[put.id] = put
            case MoveSchedule(schedule_id, state):
                if schedule_id in self.schedules:
                    moved = replace(self.schedules[schedule_id], state=state)
                    self.schedules[schedule_id] = moved
            case DropSchedule(schedule_id):
                self.schedules.pop(schedule_id, None)
            case PutOccurrence(one):
                self.occurrences[one.schedule_id, one.nominal] = one
                self.decided[one.decision.value, one.skip_reason.value] += 1
            case PutCalendar(calendar):
                self.calendars[calendar.name] = calendar
            case DropCalendar(name):
                self.calendars.pop(name, None)

    def find(self, query: OccurrenceQuery) -> list[Occurrence]:
        found = sorted(self.occurrences.values(), key=lambda one: one.nominal, reverse=True)
        found = [one for one in found if one.schedule_id == query.schedule_id]
        found = [one for one in found if not query.decisions or one.decision in query.decisions]
        found = [one for one in found if query.after is None or one.nominal > query.after]
        found = [one for one in found if query.before is None or one.nominal < query.before]
        return found[: query.limit]


_ids = st.sampled_from(SCHEDULES)
_courses = st.builds(ScheduleState, watermark=st.integers(0, 9), paused=st.booleans())
_schedules = st.builds(
    lambda schedule_id, state, revision: replace(
        schedule(schedule_id), state=state, revision=revision
    ),
    _ids,
    _courses,
    st.integers(1, 3),
)
_occurrences = st.builds(
    Occurrence,
    schedule_id=_ids,
    # Some in one day's partition, some in another's, some in none.
    nominal=st.integers(0, 3) | st.integers(0, 2).map(lambda day: 20_000 * DAY_MS + day * DAY_MS),
    decision=st.sampled_from(OccurrenceDecision),
    decided_at=st.just(5),
    skip_reason=st.sampled_from([SkipReason.NOT, SkipReason.PAUSED]),
    job_id=st.none() | st.just(JobId("job-1")),
)
writes = st.one_of(
    st.builds(PutSchedule, schedule=_schedules),
    st.builds(MoveSchedule, id=_ids, state=_courses),
    st.builds(DropSchedule, id=_ids),
    st.builds(PutOccurrence, occurrence=_occurrences),
    st.builds(
        PutCalendar,
        calendar=st.builds(Calendar, name=st.sampled_from(NAMES), days=st.just((739_000,))),
    ),
    st.builds(DropCalendar, name=st.sampled_from(NAMES)),
)
histories = st.lists(st.lists(writes, max_size=6), max_size=8)
queries = st.builds(
    OccurrenceQuery,
    schedule_id=_ids,
    decisions=st.lists(st.sampled_from(OccurrenceDecision), max_size=2).map(tuple),
    after=st.none() | st.integers(0, 3),
    before=st.none() | st.integers(0, 4),
    limit=st.integers(1, 5),
)


async def assert_same(store: Store, naive: NaiveSchedules) -> None:
    snapshot = await store.journal.load()
    assert list(snapshot.schedules) == [naive.schedules[one] for one in sorted(naive.schedules)]
    assert {one.name: one for one in snapshot.calendars} == naive.calendars
    assert {(d, w): n for d, w, n in snapshot.totals.decided} == dict(naive.decided)
    for schedule_id in SCHEDULES:
        query = OccurrenceQuery(schedule_id=schedule_id, limit=1000)
        assert await store.queries.find_occurrences(query) == naive.find(query)


class ScheduleConformance:
    """Schedules, occurrences and calendars."""

    async def test_a_move_changes_the_state_of_a_schedule_and_leaves_its_definition(
        self, make_store: StoreMaker
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(PutSchedule(schedule()))
            await leader.append(MoveSchedule(SCHEDULES[0], ScheduleState(7, paused=True)))
            (kept,) = (await store.journal.load()).schedules
        assert kept == replace(schedule(), state=ScheduleState(7, paused=True))

    async def test_an_instant_has_one_record_the_newest(self, make_store: StoreMaker) -> None:
        skipped = occurrence(5, OccurrenceDecision.SKIPPED, skip_reason=SkipReason.PAUSED)
        run = occurrence(5, OccurrenceDecision.CAUGHT_UP, job_id=JobId("job-1"))
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(PutOccurrence(skipped), PutOccurrence(occurrence(6)))
            await leader.append(PutOccurrence(run))
            found = await store.queries.find_occurrences(OccurrenceQuery(schedule_id=SCHEDULES[0]))
        assert found == [occurrence(6), run]

    async def test_occurrences_outlive_their_schedule(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(PutSchedule(schedule()), PutOccurrence(occurrence(5)))
            await leader.append(DropSchedule(SCHEDULES[0]))
            found = await store.queries.find_occurrences(OccurrenceQuery(schedule_id=SCHEDULES[0]))
            assert list((await store.journal.load()).schedules) == []
        assert found == [occurrence(5)]

    @given(history=histories, query=queries)
    @thorough
    async def test_the_tables_equal_the_projection_of_the_journal(
        self, make_store: StoreMaker, history: list[list[AnyWrite]], query: OccurrenceQuery
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            for record in history:
                await leader.append(*record)
            naive = NaiveSchedules(write for record in history for write in record)
            await assert_same(store, naive)
            assert await store.queries.find_occurrences(query) == naive.find(query)

    @given(history=histories)
    @thorough
    async def test_projecting_records_one_by_one_comes_to_the_same(
        self, make_store: StoreMaker, history: list[list[AnyWrite]]
    ) -> None:
        async with make_store() as store:
            leader = await leading(store)
            for record in history:
                await leader.append(*record)
                await store.queries.find_occurrences(OccurrenceQuery(schedule_id=SCHEDULES[0]))
            await assert_same(
                store, NaiveSchedules(write for record in history for write in record)
            )
