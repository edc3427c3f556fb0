"""Functions as jobs: what they become on the wire, and what is refused before it gets there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from rota.sdk import App, ArgumentError, Context, Job, JobFailed, JobFunction
from rota.wire.formats import Duration
from rota.wire.jobs import JobSpec, JobView
from tests.sdk.fake_cell import Seen
from tests.sdk.fake_server import TOKEN, SmallServer


@dataclass
class Order:
    number: int
    due: date
    price: Decimal


@pytest.fixture
def app(server: SmallServer) -> Iterator[App]:
    with App(server.url, TOKEN) as made:
        yield made


def sent(server: SmallServer) -> JobSpec:
    """The job of the last write."""
    last: Seen = server.writes()[-1]
    spec: JobSpec = last.as_(JobSpec)
    return spec


def test_a_submitted_call_has_the_functions_name_and_its_arguments(
    app: App, server: SmallServer
) -> None:
    @app.job
    def invoice(customer: int, *, note: str = "") -> str:
        return note

    job = invoice.submit(42, note="x")
    spec = sent(server)
    assert (spec.name, spec.task) == ("invoice", None)
    assert msgspec.json.decode(spec.payload) == {"args": [42], "kwargs": {"note": "x"}}
    assert isinstance(job, Job)
    assert job.id in server.jobs


def test_every_option_of_a_call_becomes_its_field_of_the_job(app: App, server: SmallServer) -> None:
    @app.job(
        name="shop.invoice", queue="bills", retries=3, backoff="fixed", retry_delay="2s", cpu=2,
        memory="256MiB", gpu=1, custom={"licence": 1}, capabilities=["linux"], timeout="5m",
        semantics="at_least_once", preemptible=True, labels={"team": "a"},
        concurrency_key="one", concurrency_limit=2,
    )  # fmt: skip
    def invoice(customer: int) -> None: ...

    invoice.submit(42, priority=5, labels={"run": "1"}, expires_at=datetime(2040, 1, 1, tzinfo=UTC))
    spec = sent(server)
    assert (spec.name, spec.queue, spec.priority) == ("shop.invoice", "bills", 5)
    assert (spec.retry.max_attempts, spec.retry.backoff) == (4, "fixed")
    assert spec.retry.delay == Duration(2000)
    assert (spec.requirements.cpu, spec.requirements.memory.bytes) == (2, 256 << 20)
    assert (spec.requirements.gpu, spec.requirements.custom) == (1, {"licence": 1})
    assert spec.timeout == Duration(300_000)
    assert spec.labels == {"team": "a", "run": "1"}
    assert spec.concurrency is not None
    assert (spec.concurrency.key, spec.concurrency.limit) == ("one", 2)
    assert spec.expires_at == datetime(2040, 1, 1, tzinfo=UTC)
    assert spec.preemptible


def test_options_of_a_later_level_override_earlier_ones(server: SmallServer) -> None:
    with App(server.url, TOKEN, queue="app", priority=1, tenant="t") as app:

        @app.job(queue="function", priority=2)
        def work() -> None: ...

        work.options(priority=3).submit(priority=4)
        spec = sent(server)
        assert (spec.tenant, spec.queue, spec.priority) == ("t", "function", 4)
        work.submit()
        assert sent(server).priority == 2


def test_a_concurrency_key_can_come_from_the_arguments(app: App, server: SmallServer) -> None:
    @app.job(concurrency_key=lambda customer, amount=0: f"customer-{customer}")
    def charge(customer: int, amount: int = 0) -> None: ...

    charge.submit(7, amount=3)
    spec = sent(server)
    assert spec.concurrency is not None
    assert spec.concurrency.key == "customer-7"


def test_a_delay_counts_from_now_and_a_handle_is_a_dependency(
    app: App, server: SmallServer
) -> None:
    @app.job
    def work() -> None: ...

    first = work.submit(delay=timedelta(hours=1))
    run_at = sent(server).run_at
    assert run_at is not None
    late = run_at - datetime.fromtimestamp(app.clock.now_ms() / 1000, UTC)
    assert timedelta(minutes=58) < late <= timedelta(hours=1)
    second = work.submit(dependencies=[first, {"job_id": first.id, "when": "finished"}])
    needs = server.jobs[second.id].dependencies
    assert [(need.job_id, need.when) for need in needs] == [
        (first.id, "succeeded"),
        (first.id, "finished"),
    ]


def test_a_name_that_the_function_has_itself_is_the_functions(
    app: App, server: SmallServer
) -> None:
    @app.job
    def rank(priority: int) -> None: ...

    rank.options(priority=9).submit(priority=3)
    spec = sent(server)
    assert spec.priority == 9
    assert msgspec.json.decode(spec.payload)["kwargs"] == {"priority": 3}


def test_the_callers_own_key_makes_one_job(app: App, server: SmallServer) -> None:
    @app.job
    def work() -> None: ...

    first = work.submit(idempotency_key="once")
    assert work.submit(idempotency_key="once").id == first.id
    assert len(server.jobs) == 1


def test_many_calls_go_in_one_request(app: App, server: SmallServer) -> None:
    @app.job(priority=2)
    def add(one: int, other: int = 0) -> int:
        return one + other

    heard: list[int] = []
    jobs = add.map(range(50), on_progress=heard.append) + add.submit_many([(1, 2), (3, 4)])
    assert len({job.id for job in jobs}) == 52
    assert len(server.writes()) == 2
    assert heard == [50]
    last = server.jobs[jobs[-1].id]
    assert msgspec.json.decode(last.payload)["args"] == [3, 4]
    assert last.priority == 2


def test_a_result_comes_back_as_the_function_declares_it(app: App, server: SmallServer) -> None:
    @app.job
    def first(orders: list[Order]) -> Order:
        return orders[0]

    order = Order(1, date(2030, 1, 1), Decimal("9.50"))
    job = first.submit([order])
    wire = {"number": 1, "due": "2030-01-01", "price": "9.50"}
    assert msgspec.json.decode(server.jobs[job.id].payload)["args"] == [[wire]]
    server.move(job.id, "succeeded", result=wire)
    assert job.result(timeout_s=30) == order
    assert job.status() == "succeeded"


def test_a_handle_reads_waits_for_and_cancels_its_job(app: App, server: SmallServer) -> None:
    @app.job
    def work() -> None: ...

    job = work.submit()
    server.run(job.id, b"printed\n", exit_code=1)
    assert job.logs() == "printed\n"
    assert b"".join(job.follow_logs()) == b"printed\n"
    assert job.wait(timeout_s=30).status == "failed"
    with pytest.raises(JobFailed):
        job.result()
    assert work.submit().cancel().status == "cancelled"
    assert repr(job) == f"<Job {job.id}>"


async def test_a_job_is_awaited(server: SmallServer) -> None:
    async with App(server.url, TOKEN) as app:

        @app.job
        async def shout(text: str) -> str:
            return text.upper()

        assert await shout("a") == "A"
        job = await shout.options(priority=3).submit_async("a")
        assert sent(server).priority == 3
        server.run(job.id, b"printed\n")
        assert await job.status() == "running"
        assert await job.logs() == "printed\n"
        server.move(job.id, "succeeded", result="A")
        assert await job == "A"
        assert (await job.wait()).status == "succeeded"
        assert (await (await shout.submit_async("b")).cancel()).status == "cancelled"


def test_calling_a_function_just_calls_it(app: App, server: SmallServer) -> None:
    @app.job
    def add(one: int, other: int = 1) -> int:
        """Adds."""
        return one + other

    @app.job
    def tell(ctx: Context, text: str) -> str:
        ctx.progress(0.5)
        return text

    assert add(1, other=2) == 3
    assert tell("x") == "x"
    assert (repr(add), add.__doc__) == ("<job function add>", "Adds.")
    assert server.seen == []


def test_a_worker_finds_the_functions_of_an_app_by_name(app: App) -> None:
    @app.job(name="x")
    async def one(ctx: Context) -> None: ...

    @app.job
    def two(context: Context, n: int) -> None: ...

    @app.job
    def three(data: Any) -> None: ...

    assert list(app.functions) == ["x", "two", "three"]
    found: JobFunction[..., Any] = app.functions["x"]
    assert (found.name, found.is_async, found.wants_ctx) == ("x", True, True)
    assert app.functions["two"].wants_ctx
    assert not app.functions["three"].wants_ctx


def test_a_context_in_the_wrong_place_is_refused_at_import(app: App) -> None:
    with pytest.raises(TypeError, match="ctx must be the first parameter"):

        @app.job
        def work(n: int, ctx: Context) -> None: ...


def test_two_functions_of_one_name_are_refused(app: App) -> None:
    @app.job
    def work() -> None: ...

    def other() -> None: ...

    with pytest.raises(ValueError, match="two functions are named 'work'"):
        app.job(name="work")(other)


def test_a_misspelt_option_is_named_with_the_right_one(app: App) -> None:
    with pytest.raises(TypeError, match="did you mean 'retries'"):
        app.job(retires=3)  # type: ignore[call-overload]

    @app.job
    def work() -> None: ...

    with pytest.raises(ArgumentError, match="prio"):
        work.submit(prio=3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="there is no option 'prio'"):
        work.options(prio=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "wrong",
    [
        {"memory": "lots"},
        {"timeout": "soon"},
        {"retries": -1},
        {"retries": "3"},
        {"priority": 5000},
        {"queue": ""},
        {"semantics": "exactly_once"},
    ],
)
def test_an_option_that_the_server_would_refuse_is_refused_at_import(
    app: App, wrong: dict[str, Any]
) -> None:
    def work() -> None: ...

    with pytest.raises(ValueError, match="the options of work"):
        app.job(**wrong)(work)


def test_a_call_with_wrong_arguments_is_refused_before_it_is_sent(
    app: App, server: SmallServer
) -> None:
    @app.job
    def work(n: int) -> None: ...

    with pytest.raises(ArgumentError, match="missing a required argument: 'n'"):
        work.submit()  # type: ignore[call-overload]
    with pytest.raises(ArgumentError, match="too many"):
        work.submit(1, 2)  # type: ignore[call-overload]
    assert server.seen == []


@pytest.mark.parametrize("value", [object(), float("nan"), {1, object()}, lambda: None])
def test_an_argument_that_is_not_json_is_refused_before_it_is_sent(
    app: App, server: SmallServer, value: Any
) -> None:
    @app.job
    def work(n: Any) -> None: ...

    with pytest.raises(ArgumentError, match="the arguments of work cannot be written as JSON"):
        work.submit(value)
    assert server.seen == []


def test_arguments_that_are_too_large_are_refused_before_they_are_sent(app: App) -> None:
    @app.job
    def work(text: str) -> None: ...

    with pytest.raises(ArgumentError, match="1048576 at most"):
        work.submit("x" * (1 << 20))


def test_an_app_that_only_declares_connects_to_nothing() -> None:
    app = App("http://127.0.0.1:1", "no-token")

    @app.job
    def work() -> None: ...

    app.close()


def test_a_forked_process_gets_connections_of_its_own() -> None:
    app = App("http://127.0.0.1:1", "no-token")
    mine = app.client
    child = os.fork()
    if child == 0:
        os._exit(0 if app.client is not mine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert app.client is mine
    app.close()


def test_a_job_handle_returns_the_whole_job(app: App) -> None:
    @app.job
    def work() -> None: ...

    view = work.submit(labels={"a": "b"}).view()
    assert isinstance(view, JobView)
    assert view.labels == {"a": "b"}
