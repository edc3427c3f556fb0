"""Logs from end to end: live, floods, secrets, and their last lines."""

from __future__ import annotations

import re
import subprocess
import sys

import psutil
import pytest

from rota.wire.limits import JOB_LOG_BYTES
from tests.process.cell import Cell, shell

pytestmark = pytest.mark.process

FLOOD_BYTES = 60_000_000
MEMORY_MAX = 300 * 1024 * 1024
"""An agent with its libraries has some 60 MiB; one that kept the flood would have far more."""


def test_a_large_log_keeps_its_head_and_its_tail_and_names_the_gap(cell: Cell) -> None:
    cell.up()
    worker, client = cell.worker(), cell.client()
    lines = f"head -c {FLOOD_BYTES} /dev/zero | tr '\\0' x | fold -w 99"
    job = client.submit(shell(f"echo the head; {lines}; echo; echo the end; exit 3"))
    failed = cell.until_status(client, job.job_id, "failed", "succeeded")
    peak = psutil.Process(worker.pid).memory_info().rss
    assert failed.error["tail"].endswith("\nthe end")
    log = client.logs(job.job_id)
    assert len(log) <= JOB_LOG_BYTES
    assert log.startswith(b"the head\nxxx")
    assert log.endswith(b"x\nthe end\n")
    (gap,) = re.findall("\n\\[… ([\\d,]+) bytes left out …]\n", log.decode())
    marks = sum(len(mark.encode()) for mark in re.findall("\\[… .+ …]\n", log.decode()))
    printed = len("the head\n\nthe end\n") + FLOOD_BYTES + FLOOD_BYTES // 99
    assert abs(len(log) - marks + int(gap.replace(",", "")) - printed) <= 2
    assert peak < MEMORY_MAX


def test_a_log_is_followed_while_the_job_runs(cell: Cell) -> None:
    cell.up()
    cell.worker()
    gate = cell.folder / "gate"
    waits = f"while [ ! -e {gate} ]; do sleep 0.02; done"
    job = cell.client().submit(shell(f"printf 'begun without a line end'; {waits}; echo; echo end"))
    follower = subprocess.Popen(
        [sys.executable, "-m", "rota", "logs", "-f", job.job_id],
        env=cell.env,
        cwd=cell.folder,
        stdout=subprocess.PIPE,
    )
    with follower:
        assert follower.stdout is not None
        assert follower.stdout.read(24) == b"begun without a line end"
        # It has been read though the job is still in the middle of its line.
        gate.touch()
        assert follower.stdout.read() == b"\nend\n"
        assert follower.wait(30) == 0


def test_the_last_lines_come_first_if_asked_for(cell: Cell) -> None:
    cell.up()
    cell.worker()
    job = cell.client().submit(shell("seq 1 1000"))
    cell.until_status(cell.client(), job.job_id, "succeeded")
    assert cell.run("logs", "--tail", "2", job.job_id).stdout == "999\n1000\n"
    assert cell.run("logs", "-f", "-n", "1", job.job_id).stdout == "1000\n"
    assert cell.run("logs", "--tail", "0", job.job_id).stdout == ""


def test_secrets_are_masked_in_logs_errors_and_progress(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE_LICENCE", "L-1234-5678")
    cell.up()
    cell.worker("w", "--mask", "SITE_LICENCE", "--mask", "CITY")
    client = cell.client()
    script = (
        'echo "$API_TOKEN L-1234-5678 $CITY $STREET"; printf "%.8s" "$API_TOKEN"; sleep 0.3;'
        ' printf "%s\\n" "${API_TOKEN#????????}"; echo "0.5 with $API_TOKEN" > "$ROTA_PROGRESS";'
        " sleep 0.3; exit 4"
    )
    env = {"API_TOKEN": "s3cr3t-token-value", "CITY": "Lisboa", "STREET": "Rua Augusta"}
    job = client.submit(
        {"name": "leaky", "task": {"kind": "command", "argv": ["sh", "-c", script], "env": env}}
    )
    failed = cell.until_status(client, job.job_id, "failed")
    log = "*** *** *** Rua Augusta\n***\n"
    assert client.logs(job.job_id).decode() == log
    assert failed.error["tail"] + "\n" == log
    execution = client.execution(str(failed.execution_id))
    assert "s3cr3t" not in str(execution)
    assert "s3cr3t" not in str(failed.progress)


def test_logs_of_any_bytes_are_returned_unchanged(cell: Cell) -> None:
    cell.up()
    cell.worker()
    client = cell.client()
    job = client.submit(shell("printf '\\033[31mred\\033[0m \\377\\376\\000 \\342\\202'"))
    cell.until_status(client, job.job_id, "succeeded")
    assert client.logs(job.job_id) == b"\x1b[31mred\x1b[0m \xff\xfe\x00 \xe2\x82"
