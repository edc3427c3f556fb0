"""A batch of equal jobs is decoded once, with the result of decoding each."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from rota.api.parsing.request import decode_json, read_batch
from rota.wire.formats import dec_hook
from rota.wire.jobs import BatchSpec
from rota.wire.problems import ProblemError
from tests.api.in_process_server import NOOP, InProcessServer

JOB: dict[str, Any] = {"name": "a", "task": NOOP, "retry": {"delay": "2s"}}
BAD_JOB = b'{"name":"a","retry":{"delay":"soon"}}'
DEEP = b'{"jobs":[{"name":"a","payload":%b%b}]}' % (b"[" * 100_000, b"]" * 100_000)
_whole = msgspec.json.Decoder(BatchSpec, dec_hook=dec_hook).decode


def _written(*jobs: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"jobs": jobs})


def test_a_batch_is_decoded_like_each_job_alone() -> None:
    other = {**JOB, "payload": {"n": 1}, "ref": "x"}
    body = _written(JOB, JOB, other, JOB, {"name": "a"}, {"name": "a"})
    read = read_batch(body)
    assert read == _whole(body)
    first, again, middle, last, *_ = read.jobs
    assert first is again
    assert first is not last
    assert middle.ref == "x"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b'{"jobs":[]}',
        b'{"jobs":{}}',
        b'{"jobs":[1,1]}',
        b'{"jobs":[{"name":"a"}],"more":1}',
        b'{"jobs":[{"name":"a"}]} trailing',
        b'{"jobs":[{"name":"a"},{"name":"a"},{"nom":"a"}]}',
        b'{"jobs":[{"name":"a"},{"name":"a"},%b]}' % BAD_JOB,
        b'{"jobs":[{"name":"a"},{"name":"\xff"}]}',
        b'{"jobs":[{"name":"a"},{"name":"a","max_parallel":2}]}',
        # From Python 3.14 on this is read, and refused for its depth by whoever looks at it next.
        *([DEEP] if sys.version_info < (3, 14) else []),
        b'{"jobs":[%b]}' % b",".join([b'{"name":"a"}'] * 10_001),
    ],
    ids=lambda body: body[:60].decode("latin-1"),
)
def test_a_batch_that_is_wrong_is_refused_in_the_same_words(body: bytes) -> None:
    refusals = []
    for read in (read_batch, _whole):
        with pytest.raises(ProblemError) as refused:
            decode_json(read, BatchSpec, body)
        refusals.append((refused.value.status, refused.value.detail, refused.value.errors))
    assert refusals[0] == refusals[1]


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
    shown = [await server.ask("GET", f"/jobs/{one}") for one in ids]
    assert [one["payload"] for one in shown] == payloads
    assert [one["labels"] for one in shown] == [{}] * 5 + [{"team": "x"}]


async def test_the_third_of_equal_jobs_has_the_dependencies_of_the_first(
    server: InProcessServer,
) -> None:
    before = await server.submit("before")
    body = {"jobs": [{"name": "a", "task": NOOP, "dependencies": [before["job_id"]]}] * 3}
    ids = (await server.ask("POST", "/jobs/batch", body, expect=201))["job_ids"]
    for one in ids:
        job = await server.ask("GET", f"/jobs/{one}")
        assert job["status"] == "pending"
        assert [needed["job_id"] for needed in job["dependencies"]] == [before["job_id"]]
