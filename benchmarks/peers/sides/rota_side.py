"""Rota's side: an app, and how its functions are called; ROTA_URL and ROTA_TOKEN say where."""

from __future__ import annotations

import os
import time

from rota import App
from rota.sdk.handles import Job

app = App()
POURED = os.environ.get("PEERS_FUNCTION", "add")
LIVE = ("pending", "queued", "running", "cancelling")


@app.job
def now() -> int:
    """When it runs."""
    return time.time_ns()


@app.job
def add(a: int, b: int) -> int:
    """Next to nothing."""
    return a + b


@app.job(cpu=0.125)
def add_16(a: int, b: int) -> int:
    """The same, asking for so little that 16 fit on two cpus, each in a process of its own."""
    return a + b


@app.job(cpu=0.01)
async def add_async(a: int, b: int) -> int:
    """The same where two hundred share one process."""
    return a + b


FUNCTIONS = {function.name: function for function in (add, add_16, add_async)}


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
    calls = ((number, number) for number in range(count))
    return FUNCTIONS[POURED].submit_many(calls)


def recorded() -> int:
    """Jobs whose success is durable: the counter moves after the sync.

    Writing down all figures costs the server milliseconds, so it is asked for only when memory,
    which is ahead of the journal by a moment, says that nothing is left to do.
    """
    stats = app.client.stats()
    live = sum(stats.jobs[state] for state in LIVE)
    if live:
        return stats.submitted_total - live
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
