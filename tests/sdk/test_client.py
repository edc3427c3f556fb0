"""Both clients against a server on a socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from typing import Any

import pytest

from rota.sdk import (
    AsyncClient,
    Client,
    ConflictError,
    JobFailed,
    JobSearch,
    NotFoundError,
    Patience,
    UnauthenticatedError,
    UnavailableError,
    UnreachableError,
    WaitTimeoutError,
)
from rota.sdk.batches import submit_many
from rota.sdk.errors import KeyFormatError
from rota.wire.jobs import BatchJobSpec, DependencySpec, Noop
from tests.sdk.async_as_blocking import OpenClient
from tests.sdk.fake_server import TOKEN, SmallServer

JOB = {"name": "hello", "task": {"kind": "command", "argv": ["true"]}}


def test_a_submitted_job_can_be_read_back(client: Client) -> None:
    job = client.submit({**JOB, "queue": "q", "labels": {"a": "b"}})
    again = client.job(job.job_id)
    assert (again.name, again.queue, again.labels) == ("hello", "q", {"a": "b"})


def test_a_write_is_repeated_under_one_key_and_happens_once(
    server: SmallServer, client: Client
) -> None:
    server.faults += [503, 0, 429]
    client.submit(JOB)
    keys = {one.headers["idempotency-key"] for one in server.writes()}
    assert len(server.writes()) == 4
    assert len(keys) == 1
    assert len(server.jobs) == 1


def test_two_writes_have_two_keys(server: SmallServer, client: Client) -> None:
    client.submit(JOB)
    client.submit(JOB)
    assert len({one.headers["idempotency-key"] for one in server.writes()}) == 2
    assert len(server.jobs) == 2


def test_a_callers_own_key_prevents_a_duplicate_after_its_restart(
    server: SmallServer, open_client: OpenClient
) -> None:
    for _ in range(2):
        open_client(server.url, TOKEN).submit(JOB, idempotency_key="invoice-42")
    assert len(server.jobs) == 1


@pytest.mark.parametrize("key", ["", "grün", "two\nlines", "x" * 256])
def test_a_key_that_no_server_takes_is_refused_at_once(
    server: SmallServer, open_client: OpenClient, key: str
) -> None:
    with pytest.raises(KeyFormatError, match="printable ASCII"):
        open_client(server.url, TOKEN).submit(JOB, idempotency_key=key)
    with pytest.raises(KeyFormatError, match="printable ASCII"):
        open_client(server.url, TOKEN).submit_many([JOB], idempotency_key=key)
    assert not server.seen


def test_a_client_gives_up_after_its_retry_time(
    server: SmallServer, open_client: OpenClient
) -> None:
    server.faults += [503] * 50
    client = open_client(server.url, TOKEN, patience=Patience(retry_for_s=0.3))
    with pytest.raises(UnavailableError):
        client.submit(JOB)
    assert 2 <= len(server.seen) < 50


def test_a_permanent_error_is_not_retried(server: SmallServer, client: Client) -> None:
    server.faults += [409]
    with pytest.raises(ConflictError):
        client.submit(JOB)
    assert len(server.seen) == 1


def test_a_server_that_is_not_there_is_said_at_once_if_asked_so(open_client: OpenClient) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        patience = Patience(retry_for_s=60, first_contact_s=0)
        with pytest.raises(UnreachableError) as caught:
            open_client(url, patience=patience).stats()
    assert caught.value.refused
    assert caught.value.cause == "connection refused"


def test_a_wrong_token_is_refused(server: SmallServer, open_client: OpenClient) -> None:
    with pytest.raises(UnauthenticatedError):
        open_client(server.url, "wrong").stats()


def test_an_unknown_job_is_not_found(client: Client) -> None:
    with pytest.raises(NotFoundError, match="no job"):
        client.job("00000000-0000-7000-8000-000000000000")


def test_empty_pages_are_no_end_while_there_is_a_cursor(
    server: SmallServer, client: Client
) -> None:
    for i in range(10):
        server.add_job(f"job-{i}", "failed" if i == 0 else "succeeded")
    server.look_max = 2
    assert [job.name for job in client.jobs(JobSearch(status=("failed",)))] == ["job-0"]


def test_all_pages_are_walked_newest_first(server: SmallServer, client: Client) -> None:
    server.page_max = 3
    made = [server.add_job(f"job-{i}").job_id for i in range(10)]
    assert [job.job_id for job in client.jobs()] == sorted(made, reverse=True)
    assert len(server.seen) == 4


def test_a_search_narrows_the_list(server: SmallServer, client: Client) -> None:
    server.add_job("a", "failed")
    server.add_job("b", "queued")
    assert [job.name for job in client.jobs(JobSearch(status=("failed",)))] == ["a"]


def test_a_log_is_followed_through_a_lost_connection_without_a_gap_or_a_repeat(
    server: SmallServer, client: Client
) -> None:
    job = server.add_job()
    log = b"".join(b"line %d\n" % i for i in range(500))
    server.run(job.job_id, log, exit_code=0)
    server.log_cut = 1000
    # The stream of a server that stops ends early, while the execution goes on.
    execution = server.jobs[job.job_id].execution_id or ""
    ended = server.executions[execution].end_time
    server.executions[execution].end_time = None
    got = b""
    for chunk in client.follow_logs(job.job_id):
        got += chunk
        if len(got) == len(log):
            server.executions[execution].end_time = ended
    assert got == log


def test_following_a_job_that_never_started_ends_when_it_is_cancelled(
    server: SmallServer, client: Client
) -> None:
    job = server.add_job(status="cancelled")
    assert list(client.follow_logs(job.job_id)) == []


def test_waiting_ends_when_the_stream_says_so(server: SmallServer, client: Client) -> None:
    job = server.add_job()
    server.on_stream = lambda: server.move(job.job_id, "failed")
    assert client.wait(job.job_id, timeout_s=30).status == "failed"


def test_waiting_for_many_asks_by_pages_not_one_by_one(server: SmallServer, client: Client) -> None:
    ids = [server.add_job(status="succeeded").job_id for _ in range(200)]
    ended = client.wait_all(ids, timeout_s=30)
    assert ended == dict.fromkeys(ids, "succeeded")
    assert len(server.seen) < 10


def test_a_wait_reports_each_job_as_it_ends(server: SmallServer, client: Client) -> None:
    done, live = server.add_job(status="succeeded"), server.add_job()
    heard: list[tuple[str, str]] = []

    def on_end(job_id: str, status: str) -> None:
        heard.append((job_id, status))
        if job_id == done.job_id:
            server.move(live.job_id, "failed")

    client.wait_all([done.job_id, live.job_id], timeout_s=30, on_end=on_end)
    assert heard == [(done.job_id, "succeeded"), (live.job_id, "failed")]


def test_a_wait_that_times_out_names_the_jobs_that_are_left(
    server: SmallServer, client: Client
) -> None:
    done, live = server.add_job(status="succeeded"), server.add_job()
    with pytest.raises(WaitTimeoutError) as caught:
        client.wait_all([done.job_id, live.job_id], timeout_s=0.2)
    assert caught.value.job_ids == (live.job_id,)


def test_the_stream_goes_on_where_it_broke_off(server: SmallServer, client: Client) -> None:
    job = server.add_job()
    server.on_stream = lambda: server.move(job.job_id, "running")
    changes = client.stream()
    assert next(changes).change.status == "running"
    changes.close()  # type: ignore[attr-defined]  # a generator
    server.move(job.job_id, "succeeded")
    last = str(len(server.changes) - 2)
    assert next(client.stream(after=last)).change.status == "succeeded"


def test_queues_and_workers_answer_by_their_calls(server: SmallServer, client: Client) -> None:
    worker = server.add_worker("box")
    assert client.set_queue("mail", {"max_workers": 3}, reset=True).max_workers == 3
    assert client.pause_queue("mail").paused
    assert not client.resume_queue("mail").paused
    assert client.purge_queue("mail") == 3
    assert [queue.name for queue in client.queues()] == ["mail"]
    assert [one.name for one in client.workers()] == ["box"]
    assert client.drain_worker(worker.worker_id).status == "draining"
    client.remove_worker(worker.worker_id)
    assert client.workers() == []
    assert client.cluster().leader == "here"
    assert client.ready().status == "ok"


def test_a_result_is_waited_for(server: SmallServer, client: Client) -> None:
    job = server.add_job()
    server.on_stream = lambda: server.move(job.job_id, "succeeded", result={"total": 42})
    assert client.result(job.job_id, timeout_s=30) == {"total": 42}


def test_a_job_that_failed_has_no_result_but_says_why_and_what_it_printed_last(
    server: SmallServer, client: Client
) -> None:
    job = server.add_job("invoice")
    server.run(job.job_id, b"x" * 10_000 + b"\nno such customer\n", exit_code=1)
    server.move(job.job_id, "failed", error={"type": "KeyError", "message": "42"})
    with pytest.raises(JobFailed, match=r"job invoice .* failed: KeyError: 42") as caught:
        client.result(job.job_id)
    assert caught.value.job.status == "failed"
    assert caught.value.error["type"] == "KeyError"
    assert caught.value.log_tail.endswith("\nno such customer\n")
    assert len(caught.value.log_tail) < 10_000


def test_many_jobs_go_in_batches_and_refs_reach_across_them(
    server: SmallServer, client: Client
) -> None:
    def jobs() -> Iterator[dict[str, Any]]:
        yield {**JOB, "ref": "first"}
        yield from ({**JOB, "name": f"n{i}"} for i in range(10_000))
        yield {**JOB, "dependencies": ["ref:first"]}
        yield {**JOB, "dependencies": [{"job_id": "ref:first", "when": "finished"}]}

    heard: list[int] = []
    ids = client.submit_many(jobs(), on_progress=heard.append)
    assert heard == [10_000, 10_003]
    assert len(server.writes()) == 2
    assert ids == list(server.jobs)
    needs = [server.jobs[job_id].dependencies[0] for job_id in ids[-2:]]
    assert [(need.job_id, need.when) for need in needs] == [
        (ids[0], "succeeded"),
        (ids[0], "finished"),
    ]


def test_a_batch_is_cut_before_it_is_too_large_for_one_request(
    server: SmallServer, client: Client
) -> None:
    large = {**JOB, "payload": "x" * (6 << 20)}
    assert len(client.submit_many([large] * 5)) == 5
    assert [len(one.body) < (17 << 20) for one in server.writes()] == [True] * 3


def test_many_jobs_handed_in_again_under_a_key_of_the_callers_own_are_there_once(
    server: SmallServer, client: Client
) -> None:
    server.faults += [503]
    first = client.submit_many([JOB] * 3, idempotency_key="import-7")
    assert client.submit_many([JOB] * 3, idempotency_key="import-7") == first
    assert len(server.jobs) == 3


def test_typed_jobs_may_name_each_other_across_batches_too(
    server: SmallServer, client: Client
) -> None:
    one = BatchJobSpec(name="a", task=Noop(), ref="a")
    needs = DependencySpec("ref:a", "finished")
    two = BatchJobSpec(name="b", task=Noop(), dependencies=[needs, "ref:a"])
    ids = client.run(submit_many(client.state, [one, two], jobs_max=1))
    assert [need.job_id for need in server.jobs[ids[1]].dependencies] == [ids[0], ids[0]]


def test_a_stream_that_lives_but_says_nothing_does_not_outlast_the_wait(
    server: SmallServer, client: Client
) -> None:
    live, other = server.add_job(), server.add_job()
    done = Event()

    def chatter() -> None:
        while not done.wait(0.02):
            server.move(other.job_id, "running")

    talking = Thread(target=chatter)
    talking.start()
    try:
        with pytest.raises(WaitTimeoutError):
            client.wait(live.job_id, timeout_s=0.3)
    finally:
        done.set()
        talking.join()


def test_threads_may_share_a_client(server: SmallServer) -> None:
    with Client(server.url, TOKEN) as client, ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(lambda _: client.submit(JOB).job_id, range(80)))
    assert len(server.writes()) == 80
    assert len(ids) == 80


async def test_tasks_may_share_an_async_client(server: SmallServer) -> None:
    live = server.add_job()
    server.on_stream = lambda: server.move(live.job_id, "succeeded")
    async with AsyncClient(server.url, TOKEN) as client:
        waited, *jobs = await asyncio.gather(
            client.wait(live.job_id, timeout_s=30), *(client.submit(JOB) for _ in range(20))
        )
    assert waited.status == "succeeded"
    assert len(jobs) == 20
