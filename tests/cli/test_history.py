"""`rota history export`, and the replay of what it wrote."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import msgspec
import pytest

from rota.wire.jobs import JobView
from tests.cli.conftest import Rota
from tests.sdk.fake_server import SmallServer


@pytest.fixture
def past(server: SmallServer) -> SmallServer:
    """A cell in which three jobs ran, one of them after another, and one never did."""
    server.add_worker("w1")
    first = ran_for(server, server.add_job("load", tenant="shop"), 10)
    ran_for(server, server.add_job("sum", dependencies=[first.job_id], priority=3), 20)
    ran_for(server, server.add_job("mail", "queued", queue="mail"), 5)
    server.add_job("waits")
    return server


def ran_for(server: SmallServer, job: JobView, seconds: int) -> JobView:
    """The job ran from 2025-10-09T09:00:00Z for so long."""
    server.move(job.job_id, "succeeded", started_at="2025-10-09T09:00:00Z")
    done = msgspec.structs.replace(
        server.jobs[job.job_id], finished_at=f"2025-10-09T09:00:{seconds:02}Z"
    )
    server.jobs[job.job_id] = done
    return done


def test_the_past_is_written_one_line_a_job_the_cell_first(past: SmallServer, rota: Rota) -> None:
    ran = rota("history", "export")
    assert ran.status == 0, ran.err
    opening, *jobs = [json.loads(line) for line in ran.out.splitlines()]
    assert opening["rota_history"] == 1
    assert opening["workers"][0]["resources"]["cpu"] == 4
    assert opening["workers"][0]["resources"]["memory"] == 8 << 30
    assert [job["name"] for job in jobs] == ["mail", "sum", "load"]
    assert jobs[1]["dependencies"] == [jobs[2]["job_id"]]
    assert "wrote 3 jobs" in ran.err


def test_a_run_for_an_instant_of_long_ago_came_when_it_was_made(
    past: SmallServer, rota: Rota
) -> None:
    made = past.add_job("backfilled")
    ran_for(past, made, 5)
    past.jobs[made.job_id] = msgspec.structs.replace(
        past.jobs[made.job_id], scheduled_at="1990-01-01T00:00:00.000Z"
    )
    newest = json.loads(rota("history", "export").out.splitlines()[1])
    assert newest["name"] == "backfilled"
    assert newest["submitted_at"].startswith(made.created_at.removesuffix("Z"))


def test_nothing_of_what_jobs_carry_is_written(past: SmallServer, rota: Rota) -> None:
    past.add_job("secret", payload={"password": "xyzzy"}, labels={"note": "xyzzy"})
    ran_for(past, past.add_job("done", payload={"password": "xyzzy"}), 5)
    assert "xyzzy" not in rota("history", "export").out


def test_an_export_is_replayed_on_the_workers_that_were_there(
    past: SmallServer, rota: Rota, tmp_path: Path
) -> None:
    out = tmp_path / "past.jsonl.gz"
    printed = rota("history", "export", "--after", "7d", "--out", str(out), "--json")
    assert printed.json == {"file": str(out), "jobs": 3}
    assert gzip.decompress(out.read_bytes()).startswith(b'{"rota_history":1')
    ran = rota("simulate", "--trace", str(out), "--json")
    assert ran.status == 0, ran.err
    assert (ran.json["jobs"], ran.json["workers"], ran.json["cpus"]) == (3, 1, 4)
    assert ran.json["policies"]["default"]["makespan_s"] == pytest.approx(30, abs=0.1)


def test_filters_reach_the_server(past: SmallServer, rota: Rota) -> None:
    rota("history", "export", "--queue", "mail", "--tenant", "shop", "--before", "1h")
    query = next(one.query for one in past.seen if one.path.startswith("/jobs"))
    assert query["status"] == ["succeeded,failed,cancelled"]
    assert (query["queue"], query["tenant"]) == (["mail"], ["shop"])
    assert "created_before" in query


def test_json_is_for_exports_into_a_file(past: SmallServer, rota: Rota) -> None:
    ran = rota("history", "export", "--json")
    assert (ran.status, ran.out) == (2, "")
    assert "--out" in ran.err


def test_a_file_that_cannot_be_written_is_said(
    past: SmallServer, rota: Rota, tmp_path: Path
) -> None:
    ran = rota("history", "export", "--out", str(tmp_path / "no" / "where.jsonl"))
    assert ran.status == 1
    assert "cannot write" in ran.err


def test_the_past_is_replayed_under_other_policies_tenant_by_tenant(
    past: SmallServer, rota: Rota
) -> None:
    ran = rota("history", "replay", "--after", "7d", "--policy", "recorded,fcfs,default", "--json")
    assert ran.status == 0, ran.err
    assert list(ran.json["policies"]) == ["recorded", "fcfs", "default"]
    assert sorted(ran.json["policies"]["fcfs"]["tenants"]) == ["default", "shop"]
    shown = rota("history", "replay", "--policy", "fcfs,default").out
    assert shown.startswith("the past: 3 jobs on 4 cpus")
    assert ["shop", "default", "1"] in [line.split()[:3] for line in shown.splitlines()]


def test_a_replay_without_workers_says_what_to_do(server: SmallServer, rota: Rota) -> None:
    ran = rota("history", "replay")
    assert ran.status == 1
    assert "no worker is there" in ran.err


def plan_file(folder: Path, text: str) -> str:
    """A policy in a file."""
    path = folder / "new.toml"
    path.write_text(text)
    return str(path)


def test_a_plan_says_what_would_change_and_sets_nothing(
    past: SmallServer, rota: Rota, tmp_path: Path
) -> None:
    file = plan_file(tmp_path, 'preset = "easy"\nbeta = 3\nhalf_life = "12h"\n')
    ran = rota("policy", "plan", file, "--json")
    assert ran.status == 0, ran.err
    assert ran.json["changes"]["beta"] == {"now": 0.0, "then": 3.0}
    assert ran.json["changes"]["half_life"] == {"now": 86_400, "then": 43_200}
    assert "order" not in ran.json["changes"]
    assert {one.method for one in past.seen} == {"GET"}


def test_a_plan_replays_the_past_as_it_was_as_it_is_and_as_it_would_be(
    past: SmallServer, rota: Rota, tmp_path: Path
) -> None:
    file = plan_file(tmp_path, 'preset = "fcfs"\n')
    ran = rota("policy", "plan", file, "--replay", "7d", "--json")
    assert ran.status == 0, ran.err
    assert list(ran.json["policies"]) == ["recorded", "now", "then"]
    shown = rota("policy", "plan", file, "--replay", "7d").out.splitlines()
    assert ["backfill", "easy", "none"] in [line.split() for line in shown]
    assert ["shop", "then", "1"] in [line.split()[:3] for line in shown]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("beta = -1\n", "is not a policy: .*beta"),
        ("colour = 1\n", "is not a policy: .*colour"),
        ("beta = \n", "is not a policy: "),
        ('preset = "best"\n', "is not a policy: .*preset"),
    ],
)
def test_a_file_that_is_no_policy_is_told(
    server: SmallServer, rota: Rota, tmp_path: Path, text: str, message: str
) -> None:
    ran = rota("policy", "plan", plan_file(tmp_path, text))
    assert ran.status == 1
    assert re.search(message, ran.err)


def test_a_policy_of_a_file_is_simulated_beside_others(rota: Rota, tmp_path: Path) -> None:
    file = plan_file(tmp_path, 'preset = "easy"\nbeta = 3\n')
    options = ("--synthetic", "jobs=20", "--cpus", "2", "--policy", f"easy,{file}", "--json")
    assert list(rota("simulate", *options).json["policies"]) == ["easy", file]
