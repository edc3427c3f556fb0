"""Definition of a store: lists over years of work."""

from __future__ import annotations

from collections.abc import Collection
from itertools import product

import pytest
from msgspec.structs import replace

from rota.core.ids import execution_id
from rota.core.lifecycle import JOB_FINAL
from rota.core.model import (
    Execution,
    ExecutionId,
    ExecutionState,
    Instant,
    JobId,
    JobState,
    Life,
    WorkerId,
)
from rota.core.outcome import PutExecution, PutJob
from rota.store.protocol import Outline
from rota.store.queries import ExecutionQuery, JobQuery, Sampled, SampleQuery
from tests.store.conformance import StoreMaker, leading, put, run_of
from tests.store.conformance_spill import put_spilled
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


def unknown_ids(number: int) -> list[PutJob]:
    """Jobs of one day: of the name, of the queue, or with the label; never two of them."""
    made = []
    for at in range(NOW, NOW + number):
        kind = at % 3
        asked = terms(name="a" if kind == 0 else "b", queue="q" if kind == 1 else "default")
        given = spec(at - NOW, created_at=at, terms=asked, labels=(("team", "ba"[kind // 2]),))
        made.append(PutJob(JobId(execution_id(JobId(f"job-{at}"), 0, at)), given, DONE))
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


def count_naively(
    executions: dict[ExecutionId, Execution], query: SampleQuery, acme: Collection[JobId]
) -> list[Sampled]:
    """One by one, by hand; `acme` are the jobs of that tenant."""
    found: dict[tuple[int, WorkerId, ExecutionState, bool], list[str]] = {}
    for stretch in range(len(query.bounds) - 1):
        low, high = query.bounds[stretch : stretch + 2]
        left = query.limit
        for id_ in sorted(executions):
            one = executions[id_]
            if low <= id_ < high and left and query.worker_id in (None, one.worker_id):
                left -= 1
                own = query.tenant is None or one.job_id in acme
                found.setdefault((stretch, one.worker_id, one.state, own), []).append(id_)
    return [
        Sampled(stretch, worker_id, state, len(ids), max(ids), own)
        for (stretch, worker_id, state, own), ids in found.items()
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

PAIRS = {
    "a label and a name": JobQuery(labels=(("stage", "test"),), name=spec(0).terms.name),
    "a label and a queue": JobQuery(labels=(("stage", "test"),), queue="q"),
    "a label and final states": JobQuery(
        labels=(("team", "a"),), states=tuple(state for state in JobState if state in JOB_FINAL)
    ),
    "a label and live states": JobQuery(
        labels=(("team", "a"),), states=tuple(state for state in JobState if state not in JOB_FINAL)
    ),
    "two labels and a state": JobQuery(
        labels=(("team", "a"), ("stage", "test")), states=(JobState.QUEUED,)
    ),
    "a queue and a state": JobQuery(queue="q", states=(JobState.FAILED,)),
    "a queue and the usual state": JobQuery(queue="q", states=(JobState.SUCCEEDED,)),
    "a queue and a name nobody has": JobQuery(queue="q", name="nobody"),
    "a tenant, a name and a priority": JobQuery(
        tenant=spec(0).terms.tenant, name=spec(0).terms.name, priority=1
    ),
    "a queue, a priority and a time": JobQuery(
        queue="q", priority=3, created_before=NOW - 2 * DAY_MS
    ),
}
"""Of several filters, which have little or nothing in common."""


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
                    found = await store.queries.find_jobs(page)
                    assert await store.queries.find_job_ids(page) == [job.id for job in found]
                    seen += [job.id for job in found]
                    if len(found) < limit:
                        break
                assert seen == wanted, name

    @pytest.mark.parametrize("look", [1, 40])
    async def test_a_list_that_is_read_in_small_steps_is_the_same_list(
        self, make_store: StoreMaker, look: int
    ) -> None:
        naive = NaiveStore([*years(), *strays()])
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(*years(), *strays(), at=NOW)
            for name, query in (QUERIES | PAIRS).items():
                wanted = [job.id for job in naive.find_jobs(_of(query, limit=1000))]
                page = _of(query, limit=2, look=look)
                seen: list[JobId] = []
                while True:
                    ids = await store.queries.find_job_ids(page)
                    found = await store.queries.find_jobs(page)
                    assert [job.id for job in found] == ids, name
                    assert found.rest == ids.rest, name
                    seen += ids
                    if found.rest is None and len(ids) < 2:
                        break
                    rest = ids[-1] if found.rest is None else found.rest
                    assert page.before is None or rest < page.before, name
                    page = _of(page, before=rest)
                assert seen == wanted, name

    async def test_a_page_of_filters_that_never_meet_ends_early(
        self, make_store: StoreMaker
    ) -> None:
        query = JobQuery(name="a", queue="q", labels=(("team", "a"),), limit=3, look=300)
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(*unknown_ids(900), at=NOW)
            page = await store.queries.find_jobs(query)
            assert page == []
            assert page.rest is not None
            assert page.rest < unknown_ids(900)[-1].id
            looks = 1
            while page.rest is not None:
                page = await store.queries.find_jobs(_of(query, before=page.rest))
                assert page == []
                looks += 1
            assert looks > 2
            whole = await store.queries.find_jobs(_of(query, look=None))
            assert whole == []
            assert whole.rest is None

    async def test_executions_that_are_hard_to_find_are_found_a_little_at_a_time(
        self, make_store: StoreMaker
    ) -> None:
        runs = [
            run_of(number, ExecutionState.FAILED if number % 50 == 0 else ExecutionState.SUCCEEDED)
            for number in range(200)
        ]
        query = ExecutionQuery(
            worker_id=runs[0].execution.worker_id, states=(ExecutionState.FAILED,), limit=3, look=60
        )
        wanted = sorted((runs[number].execution.id for number in (0, 50, 100, 150)), reverse=True)
        seen: list[str] = []
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(*runs, at=NOW)
            while True:
                page = await store.queries.find_executions(query)
                seen += [one.id for one in page]
                if page.rest is None and len(page) < 3:
                    break
                before = page[-1].id if page.rest is None else page.rest
                query = ExecutionQuery(
                    worker_id=query.worker_id,
                    states=query.states,
                    limit=3,
                    look=60,
                    before=before,
                )
        assert seen == wanted

    async def test_outlines_equal_the_jobs(self, make_store: StoreMaker) -> None:
        asked = terms(name="bill", queue="q", tenant="acme")
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(put(1, terms=asked), put(2, DONE, terms=asked), put_spilled(3))
            ids = [JobId(f"job-{number:04}") for number in range(1, 5)]
            found = {one.id: one for one in await store.queries.outlines(ids)}
        assert found.keys() == set(ids[:3])
        assert found[ids[0]] == Outline(ids[0], JobState.QUEUED, "q", "acme", "bill")
        assert [found[one].state for one in ids[1:3]] == [JobState.SUCCEEDED, JobState.QUEUED]

    async def test_spilled_jobs_count_as_queued(self, make_store: StoreMaker) -> None:
        async with make_store() as store:
            leader = await leading(store)
            await leader.append(put_spilled(1), put(2), put(3, DONE), run_of(3))
            tenant = spec(1).terms.tenant
            counted = await store.queries.count_jobs(tenant)
        assert counted == {JobState.QUEUED: 2, JobState.SUCCEEDED: 1}

    async def test_the_first_executions_of_each_stretch_are_counted(
        self, make_store: StoreMaker
    ) -> None:
        # Two workers by turns; a third of all runs still.
        states = (ExecutionState.RUNNING, ExecutionState.SUCCEEDED, ExecutionState.FAILED)
        workers = [WorkerId(f"worker-{number % 2}") for number in range(12)]
        runs = [run_of(number, states[number % 3]).execution for number in range(12)]
        runs = [replace(one, worker_id=own) for one, own in zip(runs, workers, strict=True)]
        ids = sorted(one.id for one in runs)
        async with make_store() as store:
            leader = await leading(store)
            # The first five are acme's; two of them have ended.
            owners = [terms(tenant="acme" if number < 5 else "other") for number in range(12)]
            lives = [DONE if number % 3 == 1 else QUEUED for number in range(12)]
            jobs = [put(n, lives[n], terms=owners[n]) for n in range(12)]
            await leader.append(*jobs)
            await leader.append(*map(PutExecution, runs))
            executions = {one.id: one for one in runs}
            acme = [one.id for one in jobs[:5]]
            for worker_id, tenant in product((None, workers[0]), (None, "acme", "nobody")):
                query = SampleQuery(
                    bounds=(ids[0], ids[4], ids[10]), worker_id=worker_id, tenant=tenant, limit=3
                )
                found = await store.queries.sample_executions(query)
                wanted = count_naively(executions, query, acme if tenant == "acme" else ())
                assert sorted(map(repr, found)) == sorted(map(repr, wanted))
                assert wanted


def _of(query: JobQuery, **changed: object) -> JobQuery:
    given = {field: getattr(query, field) for field in query.__struct_fields__}
    return JobQuery(**(given | changed))
