"""Rota's side: an app, and how its functions are called; ROTA_URL and ROTA_TOKEN say where."""

from __future__ import annotations

import os

import start_signal

from rota import App

app = App()
CPU = float(os.environ.get("PEERS_CPU", "1"))
LONELY = os.environ.get("PEERS_ASYNC") is None
LIVE = ("pending", "queued", "running", "cancelling")


@app.job(cpu=CPU)
def noop() -> None:
    """Nothing."""


@app.job(cpu=CPU)
async def noop_async() -> None:
    """The same where two hundred share one process."""


@app.job(cpu=CPU)
def spin() -> None:
    start_signal.spin()


@app.job(cpu=CPU)
async def spin_async() -> None:
    start_signal.spin()


@app.job(cpu=CPU)
def pickup() -> None:
    start_signal.send()


@app.job(cpu=CPU)
async def pickup_async() -> None:
    start_signal.send()


KINDS = (
    {"noop": noop, "spin": spin, "pickup": pickup}
    if LONELY
    else {"noop": noop_async, "spin": spin_async, "pickup": pickup_async}
)


def submit_jobs(kind: str, count: int) -> None:
    KINDS[kind].submit_many(() for _ in range(count))


def call() -> None:
    KINDS["pickup"].submit()


def recorded() -> int:
    """Counts jobs whose success is durable. Calls count, too, once.

    Writing all metrics costs the server milliseconds, so they are read only when the statistics
    from memory, which is slightly ahead of the journal, say that no job is left.
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
