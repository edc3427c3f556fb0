"""Recipes of the cookbook, run against the real server and worker."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rota.sdk import Client
from rota.wire.jobs import JobView
from tests.process.cell import PATIENCE_S, Cell

pytestmark = pytest.mark.process

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "cookbook.md"
RECIPE = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```(.+?)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
RUN_BY_NOBODY = ("text", "python fastapi", "python django")


def recipes() -> dict[str, list[tuple[str, str]]]:
    """The blocks of each recipe, with their language."""
    text = PAGE.read_text(encoding="utf-8")
    return {title: BLOCK.findall(body) for title, body in RECIPE.findall(text)}


def block(title: str, language: str) -> str:
    (found,) = [code for name, code in recipes()[title] if name == language]
    return found


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[Cell]:
    with Cell(tmp_path, lease_ttl="10s") as one:
        one.up()
        yield one


@pytest.fixture
def client(cell: Cell) -> Client:
    return cell.client()


def sh(cell: Cell, script: str) -> str:
    """Runs a script as a reader would, with `rota` on the path; what it printed."""
    command = cell.folder / "bin" / "rota"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m rota "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    env = {**cell.env, "PATH": f"{command.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-ec", script], env=env, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def python(cell: Cell, code: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Runs a block; the names it leaves."""
    monkeypatch.setenv("ROTA_URL", cell.url)
    monkeypatch.setenv("ROTA_TOKEN", cell.token)
    space: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(code, str(PAGE), "exec"), space)
    return space


def jobs_named(client: Client, name: str) -> list[JobView]:
    return [job for job in client.jobs() if job.name == name]


def ended(cell: Cell, client: Client, job_id: str) -> JobView:
    return cell.until_status(client, job_id, "succeeded", "failed", "skipped", "cancelled")


def test_every_code_block_is_run_or_listed_as_not_run() -> None:
    run = {
        ("Replace cron", "sh"),
        ("Replace cron", "crontab"),
        ("ETL as a graph", "python"),
        ("Use the result of another job", "python"),
        ("A queue for GPUs", "sh"),
        ("One at a time for each customer", "python"),
        ("Bill exactly once", "python"),
        ("Keep secrets out of logs", "sh"),
    }
    found = {(title, name) for title, blocks in recipes().items() for name, _ in blocks}
    assert {one for one in found if one[1] not in RUN_BY_NOBODY} == run
    for title, language in (("From FastAPI", "python fastapi"), ("From Django", "python django")):
        compile(block(title, language), str(PAGE), "exec")


def test_a_schedule_takes_the_place_of_a_crontab(cell: Cell) -> None:
    shown = sh(cell, block("Replace cron", "sh"))
    assert "*/15 * * * *" in shown
    assert "python3 report.py" in shown


def test_a_crontab_line_fires_once_however_many_machines_have_it(
    cell: Cell, client: Client
) -> None:
    line = block("Replace cron", "crontab").strip()
    script = line.split(maxsplit=5)[5].replace("\\%", "%")
    # Both machines fire within the same minute.
    script = script.replace("$(date -u", "$(date -u -d 2026-11-01")
    first, second = sh(cell, script), sh(cell, script)
    assert first == second
    (job,) = jobs_named(client, "report")
    assert job.job_id == first.strip()
    assert job.retry.max_attempts == 4


def test_a_graph_runs_in_its_order(
    cell: Cell, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell.worker()
    space = python(cell, block("ETL as a graph", "python"), monkeypatch)
    assert space["loaded"].status == "succeeded"
    *before, alarm = (ended(cell, client, job_id) for job_id in space["job_ids"])
    assert [job.status for job in before] == ["succeeded"] * 5
    assert alarm.status == "skipped"
    starts = [job.started_at or "" for job in before]
    assert max(starts[:3]) <= starts[3] <= starts[4]


def test_a_job_finds_the_results_of_those_before_it(
    cell: Cell, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaving(result: str) -> dict[str, Any]:
        return {"kind": "command", "argv": ["sh", "-c", f"echo '{result}' > $ROTA_RESULT"]}

    jobs = [
        {"name": "rows", "ref": "rows", "task": leaving('{"count": 42}')},
        {"name": "rate", "ref": "rate", "task": leaving("0.5")},
        {"name": "sum", "task": {"kind": "noop"}, "dependencies": ["ref:rows", "ref:rate"]},
    ]
    cell.worker()
    last = client.submit_batch(jobs)[2]
    assert ended(cell, client, last).status == "succeeded"
    monkeypatch.setenv("ROTA_JOB_ID", last)
    monkeypatch.setenv("READ_TOKEN", cell.token)
    space = python(cell, block("Use the result of another job", "python"), monkeypatch)
    assert space["handed_on"]() == {"rows": {"count": 42}, "rate": 0.5}


def test_a_gpu_job_waits_for_the_machine_that_has_one(cell: Cell, client: Client) -> None:
    plain = cell.worker("plain", "--queue", "default")
    out = sh(cell, block("A queue for GPUs", "sh"))
    job_id = out.split()[-1]
    assert client.queue("gpu").max_workers == 8
    assert client.job(job_id).status == "queued"
    words = next(code for name, code in recipes()["A queue for GPUs"] if name == "text").split()
    cell.worker("cards", *words[words.index("--queue") :])
    assert ended(cell, client, job_id).status == "succeeded"
    assert client.logs(job_id) == b"training\n"
    assert not plain.ended()


def test_tenants_get_a_fair_share(
    cell: Cell, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell.worker()
    python(cell, block("One at a time for each customer", "python"), monkeypatch)
    jobs = [ended(cell, client, job.job_id) for job in jobs_named(client, "sync")]
    assert [job.status for job in jobs] == ["succeeded"] * 5
    times = sorted(
        (job.concurrency.key, job.started_at or "", job.finished_at or "")
        for job in jobs
        if job.concurrency is not None
    )
    for (key, _, end), (next_key, start, _) in pairwise(times):
        assert key != next_key or end <= start


def test_a_stale_execution_writes_no_bill(
    cell: Cell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    space = python(cell, block("Bill exactly once", "python"), monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROTA_FENCE", "2")
    space["main"]()
    monkeypatch.setenv("ROTA_FENCE", "1")
    with pytest.raises(SystemExit, match="newer"):
        space["main"]()
    database = sqlite3.connect(tmp_path / "bills.db")
    assert not space["bill"](database, 42, "2026-11", 5, 2)
    assert space["bill"](database, 42, "2026-11", 2499, 3)
    assert database.execute("SELECT * FROM bills").fetchall() == [(42, "2026-11", 2499, 3)]
    database.close()


def test_a_secret_is_masked_in_the_log(cell: Cell, client: Client) -> None:
    cell.worker()
    job_id = sh(cell, block("Keep secrets out of logs", "sh")).strip()
    assert ended(cell, client, job_id).status == "succeeded"
    assert client.logs(job_id) == b"token: ***\n"
