"""Calls of Python functions that are ended: by time, by a person, by a limit, by a neighbour."""

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
async def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PythonCalls]:
    write_functions(tmp_path)
    monkeypatch.chdir(tmp_path)
    room = PythonCalls(tmp_path, grace_s=0.5)
    yield room
    await room.pool.close()


async def test_an_endless_loop_is_ended_in_time_and_hurts_no_other(room: PythonCalls) -> None:
    late, good = await room.calls(room.order("spin", timeout=0.3), room.order("add", 1))
    assert late.status == "timed_out"
    assert error(late)["message"] == "timed out after 0.3 s; SIGTERM to 1 process"
    assert result(good) == 11
    assert result(await room.call("add", 2)) == 12


async def test_a_function_cleans_up_when_it_is_cancelled(room: PythonCalls, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    run = room.run(room.order("wait_long", str(mark)))
    running = asyncio.create_task(run.run())
    await until(mark.exists)
    run.stop("cancelled")
    report = await running
    assert report.status == "cancelled"
    assert error(report)["message"] == "cancelled; SIGTERM to 1 process"
    assert (tmp_path / "mark.cleaned").exists()


async def test_a_function_that_ignores_the_signal_is_killed(
    room: PythonCalls, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    run = room.run(room.order("wait_long", str(mark), kwargs={"ignore": True}))
    running = asyncio.create_task(run.run())
    await until(mark.exists)
    run.stop("cancelled")
    report = await running
    assert (report.status, report.exit_code) == ("cancelled", 137)
    assert "SIGKILL to 1 process" in error(report)["message"]
    assert not (tmp_path / "mark.cleaned").exists()


async def test_programs_that_a_function_started_end_with_it(
    room: PythonCalls, tmp_path: Path
) -> None:
    mark, seconds = tmp_path / "mark", f"61.{os.getpid()}"
    run = room.run(room.order("start_sleeper", str(mark), seconds))
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


async def test_a_call_that_is_stopped_before_it_began_never_begins(
    room: PythonCalls, tmp_path: Path
) -> None:
    run = room.run(room.order("wait_long", str(tmp_path / "mark")))
    running = asyncio.create_task(run.run())
    await asyncio.sleep(0)
    run.stop("cancelled")
    report = await running
    assert error(report)["message"] == "cancelled before it started"
    assert not (tmp_path / "mark").exists()
    assert result(await room.call("add", 1)) == 11


async def test_a_function_is_held_to_the_memory_its_job_asked_for(room: PythonCalls) -> None:
    needs = RequirementsView(1, 192 * 1024 * 1024, 0, 0, {}, [])
    report = await room.call("hog", requirements=needs, timeout=30)
    assert report.status == "failed"
    assert "of 192 MiB memory" in error(report)["message"]
    assert result(await room.call("add", 1, requirements=needs)) == 11


async def test_when_the_lease_runs_out_the_process_is_ended_without_the_agent(
    room: PythonCalls, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    run = room.run(room.order("wait_long", str(mark)))
    running = asyncio.create_task(run.run())
    await until(mark.exists)
    run.hold_until(BootClock().now() + 0.1)
    await running
    assert run.lapsed


async def test_asynchronous_calls_run_at_once_in_one_process(
    room: PythonCalls, tmp_path: Path
) -> None:
    assert result(await room.call("gentle", 1))[1] == 1
    folder = tmp_path / "here"
    folder.mkdir()
    await room.call("meet", str(folder), 1, "first")
    names = [f"n{number}" for number in range(8)] + ["bad"]
    orders = [room.order("meet", str(folder), 10, name) for name in names]
    *good, bad = await room.calls(*orders)
    assert len({result(one)[0] for one in good}) == 1, "all in one process"
    assert error(bad)["message"] == "bad one"
    assert bad.retryable


async def test_each_of_many_calls_has_a_log_of_its_own(room: PythonCalls, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    await room.call("meet", str(folder), 1, "first")
    room.sink.log.clear()
    logs: dict[str, bytearray] = {}

    async def keep(execution_id: str, fence: int, offset: int, chunk: bytes) -> None:
        logs.setdefault(execution_id, bytearray())[offset:] = chunk

    room.sink.send_log = keep  # type: ignore[method-assign]
    orders = [room.order("meet", str(folder), 3, name) for name in ("a", "b")]
    await room.calls(*orders)
    for view, name in zip(orders, ("a", "b"), strict=True):
        assert logs[view.execution_id].decode() == f"hello from {name}\nbye from {name}\n"


async def test_one_of_many_calls_is_ended_and_the_others_go_on(
    room: PythonCalls, tmp_path: Path
) -> None:
    process = await learned(room)
    mark = tmp_path / "mark"
    late, other = await room.calls(
        room.order("patient", str(mark), timeout=0.2), room.order("gentle", 2)
    )
    assert late.status == "timed_out"
    assert error(late)["message"] == "timed out after 0.2 s; it ended when asked to"
    assert (tmp_path / "mark.cleaned").exists()
    assert result(other)[1] == 2
    assert result(await room.call("gentle", 3))[0] == process


async def learned(room: PythonCalls) -> str:
    """Lets the pool find out that these are asynchronous; the process they share."""
    for name in ("gentle", "patient", "blocking"):
        room.pool.learn(f"user_functions:{name}", "shared")
    process: str = result(await room.call("gentle", 1))[0]
    return process


async def test_a_call_that_blocks_the_others_takes_them_with_it_once(
    room: PythonCalls, tmp_path: Path
) -> None:
    before = await learned(room)
    calm, mark = tmp_path / "calm", tmp_path / "mark"
    beside = asyncio.create_task(room.run(room.order("patient", str(calm))).run())
    await until(calm.exists)
    blocking = await room.call("blocking", str(mark), timeout=0.2)
    assert blocking.status == "timed_out"
    assert "SIGKILL" in error(blocking)["message"]
    neighbour = await beside
    assert (neighbour.status, neighbour.retryable) == ("failed", True)
    assert error(neighbour) == {"message": "another call killed this process"}
    assert room.pool.kind_of("user_functions:blocking") == "exclusive", "it is alone from now on"
    assert result(await room.call("gentle", 1))[0] != before


async def test_an_app_tells_its_functions_and_runs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_functions(tmp_path)
    monkeypatch.chdir(tmp_path)
    room = PythonCalls(tmp_path, app=True)
    assert await room.pool.open() == ["registered", "registered_gentle", "told"]
    for payload in ({"args": [6], "kwargs": {"b": 7}}, {"a": 6, "b": 7}):
        assert result(await room.run(room.registered("registered", payload)).run()) == 42
    assert result(await room.run(room.registered("registered", [5])).run()) == 5
    assert result(await room.run(room.registered("registered_gentle", [5])).run()) == 5
    report = await room.run(room.registered("told", {"text": "a word"}, timeout=60)).run()
    assert result(report) == {
        "job_id": report.execution_id.join(["job-of-", ""]),
        "execution_id": report.execution_id,
        "attempt": 1,
        "fence": 7,
        "payload": {"text": "a word"},
        "deadline": True,
    }
    assert room.sink.progress == [(0.5, "half way")]
    assert room.sink.log == b"logged a word\n"
    unknown = await room.run(room.registered("elsewhere", {})).run()
    assert "no function elsewhere is registered" in error(unknown)["message"]
    wrong = await room.run(room.registered("registered", ["six"])).run()
    assert "Expected `int`" in error(wrong)["message"]
    await room.pool.close()


async def test_a_crash_among_many_lets_each_run_alone_until_it_has_shown_itself(
    room: PythonCalls, tmp_path: Path
) -> None:
    await learned(room)
    room.pool.learn("user_functions:fatal", "shared")
    calm = tmp_path / "calm"
    beside = asyncio.create_task(room.run(room.order("patient", str(calm))).run())
    await until(calm.exists)
    fatal = await room.call("fatal")
    assert "exited with code 9" in error(fatal)["message"]
    assert "which other calls shared" in error(await beside)["message"]
    assert not room.pool.knows("user_functions:fatal")
    assert error(await room.call("fatal"))["message"].startswith("the process exited")
    alone, again = result(await room.call("gentle", 1)), result(await room.call("gentle", 2))
    assert alone[0] == again[0], "it never broke anything and shares a process"


async def test_calls_wait_for_a_process_when_there_are_enough(
    room: PythonCalls, tmp_path: Path
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


async def test_a_call_sees_the_gpus_it_asked_for_in_a_process_of_its_own(room: PythonCalls) -> None:
    needs = RequirementsView(1, 0, 0, 1, {}, [])
    before = result(await room.call("who"))
    reports = await room.calls(*(room.order("gpus", requirements=needs) for _ in range(2)))
    seen = dict(result(one) for one in reports)
    assert sorted(seen.values()) == ["0", "1"]
    assert before not in seen
    assert result(await room.call("gpus", requirements=needs))[1] == "0", "it was given back"
    assert result(await room.call("gpus"))[1] is None


async def test_secrets_that_the_operator_named_are_hidden(
    room: PythonCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", "hunter2hunter2")
    room.mask("SHOP_KEY")
    report = await room.call("boom", "the key hunter2hunter2 is wrong")
    assert "hunter2" not in bytes(report.error).decode()
