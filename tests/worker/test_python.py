"""Python functions in warm children: what they find, return, raise and break."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.worker.python_calls import PythonCalls, error, result, write_functions
from tests.worker.runner_context import until


@pytest.fixture
async def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PythonCalls]:
    write_functions(tmp_path)
    (tmp_path / "broken.py").write_text("import nothing_like_this\n")
    monkeypatch.chdir(tmp_path)
    room = PythonCalls(tmp_path, grace_s=1.0)
    yield room
    await room.pool.close()


async def test_a_function_gets_its_arguments_and_its_result_is_the_jobs(room: PythonCalls) -> None:
    assert result(await room.call("add", 1, 2)) == 3
    report = await room.call("add", 1, kwargs={"b": 4})
    assert result(report) == 5
    assert report.usage is not None
    assert report.usage["memory_peak"] > 1024 * 1024
    assert report.fence == 7


async def test_a_child_stays_warm_between_calls(room: PythonCalls) -> None:
    first = result(await room.call("count"))
    second = result(await room.call("count"))
    assert second == [first[0], first[1] + 1], "the same process, with its modules loaded"


async def test_calls_at_the_same_time_run_in_processes_of_their_own(room: PythonCalls) -> None:
    reports = await room.calls(*(room.order("who") for _ in range(3)))
    assert len({result(one) for one in reports}) == 3


async def test_values_of_many_types_become_json(room: PythonCalls) -> None:
    assert result(await room.call("invoice")) == {"customer": 42, "at": "2026-01-05"}
    assert result(await room.call("math:sqrt", 4)) == 2.0
    assert result(await room.call("builtins:max", 4, 5)) == 5, "without a signature"


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
    room: PythonCalls, function: str, args: tuple[int, ...], hint: str
) -> None:
    report = await room.call(function, *args)
    assert (report.status, report.retryable) == ("failed", False)
    assert error(report)["type"] == "ResultError"
    assert hint in error(report)["message"]
    assert result(await room.call("add", 1)) == 11, "its process is none the worse for it"


async def test_an_exception_is_told_with_its_place_and_without_any_values(
    room: PythonCalls,
) -> None:
    report = await room.call("boom", "no such invoice")
    assert report.retryable
    told = error(report)
    assert (told["type"], told["message"]) == ("LookupError", "no such invoice")
    assert "in boom" in told["traceback"]
    assert "s3cret" not in told["traceback"].replace('secret = "s3cret"', "")
    assert "rota/worker" not in told["traceback"]
    told = error(await room.call("stubborn"))
    assert told["type"] == "user_functions.StubbornError"


async def test_a_function_can_say_whether_another_try_would_help(room: PythonCalls) -> None:
    report = await room.call("fail")
    assert (report.retryable, error(report)["message"]) == (False, "no such customer")
    report = await room.call("retry")
    assert (report.retryable, error(report)["delay"]) == (True, 7)


async def test_what_is_not_there_is_named(room: PythonCalls) -> None:
    assert "no module nowhere" in error(await room.call("nowhere.at_all:f"))["message"]
    assert "has no missing" in error(await room.call("missing"))["message"]
    assert "is no function" in error(await room.call("calls"))["message"]
    told = error(await room.call("broken:f"))
    assert told["type"] == "ModuleNotFoundError"
    assert "broken.py" in told["traceback"]


async def test_arguments_that_do_not_fit_are_told(room: PythonCalls) -> None:
    assert "too many positional" in error(await room.call("add", 1, 2, 3))["message"]


async def test_sys_exit_ends_the_call_not_the_process(room: PythonCalls) -> None:
    before = result(await room.call("who"))
    assert "sys.exit(3)" in error(await room.call("leave", 3))["message"]
    assert result(await room.call("who")) == before


@pytest.mark.parametrize(
    ("function", "args", "exit_code", "hint"),
    [
        ("vanish", (0,), 0, "exited with code 0"),
        ("vanish", (7,), 7, "exited with code 7"),
        ("crash", (), 139, "killed by SIGSEGV"),
    ],
)
async def test_a_process_that_dies_under_a_call_hurts_no_other(
    room: PythonCalls, function: str, args: tuple[int, ...], exit_code: int, hint: str
) -> None:
    bad, good = await room.calls(room.order(function, *args), room.order("add", 1))
    assert (bad.status, bad.exit_code, bad.retryable) == ("failed", exit_code, True)
    assert hint in error(bad)["message"]
    assert ("in crash" in error(bad).get("tail", "")) == (function == "crash")
    assert result(good) == 11
    assert result(await room.call("add", 2)) == 12


async def test_a_call_finds_the_process_as_the_one_before_did(room: PythonCalls) -> None:
    before = result(await room.call("count"))
    await room.call("move", "/")
    report = await room.call("place")
    assert result(report) == os.getcwd()
    assert result(await room.call("count"))[0] == before[0]
    assert (await room.call("spin", timeout=0.2)).status == "timed_out"
    assert "SIGKILL" not in error(await room.call("spin", timeout=0.2))["message"]


async def test_a_function_that_forks_answers_once(room: PythonCalls) -> None:
    assert result(await room.call("fork_and_return")) == "once"
    assert result(await room.call("add", 1)) == 11


async def test_a_function_that_writes_into_our_pipe_is_killed(room: PythonCalls) -> None:
    assert "SIGKILL" in error(await room.call("tear_our_pipe"))["message"]
    assert result(await room.call("add", 1)) == 11


async def test_all_that_a_call_prints_is_in_its_log_and_only_there(room: PythonCalls) -> None:
    await room.call("say")
    lines = room.sink.log.decode().splitlines()
    assert lines[:4] == ["one", "two", "three", "four"]
    assert lines[4].endswith("INFO shop: five")
    assert lines[5:] == ["six"]
    room.sink.log.clear()
    await room.call("add", 1)
    assert room.sink.log == b""


async def test_a_flood_of_output_arrives(room: PythonCalls) -> None:
    await room.call("flood", 800_000)
    assert len(room.sink.log) == 80 + 800_000


async def test_the_environment_is_clean_and_the_folder_is_the_workers(
    room: PythonCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "s3cret")
    env = result(await room.call("environment"))
    assert "DATABASE_PASSWORD" not in env
    assert env["ROTA_JOB_ID"].startswith("job-of-")
    assert (env["ROTA_WORKER"], env["ROTA_FENCE"]) == ("tester", "7")
    assert env["TMPDIR"].startswith(os.path.join(os.getcwd(), "work"))
    assert result(await room.call("place")) == os.getcwd()


async def test_a_process_that_has_grown_is_replaced(room: PythonCalls) -> None:
    before = result(await room.call("who"))
    assert result(await room.call("keep", 300 * 1024 * 1024)) == before
    assert result(await room.call("who")) != before


async def test_a_burst_finds_the_processes_of_the_one_before(room: PythonCalls) -> None:
    first = await room.calls(*(room.order("who") for _ in range(8)))
    second = await room.calls(*(room.order("who") for _ in range(8)))
    assert {result(one) for one in second} <= {result(one) for one in first}, "none is started anew"


async def test_processes_beyond_what_is_wanted_go_when_nobody_wants_them(
    room: PythonCalls, tmp_path: Path
) -> None:
    hasty = PythonCalls(tmp_path, idle_s=0.1)
    await hasty.calls(*(hasty.order("who") for _ in range(8)))
    await until(lambda: hasty.pool.size == 4)
    await hasty.pool.close()
