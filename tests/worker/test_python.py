"""Python functions in warm children: arguments, results, exceptions, crashes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.worker.python_calls import PythonCalls, error, result, write_functions
from tests.worker.runner_context import until


@pytest.fixture
async def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PythonCalls]:
    write_functions(tmp_path)
    (tmp_path / "broken.py").write_text("import nothing_like_this\n")
    monkeypatch.chdir(tmp_path)
    functions = PythonCalls(tmp_path, grace_s=1.0)
    yield functions
    await functions.pool.close()


async def test_a_function_gets_its_arguments_and_its_result_is_the_job_s(
    functions: PythonCalls,
) -> None:
    assert result(await functions.call("add", 1, 2)) == 3
    report = await functions.call("add", 1, kwargs={"b": 4})
    assert result(report) == 5
    assert report.usage is not None
    assert report.usage["memory_peak"] > 1024 * 1024
    assert report.fence == 7


async def test_a_child_stays_warm_between_calls(functions: PythonCalls) -> None:
    first = result(await functions.call("count"))
    second = result(await functions.call("count"))
    assert second == [first[0], first[1] + 1], "the same process, with its modules loaded"


async def test_plain_functions_at_the_same_time_run_in_separate_processes(
    functions: PythonCalls,
) -> None:
    reports = await functions.calls(*(functions.order("who") for _ in range(3)))
    assert len({result(one) for one in reports}) == 3


async def test_results_of_many_types_become_json(functions: PythonCalls) -> None:
    assert result(await functions.call("invoice")) == {"customer": 42, "at": "2026-01-05"}
    assert result(await functions.call("math:sqrt", 4)) == 2.0
    assert result(await functions.call("builtins:max", 4, 5)) == 5, "without a signature"


@pytest.mark.parametrize(
    ("function", "args", "hint"),
    [
        ("strange", (), "_thread.lock"),
        ("not_a_number", (), "list"),
        ("in_itself", (), "nested"),
        ("large", (2 * 1024 * 1024,), "1048576 are kept"),
    ],
)
async def test_a_result_that_cannot_be_kept_fails_and_says_why(
    functions: PythonCalls, function: str, args: tuple[int, ...], hint: str
) -> None:
    report = await functions.call(function, *args)
    assert (report.status, report.retryable) == ("failed", False)
    assert error(report)["type"] == "ResultError"
    assert hint in error(report)["message"]
    assert result(await functions.call("add", 1)) == 11, "its process is none the worse for it"


async def test_an_exception_is_reported_with_its_traceback_and_without_values(
    functions: PythonCalls,
) -> None:
    report = await functions.call("boom", "no such invoice")
    assert report.retryable
    told = error(report)
    assert (told["type"], told["message"]) == ("LookupError", "no such invoice")
    assert "in boom" in told["traceback"]
    assert "s3cret" not in told["traceback"].replace('secret = "s3cret"', "")
    assert "rota/worker" not in told["traceback"]
    told = error(await functions.call("stubborn"))
    assert told["type"] == "user_functions.StubbornError"


async def test_a_function_decides_whether_it_is_retried(functions: PythonCalls) -> None:
    report = await functions.call("fail")
    assert (report.retryable, error(report)["message"]) == (False, "no such customer")
    report = await functions.call("retry")
    assert (report.retryable, error(report)["delay"]) == (True, 7)


async def test_a_missing_module_or_function_is_named(functions: PythonCalls) -> None:
    assert "no module nowhere" in error(await functions.call("nowhere.at_all:f"))["message"]
    assert "has no missing" in error(await functions.call("missing"))["message"]
    assert "is not a function" in error(await functions.call("calls"))["message"]
    told = error(await functions.call("broken:f"))
    assert told["type"] == "ModuleNotFoundError"
    assert "broken.py" in told["traceback"]


async def test_arguments_of_wrong_types_are_reported(functions: PythonCalls) -> None:
    assert "too many positional" in error(await functions.call("add", 1, 2, 3))["message"]


async def test_sys_exit_ends_the_call_not_the_process(functions: PythonCalls) -> None:
    before = result(await functions.call("who"))
    assert "sys.exit(3)" in error(await functions.call("leave", 3))["message"]
    assert result(await functions.call("who")) == before


@pytest.mark.parametrize(
    ("function", "args", "exit_code", "hint"),
    [
        ("vanish", (0,), 0, "exited with code 0"),
        ("vanish", (7,), 7, "exited with code 7"),
        ("crash", (), 139, "killed by SIGSEGV"),
    ],
)
async def test_a_process_that_dies_fails_its_own_call_only(
    functions: PythonCalls, function: str, args: tuple[int, ...], exit_code: int, hint: str
) -> None:
    bad, good = await functions.calls(functions.order(function, *args), functions.order("add", 1))
    assert (bad.status, bad.exit_code, bad.retryable) == ("failed", exit_code, True)
    assert hint in error(bad)["message"]
    assert ("in crash" in error(bad).get("tail", "")) == (function == "crash")
    assert result(good) == 11
    assert result(await functions.call("add", 2)) == 12


async def test_a_call_does_not_change_the_process_for_the_next(functions: PythonCalls) -> None:
    before = result(await functions.call("count"))
    await functions.call("move", "/")
    report = await functions.call("place")
    assert result(report) == os.getcwd()
    assert result(await functions.call("count"))[0] == before[0]
    assert (await functions.call("spin", timeout=0.2)).status == "timed_out"
    assert "SIGKILL" not in error(await functions.call("spin", timeout=0.2))["message"]


async def test_a_function_that_forks_is_reported_once(functions: PythonCalls) -> None:
    assert result(await functions.call("fork_and_return")) == "once"
    assert result(await functions.call("add", 1)) == 11


async def test_a_function_that_writes_into_its_child_s_pipe_is_killed(
    functions: PythonCalls,
) -> None:
    assert "SIGKILL" in error(await functions.call("tear_our_pipe"))["message"]
    assert result(await functions.call("add", 1)) == 11


async def test_all_that_a_call_prints_is_in_its_log_and_only_there(functions: PythonCalls) -> None:
    await functions.call("say")
    lines = functions.sink.log.decode().splitlines()
    assert lines[:4] == ["one", "two", "three", "four"]
    assert lines[4].endswith("INFO shop: five")
    assert lines[5:] == ["six"]
    functions.sink.log.clear()
    await functions.call("add", 1)
    assert functions.sink.log == b""


async def test_a_flood_of_output_arrives(functions: PythonCalls) -> None:
    await functions.call("flood", 800_000)
    assert len(functions.sink.log) == 80 + 800_000


async def test_a_function_runs_in_the_worker_s_folder_with_a_clean_environment(
    functions: PythonCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "s3cret")
    env = result(await functions.call("environment"))
    assert "DATABASE_PASSWORD" not in env
    assert env["ROTA_JOB_ID"].startswith("job-of-")
    assert (env["ROTA_WORKER"], env["ROTA_FENCE"]) == ("tester", "7")
    assert env["TMPDIR"].startswith(os.path.join(os.getcwd(), "work"))
    assert result(await functions.call("place")) == os.getcwd()


async def test_a_process_that_has_grown_is_replaced(functions: PythonCalls) -> None:
    before = result(await functions.call("who"))
    assert result(await functions.call("keep", 300 * 1024 * 1024)) == before
    assert result(await functions.call("who")) != before


async def test_a_burst_of_calls_reuses_the_processes_of_the_last(functions: PythonCalls) -> None:
    first = await functions.calls(*(functions.order("who") for _ in range(8)))
    second = await functions.calls(*(functions.order("who") for _ in range(8)))
    assert {result(one) for one in second} <= {result(one) for one in first}, "none is started anew"


async def test_idle_processes_beyond_the_limit_end_after_a_while(
    functions: PythonCalls, tmp_path: Path
) -> None:
    hasty = PythonCalls(tmp_path, idle_s=0.1)
    await hasty.calls(*(hasty.order("who") for _ in range(8)))
    await until(lambda: hasty.pool.size == 4)
    await hasty.pool.close()
