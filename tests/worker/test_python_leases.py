"""Warm children and leases: what the guard is told of them, and what it ends."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.worker.clock import BootClock
from rota.worker.runners.python_pool import RELEASE_S
from tests.worker.python_calls import PythonCalls, result, write_functions
from tests.worker.runner_context import until


@pytest.fixture
async def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PythonCalls]:
    write_functions(tmp_path)
    monkeypatch.chdir(tmp_path)
    room = PythonCalls(tmp_path, grace_s=1.0)
    yield room
    await room.pool.close()


async def test_one_word_to_the_guard_does_for_many_short_calls_and_one_ends_it(
    room: PythonCalls,
) -> None:
    room.lease(600)
    deadlines = room.supervisor.deadlines
    first = result(await room.call("count"))
    for _ in range(20):
        last = result(await room.call("count"))
    assert last == [first[0], first[1] + 20], "one process"
    assert len(deadlines) == 1
    await until(lambda: deadlines[1:] == [None])


async def test_a_shorter_lease_than_that_of_the_call_before_is_the_one_that_counts(
    room: PythonCalls, tmp_path: Path
) -> None:
    room.lease(600)
    await room.call("count")
    room.lease(0.3)
    run = room.run(room.order("wait_long", str(tmp_path / "mark")))
    await run.run()
    assert run.lapsed


async def test_a_renewed_lease_is_passed_on(room: PythonCalls) -> None:
    room.lease(4 * RELEASE_S + 0.5)
    first = result(await room.call("count"))
    deadlines = room.supervisor.deadlines
    deadlines.clear()
    room.lease(600)
    second = result(await room.call("count"))
    assert second[0] == first[0]
    assert deadlines[0] is not None
    assert deadlines[0] > BootClock().now() + 500


async def test_an_idle_child_outlives_the_lease_of_its_last_call(room: PythonCalls) -> None:
    clock = BootClock()
    for seconds in (4 * RELEASE_S + 0.3, 2 * RELEASE_S):
        room.lease(seconds)
        first = result(await room.call("count"))
        over = clock.now() + seconds + 0.3
        await until(lambda over=over: clock.now() > over)  # type: ignore[misc]
        room.lease(600)
        assert result(await room.call("count")) == [first[0], first[1] + 1]


async def test_after_a_freeze_no_call_goes_to_a_child_that_the_guard_has_ended(
    room: PythonCalls,
) -> None:
    room.lease(4 * RELEASE_S + 0.3)
    first = result(await room.call("count"))
    time.sleep(4 * RELEASE_S + 0.6)  # noqa: ASYNC251  (an agent that stands still)
    room.lease(600)
    assert result(await room.call("count"))[0] != first[0]
