"""Both clients and the servers of a cell, of which some are away."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from threading import Event

import pytest

from rota.sdk import App, Client, LimitError, Patience, UnavailableError, UnreachableError, calls
from rota.sdk.clock import SystemClock
from rota.sdk.request_plan import ClientState
from rota.sdk.servers import Servers
from tests.sdk.async_as_blocking import OpenClient
from tests.sdk.fake_server import TOKEN, SmallServer

JOB = {"name": "hello", "task": {"kind": "noop"}}


@pytest.fixture
def second(server: SmallServer) -> Iterator[SmallServer]:
    other = SmallServer()
    other.join(server)
    yield other
    other.close()


@pytest.fixture
def nowhere() -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def pair(server: SmallServer, second: SmallServer, open_client: OpenClient) -> Client:
    patience = Patience(retry_for_s=20, switch_s=0.5)
    return open_client([server.url, second.url], TOKEN, patience=patience)


def test_a_server_that_is_not_there_is_passed_over_for_good(
    server: SmallServer, nowhere: str, open_client: OpenClient
) -> None:
    patience = Patience(retry_for_s=0, first_contact_s=0)
    client = open_client(f"{nowhere},{server.url}", TOKEN, patience=patience)
    client.submit(JOB)
    client.stats()
    assert [one.path for one in server.seen] == ["/jobs", "/stats"]


def test_a_write_whose_answer_was_lost_is_repeated_elsewhere_and_happens_once(
    server: SmallServer, second: SmallServer, pair: Client
) -> None:
    server.lose_answers = 1
    job = pair.submit(JOB)
    (first,), (again,) = server.writes(), second.writes()
    assert first.headers["idempotency-key"] == again.headers["idempotency-key"]
    assert list(server.jobs) == [job.job_id]


def test_a_server_without_a_leader_is_left_for_one_that_has_it(
    server: SmallServer, second: SmallServer, pair: Client
) -> None:
    server.faults += [503] * 100
    pair.submit(JOB)
    pair.submit(JOB)
    assert len(server.seen) == 1, "it is not asked again while the other one answers"
    assert len(second.seen) == 2


def test_a_frozen_server_is_left_long_before_a_single_one_would_be(
    server: SmallServer, second: SmallServer, pair: Client
) -> None:
    server.hang = Event()
    try:
        assert pair.submit(JOB).job_id in second.jobs
    finally:
        server.hang.set()


def test_a_call_that_any_server_can_answer_waits_for_none_of_them_long() -> None:
    state = ClientState(SystemClock(), Patience(), Servers(["http://a", "http://b"]))
    waits = [state.read_s(calls.submit(JOB), tried) for tried in range(20)]
    assert waits[0] == waits[1] < 1, "the first round is quick"
    assert waits == sorted(waits), "later ones are not: they may all be slow"
    assert waits[-1] == Patience().switch_s
    large = calls.submit_batch([JOB] * 20_000)
    assert state.read_s(large) > 2 * waits[0], "what is large takes longer everywhere"
    assert state.read_s(calls.cancel_job("j")) == Patience().switch_s, "only the leader can do it"
    alone = ClientState(SystemClock(), Patience(), Servers(["http://a"]))
    assert alone.read_s(calls.submit(JOB)) == Patience().read_s


def test_a_client_over_its_rate_limit_waits_and_does_not_try_another_server(
    server: SmallServer, second: SmallServer, open_client: OpenClient
) -> None:
    server.faults += [429, 429]
    urls = [server.url, second.url]
    open_client(urls, TOKEN).submit(JOB)
    assert (len(server.seen), len(second.seen)) == (3, 0)
    server.faults += [429] * 9
    with pytest.raises(LimitError):
        open_client(urls, TOKEN, patience=Patience(retry_for_s=0)).submit(JOB)


def test_after_all_servers_failed_the_client_tries_them_again_with_backoff(
    server: SmallServer, second: SmallServer, pair: Client, open_client: OpenClient
) -> None:
    server.faults += [503, 0, 503]
    second.faults += [0, 503, 0]
    pair.submit(JOB)
    assert (len(server.seen), len(second.seen)) == (4, 3)
    server.faults += [503] * 99
    second.faults += [503] * 99
    impatient = Patience(retry_for_s=0)
    with pytest.raises(UnavailableError):
        open_client([server.url, second.url], TOKEN, patience=impatient).submit(JOB)
    assert (len(server.seen), len(second.seen)) == (5, 4), "each is asked once at least"


def test_the_last_cause_is_said_with_the_server_it_is_of(
    nowhere: str, open_client: OpenClient
) -> None:
    client = open_client([nowhere, nowhere + "/other"], TOKEN, patience=Patience(retry_for_s=0))
    with pytest.raises(UnreachableError) as caught:
        client.stats()
    assert caught.value.url == nowhere + "/other"


def test_a_job_is_waited_for_though_the_server_that_streams_leaves(
    server: SmallServer, second: SmallServer, pair: Client
) -> None:
    job = server.add_job()

    def leave() -> None:
        server.faults += [503] * 100
        server.end_streams()
        second.on_stream = lambda: second.move(job.job_id, "succeeded", result=7)

    server.on_stream = leave
    assert pair.result(job.job_id, timeout_s=30) == 7


def test_an_app_takes_several_servers_too(server: SmallServer, nowhere: str) -> None:
    with App([nowhere, server.url], TOKEN) as app:
        assert app.submit(JOB).id in server.jobs
