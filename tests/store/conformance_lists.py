"""The part of the store's definition that lists of years of work rely on."""

from __future__ import annotations

import pytest

from rota.core.ids import execution_id
from rota.core.model import Instant, JobId, JobState, Life
from rota.core.outcome import PutJob
from rota.store.protocol import JobQuery, Outline
from tests.store.conformance import StoreMaker, leading, put, run_of
from tests.store.conformance_shelves import shelve
from tests.store.naive import QUEUED, NaiveStore, spec, terms

DAY_MS = 86_400_000
NOW: Instant = 20_000 * DAY_MS + 5_000
BACK = (0, 0, 0, 1, 1, 2, 3, 6, 7, 8, 30, 90, 400, 1_500, 9_000)
"""How many days ago the jobs of these tests were submitted."""
DONE = Life(JobState.SUCCEEDED, finished_at=NOW)
FAILED = Life(JobState.FAILED, finished_at=NOW)


def years() -> list[PutJob]:
    """Jobs of many days; every third is live, some have a label, a queue or a priority."""
    made = []
    for number, back in enumerate(BACK):
        at = NOW - back * DAY_MS + number
        asked = terms(queue="q" if number % 2 else "default", priority=number % 4)
        labels = (("team", "a"),) if number % 3 else (("team", "a"), ("stage", "test"))
        given = spec(number, created_at=at, terms=asked, labels=labels)
        life = (QUEUED, DONE, FAILED)[number % 3]
        made.append(PutJob(JobId(execution_id(JobId(f"job-{number}"), 0, at)), given, life))
    return made


def strays() -> list[PutJob]:
    """Jobs whose ids say an hour later, a year earlier, and nothing at all."""
    times = (NOW - 3_600_000, NOW + 365 * DAY_MS, NOW)
    ids = [execution_id(JobId(f"stray-{n}"), 0, NOW) for n in range(2)]
    lives = (DONE, QUEUED, DONE)
    return [
        PutJob(JobId(id_), spec(100 + n, created_at=at), life)
        for n, (id_, at, life) in enumerate(zip((*ids, "stray"), times, lives, strict=True))
    ]


QUERIES = {
    "everything": JobQuery(),
    "one queue": JobQuery(queue="q"),
    "one state": JobQuery(states=(JobState.FAILED,)),
    "live and final states": JobQuery(states=(JobState.QUEUED, JobState.SUCCEEDED)),
    "final states": JobQuery(states=(JobState.FAILED, JobState.SUCCEEDED, JobState.CANCELLED)),
    "a label": JobQuery(labels=(("team", "a"),)),
    "two labels": JobQuery(labels=(("team", "a"), ("stage", "test"))),
    "a label and a state": JobQuery(labels=(("team", "a"),), states=(JobState.SUCCEEDED,)),
    "a priority": JobQuery(priority=3),
    "the usual priority": JobQuery(priority=0),
    "another priority": JobQuery(not_priority=0, queue="default"),
    "before a time": JobQuery(created_before=NOW - 2 * DAY_MS),
    "after a time": JobQuery(created_after=NOW - 7 * DAY_MS, queue="q"),
    "after a time in the past of all ids": JobQuery(created_after=3),
    "a time of its own": JobQuery(created_after=NOW - 4_000_000, created_before=NOW - 3_000_000),
    "a label and a time": JobQuery(labels=(("team", "a"),), created_before=NOW - DAY_MS),
    "a time to come": JobQuery(created_after=NOW + DAY_MS),
}


class ListsConformance:
    """Lists over long times."""

    @pytest.mark.parametrize("limit", [2, 1000])
    async def test_a_list_over_years_is_walked_to_its_end(
        self, make_store: StoreMaker, limit: int
    ) -> None:
        naive = NaiveStore([*years(), *strays()])
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(*years(), *strays(), at=NOW)
            for name, query in QUERIES.items():
                wanted = [job.id for job in naive.find_jobs(_of(query, limit=1000))]
                seen: list[JobId] = []
                while True:
                    last = seen[-1] if seen else None
                    page = _of(query, limit=limit, before=last)
                    found = await store.catalog.find_jobs(page)
                    assert await store.catalog.find_job_ids(page) == [job.id for job in found]
                    seen += [job.id for job in found]
                    if len(found) < limit:
                        break
                assert seen == wanted, name

    async def test_outlines_say_what_the_jobs_say(self, make_store: StoreMaker) -> None:
        asked = terms(name="bill", queue="q", tenant="acme")
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(put(1, terms=asked), put(2, DONE, terms=asked), shelve(3))
            ids = [JobId(f"job-{number:04}") for number in range(1, 5)]
            found = {one.id: one for one in await store.catalog.outlines(ids)}
        assert found.keys() == set(ids[:3])
        assert found[ids[0]] == Outline(ids[0], JobState.QUEUED, "q", "acme", "bill")
        assert [found[one].state for one in ids[1:3]] == [JobState.SUCCEEDED, JobState.QUEUED]

    async def test_jobs_on_the_shelf_count_as_queued(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(shelve(1), put(2), put(3, DONE), run_of(3))
            tenant = spec(1).terms.tenant
            counted = await store.catalog.count_jobs(tenant)
        assert counted == {JobState.QUEUED: 2, JobState.SUCCEEDED: 1}


def _of(query: JobQuery, **changed: object) -> JobQuery:
    given = {field: getattr(query, field) for field in query.__struct_fields__}
    return JobQuery(**(given | changed))
