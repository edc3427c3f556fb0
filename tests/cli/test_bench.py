"""`rota bench` on a real server: what it measures, whom it refuses, and that it leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota.cli.bench_run import Cost, cost, limit_of_call, limit_of_rate, percentile, spent
from rota.sdk import Client, discover
from rota.sdk.calls import JobSearch
from tests.cli.conftest import Rota
from tests.cli.test_real_server import started

SMALL = ("--seconds", "0.3", "--jobs", "400", "--connections", "4")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with started(tmp_path_factory.mktemp("bench")) as folder:
        yield folder


@pytest.fixture
def client(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.chdir(home)
    with Client(discover(environ=os.environ, folder=home)) as client:
        yield client


@pytest.mark.slow
@pytest.mark.process
def test_a_bench_measures_and_removes_its_jobs_and_no_others(rota: Rota, client: Client) -> None:
    mine = client.submit({"name": "mine", "task": {"kind": "noop"}}).job_id
    client.wait(mine)
    ran = rota("bench", *SMALL, "--json")
    assert ran.status == 0, ran.err
    names = [figure["name"] for figure in ran.json["figures"]]
    assert names == [
        *("way there and back", "read", "submit", "submit", "submit"),
        *("drain", "whole life", "pickup", "pickup"),
    ]
    assert all(figure["count"] for figure in ran.json["figures"])
    assert ran.json["submitted"] == ran.json["removed"] <= 400
    assert [job.job_id for job in client.jobs()] == [mine]
    assert [worker.name for worker in client.workers() if worker.status == "online"] != []
    assert not any(
        worker.name.startswith("rota-bench") and worker.status == "online"
        for worker in client.workers()
    )


@pytest.mark.slow
@pytest.mark.process
def test_an_interrupted_bench_removes_what_it_made(home: Path, client: Client) -> None:
    command = [sys.executable, "-m", "rota", "bench", "--seconds", "30", "--jobs", "1000000"]
    running = subprocess.Popen(command, cwd=home, stdout=-1, stderr=subprocess.PIPE, text=True)
    with running as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("read:"):
                break
        while not list(client.jobs(JobSearch(queue="rota-bench", limit=1))):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert list(client.jobs(JobSearch(queue="rota-bench", limit=1))) == []


@pytest.mark.slow
@pytest.mark.process
def test_a_queue_that_somebody_left_full_is_not_measured_but_cleaned(
    rota: Rota, client: Client
) -> None:
    job = {"name": "left", "queue": "rota-bench", "task": {"kind": "noop"}}
    client.submit(job | {"run_at": "2100-01-01T00:00:00Z"})
    refused = rota("bench", *SMALL)
    assert refused.status == 1
    assert "rota bench --clean" in refused.err
    assert rota("bench", "--clean").out == "removed 1 jobs\n"
    assert list(client.jobs(JobSearch(queue="rota-bench", limit=1))) == []


@pytest.mark.slow
@pytest.mark.process
def test_a_bench_with_a_submitters_token_names_the_roles_it_needs(
    rota: Rota, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = rota("tokens", "create", "--role", "submitter", "--name", "app", "--json").json
    monkeypatch.setenv("ROTA_URL", discover().url)
    monkeypatch.setenv("ROTA_TOKEN", made["token"])
    ran = rota("bench", *SMALL)
    assert ran.status == 1
    assert "has the role submitter" in ran.err
    assert "admin or operator" in ran.err


PAGE = """\
process_cpu_seconds_total 4.5
rota_append_seconds_bucket{le="0.001"} 3.0
rota_append_seconds_count 20.0
rota_append_seconds_sum 0.25
"""


def test_the_use_of_a_measurement_is_read_from_two_scrapes_of_metrics() -> None:
    before = spent("", 10.0, 1.0)
    after = spent(PAGE, 20.0, 2.0)
    assert cost(before, after) == Cost(
        server_cores=0.45, here_cores=0.1, append_share=0.025, append_ms=12.5
    )


@pytest.mark.parametrize(
    ("cores", "share", "here", "message"),
    [
        (0.9, 0.5, 0.1, "the server's processor: 90% of a core"),
        (0.3, 0.8, 0.1, "disk or database: 80% of the time in appends"),
        (0.3, 0.5, 1.0, "this machine that measures"),
        (0.3, 0.2, 0.1, "round trips"),
    ],
)
def test_the_busiest_resource_is_named_as_the_limit(
    cores: float, share: float, here: float, message: str
) -> None:
    used = Cost(server_cores=cores, here_cores=here, append_share=share, append_ms=1.0)
    assert limit_of_rate(used, held_back=False).startswith(message)
    assert "one token" in limit_of_rate(used, held_back=True)


def test_the_longest_part_of_a_call_is_named_first() -> None:
    used = Cost(server_cores=0.1, here_cores=0.1, append_share=0.5, append_ms=4.0)
    assert limit_of_call(6.0, 0.5, used).startswith("4.0 ms disk or database, 1.5 ms the server")


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([3.0, 1.0, 2.0], 99) == 3.0
