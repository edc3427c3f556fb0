"""`rota simulate`: what it takes, prints and refuses. No server is there."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Rota

LOG = """\
; MaxProcs: 4
11 0 -1 100 4 -1 -1 -1 200 -1 1 7 1 -1 -1 -1 -1 -1
12 10 -1 5 2 -1 -1 -1 5 -1 1 8 1 -1 -1 -1 -1 -1
13 20 -1 5 9 -1 -1 -1 5 -1 1 8 1 -1 -1 -1 -1 -1
"""
FIGURES = (
    *("jobs", "avg_wait_s", "p50_wait_s", "p95_wait_s", "max_wait_s", "avg_bounded_slowdown"),
    *("utilisation", "makespan_s", "preemptions", "decisions", "decisions_per_s", "peak_waiting"),
)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "small.swf.gz"
    path.write_bytes(gzip.compress(LOG.encode()))
    return str(path)


def test_a_log_is_replayed_on_the_machine_it_names(log: str, rota: Rota) -> None:
    ran = rota("simulate", "--swf", log, "--policy", "easy", "--json")
    assert ran.status == 0, ran.err
    assert ran.json["trace"] == "small.swf.gz"
    assert (ran.json["jobs"], ran.json["dropped"], ran.json["cpus"]) == (2, 1, 4)
    found = ran.json["policies"]["easy"]
    assert tuple(found) == FIGURES
    assert (found["jobs"], found["decisions"], found["max_wait_s"]) == (2, 2, 90)
    assert found["makespan_s"] == 105


def test_policies_stand_side_by_side(log: str, rota: Rota) -> None:
    ran = rota("simulate", "--swf", log, "--policy", "fcfs,easy,conservative,easy-sjf,default")
    assert ran.status == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0] == "small.swf.gz: 2 jobs (1 left out) on 4 cpus, load 10.25"
    assert [line.split()[0] for line in lines[2:7]] == [
        "fcfs",
        "easy",
        "conservative",
        "easy-sjf",
        "default",
    ]
    assert "cpus in use" in lines
    assert "█" in ran.out


def test_another_fleet_takes_what_the_log_could_not(log: str, rota: Rota) -> None:
    ran = rota("simulate", "--swf", log, "--cpus", "16", "--json")
    assert (ran.json["jobs"], ran.json["policies"]["default"]["max_wait_s"]) == (3, 0)
    ran = rota("simulate", "--swf", log, "--workers", "2", "--cpu", "2", "--json")
    assert (ran.json["jobs"], ran.json["dropped"], ran.json["workers"]) == (1, 2, 2)


def test_starts_are_written_by_the_names_of_the_log(log: str, rota: Rota, tmp_path: Path) -> None:
    out = tmp_path / "starts.csv"
    assert rota("simulate", "--swf", log, "--policy", "easy", "--starts", str(out)).status == 0
    assert out.read_text().splitlines() == ["job,start", "11,0", "12,100"]
    assert rota("simulate", "--swf", log, "--policy", "fcfs,easy", "--starts", str(out)).status == 0
    assert out.read_text().splitlines()[:2] == ["policy,job,start", "fcfs,11,0"]


def test_a_workflow_is_replayed(rota: Rota, tmp_path: Path) -> None:
    tasks = [
        {"id": "a", "runtimeInSeconds": 2.5, "parents": []},
        {"id": "b", "runtimeInSeconds": 3, "parents": ["a"]},
    ]
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"workflow": {"tasks": tasks}}))
    ran = rota("simulate", "--dag", str(path), "--cpus", "2", "--json")
    assert ran.json["shortest_makespan_s"] == 5.5
    assert ran.json["policies"]["default"]["makespan_s"] == 5.5
    assert ran.json["load"] is None


def test_jobs_that_ask_for_memory_are_said_to_be_left_out_where_there_is_none(
    rota: Rota, tmp_path: Path
) -> None:
    def job(number: int, **asked: int) -> dict[str, object]:
        moments = ("submitted_at", "started_at", "finished_at")
        times = {one: f"2026-01-31T09:00:0{n}Z" for n, one in enumerate(moments)}
        return {"job_id": str(number), "name": "j", "requirements": {"cpu": 1, **asked}, **times}

    path = tmp_path / "past.jsonl"
    lines = [{"rota_history": 1}, job(1), job(2, memory=1 << 20), job(3, memory=1 << 20)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    ran = rota("simulate", "--trace", str(path), "--cpus", "2", "--json")
    assert (ran.status, ran.json["jobs"]) == (0, 1)
    assert "2 jobs that asked for memory left out" in ran.err
    assert "add --memory SIZE" in ran.err
    ran = rota("simulate", "--trace", str(path), "--cpus", "2", "--memory", "1GiB", "--json")
    assert (ran.json["jobs"], ran.err) == (3, "")
    path.write_text("".join(json.dumps(line) + "\n" for line in (lines[0], lines[2])))
    ran = rota("simulate", "--trace", str(path), "--cpus", "2")
    assert (ran.status, ran.out) == (1, "")
    assert "1 job that asked for memory left out" in ran.err


def test_load_is_made_up_to_order(rota: Rota) -> None:
    ran = rota(
        *("simulate", "--synthetic", "jobs=300,load=0.8,run=5s,spread=0,cpu=1-2,tenants=3"),
        *("--workers", "3", "--cpu", "2", "--json"),
    )
    assert ran.status == 0, ran.err
    assert ran.json["load"] == pytest.approx(0.8, rel=0.2)
    assert ran.json["policies"]["default"]["jobs"] == 300


def test_a_log_is_pressed_together_to_a_load(log: str, rota: Rota) -> None:
    ran = rota("simulate", "--swf", log, "--load", "5", "--json")
    assert ran.json["load"] == pytest.approx(5)
    ran = rota("simulate", "--swf", log, "--pace", "2", "--json")
    assert ran.json["load"] == pytest.approx(10.25 / 2)


def test_what_was_recorded_stands_beside_what_would_be(rota: Rota, tmp_path: Path) -> None:
    path = tmp_path / "small.swf"
    path.write_text(LOG.replace("11 0 -1", "11 0 7").replace("12 10 -1", "12 10 300"))
    found = rota("simulate", "--swf", str(path), "--policy", "recorded,easy", "--json").json
    assert found["policies"]["recorded"]["max_wait_s"] == 300
    assert found["policies"]["recorded"]["makespan_s"] == 315
    assert found["policies"]["easy"]["max_wait_s"] == 90


def test_each_tenant_sees_what_a_policy_does_to_it(log: str, rota: Rota) -> None:
    options = ("simulate", "--swf", log, "--tenants", "user", "--policy", "easy", "--by-tenant")
    found = rota(*options, "--json").json["policies"]["easy"]["tenants"]
    assert {name: one["max_wait_s"] for name, one in found.items()} == {"t7": 0, "t8": 90}
    rows = [line.split()[:4] for line in rota(*options).out.splitlines()]
    assert ["t8", "easy", "1", "1m30s"] in rows


def test_shaken_runs_say_how_far_apart_they_are(log: str, rota: Rota) -> None:
    ran = rota("simulate", "--swf", log, "--shake", "30s", "--runs", "3", "--json")
    found = ran.json["policies"]["default"]
    assert (found["runs"], found["jobs"], found["deviation"]["jobs"]) == (3, 2, 0)
    shown = rota("simulate", "--swf", log, "--shake", "30s", "--runs", "3")
    assert "means over 3 shaken runs" in shown.out
    assert "±" in shown.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--cpus", "4"), "one of --swf, --dag, --trace and --synthetic"),
        (("--synthetic", "jobs=3"), "name the machines"),
        (("--synthetic", "jobs=3", "--cpus", "4", "--workers", "2"), "--cpus is one pool"),
        (("--synthetic", "jobs=3", "--cpu", "4"), "add --workers N"),
        (("--synthetic", "cpu=5", "--workers", "2", "--cpu", "4"), "fits no machine"),
        (("--synthetic", "colour=3", "--cpus", "4"), "'colour=3': write name=value"),
        (("--synthetic", "jobs=many", "--cpus", "4"), "'jobs=many'"),
        (("--synthetic", "jobs=0", "--cpus", "4"), "between 1 and 100,000,000"),
        (("--synthetic", "rate=1/s,load=1", "--cpus", "4"), "rate and load both set the pace"),
        (("--synthetic", "jobs=3", "--cpus", "4", "--policy", "best"), "no policy 'best'"),
        (("--synthetic", "jobs=3", "--cpus", "4", "--policy", "recorded"), "does not say when"),
        (("--synthetic", "jobs=3", "--cpus", "4", "--runs", "3"), "add --shake TIME"),
        (("--synthetic", "jobs=3", "--cpus", "4", "--shake", "1s", "--starts", "x"), "--starts"),
        (("--synthetic", "jobs=3", "--cpus", "4", "--pace", "1", "--load", "1"), "give one of"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_said_in_one_line(
    rota: Rota, options: tuple[str, ...], message: str
) -> None:
    ran = rota("simulate", *options)
    assert ran.status != 0
    assert message in ran.err.splitlines()[-1]


def test_a_broken_log_is_named_with_its_line(rota: Rota, tmp_path: Path) -> None:
    path = tmp_path / "bad.swf"
    path.write_text(LOG + "14 oops\n")
    ran = rota("simulate", "--swf", str(path))
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == f"rota: {path}, line 5: 2 fields, a job has 18\n"
