"""Simulations of the past, requested over HTTP and run by a real process beside the server."""

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


async def ran(server: InProcessServer, count: int = 3, cpu: float = 2) -> str:
    """Has one worker run so many jobs, one after the other."""
    worker = await server.register(cpu=cpu)
    for number in range(count):
        payload = {"secret": "not for the simulator"}
        order = await server.start(worker, name=f"j{number}", payload=payload)
        await server.finish(order)
    return worker


async def test_past_jobs_are_simulated_under_each_policy_on_current_workers() -> None:
    async with open_server(simulator=SimulationProcess()) as server:
        await ran(server)
        asked = {**PAST, "policies": ["recorded", "current", "easy"]}
        view = await server.ask("POST", "/simulations", asked, expect=200)
    assert (view["jobs"], view["workers"], view["cpus"]) == (3, 1, 2)
    assert view["is_cut"] is False
    assert [one["policy"] for one in view["policies"]] == ["recorded", "current", "easy"]
    for one in view["policies"]:
        assert len(one["waits"]) == len(one["uses"]) > 1
        assert 0 <= one["utilisation"] <= 1
        assert one["p50_wait"] <= one["max_wait"]


async def test_added_workers_copy_current_ones_and_jobs_that_fit_none_are_left_out() -> None:
    async with open_server(simulator=SimulationProcess()) as server:
        large = await ran(server, count=2, cpu=8)
        order = await server.start(large, name="large", requirements={"cpu": 6})
        await server.finish(order)
        await server.ask("DELETE", f"/workers/{large}", expect=204)
        await server.register(cpu=4)
        asked = {**PAST, "workers": 3, "policies": ["default"]}
        view = await server.ask("POST", "/simulations", asked, expect=200)
    assert (view["workers"], view["cpus"]) == (3, 12)
    assert (view["jobs"], view["left_out"]) == (2, 1)


async def test_members_of_an_array_are_simulated_and_the_array_is_not() -> None:
    async with open_server(simulator=SimulationProcess()) as server:
        worker = await server.register(cpu=8)
        await server.submit(count=3)
        for order in (await server.lease(worker))["executions"]:
            await server.finish(order)
        view = await server.ask("POST", "/simulations", PAST, expect=200)
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
async def test_an_impossible_simulation_is_refused_by_field(
    asked: dict[str, Any], field: str
) -> None:
    async with open_server(simulator=SimulationProcess()) as server:
        await server.register()
        problem = await server.ask("POST", "/simulations", asked, expect=422)
    assert problem["errors"][0]["field"].startswith(field)


async def test_a_simulation_without_workers_is_refused() -> None:
    async with open_server(simulator=SimulationProcess()) as server:
        problem = await server.ask("POST", "/simulations", PAST, expect=422)
    assert "no worker is there" in problem["detail"]


async def test_a_server_without_a_simulator_names_the_command(server: InProcessServer) -> None:
    problem = await server.ask("POST", "/simulations", PAST, expect=503)
    assert "rota history replay" in problem["detail"]


class EndlessSimulator:
    """Simulator that never finishes, and says when it was started and cancelled."""

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


async def test_one_simulation_runs_at_a_time_without_payloads_and_ends_with_the_server() -> None:
    patient = EndlessSimulator()
    async with open_server(simulator=patient) as server:
        await ran(server)
        first = asyncio.ensure_future(server.http.post("/simulations", json=PAST))
        await patient.begun.wait()
        assert b"not for the simulator" not in patient.study
        refused = await server.http.post("/simulations", json=PAST)
        assert refused.status_code == 429
        assert "1 simulation is under way" in refused.json()["detail"]
        assert "Retry-After" in refused.headers
        server.deps.closing.set()
        await patient.given_up.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


async def test_a_process_that_takes_too_long_is_ended() -> None:
    with pytest.raises(SimulatorError, match="not finished after 0 s"):
        await SimulationProcess(seconds_max=0.01).run(b"{}")


async def test_a_failed_simulation_process_is_reported_by_its_status() -> None:
    with pytest.raises(SimulatorError, match="ended with status 1"):
        await SimulationProcess().run(b'{"no": "study"}')


def swf_line(number: int, submit: int, run: int, cpus: int, wait: int = -1) -> str:
    """Makes a job in Standard Workload Format."""
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


class InProcessSimulator:
    """Simulator in this process, for tests that need no other."""

    async def run(self, study: bytes) -> bytes:
        try:
            return encode(study_outcome(msgspec.json.decode(study, type=Study)))
        except Failure as error:
            raise SimulatorError(str(error)) from error


async def traced(
    server: InProcessServer, body: str | bytes, asked: str = "", expect: int = 200
) -> Any:
    """Simulates a trace."""
    content = body.encode() if isinstance(body, str) else body
    answer = await server.http.post(f"/simulations/trace?{asked}", content=content)
    assert answer.status_code == expect, answer.text
    return answer.json()


async def test_a_trace_runs_on_its_own_or_another_machine_beside_the_recorded_run() -> None:
    async with open_server(simulator=SimulationProcess()) as server:
        packed = gzip.compress(SWF.encode())
        own = await traced(server, packed, "policies=recorded&policies=fcfs")
    async with open_server(simulator=InProcessSimulator()) as server:
        larger = await traced(server, SWF, "cpus=64&policies=fcfs")
        many = await traced(server, SWF, "workers=3&cpu=3&policies=fcfs")
    assert (own["jobs"], own["workers"], own["cpus"], own["from"]) == (4, 1, 4, None)
    assert [one["policy"] for one in own["policies"]] == ["recorded", "fcfs"]
    assert (own["policies"][0]["max_wait"], own["policies"][1]["max_wait"]) == (150, 150)
    assert (larger["cpus"], larger["policies"][0]["max_wait"]) == (64, 0)
    assert (many["workers"], many["cpus"], many["policies"][0]["max_wait"]) == (3, 9, 30)


async def test_an_export_has_its_workers_and_a_workflow_runs_on_current_ones() -> None:
    async with open_server(simulator=InProcessSimulator()) as server:
        exported = await traced(server, EXPORTED, "policies=recorded&policies=current&workers=5")
        problem = await traced(server, WORKFLOW, "policies=easy", expect=422)
        assert "names no machine, and no worker is here" in problem["detail"]
        await server.register(cpu=8)
        workflow = await traced(server, WORKFLOW, "policies=easy")
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
        (SWF, "cpu=2", "cpu: is the size of one worker"),
        (SWF, "memory=1GiB", "memory: is the size of a machine"),
        (SWF, "policies=best", "policies"),
        (swf_line(1, 0, 5, 1), "cpus=4&policies=recorded", "leave out `recorded`"),
    ],
)
async def test_an_invalid_trace_is_refused_with_the_reason(
    body: str | bytes, asked: str, said: str
) -> None:
    async with open_server(simulator=InProcessSimulator()) as server:
        problem = await traced(server, body, asked, expect=422)
    assert said in problem["detail"]


async def test_a_trace_that_is_too_large_is_not_read() -> None:
    async with open_server(simulator=InProcessSimulator()) as server:
        headers = {"Content-Length": str(TRACE_BYTES_MAX + 1)}
        answer = await server.http.post("/simulations/trace", content=b"x", headers=headers)
    assert answer.status_code == 413


def test_only_the_first_jobs_of_a_long_trace_run() -> None:
    body = "".join(swf_line(n, n, 1, 1) for n in range(SIMULATION_JOBS_MAX + 5))
    trace = TraceFile(body.encode(), TraceQuery(cpus=4))
    scene = study_input(Study(workers=[], policies={}, trace=trace))
    assert (len(scene.case.workload), scene.is_cut) == (SIMULATION_JOBS_MAX, True)
    *_, last = scene.case.workload
    assert last.label == str(SIMULATION_JOBS_MAX - 1)
