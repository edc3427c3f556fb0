"""Rota's side: an app, and how its functions are called; ROTA_URL and ROTA_TOKEN say where."""

from __future__ import annotations

import os

import bell

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
    """A millisecond of work."""
    bell.spin()


@app.job(cpu=CPU)
async def spin_async() -> None:
    """The same in a process that is shared."""
    bell.spin()


@app.job(cpu=CPU)
def ring() -> None:
    """Says that it runs."""
    bell.ring()


@app.job(cpu=CPU)
async def ring_async() -> None:
    """The same in a process that is shared."""
    bell.ring()


KINDS = (
    {"noop": noop, "spin": spin, "ring": ring}
    if LONELY
    else {"noop": noop_async, "spin": spin_async, "ring": ring_async}
)


def pour(kind: str, count: int) -> None:
    """In batches, as the SDK makes them."""
    KINDS[kind].submit_many(() for _ in range(count))


def call() -> None:
    """One."""
    KINDS["ring"].submit()


def recorded() -> int:
    """Jobs whose success is durable: the counter moves after the sync. Calls count too, once.

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
