"""Jobs that run in the process of a test."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from rota.sdk import (
    App,
    ArgumentError,
    Cancelled,
    ConflictError,
    Context,
    Fail,
    InvalidError,
    JobFailed,
    NotFoundError,
    Retry,
    WaitTimeoutError,
    current_context,
)


@dataclass
class Order:
    number: int
    at: datetime


@pytest.fixture
def app() -> App:
    """One that could not reach a server if it tried."""
    return App("http://127.0.0.1:1", "no-token")


def test_a_job_runs_as_it_is_submitted(app: App) -> None:
    @app.job
    def double(n: int) -> int:
        return 2 * n

    with app.inline() as runs:
        job = double.submit(21, priority=5)
        assert (job.status(), job.result()) == ("succeeded", 42)
    assert (runs[0].name, runs[0].args, runs[0].kwargs) == ("double", [21], {})
    assert (runs[0].status, runs[0].result, runs[0].attempts) == ("succeeded", 42, 1)
    assert runs[0].view.priority == 5


def test_arguments_and_results_go_through_json_and_come_back_typed(app: App) -> None:
    seen: list[Any] = []

    @app.job
    def keep(order: Order, pair: tuple[int, int], loose: Any) -> Order:
        seen.extend((order, pair, loose))
        return order

    given = Order(1, datetime.fromisoformat("2030-01-01T12:00:00+01:00"))
    with app.inline() as runs:
        assert keep.submit(given, (1, 2), (3, 4)).result() == given
    assert seen == [given, (1, 2), [3, 4]]
    assert seen[0] is not given
    assert runs[0].result == {"number": 1, "at": "2030-01-01T12:00:00+01:00"}


def test_an_argument_that_is_not_json_is_refused_inline_too(app: App) -> None:
    @app.job(retries=5)
    def work(n: Any) -> Any:
        return object()

    with app.inline() as runs:
        with pytest.raises(ArgumentError, match="cannot be written as JSON"):
            work.submit(object())
        job = work.submit(1)
        with pytest.raises(JobFailed, match="the result of work cannot be written as JSON"):
            job.result()
    assert len(runs) == 1


def test_a_job_is_tried_again_without_waiting_until_its_tries_are_used_up(app: App) -> None:
    attempts: list[tuple[int, int]] = []

    @app.job(retries=3, retry_delay="1h")
    def flaky(ctx: Context, good_from: int) -> str:
        attempts.append((ctx.attempt, ctx.fence))
        if ctx.attempt < good_from:
            raise Retry("not yet", delay="1h")
        return "done"

    with app.inline() as runs:
        assert flaky.submit(3).result() == "done"
        assert attempts == [(1, 1), (2, 2), (3, 3)]
        with pytest.raises(JobFailed, match=r"rota\.Retry: not yet") as caught:
            flaky.submit(99).result()
    assert [run.attempts for run in runs] == [3, 4]
    assert [str(error) for error in runs[1].errors] == ["not yet"] * 4
    assert isinstance(caught.value.__cause__, Retry)
    assert "raise Retry" in caught.value.traceback


def test_a_failure_that_is_final_is_not_tried_again(app: App) -> None:
    @app.job(retries=3)
    def work() -> None:
        raise Fail("no such customer")

    with app.inline() as runs:
        assert work.submit().status() == "failed"
    assert runs[0].attempts == 1
    assert runs[0].view.error["message"] == "no such customer"


def test_what_must_not_start_twice_is_tried_once(app: App) -> None:
    @app.job(retries=3, semantics="at_most_once")
    def work() -> None:
        raise OSError("gone")

    with app.inline() as runs:
        work.submit()
    assert (runs[0].status, runs[0].attempts) == ("failed", 1)


def test_a_function_that_leaves_by_exit_or_cancellation_ends_its_own_job_only(app: App) -> None:
    @app.job
    def leave(how: str) -> None:
        if how == "exit":
            raise SystemExit(3)
        raise Cancelled

    with app.inline() as runs:
        leave.submit("exit")
        leave.submit("cancel")
    assert [run.status for run in runs] == ["failed", "cancelled"]


def test_a_function_that_runs_inline_gets_a_context(app: App) -> None:
    @app.job
    def work(ctx: Context, n: int) -> str:
        assert current_context() is ctx
        ctx.progress(0.5, "half")
        ctx.log("said")
        assert ctx.payload == {"args": [n], "kwargs": {}}
        assert ctx.scheduled_at is not None
        return ctx.job_id

    with app.inline() as runs:
        job = work.submit(1)
        assert job.result() == job.id
        assert job.logs() == "said\n"
        assert list(job.follow_logs()) == [b"said\n"]
    assert runs[0].progress == [(0.5, "half")]
    assert runs[0].view.progress == 0.5


def test_what_waits_for_a_job_runs_after_it_or_is_skipped(app: App) -> None:
    order: list[str] = []

    @app.job
    def step(name: str) -> None:
        order.append(name)
        if name.startswith("bad"):
            raise ValueError(name)

    with app.inline(eager=False) as runs:
        bad = step.submit("bad")
        good = step.submit("good")
        step.submit("after good", dependencies=[good])
        skipped = step.submit("after bad", dependencies=[bad])
        step.submit("after skipped", dependencies=[skipped])
        step.submit("cleanup", dependencies=[{"job_id": bad.id, "when": "finished"}])
        step.submit("alarm", dependencies=[{"job_id": bad.id, "when": "failed"}])
        assert order == []
        runs.run_all()
    assert order == ["bad", "good", "after good", "cleanup", "alarm"]
    assert [run.status for run in runs] == [
        *("failed", "succeeded", "succeeded", "skipped", "skipped", "succeeded", "succeeded"),
    ]
    assert runs[3].view.reason == "upstream", "as a server says it"


def test_jobs_that_jobs_submit_run_too(app: App) -> None:
    @app.job
    def count(n: int) -> int:
        return 0 if n == 0 else 1 + count.submit(n - 1).result()

    @app.job
    def later(n: int) -> None:
        if n:
            later.submit(n - 1)

    with app.inline() as runs:
        assert count.submit(5).result() == 5
        assert len(runs.of(count)) == 6
    with app.inline(eager=False) as runs:
        later.submit(3)
        runs.run_all()
    assert [run.status for run in runs.of("later")] == ["succeeded"] * 4


def test_waiting_for_a_collected_job_runs_it(app: App) -> None:
    @app.job
    def work() -> int:
        return 1

    with app.inline(eager=False):
        job = work.submit()
        assert job.status() == "pending"
        assert job.result() == 1


def test_a_job_that_waits_for_itself_is_not_waited_for_for_ever(app: App) -> None:
    @app.job
    def work(ctx: Context) -> None:
        app.runs.wait(ctx.job_id)

    with app.inline() as runs:
        work.submit()
    assert isinstance(runs[0].errors[0], WaitTimeoutError)


def test_refusals_are_those_of_a_server(app: App) -> None:
    @app.job
    def work() -> None: ...

    with app.inline(eager=False) as runs:
        job = work.submit()
        assert job.cancel().status == "cancelled"
        with pytest.raises(ConflictError):
            job.cancel()
        with pytest.raises(NotFoundError):
            work.submit(dependencies=["00000000-0000-7000-8000-000000000000"])
        with pytest.raises(InvalidError, match="priority"):
            work.submit(priority=5000)
        runs.run_all()
        assert job.status() == "cancelled"


def test_a_job_without_its_function_keeps_waiting(app: App) -> None:
    with app.inline() as runs:
        view = runs.submit({"name": "unknown"})
        assert (view.status, runs[0].view.reason) == ("pending", "no_function")


def test_the_same_key_is_the_same_job(app: App) -> None:
    @app.job
    def work() -> None: ...

    with app.inline() as runs:
        assert work.submit(idempotency_key="k").id == work.options(idempotency_key="k").submit().id
    assert len(runs) == 1


def test_many_calls_run_in_their_order(app: App) -> None:
    seen: list[int] = []

    @app.job
    def work(n: int) -> None:
        seen.append(n)

    with app.inline():
        assert [job.status() for job in work.map([3, 1, 2])] == ["succeeded"] * 3
    assert seen == [3, 1, 2]


def test_an_asynchronous_function_runs_from_plain_code(app: App) -> None:
    @app.job
    async def work(n: int) -> int:
        await asyncio.sleep(0)
        return n + 1

    with app.inline():
        assert work.submit(1).result() == 2
        assert work.local(2) == 3


async def test_an_asynchronous_function_runs_in_the_loop_of_the_test(app: App) -> None:
    loops: list[Any] = []

    @app.job
    async def work(ctx: Context, n: int) -> int:
        loops.append(asyncio.get_running_loop())
        assert current_context() is ctx
        return n

    with app.inline():
        job = await work.submit_async(1)
        assert await job == 1
        assert await job.status() == "succeeded"
        assert work.submit(2).result() == 2
    assert loops[0] is asyncio.get_running_loop()
    assert loops[1] is not loops[0]


async def test_a_failure_is_awaited_like_a_result(app: App) -> None:
    @app.job
    async def work() -> None:
        raise OSError("gone")

    with app.inline(eager=False):
        job = await work.submit_async()
        assert await job.status() == "pending"
        with pytest.raises(JobFailed, match="OSError: gone"):
            await job


def test_an_app_can_be_inline_all_along() -> None:
    app = App(inline=True)

    @app.job
    def work() -> int:
        return 1

    assert work.submit().result() == 1
    assert len(app.runs) == 1


def test_after_the_block_the_server_is_asked_again(app: App) -> None:
    with app.inline():
        pass
    with pytest.raises(LookupError, match="not inline"):
        _ = app.runs
    assert app.port() is app.client
    app.close()


def test_a_local_run_goes_through_json(app: App) -> None:
    @app.job
    def kind(ctx: Context, pair: Any) -> str:
        return f"{type(pair).__name__} {ctx.attempt}"

    assert kind((1, 2)) == "tuple 1"
    assert kind.local((1, 2)) == "list 1"
