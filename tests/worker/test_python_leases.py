"""Leases of warm children: what the supervisor is told of them, and what it ends."""

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
async def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PythonCalls]:
    write_functions(tmp_path)
    monkeypatch.chdir(tmp_path)
    functions = PythonCalls(tmp_path, grace_s=1.0)
    yield functions
    await functions.pool.close()


async def test_a_lease_shorter_than_that_of_the_call_before_counts(
    functions: PythonCalls, tmp_path: Path
) -> None:
    functions.lease(600)
    await functions.call("count")
    functions.lease(0.3)
    run = functions.run(functions.order("wait_long", str(tmp_path / "mark")))
    await run.run()
    assert run.lapsed


async def test_a_renewed_lease_is_passed_on_to_the_supervisor(functions: PythonCalls) -> None:
    functions.lease(4 * RELEASE_S + 0.5)
    first = result(await functions.call("count"))
    deadlines = functions.supervisor.deadlines
    deadlines.clear()
    functions.lease(600)
    second = result(await functions.call("count"))
    assert second[0] == first[0]
    assert deadlines[0] is not None
    assert deadlines[0] > BootClock().now() + 500


async def test_an_idle_child_outlives_the_lease_of_its_last_call(functions: PythonCalls) -> None:
    clock = BootClock()
    for seconds in (4 * RELEASE_S + 0.3, 2 * RELEASE_S):
        functions.lease(seconds)
        first = result(await functions.call("count"))
        over = clock.now() + seconds + 0.3
        await until(lambda over=over: clock.now() > over)  # type: ignore[misc]
        functions.lease(600)
        assert result(await functions.call("count")) == [first[0], first[1] + 1]


async def test_after_a_freeze_no_call_goes_to_a_child_that_the_supervisor_has_ended(
    functions: PythonCalls,
) -> None:
    functions.lease(4 * RELEASE_S + 0.3)
    first = result(await functions.call("count"))
    time.sleep(4 * RELEASE_S + 0.6)  # noqa: ASYNC251  (an agent that stands still)
    functions.lease(600)
    assert result(await functions.call("count"))[0] != first[0]
