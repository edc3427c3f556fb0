"""Ending of Python calls: by timeout, cancel, limits, leases, or a call that shares the process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from rota.wire.jobs import RequirementsView
from rota.worker.clock import BootClock
from tests.worker.python_calls import PythonCalls, error, result, write_functions
from tests.worker.runner_context import until


@pytest.fixture
async def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PythonCalls]:
    write_functions(tmp_path)
    monkeypatch.chdir(tmp_path)
    functions = PythonCalls(tmp_path, grace_s=0.5)
    yield functions
    await functions.pool.close()


async def test_an_endless_loop_is_ended_at_its_timeout_and_others_go_on(
    functions: PythonCalls,
) -> None:
    late, good = await functions.calls(
        functions.order("spin", timeout=0.3), functions.order("add", 1)
    )
    assert late.status == "timed_out"
    assert error(late)["message"] == "timed out after 0.3 s; SIGTERM to 1 process"
    assert result(good) == 11
    assert result(await functions.call("add", 2)) == 12


async def test_a_function_cleans_up_when_it_is_cancelled(
    functions: PythonCalls, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    run = functions.run(functions.order("wait_long", str(mark)))
    running = asyncio.create_task(run.run())
    await until(mark.exists)
    run.stop("cancelled")
    report = await running
    assert report.status == "cancelled"
    assert error(report)["message"] == "cancelled; SIGTERM to 1 process"
    assert (tmp_path / "mark.cleaned").exists()


async def test_a_function_that_ignores_the_signal_is_killed(
    functions: PythonCalls, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    run = functions.run(functions.order("wait_long", str(mark), kwargs={"ignore": True}))
    running = asyncio.create_task(run.run())
    await until(mark.exists)
    run.stop("cancelled")
    report = await running
    assert (report.status, report.exit_code) == ("cancelled", 137)
    assert "SIGKILL to 1 process" in error(report)["message"]
    assert not (tmp_path / "mark.cleaned").exists()


async def test_programs_that_a_function_started_end_with_it(
    functions: PythonCalls, tmp_path: Path
) -> None:
    mark, seconds = tmp_path / "mark", f"61.{os.getpid()}"
    run = functions.run(functions.order("start_sleeper", str(mark), seconds))
    running = asyncio.create_task(run.run())
    await until(mark.exists)
    assert sleepers(seconds) == 1
    run.abandon()
    await running
    assert sleepers(seconds) == 0


def sleepers(seconds: str) -> int:
    """How many processes of this machine sleep for just so long."""
    found = psutil.process_iter(["cmdline", "status"])
    return sum(
        one.info["cmdline"] == ["sleep", seconds] and one.info["status"] != psutil.STATUS_ZOMBIE
        for one in found
    )


async def test_a_call_that_is_stopped_before_its_start_never_starts(
    functions: PythonCalls, tmp_path: Path
) -> None:
    run = functions.run(functions.order("wait_long", str(tmp_path / "mark")))
    running = asyncio.create_task(run.run())
    await asyncio.sleep(0)
    run.stop("cancelled")
    report = await running
    assert error(report)["message"] == "cancelled before it started"
    assert not (tmp_path / "mark").exists()
    assert result(await functions.call("add", 1)) == 11


async def test_a_function_is_limited_to_the_memory_that_its_job_requested(
    functions: PythonCalls,
) -> None:
    needs = RequirementsView(1, 192 * 1024 * 1024, 0, 0, {}, [])
    report = await functions.call("hog", requirements=needs, timeout=30)
    assert report.status == "failed"
    assert "of 192 MiB memory" in error(report)["message"]
    assert result(await functions.call("add", 1, requirements=needs)) == 11


async def test_the_supervisor_ends_the_process_of_a_call_whose_lease_runs_out(
    functions: PythonCalls, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    run = functions.run(functions.order("wait_long", str(mark)))
    running = asyncio.create_task(run.run())
    await until(mark.exists)
    run.hold_until(BootClock().now() + 0.1)
    await running
    assert run.lapsed


async def test_asynchronous_calls_share_one_process(functions: PythonCalls, tmp_path: Path) -> None:
    assert result(await functions.call("gentle", 1))[1] == 1
    folder = tmp_path / "here"
    folder.mkdir()
    await functions.call("meet", str(folder), 1, "first")
    names = [f"n{number}" for number in range(8)] + ["bad"]
    orders = [functions.order("meet", str(folder), 10, name) for name in names]
    *good, bad = await functions.calls(*orders)
    assert len({result(one)[0] for one in good}) == 1, "all in one process"
    assert error(bad)["message"] == "bad one"
    assert bad.retryable


async def test_each_of_many_calls_has_a_log_of_its_own(
    functions: PythonCalls, tmp_path: Path
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    await functions.call("meet", str(folder), 1, "first")
    functions.sink.log.clear()
    logs: dict[str, bytearray] = {}

    async def keep(execution_id: str, fence: int, offset: int, chunk: bytes) -> None:
        logs.setdefault(execution_id, bytearray())[offset:] = chunk

    functions.sink.send_log = keep  # type: ignore[method-assign]
    orders = [functions.order("meet", str(folder), 3, name) for name in ("a", "b")]
    await functions.calls(*orders)
    for view, name in zip(orders, ("a", "b"), strict=True):
        assert logs[view.execution_id].decode() == f"hello from {name}\nbye from {name}\n"


async def test_one_of_many_asynchronous_calls_is_ended_and_the_others_go_on(
    functions: PythonCalls, tmp_path: Path
) -> None:
    process = await learned(functions)
    mark = tmp_path / "mark"
    late, other = await functions.calls(
        functions.order("patient", str(mark), timeout=0.2), functions.order("gentle", 2)
    )
    assert late.status == "timed_out"
    assert error(late)["message"] == "timed out after 0.2 s; it ended when asked to"
    assert (tmp_path / "mark.cleaned").exists()
    assert result(other)[1] == 2
    assert result(await functions.call("gentle", 3))[0] == process


async def learned(functions: PythonCalls) -> str:
    """Lets the pool find out that these are asynchronous; the process they share."""
    for name in ("gentle", "patient", "blocking"):
        functions.pool.learn(f"user_functions:{name}", "shared")
    process: str = result(await functions.call("gentle", 1))[0]
    return process


async def test_a_function_that_blocks_others_runs_alone_from_then_on(
    functions: PythonCalls, tmp_path: Path
) -> None:
    before = await learned(functions)
    calm, mark = tmp_path / "calm", tmp_path / "mark"
    beside = asyncio.create_task(functions.run(functions.order("patient", str(calm))).run())
    await until(calm.exists)
    blocking = await functions.call("blocking", str(mark), timeout=0.2)
    assert blocking.status == "timed_out"
    assert "SIGKILL" in error(blocking)["message"]
    neighbour = await beside
    assert (neighbour.status, neighbour.retryable) == ("failed", True)
    assert error(neighbour) == {"message": "another call killed this process"}
    assert functions.pool.kind_of("user_functions:blocking") == "exclusive", (
        "it is alone from now on"
    )
    assert result(await functions.call("gentle", 1))[0] != before


async def test_functions_of_an_app_are_listed_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_functions(tmp_path)
    monkeypatch.chdir(tmp_path)
    functions = PythonCalls(tmp_path, app=True)
    assert await functions.pool.open() == ["registered", "registered_gentle", "told"]
    for payload in ({"args": [6], "kwargs": {"b": 7}}, {"a": 6, "b": 7}):
        assert result(await functions.run(functions.registered("registered", payload)).run()) == 42
    assert result(await functions.run(functions.registered("registered", [5])).run()) == 5
    assert result(await functions.run(functions.registered("registered_gentle", [5])).run()) == 5
    report = await functions.run(functions.registered("told", {"text": "a word"}, timeout=60)).run()
    assert result(report) == {
        "job_id": report.execution_id.join(["job-of-", ""]),
        "execution_id": report.execution_id,
        "attempt": 1,
        "fence": 7,
        "payload": {"text": "a word"},
        "deadline": True,
    }
    assert functions.sink.progress == [(0.5, "half way")]
    assert functions.sink.log == b"logged a word\n"
    unknown = await functions.run(functions.registered("elsewhere", {})).run()
    assert "no function elsewhere is registered" in error(unknown)["message"]
    wrong = await functions.run(functions.registered("registered", ["six"])).run()
    assert "Expected `int`" in error(wrong)["message"]
    await functions.pool.close()


async def test_after_a_crash_of_a_shared_process_each_function_runs_alone_until_it_succeeds(
    functions: PythonCalls, tmp_path: Path
) -> None:
    await learned(functions)
    functions.pool.learn("user_functions:fatal", "shared")
    calm = tmp_path / "calm"
    beside = asyncio.create_task(functions.run(functions.order("patient", str(calm))).run())
    await until(calm.exists)
    fatal = await functions.call("fatal")
    assert "exited with code 9" in error(fatal)["message"]
    assert "which other calls shared" in error(await beside)["message"]
    assert not functions.pool.knows("user_functions:fatal")
    assert error(await functions.call("fatal"))["message"].startswith("the process exited")
    alone, again = (
        result(await functions.call("gentle", 1)),
        result(await functions.call("gentle", 2)),
    )
    assert alone[0] == again[0], "it never broke anything and shares a process"


async def test_calls_wait_for_a_process_when_the_pool_is_full(
    functions: PythonCalls, tmp_path: Path
) -> None:
    small = PythonCalls(tmp_path, children_max=2)
    needs = RequirementsView(1, 192 * 1024 * 1024, 0, 0, {}, [])
    orders = [small.order("who") for _ in range(6)]
    orders += [small.order("who", requirements=needs) for _ in range(4)]
    orders += [small.order("gentle", number) for number in range(4)]
    reports = await small.calls(*orders)
    assert [one.status for one in reports] == ["succeeded"] * 14
    assert small.pool.size <= 2
    await small.pool.close()


async def test_a_call_that_requested_gpus_gets_a_process_that_sees_only_these(
    functions: PythonCalls,
) -> None:
    needs = RequirementsView(1, 0, 0, 1, {}, [])
    before = result(await functions.call("who"))
    reports = await functions.calls(
        *(functions.order("gpus", requirements=needs) for _ in range(2))
    )
    seen = dict(result(one) for one in reports)
    assert sorted(seen.values()) == ["0", "1"]
    assert before not in seen
    assert result(await functions.call("gpus", requirements=needs))[1] == "0", "it was given back"
    assert result(await functions.call("gpus"))[1] is None


async def test_secrets_that_the_operator_named_are_masked_in_errors(
    functions: PythonCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", "hunter2hunter2")
    functions.mask("SHOP_KEY")
    report = await functions.call("boom", "the key hunter2hunter2 is wrong")
    assert "hunter2" not in bytes(report.error).decode()
