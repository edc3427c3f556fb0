"""Rota's side: an app, and how its functions are called; ROTA_URL and ROTA_TOKEN say where."""

from __future__ import annotations

import os
import time

from rota import App
from rota.sdk.handles import Job

app = App()
NAME = os.environ.get("PEERS_FUNCTION", "add")


@app.job
def now() -> int:
    """When it runs."""
    return time.time_ns()


@app.job
def add(a: int, b: int) -> int:
    """Next to nothing."""
    return a + b


@app.job(cpu=0.01)
async def add_async(a: int, b: int) -> int:
    """The same where many may run at once in one process."""
    return a + b


def when() -> int:
    """By a function."""
    return now.submit().result()


def date() -> int:
    """By a task of kind command."""
    task = {"kind": "command", "argv": ["date", "+%s%N"]}
    job = app.client.submit({"name": "date", "task": task})
    app.client.wait(job.job_id)
    return int(app.client.logs(job.job_id))


def pour(count: int) -> list[Job[int]]:
    """In batches, as the SDK makes them."""
    function = add_async if NAME == "add_async" else add
    return function.submit_many((number, number) for number in range(count))


def recorded() -> int:
    """Jobs whose success is durable: the counter moves after the sync."""
    lines = app.client.metrics().splitlines()
    wanted = [
        line
        for line in lines
        if line.startswith("rota_jobs_finished_total{") and 'status="succeeded"' in line
    ]
    return int(sum(float(line.rpartition(" ")[2]) for line in wanted))


def result(handle: Job[int]) -> int:
    """From the server."""
    return handle.result()
