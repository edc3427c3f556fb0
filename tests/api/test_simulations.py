"""The past run once more, asked for over HTTP and done by a real process beside the server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.api.parts import SimulatorError
from rota.cli.own_process import OwnProcess
from tests.api.house import House, open_house

LONG_AGO = "2020-01-01T00:00:00Z"
PAST: dict[str, Any] = {"from": LONG_AGO}


async def ran(house: House, count: int = 3, cpu: float = 2) -> str:
    """So many jobs that one worker has run, one after the other."""
    worker = await house.register(cpu=cpu)
    for number in range(count):
        payload = {"secret": "not for the simulator"}
        order = await house.start(worker, name=f"j{number}", payload=payload)
        await house.finish(order)
    return worker


async def test_what_ran_is_run_again_under_each_policy_on_the_workers_of_now() -> None:
    async with open_house(simulator=OwnProcess()) as house:
        await ran(house)
        asked = {**PAST, "policies": ["recorded", "current", "easy"]}
        view = await house.ask("POST", "/simulations", asked, expect=200)
    assert (view["jobs"], view["workers"], view["cpus"]) == (3, 1, 2)
    assert view["is_cut"] is False
    assert [one["policy"] for one in view["policies"]] == ["recorded", "current", "easy"]
    for one in view["policies"]:
        assert len(one["waits"]) == len(one["uses"]) > 1
        assert 0 <= one["utilisation"] <= 1
        assert one["p50_wait"] <= one["max_wait"]


async def test_more_workers_are_like_those_of_now_and_jobs_that_fit_none_are_left_out() -> None:
    async with open_house(simulator=OwnProcess()) as house:
        large = await ran(house, count=2, cpu=8)
        order = await house.start(large, name="large", requirements={"cpu": 6})
        await house.finish(order)
        await house.ask("DELETE", f"/workers/{large}", expect=204)
        await house.register(cpu=4)
        asked = {**PAST, "workers": 3, "policies": ["default"]}
        view = await house.ask("POST", "/simulations", asked, expect=200)
    assert (view["workers"], view["cpus"]) == (3, 12)
    assert (view["jobs"], view["left_out"]) == (2, 1)


async def test_members_of_an_array_ran_and_the_array_itself_did_not() -> None:
    async with open_house(simulator=OwnProcess()) as house:
        worker = await house.register(cpu=8)
        await house.submit(count=3)
        for order in (await house.lease(worker))["executions"]:
            await house.finish(order)
        view = await house.ask("POST", "/simulations", PAST, expect=200)
    assert view["jobs"] == 3


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}, "from"),
        ({**PAST, "policies": []}, "policies"),
        ({**PAST, "policies": ["best"]}, "policies"),
        ({**PAST, "workers": 0}, "workers"),
        ({**PAST, "workers": 100_000}, "workers"),
        ({**PAST, "to": "2020-01-02T00:00:00Z"}, "from"),
    ],
)
async def test_what_cannot_be_simulated_is_refused_by_name(
    asked: dict[str, Any], field: str
) -> None:
    async with open_house(simulator=OwnProcess()) as house:
        await house.register()
        problem = await house.ask("POST", "/simulations", asked, expect=422)
    assert problem["errors"][0]["field"].startswith(field)


async def test_without_a_worker_there_is_nothing_to_be_like() -> None:
    async with open_house(simulator=OwnProcess()) as house:
        problem = await house.ask("POST", "/simulations", PAST, expect=422)
    assert "no worker is there" in problem["detail"]


async def test_a_server_without_a_simulator_names_the_command(house: House) -> None:
    problem = await house.ask("POST", "/simulations", PAST, expect=503)
    assert "rota history replay" in problem["detail"]


class Patient:
    """A simulator that never comes to an end, and says when it was begun and given up."""

    def __init__(self) -> None:
        self.begun, self.given_up = asyncio.Event(), asyncio.Event()
        self.study = b""

    async def run(self, study: bytes) -> bytes:
        self.study = study
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up.set()
        raise AssertionError("unreachable")


async def test_one_runs_at_a_time_without_what_users_wrote_and_ends_with_the_server() -> None:
    patient = Patient()
    async with open_house(simulator=patient) as house:
        await ran(house)
        first = asyncio.ensure_future(house.http.post("/simulations", json=PAST))
        await patient.begun.wait()
        assert b"not for the simulator" not in patient.study
        refused = await house.http.post("/simulations", json=PAST)
        assert refused.status_code == 429
        assert "1 simulation is under way" in refused.json()["detail"]
        assert "Retry-After" in refused.headers
        house.parts.closing.set()
        await patient.given_up.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


async def test_a_process_that_takes_too_long_is_ended() -> None:
    with pytest.raises(SimulatorError, match="not done after 0 s"):
        await OwnProcess(seconds_max=0.01).run(b"{}")


async def test_a_process_that_fails_is_told_by_its_status_only() -> None:
    with pytest.raises(SimulatorError, match="ended with status 1"):
        await OwnProcess().run(b'{"no": "study"}')
