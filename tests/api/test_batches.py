"""A batch is the jobs in it: each as if it were sent alone, however many are alike."""

from __future__ import annotations

import sys
from random import Random
from typing import Any

import pytest

from tests.api.in_process_server import NOOP, InProcessServer

PLAIN: dict[str, Any] = {"name": "report", "task": {"kind": "command", "argv": ["true"]}}
CHANGES: list[dict[str, Any]] = [
    {},
    {"payload": {"n": 1}},
    {"labels": {"team": "x"}},
    {"ref": "x"},
    {"name": "invoice"},
    {"queue": "bulk"},
    {"tenant": "acme"},
    {"priority": 7},
    {"requirements": {"cpu": 2}},
    {"requirements": {"capabilities": ["gpu"]}},
    {"retry": {"max_attempts": 3}},
    {"retry": {"delay": "2s"}},
    {"semantics": "at_most_once"},
    {"timeout": "5s"},
    {"expected_runtime": "5s"},
    {"preemptible": True},
    {"affinity": {"require": {"zone": "a"}}},
    {"gang": {"size": 2}},
    {"task": {"kind": "container", "image": "busybox", "argv": ["true"]}},
    {"task": None},
]
WRONG: list[dict[str, Any]] = [
    {"nom": "a"},
    {"name": 7},
    {"retry": {"delay": "soon"}},
    {"requirements": {"cpu": -1}},
    {"max_parallel": 2},
]
DEEP = b'{"jobs":[{"name":"a","payload":%b%b}]}' % (b"[" * 100_000, b"]" * 100_000)


def shown_alike(job: dict[str, Any]) -> dict[str, Any]:
    """What a job shows, but for what makes it one of its own."""
    own = ("job_id", "created_at", "scheduled_at", "traceparent")
    return {name: value for name, value in job.items() if name not in own}


def drawn(dice: Random, before: str) -> list[dict[str, Any]]:
    """Every kind of job beside plain ones, and often beside its like."""
    jobs: list[dict[str, Any]] = []
    changes = [*CHANGES, {"dependencies": [before]}]
    for change in dice.sample(changes, len(changes)):
        jobs += [PLAIN] * dice.randint(1, 2)
        jobs += [{**PLAIN, **change}] * (1 if "ref" in change else dice.randint(1, 3))
    return jobs


@pytest.mark.parametrize("seed", range(4))
async def test_each_job_of_a_batch_shows_what_it_would_show_alone(
    server: InProcessServer, seed: int
) -> None:
    before = (await server.submit("before"))["job_id"]
    jobs = drawn(Random(seed), before)
    ids = (await server.ask("POST", "/jobs/batch", {"jobs": jobs}, expect=201))["job_ids"]
    assert ids == sorted(set(ids))
    for job_id, job in zip(ids, jobs, strict=True):
        single = {name: value for name, value in job.items() if name != "ref"}
        alone = await server.ask("POST", "/jobs", single, expect=201)
        there = await server.ask("GET", f"/jobs/{job_id}", expect=200)
        assert shown_alike(there) == shown_alike(alone)


@pytest.mark.parametrize("wrong", WRONG, ids=str)
@pytest.mark.parametrize("count", [0, 1, 2])
async def test_a_wrong_job_of_a_batch_is_named_and_refused_as_alone(
    server: InProcessServer, wrong: dict[str, Any], count: int
) -> None:
    job = {**PLAIN, **wrong}
    (alone,) = (await server.ask("POST", "/jobs", job, expect=422))["errors"]
    body = {"jobs": [*[PLAIN] * count, job, job, PLAIN]}
    (found, *_) = (await server.ask("POST", "/jobs/batch", body, expect=422))["errors"]
    assert found["field"] == f"jobs[{count}].{alone['field']}"
    # A job of a batch may have one field more, which a refusal of an unknown one lists.
    assert found["message"].startswith(alone["message"].partition("; known")[0])
    assert (await server.ask("GET", "/jobs"))["items"] == []


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"", 400, None),
        (b"{}", 422, "jobs"),
        (b"[]", 422, ""),
        (b'{"jobs":[]}', 422, "jobs"),
        (b'{"jobs":{}}', 422, "jobs"),
        (b'{"jobs":[1,1]}', 422, "jobs[0]"),
        (b'{"jobs":[{"name":"a"}],"more":1}', 422, "more"),
        (b'{"jobs":[{"name":"a"}]} trailing', 400, None),
        (b'{"jobs":[{"name":"a"},{"name":"\xff"}]}', 400, None),
        (b'{"jobs":[%b]}' % b",".join([b'{"name":"a"}'] * 10_001), 422, "jobs"),
        # From Python 3.14 on this is read, and refused for its depth by whoever looks at it next.
        *([(DEEP, 400, None)] if sys.version_info < (3, 14) else []),
    ],
    ids=lambda value: value[:60].decode("latin-1") if isinstance(value, bytes) else None,
)
async def test_a_body_that_is_no_batch_is_refused(
    server: InProcessServer, body: bytes, status: int, field: str | None
) -> None:
    answer = await server.http.post(
        "/jobs/batch", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == status
    if field is not None:
        assert answer.json()["errors"][0]["field"] == field


async def test_jobs_with_the_same_bytes_become_separate_jobs_and_orders(
    server: InProcessServer,
) -> None:
    worker = await server.register(cpu=8)
    plain, other = {"name": "a", "task": NOOP}, {"name": "a", "task": NOOP, "payload": [1]}
    named = {**plain, "labels": {"team": "x"}}
    body = {"jobs": [plain, plain, other, other, plain, named]}
    ids = (await server.ask("POST", "/jobs/batch", body, expect=201))["job_ids"]
    orders = (await server.lease(worker, max=8))["executions"]
    payloads = [{}, {}, [1], [1], {}, {}]
    assert [(one["job_id"], one["payload"]) for one in orders] == list(
        zip(ids, payloads, strict=True)
    )
    assert len({one["execution_id"] for one in orders}) == len(orders)


async def test_a_gang_beside_its_like_without_one_starts_as_a_whole(
    server: InProcessServer,
) -> None:
    worker = await server.register(cpu=2)
    body = {"jobs": [PLAIN, {**PLAIN, "gang": {"size": 2}}]}
    (single, _) = (await server.ask("POST", "/jobs/batch", body, expect=201))["job_ids"]
    (first,) = (await server.lease(worker))["executions"]
    assert first["job_id"] == single
    await server.finish(first)
    assert len((await server.lease(worker))["executions"]) == 2
