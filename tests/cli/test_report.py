"""Where jobs are to run, how many workers would do, and what jobs took, on the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rota.worker.agent import ResourceOverrides, WorkerConfig, registration
from rota.worker.machine import Machine
from tests.cli.conftest import Rota
from tests.sdk.fake_server import SmallServer


def submitted(server: SmallServer) -> Any:
    return json.loads(server.writes()[-1].body)


def test_placement_options_become_the_affinity_of_the_job(server: SmallServer, rota: Rota) -> None:
    ran = rota(
        *("submit", "--require", "zone=a", "--require", "zone=b", "--prefer", "disk=ssd"),
        *("--spread", "host", "--near-previous", "--place-wait", "10s", "--tolerate", "gpu"),
        *("--noop", "--name", "j"),
    )
    assert ran.status == 0, ran.err
    assert submitted(server)["affinity"] == {
        "require": {"zone": ["a", "b"]},
        "prefer": {"disk": ["ssd"]},
        "spread": "host",
        "near": "previous",
        "wait": 10,
        "tolerate": ["gpu"],
    }


def test_more_memory_next_time_is_part_of_the_retry(server: SmallServer, rota: Rota) -> None:
    options = ("--retries", "2", "--memory-factor", "1.5", "--memory-max", "8GB")
    ran = rota("submit", *options, "--noop", "--name", "j")
    assert ran.status == 0, ran.err
    retry = {"max_attempts": 3, "memory_factor": 1.5, "memory_max": 8_000_000_000}
    assert submitted(server)["retry"] == retry


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (("--require", "zone"), "not of the form key=value"),
        (("--place-wait", "3s"), "--place-wait needs --prefer, --spread or --near-previous"),
    ],
)
def test_contradictory_affinity_options_are_usage_errors(
    server: SmallServer, rota: Rota, options: tuple[str, ...], hint: str
) -> None:
    ran = rota("submit", *options, "--noop", "--name", "j")
    assert ran.status == 2
    assert hint in ran.err


def test_autoscale_shows_queues_kinds_and_one_sentence(server: SmallServer, rota: Rota) -> None:
    ran = rota("autoscale", "--target", "5m", "--queue", "default", "--cpu", "4")
    assert ran.status == 0, ran.err
    assert "5 workers would clear the backlog in 5m; 3 are online" in ran.out
    assert "4 cpu" in ran.out
    asked = server.seen[-1]
    assert (asked.one("target"), asked.one("queue"), asked.one("cpu")) == (
        "300.0",
        "default",
        "4.0",
    )
    assert rota("autoscale", "--json").json["workers"]["needed"] == 5


def test_the_report_shows_what_to_ask_for(server: SmallServer, rota: Rota) -> None:
    ran = rota("report", "waste", "--tenant", "default", "--since", "7d")
    assert ran.status == 0, ran.err
    assert "invoice" in ran.out
    assert "0.8 cpu, 480" in ran.out
    assert "of 40.00 requested cpu hours 28.50 were unused" in ran.out
    assert rota("report", "waste", "--json").json["items"][0]["name"] == "invoice"


def test_a_worker_is_shown_with_its_labels_and_taints() -> None:
    machine = Machine(2.0, 1 << 30, 1 << 30, 0, ("linux",))
    config = WorkerConfig(
        servers=["http://here"],
        resources=ResourceOverrides(),
        labels={"zone": "a"},
        only=("gpu",),
    )
    spec = registration(config, machine)
    assert spec.labels["zone"] == "a"
    assert spec.labels["host"]
    assert spec.only == ["gpu"]
    named = WorkerConfig(servers=["http://here"], labels={"host": "rack-7"})
    assert registration(named, machine).labels == {"host": "rack-7"}
