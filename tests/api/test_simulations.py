"""The past run once more, asked for over HTTP and done by a real process beside the server."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import msgspec
import pytest

from rota.api.deps import SimulatorError
from rota.api.endpoints.simulations import Study, TraceFile
from rota.api.limits import SIMULATION_JOBS_MAX
from rota.cli.problems import Failure
from rota.cli.simulation_process import SimulationProcess
from rota.cli.study_main import study_input, study_outcome
from rota.wire.formats import encode
from rota.wire.limits import TRACE_BYTES_MAX
from rota.wire.policy import TraceQuery
from tests.api.in_process_server import InProcessServer, open_server

LONG_AGO = "2020-01-01T00:00:00Z"
PAST: dict[str, Any] = {"from": LONG_AGO}


async def ran(house: InProcessServer, count: int = 3, cpu: float = 2) -> str:
    """So many jobs that one worker has run, one after the other."""
    worker = await house.register(cpu=cpu)
    for number in range(count):
        payload = {"secret": "not for the simulator"}
        order = await house.start(worker, name=f"j{number}", payload=payload)
        await house.finish(order)
    return worker


async def test_what_ran_is_run_again_under_each_policy_on_the_workers_of_now() -> None:
    async with open_server(simulator=SimulationProcess()) as house:
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
    async with open_server(simulator=SimulationProcess()) as house:
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
    async with open_server(simulator=SimulationProcess()) as house:
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
    async with open_server(simulator=SimulationProcess()) as house:
        await house.register()
        problem = await house.ask("POST", "/simulations", asked, expect=422)
    assert problem["errors"][0]["field"].startswith(field)


async def test_without_a_worker_there_is_nothing_to_be_like() -> None:
    async with open_server(simulator=SimulationProcess()) as house:
        problem = await house.ask("POST", "/simulations", PAST, expect=422)
    assert "no worker is there" in problem["detail"]


async def test_a_server_without_a_simulator_names_the_command(house: InProcessServer) -> None:
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
    async with open_server(simulator=patient) as house:
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
        await SimulationProcess(seconds_max=0.01).run(b"{}")


async def test_a_process_that_fails_is_told_by_its_status_only() -> None:
    with pytest.raises(SimulatorError, match="ended with status 1"):
        await SimulationProcess().run(b'{"no": "study"}')


def swf_line(number: int, submit: int, run: int, cpus: int, wait: int = -1) -> str:
    """A job in Standard Workload Format."""
    return f"{number} {submit} {wait} {run} {cpus} -1 -1 {cpus} {run} {'-1 ' * 9}\n"


SWF = "; MaxProcs: 4\n" + "".join(swf_line(n, 10 * n, 60, 3, wait=50 * n) for n in range(4))
EXPORTED = (
    '{"rota_history": 1, "workers": [{"resources": {"cpu": 2}}]}\n'
    '{"job_id": "a", "name": "a", "submitted_at": "2026-01-01T00:00:00Z",'
    ' "started_at": "2026-01-01T00:00:05Z", "finished_at": "2026-01-01T00:01:00Z"}\n'
)
WORKFLOW = (
    '{"name": "w", "workflow": {"specification": {"tasks": [{"id": "x"},'
    ' {"id": "y", "parents": ["x"]}]}, "execution": {"tasks":'
    ' [{"id": "x", "runtimeInSeconds": 5}, {"id": "y", "runtimeInSeconds": 7}]}}}'
)


class Here:
    """A simulator in this process: for what does not need one of its own."""

    async def run(self, study: bytes) -> bytes:
        try:
            return encode(study_outcome(msgspec.json.decode(study, type=Study)))
        except Failure as error:
            raise SimulatorError(str(error)) from error


async def traced(
    house: InProcessServer, body: str | bytes, asked: str = "", expect: int = 200
) -> Any:
    """What a server makes of a trace."""
    content = body.encode() if isinstance(body, str) else body
    answer = await house.http.post(f"/simulations/trace?{asked}", content=content)
    assert answer.status_code == expect, answer.text
    return answer.json()


async def test_a_log_is_run_on_the_machine_it_names_or_on_another_beside_what_happened() -> None:
    async with open_server(simulator=SimulationProcess()) as house:
        packed = gzip.compress(SWF.encode())
        own = await traced(house, packed, "policies=recorded&policies=fcfs")
    async with open_server(simulator=Here()) as house:
        larger = await traced(house, SWF, "cpus=64&policies=fcfs")
        many = await traced(house, SWF, "workers=3&cpu=3&policies=fcfs")
    assert (own["jobs"], own["workers"], own["cpus"], own["from"]) == (4, 1, 4, None)
    assert [one["policy"] for one in own["policies"]] == ["recorded", "fcfs"]
    assert (own["policies"][0]["max_wait"], own["policies"][1]["max_wait"]) == (150, 150)
    assert (larger["cpus"], larger["policies"][0]["max_wait"]) == (64, 0)
    assert (many["workers"], many["cpus"], many["policies"][0]["max_wait"]) == (3, 9, 30)


async def test_an_export_brings_its_workers_and_a_workflow_runs_on_those_of_now() -> None:
    async with open_server(simulator=Here()) as house:
        exported = await traced(house, EXPORTED, "policies=recorded&policies=current&workers=5")
        problem = await traced(house, WORKFLOW, "policies=easy", expect=422)
        assert "names no machine, and no worker is here" in problem["detail"]
        await house.register(cpu=8)
        workflow = await traced(house, WORKFLOW, "policies=easy")
    assert (exported["from"], exported["workers"]) == ("2026-01-01T00:00:00.000Z", 5)
    assert exported["policies"][0]["avg_wait"] == 5
    assert (workflow["jobs"], workflow["cpus"]) == (2, 8)
    assert workflow["policies"][0]["makespan"] == 12


@pytest.mark.parametrize(
    ("body", "asked", "said"),
    [
        ("", "", "the body is empty"),
        ("a b c\n", "name=jobs.csv", "jobs.csv, line 1: 3 fields, a job has 18. What can be run"),
        ('{"hello": 1}', "", "not a WfCommons workflow"),
        (b"\x1f\x8b\x08\x00broken", "", "trace: "),
        (SWF, "cpus=2&policies=fcfs", "no job that ran and fits"),
        (SWF, "cpus=2&workers=2", "cpus: is one pool"),
        (SWF, "cpu=2", "cpu: is of one worker"),
        (SWF, "memory=1GiB", "memory: is of machines that are described"),
        (SWF, "policies=best", "policies"),
        (swf_line(1, 0, 5, 1), "cpus=4&policies=recorded", "leave out `recorded`"),
    ],
)
async def test_a_trace_that_cannot_be_run_is_refused_in_words(
    body: str | bytes, asked: str, said: str
) -> None:
    async with open_server(simulator=Here()) as house:
        problem = await traced(house, body, asked, expect=422)
    assert said in problem["detail"]


async def test_a_trace_that_is_too_large_is_not_read() -> None:
    async with open_server(simulator=Here()) as house:
        headers = {"Content-Length": str(TRACE_BYTES_MAX + 1)}
        answer = await house.http.post("/simulations/trace", content=b"x", headers=headers)
    assert answer.status_code == 413


def test_of_a_long_trace_the_first_jobs_are_run() -> None:
    body = "".join(swf_line(n, n, 1, 1) for n in range(SIMULATION_JOBS_MAX + 5))
    trace = TraceFile(body.encode(), TraceQuery(cpus=4))
    scene = study_input(Study(workers=[], policies={}, trace=trace))
    assert (len(scene.case.workload), scene.is_cut) == (SIMULATION_JOBS_MAX, True)
    *_, last = scene.case.workload
    assert last.label == str(SIMULATION_JOBS_MAX - 1)
